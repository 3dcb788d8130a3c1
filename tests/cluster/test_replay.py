"""A scheduler that is told what a log says that another was told decides the same, and not without an input."""

import json
from math import inf

import pytest
from adversaries.live_scheduler import LIVE_POLICIES, SHARING, SimulatedCluster
from adversaries.messages import NetworkFaults
from coding import with_code
from commands import command, refused
from hypothesis import given
from hypothesis import strategies as st

from apples.cluster import (
    LAST,
    MAX_BYTES,
    AttemptPhase,
    EndOrder,
    HostAnswer,
    HostLease,
    HostLeft,
    HostLoad,
    HostPreference,
    JobReport,
    JobRunnerAnswer,
    JobSubmission,
    LiveJobState,
    LiveScheduler,
    QueueLimits,
    RunTimeEstimate,
    SchedulerLog,
    Timeouts,
    replayed,
    report_input,
    report_of,
    with_inputs,
    written,
)
from apples.errors import UsageError
from apples.io import MAX_RECORD_BYTES, encode_record, parse
from apples.resources import read_host_list
from apples.scheduling import (
    FirstFit,
    JobKind,
    NodeLoad,
    PaybackMigration,
    Requeue,
    Resize,
    SchedulingPolicy,
    Start,
)

SHORT = NetworkFaults(stop=150.0, partitions=3, crashes=False)
ALL_BUT_LOADS = (
    "submit", "cancel", "drain", "resume", "job", "left", "run_time", "answer", "term", "look", "pass", "pace",
    "speeds",
)  # fmt: skip


def read(directory):
    return parse((directory / "journal").read_bytes())[0]


def without(records, verb):
    """Return a log whose inputs lack a kind."""
    return [
        {**one, "inputs": [each for each in one["inputs"] if each[1] != verb]} if "inputs" in one else one
        for one in records
    ]  # fmt: skip


@pytest.mark.more
@pytest.mark.parametrize("policy", LIVE_POLICIES)
def test_what_is_decided_against_the_adversary_is_decided_again_by_who_is_told_the_same(
    policy, tmp_path
):
    cluster = SimulatedCluster(3, tmp_path, 12, SHORT, policy)
    cluster.run()  # which replays its logs, one for each start of the scheduler
    assert cluster.replayed >= 8


@pytest.fixture(scope="module")
def histories(tmp_path_factory):
    """Three logs of easy backfilling on allocated nodes and others, each with what it is replayed with."""
    found = []
    for seed in (28, 32, 33):
        directory = tmp_path_factory.mktemp("history")
        cluster = SimulatedCluster(seed, directory, 15, SHORT, "easy")
        cluster.run()
        found.append((read(directory), cluster.policy, cluster.prefer))
    return found


def test_every_decision_of_a_log_is_made_again(histories):
    for records, policy, prefer in histories:
        found = replayed(records, policy, prefer)
        assert found.parting is None
        assert found.alike == found.decisions > 5


@pytest.mark.parametrize("verb", ALL_BUT_LOADS)
def test_no_kind_of_input_can_be_left_out(histories, verb):
    assert any(
        replayed(without(records, verb), policy, prefer).parting is not None
        for records, policy, prefer in histories
    )


class Monitored:
    """A scheduler of three hosts that moves jobs by their loads, and by who talks to whom, for more users."""

    def __init__(self, directory):
        self.policy, self.prefer = PaybackMigration(), HostPreference({})
        self.nodes = {host: NodeLoad(host, owner_first=True) for host in ("ada", "bob", "cleo")}
        self.one = LiveScheduler(
            SchedulerLog.open(directory), self.policy, [*self.nodes], 0.0, 1e9, "0badcafe".format,
            Timeouts(batch_window=0.0, min_pass_interval=0.0), prefer=self.prefer, nodes=self.nodes, shared=True,
        )  # fmt: skip
        self.now = 0.0

    def say(self, *reports, seconds=1.0):
        for report in reports:
            self.one.report(self.now, report)
        self.now += seconds
        self.one.tick(self.now)
        return self.one.turn()

    def loads(self, **wanting):
        return [HostLoad(host, 1, {"": wanting.get(host, 0.0)}) for host in self.nodes]


@pytest.mark.parametrize("verb", ["load", "messages", "shepherd"])
def test_loads_messages_and_who_is_there_are_inputs(tmp_path, verb):
    m = Monitored(tmp_path)
    m.one.submit(0.0, JobSubmission(2, 2, JobKind.MALLEABLE, 500.0, user="ada"))
    m.say(*m.loads())
    (start, *_) = m.say(JobRunnerAnswer("ada", True))
    on, other = start.hosts
    talk = ((on, other, 1e6),)
    where = start.job, start.attempt
    m.say(
        JobReport(*where, AttemptPhase.RUNNING, hosts=start.hosts, iteration=1, iterations=90, messages=talk)
    )  # fmt: skip
    m.say(*m.loads(**{on: 3.0}), seconds=60.0)
    m.say(*m.loads(**{on: 3.0}), seconds=60.0)
    m.one.log.close()
    records = read(tmp_path)
    found = replayed(records, m.policy, m.prefer, m.nodes)
    assert found.parting is None
    assert [one["do"] for one in found.made if one["do"] in {"start", "resize"}] == [
        "start",
        "resize",
    ]
    assert replayed(without(records, verb), m.policy, m.prefer, m.nodes).parting is not None


class Apart(SchedulingPolicy):
    """Grows jobs to two nodes, and queues a job again whose nodes send each other messages."""

    looks_at = frozenset({"loads"})

    def decide(self, cluster):
        for job in cluster.queue:
            yield Start(job.id, job.minimum)
        for running in cluster.running.values():
            if running.messages:
                yield Requeue(running.job.id)
            elif running.job.malleable and running.nodes == 1:
                yield Resize(running.job.id, 2)


@pytest.mark.parametrize("nodes", [1, 2])
def test_messages_of_a_job_are_replayed_after_its_speeds_and_after_a_restart(tmp_path, nodes):
    def begun():
        return LiveScheduler(
            SchedulerLog.open(tmp_path), Apart(), ["ada", "bob"], 0.0, 1e9, "0badcafe".format,
            Timeouts(batch_window=0.0, min_pass_interval=0.0), prefer=HostPreference({}),
        )  # fmt: skip

    def say(**more):
        one.report(one.now, JobReport(1, 1, AttemptPhase.RUNNING, **more))
        one.tick(one.now)
        return one.turn()

    one = begun()
    one.submit(0.0, JobSubmission(nodes, 2, JobKind.MALLEABLE, 100.0))
    one.tick(0.0)
    one.turn()
    measured = {"speeds": {"ada": 10.0}, "messages": (("ada", "bob", 1e6),)}
    if nodes == 1:
        (resize,) = say(hosts=("ada",), **measured)
        assert resize.hosts == ("ada", "bob")
        say(hosts=resize.hosts, epoch=1, **measured)
    else:
        say(hosts=("ada", "bob"))
        one.log.close()
        one = begun()
        say(hosts=("ada", "bob"), **measured)
    assert one.job(1).state is LiveJobState.ENDING
    one.log.close()
    assert replayed(read(tmp_path), Apart(), HostPreference({})).parting is None


def test_that_a_start_was_heard_of_after_a_restart_is_an_input(tmp_path):
    """On hosts that are shared it is then given up where one of them is lost, and no sooner."""

    def begun(lost):
        return LiveScheduler(
            SchedulerLog.open(tmp_path), SHARING, ["ada", "bob"], 0.0, 1e9, "0badcafe".format,
            Timeouts(batch_window=0.0), lost, cpus=4,
        )  # fmt: skip

    one = begun({})
    one.submit(0.0, JobSubmission(2, 2, JobKind.MALLEABLE, 100.0))
    one.tick(1.0)
    (start,) = one.turn()
    one.log.close()
    one = begun({"bob": "no topology daemon"})
    one.tick(60.0)
    assert EndOrder not in map(type, one.turn())
    one.report(61.0, JobReport(start.job, start.attempt, AttemptPhase.STARTING))
    one.tick(70.0)
    assert EndOrder in map(type, one.turn())
    one.log.close()
    found = replayed(read(tmp_path), SHARING)
    assert found.parting is None
    assert "ending" in {record["do"] for record in found.made}


def test_when_ended_jobs_moved_to_the_history_is_no_difference(tmp_path):
    log = SchedulerLog.open(tmp_path)
    one = LiveScheduler(
        log, FirstFit(), ["ada"], 0.0, 1e9, "0badcafe".format, limits=QueueLimits(ended=2)
    )
    for number in range(1, 9):
        one.submit(float(number), JobSubmission(1, 1))
        one.cancel(float(number), number)
        one.tick(number + 0.5)
        one.turn()
    log.close()
    records = read(tmp_path)
    assert "forget" in {record["do"] for record in records}
    assert replayed(records, FirstFit()).parting is None


def test_replay_has_the_limits_of_the_queue(tmp_path):
    log = SchedulerLog.open(tmp_path)
    limits = QueueLimits(waiting=20_000, waiting_of_one=2000, reserved=10)
    one = LiveScheduler(log, FirstFit(), ["ada"], 0.0, 1e9, "0badcafe".format, limits=limits)
    for number in range(1500):
        one.submit(float(number), JobSubmission(1, 1, user="uid:1"), "", operator=False)
    one.turn()
    log.close()
    assert replayed(read(tmp_path), FirstFit()).parting is None


def test_a_log_that_does_not_say_how_it_was_begun_is_refused_in_a_line(histories):
    records, policy, prefer = histories[0]
    old = [one for one in without(records, "") if one["do"] != "begun"]
    with pytest.raises(UsageError, check=with_code("log-not-replayable")):
        replayed(old, policy, prefer)


def test_inputs_without_a_record_are_written_when_there_are_many(tmp_path):
    log = SchedulerLog.open(tmp_path)
    one = LiveScheduler(log, FirstFit(), ["ada"], 0.0, 1e9, "0badcafe".format)
    for k in range(300):
        one.report(float(k), HostAnswer("ada", "no answer" * (k % 2 == 0)))
        one.turn()
    log.close()
    records = read(tmp_path)
    assert [record["do"] for record in records].count("hear") == 1
    assert replayed(records, FirstFit()).parting is None


REPORTS = st.one_of(
    st.builds(HostLeft, st.integers(1, 9), st.integers(1, 9), st.text(), st.just(LAST)),
    st.builds(HostAnswer, st.text(), st.text()),
    st.builds(HostLease, st.text(), st.sampled_from([inf, -inf, 0.0, 1.5]), st.text()),
    st.builds(RunTimeEstimate, st.integers(1, 9), st.none() | st.floats(0, 9)),
    st.builds(JobRunnerAnswer, st.text(), st.booleans()),
    st.builds(
        JobReport, st.integers(1, 9), st.integers(1, 9), st.sampled_from(AttemptPhase), st.integers(0, 9),
        st.booleans(), st.lists(st.text()).map(tuple), state=st.text(), reason=st.text(),
        exit_code=st.none() | st.integers(0, 9), asks=st.none() | st.tuples(st.integers(), st.integers()),
    ),
)  # fmt: skip


@given(REPORTS)
def test_a_report_is_read_from_the_log_as_it_was(report):
    verb, *words = json.loads(json.dumps(written(report_input(report)), allow_nan=False))
    assert report_of(verb, words) == report


@given(st.lists(st.integers(0, 2 * MAX_BYTES), max_size=12), st.integers(0, 2))
def test_no_record_becomes_too_long_to_be_read_and_inputs_keep_their_order(sizes, count):
    inputs = [[k, "x" * size] for k, size in enumerate(sizes)]
    records = [{"do": f"d{k}"} for k in range(count)]
    found = with_inputs(records, inputs)
    assert [one["do"] for one in found if one["do"] != "hear"] == [one["do"] for one in records]
    kept = [each for one in found for each in one.get("inputs", ())]
    assert kept == [one for one in inputs if len(json.dumps(one)) <= MAX_BYTES]
    assert max((len(encode_record(1, one)) for one in found), default=0) < MAX_RECORD_BYTES / 2


HOSTS = """
[[host]]
name = "ada"

[[host]]
name = "bob"

[[host]]
name = "cleo"
"""


@pytest.fixture
def decided(tmp_path):
    """Return the directory of a scheduler that started its first job, then its third ahead of its second."""
    (tmp_path / "hosts.toml").write_text(HOSTS)
    prefer = HostPreference.of(read_host_list(tmp_path / "hosts.toml"))
    one = LiveScheduler(
        SchedulerLog.open(tmp_path), FirstFit(), ["ada", "bob", "cleo"], 0.0, 1e9, lambda: "0badcafe",
        Timeouts(batch_window=0.0, min_pass_interval=0.0), prefer=prefer,
        started_with={"policy": "first_fit", "options": {}, "hosts": HOSTS},
    )  # fmt: skip
    now = 0.0
    for hosts in (2, 3, 1):
        one.submit(now, JobSubmission(hosts, hosts, requested=100.0))
        now += 1.0
        one.tick(now)
        one.turn()
    one.cancel(now, 2)
    one.turn()
    one.log.close()
    return tmp_path


def test_replay_prints_each_decision_with_reason_and_runner_up(decided):
    document = json.loads(
        command("apples", "queue", "--replay", "--json", "--scheduler", decided).out
    )
    assert (document["logged"], document["reproduced"], document["difference"]) == (2, 2, "")
    first, second = document["decisions"]
    assert (first["decision"], first["job"], first["runner_up"]) == ("start", "local.1", "")
    assert first["reason"] == "first in the queue, 3 of 3 hosts free"
    assert second["job"] == "local.3"
    assert second["reason"] == "number 2 in the queue, 1 of 3 hosts free; started ahead of local.2"
    assert second["runner_up"].startswith("local.2 waits: needs 3 hosts, ")
    text = command("apples", "queue", "--replay", "--scheduler", decided)
    assert (text.code, "reproduces 2 of 2 decisions" in text.out) == (0, True)


def test_replay_shows_real_times_after_a_restart(tmp_path):
    """The clock of a restarted scheduler began before the restart."""

    def started(hosts, wall):
        return LiveScheduler(
            SchedulerLog.open(tmp_path), FirstFit(), hosts, 0.0, wall, lambda: "0badcafe",
            Timeouts(batch_window=0.0, min_pass_interval=0.0),
            started_with={"policy": "first_fit", "options": {}, "hosts": HOSTS},
        )  # fmt: skip

    started(["ada"], 1e9).log.close()
    restarted = started(["ada"], 1e9 + 100)
    restarted.submit(5.0, JobSubmission(1, 1, requested=100.0))
    restarted.tick(7.0)
    restarted.turn()
    restarted.log.close()
    document = json.loads(
        command("apples", "queue", "--replay", "--json", "--scheduler", tmp_path).out
    )
    (start,) = document["decisions"]
    assert (document["since"], start["time"]) == (1e9 + 100, 1e9 + 107)


def test_replay_of_a_changed_log_ends_with_exit_code_6(decided):
    journal = decided / "journal"
    records = read(decided)
    for record in records:
        if record["do"] == "start" and record["job"] == 3:
            record["is"]["hosts"] = ["ada"]
    journal.write_bytes(b"".join(encode_record(k + 1, record) for k, record in enumerate(records)))
    done = command("apples", "queue", "--replay", "--scheduler", decided)
    assert done.code == 6
    assert "first difference: the log has" in done.out


def test_log_without_its_settings_is_refused(tmp_path):
    LiveScheduler(SchedulerLog.open(tmp_path), FirstFit(), ["ada"], 0.0, 1e9, "0badcafe".format)
    failure = refused("apples", "queue", "--replay", "--scheduler", tmp_path)
    assert failure["code"] == "log-not-replayable"
