"""What is recorded of a run while it goes on, and what is left of that whatever ends it."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from apples.agent import AdaptiveExecution, PerformanceContract
from apples.errors import ApplicationError, UsageError
from apples.jobs import (
    EventLog,
    JobStatus,
    RunRecord,
    RunRecorder,
    Supervisor,
    document_so_far,
    job_text,
    read_events,
    recorded,
    run_record,
    store,
)
from apples.launch import (
    MAX_RANKS,
    ArrayMessages,
    HostsChanged,
    HostTimes,
    MessagesSent,
    Outcome,
    Progress,
)


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Ran:
    """An execution that is over."""

    def __init__(self, outcome=None, changes=()):
        self.found = outcome
        self.changes = changes
        self.array_messages = ArrayMessages()

    def monitor(self):
        return iter(())

    def outcome(self):
        return self.found


def progress(k, iterations=100):
    hosts = (HostTimes("ada", 0.05 * k, 0.01 * k), HostTimes("bob", 0.04 * k, 0.02 * k, 0.01))
    return Progress(k, iterations, 0.1 * k, hosts)


def progress_of(recorder, execution, progress):
    """Yield the progress of an execution, each message once it is recorded."""
    with recorder.recording(execution) as record:
        for at in progress:
            record(at)
            yield at


def test_the_first_progress_is_in_the_record_at_once_and_more_of_it_once_a_second():
    now = [100.0]
    job = store.create({}, "")
    recorder, shown = RunRecorder(job, pytest.fail, clock=lambda: now[0]), []
    recorder.running()
    for at in progress_of(recorder, Ran(), map(progress, range(1, 9))):
        shown.append((at.iteration, job.record()["iteration"]))
        now[0] += 0.3
    assert shown == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 5), (6, 5), (7, 5), (8, 5)]


def test_status_says_that_the_application_has_ended_while_its_blueprint_runs():
    recorder, heard = RunRecorder(store.create({}, ""), pytest.fail), []
    contract = PerformanceContract(1.0, {})
    ran = Ran(Outcome(50, 1.0, 0.0, ()))
    execution = AdaptiveExecution(ran, None, contract, on_unattended_end=heard.append)
    recorder.running()
    with recorder.job.supervising(), recorder.recording(execution):
        execution.on_unattended_end("the application has ended; b.py:mine still runs")
        record = recorder.job.record()
        assert (record["reason"], record["iteration"]) == (heard[0], 50)
        text = job_text(JobStatus.of(recorder.job, ask=False))
        assert text.endswith(f"  {heard[0]}\nnext: apples cancel {recorder.id}")
    recorder.over("finished", "", 0)
    assert recorder.job.record()["reason"] == ""


def test_the_messages_of_many_ranks_are_not_recorded_from_rank_to_rank_nor_put_together():
    recorder, ran = RunRecorder(store.create({}, ""), pytest.fail, 0.0), Ran()
    sizes = []

    class Counting(ArrayMessages):
        def matrix(self):
            sizes.append(self.ranks)
            return super().matrix()

    ran.array_messages = Counting()
    for ranks in (24, MAX_RANKS):
        hosts = ("ada", ranks - 1), ("bob", 1)
        ran.array_messages.hear(MessagesSent(hosts, ((0, ranks - 1, 5, 400),), iteration=0))
        ran.array_messages.hear(MessagesSent(hosts, ((0, ranks - 1, 5, 400),), iteration=4))
        assert list(progress_of(recorder, ran, [progress(4)]))
        record = recorder.job.record()
        assert record["iteration_messages"] == [["ada", "bob", 100.0]]
        assert len(record["messages"]["ranks"]) == 24
    assert sizes == [24]


class Decided:
    """A move that was decided on."""

    def __init__(self, host):
        self.host = host

    def document(self):
        return {"moved": True, "hosts": [self.host]}


def test_who_sees_where_a_run_is_sees_the_move_that_brought_it_there():
    recorder = RunRecorder(store.create({}, ""), pytest.fail, 0.0)
    ran = Ran()
    ran.array_messages, ran.monitor = ArrayMessages(), tuple
    run = AdaptiveExecution(ran, None, PerformanceContract(1.0, {}))

    def moving():
        for epoch, host in enumerate(["far", "bob"], 1):
            ran.changes = [change(epoch, (host, 9))]
            run.decisions = [*run.decisions, Decided(host)]
            yield progress(10 * epoch)

    for _ in progress_of(recorder, run, moving()):
        record = recorder.job.record()
        assert record["redistributions"][-1]["hosts"] == record["hosts"]
    assert [one["hosts"] for one in record["redistributions"]] == [["far"], ["bob"]]


def watch(recorder, count, outcome=None):
    recorder.running()
    for _ in progress_of(recorder, Ran(outcome), map(progress, range(1, count + 1))):
        pass


def ended_by(error, plan, count, talk=pytest.fail):
    """Record a run that ends so after so many reports of progress; return its recorder."""
    try:
        with recorded({}, talk) as recorder:
            recorder.job.plan.write_text(json.dumps(plan))
            recorder.event("planned")
            watch(recorder, count)
            raise error
    except type(error):
        return recorder


def names(record):
    return [event["event"] for event in record.events]


def test_a_run_to_its_end_is_recorded_event_by_event():
    outcome = Outcome(100, 10.0, 0.5, (HostTimes("ada", 5.0, 1.0),))
    with recorded({"grid": 9}, pytest.fail) as recorder:
        recorder.event("planned")
        watch(recorder, 3, outcome)
        recorder.finished({"schema": "apples.run/1", "verified": True, "execution": None})
    record = run_record(recorder.id)
    assert names(record) == [
        *("planned", "running", "progress", "progress", "progress", "measured", "verified"),
        "ended",
    ]
    assert [e["hosts"][1]["communicate_seconds"] for e in record.events[2:5]] == [0.02, 0.04, 0.06]
    assert (record.state, record.exit_code, record.document["verified"]) == ("finished", 0, True)
    assert (record.summary["kind"], record.summary["measured_seconds"]) == ("run", 10.0)
    order = store.record(recorder.id).order()
    assert (order["grid"], order["command"][0]) == (9, "apples")
    assert store.jobs() == []
    assert not store.record(recorder.id).reserve.exists()


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (KeyboardInterrupt(), "cancelled", 130),
        (ApplicationError("rank 0 fell"), "failed", 5),
        (SystemExit(3), "failed", 1),
    ],
)
def test_what_ends_a_run_is_recorded_with_all_that_was_measured(error, state, code):
    told = []
    recorder = ended_by(error, {}, 4, told.append)
    record = run_record(recorder.id)
    assert record.state == state
    assert record.events[-1]["exit_code"] == code
    assert names(record).count("progress") == 4
    assert [recorder.id in line for line in told] == ([True] if code == 130 else [])


def test_of_bad_input_there_is_no_record():
    with pytest.raises(UsageError), recorded({}, pytest.fail):
        raise UsageError("unknown", code="blueprint-unknown")
    assert store.records() == []


KILLED = """
import os, signal, sys
from test_recording import Ran, progress, progress_of
from apples.jobs import recorded
with recorded({}, print) as recorder:
    recorder.running()
    for at in progress_of(recorder, Ran(), map(progress, range(1, 9))):
        if at.iteration == 5:
            print(recorder.id, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_measured_survives_the_death_of_the_agent():
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", KILLED]
    done = subprocess.run(command, env=here, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    record = run_record(done.stdout.strip())
    assert (record.state, record.reason) == ("failed", store.COMMAND_LOST)
    assert [e["iteration"] for e in record.events if e["event"] == "progress"] == [1, 2, 3, 4, 5]


def test_what_cannot_be_recorded_is_said_once_and_the_run_goes_on():
    told = []
    with recorded({}, told.append) as recorder:
        recorder.job.events.symlink_to("/dev/full")
        watch(recorder, 5)
    recorder.job.events.unlink()  # it would be read without end
    (line,) = told
    assert f"{recorder.job.events}: {os.strerror(errno.ENOSPC)}" in line
    assert run_record(recorder.id).state == "finished"


@pytest.mark.parametrize("path", ["/dev/null/state", "/proc/1/state"])
def test_a_record_that_cannot_be_made_is_a_warning(path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", path)
    told = []
    with recorded({}, told.append) as recorder:
        watch(recorder, 2, Outcome(2, 0.2, 0.1, ()))
        recorder.finished({"verified": None})
        assert recorder.logging(told.append)("a line of the program's") is None
    assert (recorder.id, recorder.events()) == (None, [])
    warned, line = told
    assert path.split("/")[1] in warned
    assert line == "a line of the program's"


def cut(path):
    """Write events to a file that may not become longer than 400 bytes; return what was refused."""
    log = EventLog(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
    refused = 0
    for k in range(40):
        try:
            log.append({"event": "running", "k": k})
        except OSError:
            refused += 1
    return refused


def test_a_line_that_does_not_fit_is_not_there_at_all(tmp_path):
    path = tmp_path / "events"
    child = os.fork()
    if not child:
        os._exit(cut(path))
    refused = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = path.read_text()
    assert text.endswith("\n")
    assert [json.loads(line)["k"] for line in text.splitlines()] == list(range(40 - refused))
    assert 0 < refused < 40


@pytest.mark.parametrize("limit", [{"max_progress": 50}, {"max_progress_bytes": 1650}])
def test_the_progress_of_a_long_run_is_thinned_out_and_reaches_to_its_end(limit, tmp_path):
    seconds = iter(range(10**6))
    log = EventLog(tmp_path / "events", partial(next, seconds), **limit)
    for k in range(1000):
        if k % 100 == 0:
            log.append({"event": "moved", "k": k})
        log.append_progress({"event": "progress", "k": k})
    events = read_events(log.path)
    told = [event["k"] for event in events if event["event"] == "progress"]
    assert [event["k"] for event in events if event["event"] == "moved"] == [*range(0, 1000, 100)]
    assert 20 <= len(told) <= 51
    assert told == sorted(told)
    assert told[0] == 0
    assert told[-1] > 950
    assert max(b - a for a, b in pairwise(told)) <= 64


def test_a_damaged_line_of_events_harms_no_other(tmp_path):
    path = tmp_path / "events"
    path.write_bytes(b'{"event": "planned"}\n{"ev\n[]\n\xff\n{"event": "ended"}\n{"event": "cut')
    assert [event["event"] for event in read_events(path)] == ["planned", "ended"]


def test_log_of_a_run_keeps_its_first_and_last_lines_and_states_the_gap():
    told = []
    with recorded({}, told.append) as recorder:
        log = recorder.logging(told.append, max_bytes=1000)
        for k in range(1000):
            log(f"line {k}")
            assert recorder.job.log.stat().st_size <= 1000
    lines = recorder.job.log.read_text().splitlines()
    assert len(told) == 1000
    assert (lines[:2], lines[-2:]) == (["line 0", "line 1"], ["line 998", "line 999"])
    (gap,) = [line for line in lines if not line.startswith("line")]
    assert gap.startswith("note: lines were removed here")


def test_log_of_a_detached_job_keeps_the_reason_of_its_failure(monkeypatch):
    """The supervisor's standard error is the log, as after `apples run --detach`."""
    job = store.create({}, "")
    log = job.log.open("a")
    monkeypatch.setattr(sys, "stderr", log)

    def fails():
        for k in range(1000):
            supervisor.log(f"line {k}")
        raise ApplicationError("rank 1 fell", code="program-failed")

    supervisor = Supervisor(job, lambda _: None, fails, max_log_bytes=1000)
    with job.supervising():
        supervisor.run()
    log.close()
    lines = job.log.read_text().splitlines()
    assert job.log.stat().st_size <= 1000
    assert (lines[0], lines[-1]) == ("line 0", "apples: rank 1 fell")
    assert len([line for line in lines if line.startswith("note: lines were removed")]) == 1


def test_of_a_run_without_a_result_there_is_what_was_measured():
    strips = [
        {"host": h, "rows": r, "compute_seconds": 0.04, "communicate_seconds": 0.01}
        for h, r in (("ada", 60), ("bob", 40))
    ]
    plan = {"chosen": {"iteration_seconds": 0.08, "strips": strips}}
    recorder = ended_by(ApplicationError("rank 1 fell"), plan, 20)
    document = document_so_far(run_record(recorder.id))
    assert (document["state"], document["reason"]) == ("failed", "rank 1 fell")
    execution = document["execution"]
    assert execution["iterations"] == 20
    assert execution["measured_seconds"] == pytest.approx(2.0)
    assert execution["predicted_seconds"] == pytest.approx(1.6)
    assert execution["off"] == pytest.approx(0.25)
    ada, bob = execution["hosts"]
    assert (ada["rows"], ada["wait_per_iteration"]) == (60, None)
    assert ada["compute_per_iteration"] == pytest.approx(0.05)
    assert bob["wait_per_iteration"] == pytest.approx(0.01 / 20)


def test_of_a_run_that_measured_nothing_there_is_its_plan():
    recorder = ended_by(ApplicationError("it did not start"), {"chosen": {}}, 0)
    document = document_so_far(run_record(recorder.id))
    assert (document["execution"], document["rejection"]) == (None, "it did not start")


def test_a_result_that_no_json_can_hold_does_not_cost_the_run():
    told = []
    with recorded({}, told.append) as recorder:
        recorder.finished({"execution": {"off": float("nan")}, "verified": None})
    (line,) = told
    assert "JSON" in line
    assert run_record(recorder.id).state == "finished"


def test_a_state_that_no_json_can_hold_does_not_cost_the_run():
    told = []
    with recorded({}, told.append) as recorder:
        recorder.note(predicted_seconds=float("nan"))
        recorder.note(predicted_seconds=1.0)
    (line,) = told
    assert "JSON" in line
    assert run_record(recorder.id).state == "finished"


def test_a_run_whose_answer_nobody_reads_is_finished_all_the_same():
    with suppress(BrokenPipeError), recorded({}, pytest.fail) as recorder:
        recorder.finished({"execution": None, "verified": None})
        raise BrokenPipeError(32, "Broken pipe", "stdout")
    found = run_record(recorder.id)
    assert (found.state, found.reason, found.exit_code) == ("finished", "", 0)


@pytest.mark.parametrize(
    ("verified", "state", "code"), [(True, "finished", 0), (False, "failed", 6)]
)
def test_how_a_run_ended_is_its_results_to_say_whatever_comes_after(verified, state, code):
    told = []
    with suppress(KeyboardInterrupt), recorded({}, told.append) as recorder:
        recorder.finished({"execution": None, "verified": verified})
        raise KeyboardInterrupt
    record = run_record(recorder.id)
    assert (record.state, record.exit_code) == (state, code)
    assert names(record).count("ended") == 1


def change(epoch, *members):
    return HostsChanged(1000.0 + epoch, epoch, 10 * epoch, members, 0.5, {"wait": 0.1})


def test_every_change_of_a_jobs_hosts_is_recorded_once_with_when_it_was():
    job = store.create({}, "heat")
    ran = Ran(Outcome(4, 0.4, 0.1, ()), [])
    with job.supervising():
        recorder = RunRecorder(job, pytest.fail)
        recorder.note(hosts=["ada"], rows=[9], epoch=0)
        for at in progress_of(recorder, ran, map(progress, range(1, 5))):
            if at.iteration == 1:
                ran.changes += [change(k, ("ada", 9 - k), ("bob", k)) for k in (1, 2, 4)]
            if at.iteration == 3:  # it was asked where it is, and knows of one more
                recorder.state.update(hosts=["cleo"], rows=[9], epoch=6)
                ran.changes.append(change(5, ("bob", 9)))
            if at.iteration == 4:  # after the program's last word of progress
                ran.changes.append(change(6, ("cleo", 9)))
        recorder.over("finished", "", 0)
    moved = [event for event in RunRecord.of(job).events if event["event"] == "moved"]
    assert [(one["epoch"], one["at"], one["iteration"]) for one in moved] == [
        (k, 1000.0 + k, 10 * k) for k in (1, 2, 4, 5, 6)
    ]
    assert (moved[2]["hosts"], moved[2]["rows"]) == (["ada", "bob"], [5, 4])
    assert (moved[2]["seconds"], moved[2]["phases"]) == (0.5, {"wait": 0.1})
    assert (recorder.state["hosts"], recorder.state["epoch"]) == (["cleo"], 6)


def test_only_what_is_over_is_removed_and_the_oldest_first():
    kept = []
    with recorded({}, pytest.fail) as running:
        for k in range(4):
            with recorded({}, pytest.fail) as recorder:
                recorder.job.log.write_bytes(bytes(1000))
            os.utime(recorder.job.folder / "job.json", (1000.0 + k, 1000.0 + k))
            os.utime(recorder.job.folder / "order.json", (1000.0 + k, 1000.0 + k))
            kept.append(recorder.id)
        os.utime(running.job.folder / "job.json", (1.0, 1.0))
        os.utime(running.job.folder / "order.json", (1.0, 1.0))
        assert store.prune(100.0, 10**9, 1101.5)[0] == kept[:2]
        sizes = sum(one.size() for one in store.records())
        removed, freed = store.prune(1e9, sizes - 1, 5000.0)
        assert removed == kept[2:3]
        assert freed > 1000
        assert store.prune(0.0, 0, 5000.0)[0] == kept[3:]
        assert [one.id for one in store.records()] == [running.id]
    assert not list(store.folder().glob(f"{store.GONE}*"))
