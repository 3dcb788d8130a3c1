"""The end of the connection to a host is the loss of that host alone, and nothing of the job stays there."""

import errno
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import relay
from strikes import Strike, strike_in_loop
from waiting import until

from apples.io import encode
from apples.launch import HostSpec, descendants, hostd, mark
from apples.launch import heartbeat as peer
from apples.malleable import (
    CONNECTION_ENDED,
    FIRST_REPORT_SECONDS,
    MPIEXEC_ENDED,
    HostShare,
    JobEnded,
    JobFile,
    JobManager,
    ProcessGroup,
    ResizeDone,
    ResizeRefused,
    RolledBack,
    ScriptedControl,
    SupervisorConnection,
    rehearse,
    run_command,
)
from apples.malleable import supervisor as node

COUNTING = Path(__file__).parent / "programs_mpi" / "counting.py"
SLOTS = {"ada": 1, "bob": 2, "eve": 1}
GROWN = ["ada", "bob", "eve"]
NO_PROCESSES = "no more processes"
STAGES = ("idle", "start", "merge", "wait", "prefetch", "change", "leave")


def far(spec):
    """Return the host as one that a connection leads to, but for ada, where the agent is."""
    if spec.host == "ada":
        return spec
    reach = (sys.executable, relay.__file__, sys.executable)
    named = {"python": "{python}", "bind": "{apples.launch.rank_wrapper}", "mpiexec": "{mpiexec}"}
    return replace(spec, reach=reach, directory=str(Path.cwd()), cpus=(), **named)


def shares(*hosts):
    return [HostShare(host) for host in hosts]


def rehearsed(tmp_path, maps, strike, words=()):
    """Run a job on hosts that connections lead to; return its notices once it has ended with the right total."""
    struck, far_supervisors = [], []

    def commands():
        yield from (shares(*hosts) for hosts in maps)
        yield shares("ada")
        (tmp_path / "stop").touch()

    def note(engine):
        group = engine.groups.groups.get(strike.host)
        if group and not (group.gone or strike.struck):
            far_supervisors[:] = [pid for pid, _ in descendants(group.pid)] or far_supervisors

    def watch(manager):
        strike_in_loop(manager, [strike], struck.append, note)

    argv = (sys.executable, str(COUNTING), "60", "0.01", str(tmp_path / "stop"), *words)
    run = rehearse(argv, SLOTS, shares("ada", "bob"), commands(), place=far, watch=watch)
    assert struck == [strike]
    assert run.ended == JobEnded("finished"), run.notices
    totals = [line for line in run.lines if line.startswith("total")]
    assert totals == ["total right on ada"], run.lines
    assert far_supervisors
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in far_supervisors))
    return run.notices[:-1]


def losses(notices):
    return [one for one in notices if isinstance(one, RolledBack)]


@pytest.mark.mpi
@pytest.mark.slow
def test_a_killed_connection_costs_its_host_and_the_others_go_on_with_the_same_result(tmp_path):
    """A whole malleable job with a rollback: several seconds."""
    (rolled,) = losses(rehearsed(tmp_path, [GROWN], Strike("idle", "bob", "connection")))
    assert (rolled.lost, rolled.code) == (("bob",), "host-lost")
    assert rolled.reason == CONNECTION_ENDED


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_a_connection_that_ends_in_any_stage_costs_no_more_than_its_host(stage, tmp_path):
    """A whole malleable job with a rollback: several seconds."""
    strike = Strike(stage, "bob", "connection")
    words = ["prefetch"] if stage == "prefetch" else []
    notices = rehearsed(tmp_path, [GROWN, ["ada", "bob"]], strike, words)
    (rolled,) = losses(notices)
    assert (rolled.lost, rolled.reason) == (("bob",), CONNECTION_ENDED)


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("stage", ["merge", "wait", "change"])
def test_a_connection_to_a_newcomer_that_ends_is_a_refusal(stage, tmp_path):
    """A whole malleable job with a refused change: several seconds."""
    refused, *done = rehearsed(tmp_path, [GROWN], Strike(stage, "eve", "connection"))
    assert isinstance(refused, ResizeRefused)
    assert refused.reason == f"eve: {CONNECTION_ENDED}"
    assert [type(one) for one in done] == [ResizeDone]


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(("victim", "how"), [("connection", "STOP"), ("far supervisor", "KILL")])
def test_a_stopped_connection_and_a_killed_far_supervisor_are_a_lost_host(victim, how, tmp_path):
    """A whole malleable job with a rollback: several seconds."""
    (rolled,) = losses(rehearsed(tmp_path, [GROWN], Strike("idle", "bob", victim, how)))
    assert (rolled.lost, rolled.code) == (("bob",), "host-lost")


# ------------------------------------------------------- where there can be no more processes


@pytest.fixture
def no_processes(monkeypatch):
    def refuse():
        raise OSError(errno.EAGAIN, NO_PROCESSES)

    with monkeypatch.context() as context:
        context.setattr(os, "fork", refuse)
        yield context


def group_without_a_process(folder, selector, lost):
    place = HostSpec("ada", 1, ("x",), sys.executable, "x", "/bin/false")
    job = JobFile("few", str(folder), (place,), (HostShare("ada"),), {})
    group = ProcessGroup(
        job, place, 1, selector, folder, lambda *_: None, lambda _, why: lost.append(why)
    )
    group.start()
    assert (group.pid, group.gone, lost) == (0, False, [])
    return group


def test_a_host_for_which_no_process_can_be_had_at_first_is_started_when_there_can(
    tmp_path, no_processes
):
    lost = []
    with selectors.DefaultSelector() as selector:
        group = group_without_a_process(tmp_path, selector, lost)
        now = time.monotonic()
        for second in range(3):
            group.check(now + second)
            assert group.pid == 0
        no_processes.undo()
        group.check(now + 3)
        until(lambda: [key.data() for key, _ in selector.select(0.1)] and lost)
        (why,) = lost
        assert why.startswith(MPIEXEC_ENDED)  # the supervisor got all orders
        assert "(1)" in why
        group.kill()


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize("wanted", [True, False])
def test_a_host_for_which_no_process_can_be_had_for_long_is_lost_and_one_that_is_to_end_has_ended(
    tmp_path, wanted
):
    lost = []
    with selectors.DefaultSelector() as selector:
        group = group_without_a_process(tmp_path, selector, lost)
        if not wanted:
            group.end()
        group.check(time.monotonic() + (FIRST_REPORT_SECONDS + 1 if wanted else 0))
        assert (group.gone, group.phase) == (True, "empty")
        assert [NO_PROCESSES in why for why in lost] == [True] * wanted
        group.kill()


# ------------------------------------------------------- a supervisor at the far end of a connection


@pytest.fixture
def supervisor():
    """A remote supervisor at the far end of a relay."""
    words = [sys.executable, relay.__file__, sys.executable]
    words += ["-I", "-m", node.__name__]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == hostd.HELLO
            yield process
        finally:
            process.kill()


def far_supervisor(process):
    """Return the supervisor at the far end of a relay."""
    ((found, _),) = (entry for entry in descendants(process.pid) if entry[1] == process.pid)
    return found


def start(process, script, directory):
    """Have a supervisor start a shell's script in place of a launcher."""
    order = {"order": "start", "group": 1, "ranks": 1, "argv": ["sh", "-c", script], "commits": ""}
    launch = json.dumps({"directory": str(directory), "hosts": []})
    process.stdin.write(encode({**order, "files": {"launch": launch}, "environment": {}}))
    process.stdin.flush()


def reports(process):
    return map(json.loads, process.stdout)


def lines_of(process, event):
    return (line for one in reports(process) if one["report"] == event for line in one["lines"])


def test_nothing_stays_on_a_host_whose_connection_is_killed(supervisor, tmp_path):
    found = far_supervisor(supervisor)
    start(supervisor, "pwd >&2; echo $APPLES_LAUNCH >&2; sleep 1000 & sleep 1000", tmp_path)
    said = lines_of(supervisor, "error")
    folder = Path(next(line for line in said if "/apples-" in line)).parent
    until(lambda: len(list(descendants(found))) == 3)
    below = [pid for pid, _ in descendants(found)]
    assert folder.exists()
    supervisor.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in (found, *below)))
    assert not folder.exists()


def test_a_host_that_is_given_back_reports_everything_before_it_ends(supervisor, tmp_path):
    found = far_supervisor(supervisor)
    supervisor.stdin.write(encode({"order": "release"}))
    output = "$(dirname $APPLES_LAUNCH)/output"
    start(supervisor, f"seq 300000 > {output}; touch {tmp_path / 'done'}", tmp_path)
    # The pipes to this process are full, and the launcher's end is not reported yet.
    until(lambda: list(descendants(found)))
    received = list(reports(supervisor))
    lines = [line for one in received if one["report"] == "output" for line in one["lines"]]
    assert lines == [str(number) for number in range(1, 300001)]
    assert [one["report"] for one in received if one["report"] != "alive"][-1] == "empty"
    assert supervisor.wait(60) == 0


def test_supervisor_forwards_no_output_while_the_manager_wants_none(supervisor, tmp_path):
    supervisor.stdin.write(encode({"order": "pause", "paused": True}))
    start(supervisor, "echo printed > $(dirname $APPLES_LAUNCH)/output; exec sleep 1000", tmp_path)
    assert [next(reports(supervisor))["report"] for _ in range(4)] == ["alive"] * 4
    supervisor.stdin.write(encode({"order": "pause", "paused": False}))
    supervisor.stdin.flush()
    assert next(lines_of(supervisor, "output")) == "printed"


class ToCommand(SupervisorConnection):
    """A connection to a command in place of a supervisor."""

    def __init__(self, selector, argv):
        self.argv = argv
        super().__init__(selector, "", is_far=False)

    def be_supervisor(self):
        return run_command(self.argv)

    def handle(self, report):
        pass

    def on_end(self, why):
        pass


def test_orders_larger_than_a_pipe_are_sent_as_fast_as_they_are_read(tmp_path):
    """The loop writes whenever there is room, without a report or a ping in between."""
    text = "x" * (4 << 20)
    with selectors.DefaultSelector() as selector:
        copy = ["/bin/sh", "-c", f"cat > {tmp_path / 'orders'}"]
        connection = ToCommand(selector, copy)
        connection.order("start", text=text)
        connection.dismiss()
        until(lambda: [key.data() for key, _ in selector.select(0.1)] and connection.gone, 60)
        connection.wait()
        assert not selector.get_map()
    assert json.loads((tmp_path / "orders").read_text()) == {"order": "start", "text": text}


class UnreadOutput(ScriptedControl):
    """Cancels the job once its manager has paused the output that it could not write, and reads it then."""

    def __init__(self, orders, reading):
        super().__init__([])
        self.orders, self.reading, self.received = orders, reading, b""
        self.reader = threading.Thread(target=self.read)
        self.deadline = time.monotonic() + 120

    def read(self):
        while data := os.read(self.reading, 1 << 16):
            self.received += data

    def cancelled(self):
        if self.reader.is_alive():
            return True
        paused = self.orders.exists() and '"pause"' in self.orders.read_text()
        if paused or time.monotonic() > self.deadline:
            os.kill(self.manager.engine.groups["ada"].pid, signal.SIGKILL)
            self.reader.start()
        return False


def test_manager_whose_output_is_not_read_serves_on_and_pauses_it(tmp_path):
    line = "x" * (1 << 16)
    report = json.dumps({"report": "output", "lines": [line]})
    (tmp_path / "reports").write_bytes(hostd.HELLO + f"{report}\n".encode() * 40)
    script = f"cat {tmp_path / 'reports'}; exec cat 3>&1 > {tmp_path / 'orders'}"
    place = HostSpec("ada", 1, ("x",), "{python}", "x", "x", reach=("/bin/sh", "-c", script))
    job = JobFile("unread", str(tmp_path), (place,), (HostShare("ada"),), {})
    reading, writing = os.pipe()
    control = UnreadOutput(tmp_path / "orders", reading)
    control.manager = JobManager(job, control, tmp_path, output=writing, events=False)
    control.manager.run()
    os.close(writing)
    control.reader.join()
    os.close(reading)
    assert '"pause"' in (tmp_path / "orders").read_text()
    assert control.received == f"{line}\n".encode() * 40


def test_a_supervisor_whose_manager_is_silent_for_long_ends_though_its_connection_does_not():
    run = "from apples.malleable import supervisor as it; from apples.launch import heartbeat"
    run += "; heartbeat.SILENCE_SECONDS = heartbeat.PATIENCE_SECONDS = 0.5; it.main()"
    words = [sys.executable, "-c", run]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == hostd.HELLO
        assert process.wait(60) == 0
        assert {one["report"] for one in reports(process)} == {"alive"}


def test_program_supervisor_ends_if_a_far_manager_is_silent():
    run = "import runpy, sys; from apples.launch import heartbeat"
    run += "; heartbeat.SILENCE_SECONDS = heartbeat.PATIENCE_SECONDS = 0.5; sys.argv[1:] = ['far']"
    run += "; runpy.run_module('apples.malleable.migration.on_host', run_name='__main__')"
    with subprocess.Popen(
        [sys.executable, "-c", run], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == hostd.HELLO
        assert process.wait(60) == 0


def test_a_far_host_that_is_silent_while_its_ssh_runs_is_lost_only_after_a_minute(tmp_path):
    line = ("/bin/sh", "-c", f'printf \'{hostd.HELLO.decode()}{{"report":"alive"}}\\n\'; exec cat')
    place = HostSpec("ada", 1, ("x",), "{python}", "x", "x", reach=line)
    job = JobFile("silent", str(tmp_path), (place,), (HostShare("ada"),), {})
    lost = []
    with selectors.DefaultSelector() as selector:
        group = ProcessGroup(
            job, place, 1, selector, tmp_path, lambda *_: None, lambda _, why: lost.append(why)
        )
        until(lambda: [key.data() for key, _ in selector.select(0.1)] and group.reported)
        now = time.monotonic()
        for second in range(int(peer.PATIENCE_SECONDS) - 1):
            group.check(now + second)
        assert not lost
        for second in range(int(peer.PATIENCE_SECONDS), int(peer.PATIENCE_SECONDS) + 5):
            group.check(now + second)
        assert [why.endswith("does not answer") for why in lost] == [True]


@pytest.mark.more
def test_an_attempt_ends_what_those_before_it_left_on_a_host_and_no_other_jobs():
    names = [("far", "1"), ("far", "2"), ("other", "1")]
    words = [sys.executable, "-I", "-m", node.__name__]

    def started(job, attempt):
        process = subprocess.Popen(
            [*words, mark(job), attempt], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == hostd.HELLO
        assert json.loads(process.stdout.readline())["report"] == "alive"
        return process

    first, again, other = (started(f"{job}{os.getpid()}", attempt) for job, attempt in names)
    assert first.wait(60) == 0
    assert (again.poll(), other.poll()) == (None, None)
    for process in (first, again, other):
        process.communicate()
        assert process.returncode == 0
