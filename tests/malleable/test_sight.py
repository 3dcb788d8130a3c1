"""A job outlives its connections: one that ends is taken up again, and no word is lost or comes twice."""

import contextlib
import errno
import itertools
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import relay
import sshd as server
from hypothesis import given
from hypothesis import strategies as st
from sites import masters
from strikes import AFTER, Strike, strike_in_loop
from waiting import until

from apples.io import LineBuffer, ResumableStream, encode
from apples.launch import HostSpec, descendants, mark, sharing
from apples.launch import heartbeat as peer
from apples.launch import ssh_command as ssh
from apples.malleable import (
    BIRTH_SECONDS,
    MPIEXEC_ENDED,
    OUT_OF_SIGHT,
    OWN_LOGIN,
    RECONNECTED,
    SUPERVISOR_ENDED,
    HostShare,
    JobEnded,
    JobFile,
    ProcessGroup,
    ReconfigurationEngine,
    ResizeDone,
    ResizeRefused,
    RolledBack,
    process_groups,
    rehearse,
    remote_supervisor,
    successor,
)
from apples.malleable import supervisor as node

COUNTING = Path(__file__).parent / "programs_mpi" / "counting.py"
SLOTS = {"ada": 1, "bob": 2, "eve": 1}
TAKEN_UP = RECONNECTED.partition("{seconds")[0].format(host="{}")
NO_PROCESSES = "no more processes"
STAGES = ("idle", "start", "meet", "wait", "ahead", "change", "leave")


def far(spec):
    """Return the host as one that a connection leads to, but for ada, where the agent is."""
    if spec.host == "ada":
        return spec
    reach = (sys.executable, relay.__file__, sys.executable)
    named = {"python": "{python}", "bind": "{apples.launch.rank_wrapper}", "mpiexec": "{mpiexec}"}
    directory = str(Path.cwd())
    return replace(spec, reach=reach, again=reach, directory=directory, cpus=(), **named)


def shares(*hosts):
    return [HostShare(host) for host in hosts]


def rehearsed(tmp_path, maps, strikes=(), watch=lambda _: None, words=(), place=far):
    """Run a job on hosts that connections lead to; return what came of it once it has ended right."""
    struck = []

    def commands():
        yield from (shares(*one) for one in maps)
        yield shares("ada")
        (tmp_path / "stop").touch()

    def watched(manager):
        strike_in_loop(manager, list(strikes), struck.append)
        watch(manager)

    argv = (sys.executable, str(COUNTING), "60", "0.01", str(tmp_path / "stop"), *words)
    run = rehearse(argv, SLOTS, shares("ada", "bob"), commands(), place=place, watch=watched)
    assert struck == list(strikes), [str(one) for one in strikes if not one.struck]
    assert run.ended == JobEnded("finished"), run.notices
    totals = [line for line in run.lines if line.startswith("total")]
    assert totals == ["total right on ada"], run.lines
    return run.notices[:-1]


def assert_was_out_of_sight(host, strikes, capfd):
    """Check that a host was told to be back; who is struck again before it is back is told once."""
    assert 1 <= capfd.readouterr().err.count(TAKEN_UP.format(host)) <= len(strikes)


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_a_connection_that_ends_in_any_stage_costs_the_job_nothing(tmp_path, capfd):
    grown = ["ada", "bob", "eve"]
    strikes = [Strike(stage, "bob", "connection") for stage in STAGES]
    notices = rehearsed(tmp_path, [grown, ["ada", "bob"]] * 4, strikes, words=["ahead"])
    assert [type(one) for one in notices] == [ResizeDone] * 9
    assert_was_out_of_sight("bob", strikes, capfd)


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_a_connection_that_ends_while_a_change_is_taken_back_costs_the_job_nothing(
    tmp_path, capfd
):
    lost = Strike("change", "eve", "rank")
    strikes = [lost, *(Strike(stage, "bob", "connection") for stage in AFTER)]
    refused, *done = rehearsed(tmp_path, [["ada", "bob", "eve"]], strikes)
    assert isinstance(refused, ResizeRefused)
    assert refused.reason.startswith("eve: ")
    assert [type(one) for one in done] == [ResizeDone]
    assert_was_out_of_sight("bob", AFTER, capfd)


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_a_newcomer_out_of_sight_joins_all_the_same(tmp_path, capfd):
    strikes = [Strike(stage, "eve", "connection") for stage in ("meet", "wait", "change")]
    maps = [["ada", "bob", "eve"], ["ada", "bob"]] * 3
    notices = rehearsed(tmp_path, maps, strikes)
    assert [type(one) for one in notices] == [ResizeDone] * 7
    assert_was_out_of_sight("eve", strikes, capfd)


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_a_connection_that_stands_still_is_given_up_and_not_its_host(tmp_path, capfd):
    strikes = [Strike("idle", "bob", "connection", "STOP")]
    maps = [["ada", "bob", "eve"]]
    notices = rehearsed(tmp_path, maps, strikes)
    assert [type(one) for one in notices] == [ResizeDone] * 2
    assert TAKEN_UP.format("bob") in capfd.readouterr().err


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_a_supervisor_that_ended_behind_its_connection_is_a_lost_host_at_once(tmp_path):
    strikes = [Strike("idle", "bob", "far supervisor")]
    rolled, *done = rehearsed(tmp_path, [["ada", "bob", "eve"]], strikes)
    assert isinstance(rolled, RolledBack)
    assert (rolled.lost, rolled.code) == (("bob",), "host-lost")
    assert rolled.reason == SUPERVISOR_ENDED
    assert [type(one) for one in done] == [ResizeDone]


@pytest.mark.more
@pytest.mark.mpi
@pytest.mark.slow
def test_a_host_that_nobody_reaches_any_more_is_lost_when_the_hold_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr(peer, "HOLD_SECONDS", 4.0)

    folders = []

    def unreachable(manager):
        before = manager.engine.tick

        def tick():
            bob = manager.engine.groups.groups.get("bob")
            if bob and not bob.in_sight:
                bob.places = (replace(bob.places[0], again=("/bin/false",)),)
                folders.append(Path(bob.reconnect_socket).parent)
            before()

        manager.engine.tick = tick

    strikes = [Strike("idle", "bob", "connection")]
    rolled, *_ = rehearsed(tmp_path, [["ada", "bob", "eve"]], strikes, unreachable)
    shutil.rmtree(folders[0], ignore_errors=True)  # its supervisor may be killed in its own hold
    assert isinstance(rolled, RolledBack)
    assert (rolled.lost, rolled.code) == (("bob",), "host-lost")
    assert rolled.reason.startswith(OUT_OF_SIGHT)


@pytest.mark.parametrize(("known", "stage"), [(False, "leave"), (True, "finish")])
def test_mpi_that_failed_is_judged_once_it_is_known_what_became_of_a_host_out_of_sight(
    known, stage, tmp_path
):
    place = HostSpec("ada", 1, ("x",), sys.executable, "x", "/bin/false")
    job = JobFile("judged", str(tmp_path), (place,), (HostShare("ada"),), {}, minimum=2)
    with selectors.DefaultSelector() as selector:
        engine = ReconfigurationEngine(job, selector, lambda _: None, tmp_path)
        group = engine.groups["ada"]
        group.phase, group.in_sight = "member", False
        if known:
            group.kill()
        engine.stage = "leave"
        engine.broken = (time.monotonic() - 60.0, "bob", "rank 0 on bob", "mpi-failed")
        engine.judge_broken(time.monotonic())
        assert engine.stage == stage
        group.kill()


@pytest.mark.parametrize(("returns", "lost"), [(False, "ada"), (True, "bob")])
def test_of_two_hosts_the_one_that_went_out_of_sight_is_lost_unless_it_comes_back(
    returns, lost, tmp_path
):
    places = [HostSpec(h, 1, ("x",), sys.executable, "x", "/bin/false") for h in ("ada", "bob")]
    job = JobFile("doubtful", str(tmp_path), tuple(places), tuple(shares("ada", "bob")), {})
    with selectors.DefaultSelector() as selector:
        engine = ReconfigurationEngine(job, selector, lambda _: None, tmp_path)
        ada, bob = engine.groups
        engine.stage = "idle"
        ada.phase = bob.phase = "member"
        ada.in_sight = False
        engine.on_lost(bob, "rank 0 was killed by SIGSEGV")
        engine.confirm_loss()
        assert engine.stage == "idle"
        if returns:
            ada.in_sight = True
        else:
            ada.give_up(f"{OUT_OF_SIGHT} 15 s")
        engine.confirm_loss()
        assert (engine.stage, engine.change.lost) == ("clear", (lost,))
        for group in (ada, bob):
            group.kill()


@pytest.mark.parametrize("phase", ["parked", "starting", "empty"])
def test_a_host_of_which_no_rank_speaks_to_others_keeps_no_loss_from_being_judged(phase, tmp_path):
    places = [HostSpec(h, 1, ("x",), sys.executable, "x", "/bin/false") for h in ("ada", "bob")]
    job = JobFile("spare", str(tmp_path), tuple(places), tuple(shares("ada", "bob")), {})
    with selectors.DefaultSelector() as selector:
        engine = ReconfigurationEngine(job, selector, lambda _: None, tmp_path)
        ada, bob = engine.groups
        engine.stage = "idle"
        ada.phase, bob.phase, ada.in_sight = phase, "member", False
        engine.on_lost(bob, "rank 0 was killed by SIGSEGV")
        assert (engine.stage, engine.change.lost) == ("clear", ("bob",))
        engine.stage = "leave"
        engine.broken = (time.monotonic() - 60.0, "bob", "rank 0 on bob", "mpi-failed")
        engine.judge_broken(time.monotonic())
        assert engine.stage == "clear"
        for group in (ada, bob):
            group.kill()


# ------------------------------------------------------- where there can be no more processes


def pipes():
    found = []
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            found.append(str(handle.readlink()))
    return sorted(one for one in found if one.startswith("pipe:"))


@pytest.fixture
def led_to(tmp_path):
    """A group at the end of a line that says nothing, and why it was lost."""
    line = ("/bin/sh", "-c", "exec sleep 1000", "sh")
    place = HostSpec("ada", 1, ("x",), "{python}", "x", "x", reach=line, again=(*line, "itself"))
    job = JobFile("few", str(tmp_path), (place,), (HostShare("ada"),), {})
    lost = []
    with selectors.DefaultSelector() as selector:
        group = ProcessGroup(
            job, [place], 1, selector, tmp_path, lambda *_: None, lambda _, why: lost.append(why)
        )
        yield group, lost
        group.kill()


@pytest.fixture
def no_processes(monkeypatch, led_to):  # noqa: ARG001 - which has its process before
    def refuse():
        raise OSError(errno.EAGAIN, NO_PROCESSES)

    with monkeypatch.context() as one:
        one.setattr(os, "fork", refuse)
        yield one


def test_a_connection_that_no_process_can_be_had_for_is_tried_again(led_to, no_processes):
    group, lost = led_to
    group.reconnect_socket = "/nowhere"
    group.lose_connection()
    before, now = pipes(), time.monotonic()
    for second in range(3):
        group.check(now + second)
        assert (group.has_process, pipes()) == (False, before)
    no_processes.undo()
    group.check(now + 3)
    assert (group.has_process, group.gone, lost) == (True, False, [])


def one_that_has_no_process(folder, selector, lost):
    place = HostSpec("ada", 1, ("x",), sys.executable, "x", "/bin/false")
    job = JobFile("few", str(folder), (place,), (HostShare("ada"),), {})
    group = ProcessGroup(
        job, [place], 1, selector, folder, lambda *_: None, lambda _, why: lost.append(why)
    )
    group.start()
    assert (group.pid, group.gone, lost) == (0, False, [])
    return group


def test_a_host_for_which_no_process_can_be_had_at_first_is_started_when_there_can(
    tmp_path, no_processes
):
    lost = []
    with selectors.DefaultSelector() as selector:
        group = one_that_has_no_process(tmp_path, selector, lost)
        now = time.monotonic()
        for second in range(3):
            group.check(now + second)
            assert group.pid == 0
        no_processes.undo()
        group.check(now + 3)
        until(lambda: [key.data() for key, _ in selector.select(0.1)] and lost)
        (why,) = lost
        assert why.startswith(MPIEXEC_ENDED)  # it was told all that it was to be told
        assert "(1)" in why
        group.kill()


@pytest.mark.usefixtures("no_processes")
@pytest.mark.parametrize("wanted", [True, False])
def test_a_host_for_which_no_process_can_be_had_for_long_is_lost_and_one_that_is_to_end_has_ended(
    tmp_path, wanted
):
    lost = []
    with selectors.DefaultSelector() as selector:
        group = one_that_has_no_process(tmp_path, selector, lost)
        if not wanted:
            group.end()
        group.check(time.monotonic() + (BIRTH_SECONDS + 1 if wanted else 0))
        assert (group.gone, group.phase) == (True, "empty")
        assert [NO_PROCESSES in why for why in lost] == [True] * wanted
        group.kill()


@pytest.mark.usefixtures("no_processes")
def test_a_host_for_whose_own_login_no_process_can_be_had_is_lost(led_to):
    group, lost = led_to
    group.log_in_alone()
    assert group.gone
    assert [NO_PROCESSES in why for why in lost] == [True]


def test_a_connection_is_let_go_of_though_there_can_be_no_more_threads(led_to, monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    group, _ = led_to
    group.reconnect_socket = "/nowhere"
    with monkeypatch.context() as one:
        one.setattr(threading.Thread, "start", refuse)
        group.lose_connection()
    assert not group.in_sight
    os.waitpid(group.pid, 0)


@pytest.mark.more
def test_a_supervisor_that_nobody_has_heard_ends_with_its_connection(tmp_path):
    said = tmp_path / "said"
    reach = ("/bin/sh", "-c", f'exec "$@" > {said}', "sh", sys.executable)
    own = ("/bin/sh", "-c", "exec sleep 1000", "sh")
    place = HostSpec("ada", 1, ("x",), "{python}", "x", "/bin/false", reach=reach, again=own)
    job = JobFile("slow", str(tmp_path), (place,), (HostShare("ada"),), {})
    with selectors.DefaultSelector() as selector:
        group = ProcessGroup(job, [place], 1, selector, tmp_path, lambda *_: None, lambda *_: None)
        group.start()
        until(lambda: said.exists() and b'"empty"' in said.read_bytes())
        ((supervisor, _),) = descendants(group.pid)
        group.log_in_alone()
        until(lambda: not Path(f"/proc/{supervisor}").exists())
        group.kill()
    assert b'"waiting"' not in said.read_bytes()


@pytest.fixture
def supervisor():
    """A remote supervisor at the far end of a relay, and what to say to it."""
    words = [
        sys.executable,
        relay.__file__,
        sys.executable,
        "-I",
        "-m",
        remote_supervisor.__name__,
    ]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == node.HELLO
            process.stdin.write(encode({"order": "hold", "secret": "s"}))
            process.stdin.flush()
            lines = (json.loads(line) for line in process.stdout)
            path = next(one["path"] for one in lines if one["report"] == "waiting")
            yield process, path
        finally:
            process.kill()
    until(lambda: not Path(path).parent.exists())


TRIES = itertools.count(1)


def succeed(path, **told):
    """Return a successor, which has been told where to go, and the first thing it is answered."""
    told = {"secret": "s", "heard": 1, "number": next(TRIES), **told}
    words = [sys.executable, "-I", "-m", successor.__name__]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    process.stdin.write(encode({"path": path, **told}))
    process.stdin.flush()
    assert process.stdout.readline() == node.HELLO
    line = process.stdout.readline()
    return process, json.loads(line) if line else None


def dismissed(process):
    """Dismiss the supervisor behind a successor, and see it end with its login."""
    process.stdin.write(encode({"order": "dismiss"}))
    process.stdin.close()
    process.stdout.read()
    process.stdout.close()
    assert process.wait(60) == 0


def far_supervisor(process):
    """Return the supervisor at the far end of a relay, whose child is what the login started."""
    ((login, _),) = (one for one in descendants(process.pid) if one[1] == process.pid)
    ((found, _),) = (one for one in descendants(login) if one[1] == login)
    return found


def test_a_host_that_is_given_back_says_everything_before_it_goes(supervisor, tmp_path):
    process, path = supervisor
    output = Path(path).parent / "output"
    far = far_supervisor(process)
    script = f"seq 30000 > {output}; touch {tmp_path / 'said'}"
    order = {"order": "start", "group": 1, "ranks": 1, "argv": ["sh", "-c", script], "commits": ""}
    launch = json.dumps({"directory": str(tmp_path), "hosts": []})
    process.stdin.write(encode({"order": "release"}))
    process.stdin.write(encode({**order, "files": {"launch": launch}, "environment": {}}))
    process.stdin.flush()
    until((tmp_path / "said").exists)
    # Its group is gone, it may end, and nobody has read a line yet.
    until(lambda: not list(descendants(far)))
    lines = []
    for line in process.stdout:
        report = json.loads(line)
        lines += [report["line"]] if report["report"] == "output" else []
        if report["report"] == "empty":
            break
    assert lines == [str(number) for number in range(1, 30001)]
    dismissed(process)


@pytest.mark.parametrize("ended", [True, False])
def test_a_successor_is_answered_what_was_heard_and_then_sent_the_rest(supervisor, ended):
    first, path = supervisor
    if ended:
        first.kill()
        first.wait()
    heir, said = succeed(path, heard=0)
    assert said == {"report": "resumed", "heard": 1}
    assert json.loads(heir.stdout.readline()) == {"report": "waiting", "path": path, "login": ""}
    dismissed(heir)


@pytest.mark.parametrize(
    "told", [{"secret": "t"}, {"secret": None}, {"heard": 2}, {"heard": -1}, {"heard": "1"}]
)
def test_nobody_takes_a_supervisor_over_who_does_not_know_its_secret_or_what_it_said(
    supervisor, told
):
    _, path = supervisor
    stranger, said = succeed(path, **told)
    assert said is None
    stranger.communicate()
    heir, said = succeed(path)
    assert said["report"] == "resumed"
    dismissed(heir)


def test_a_successor_that_comes_later_than_the_one_after_it_is_refused(supervisor):
    _, path = supervisor
    heir, said = succeed(path, number=1002)
    assert said["report"] == "resumed"
    for number in (1001, 1002, "1003"):
        late, said = succeed(path, number=number)
        assert said is None
        late.communicate()
    dismissed(heir)


def test_a_launcher_that_talks_after_the_connection_has_ended_lives_and_is_heard(tmp_path):
    words = [sys.executable, "-I", "-m", remote_supervisor.__name__]
    ways = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    script = f"""
echo before >&2
until [ -e {tmp_path}/go ]; do sleep .05; done
echo after >&2
touch {tmp_path}/done
"""
    order = {"order": "start", "group": 1, "ranks": 1, "argv": ["sh", "-c", script], "commits": ""}
    launch = json.dumps({"directory": str(tmp_path), "hosts": []})
    with subprocess.Popen(words, **ways) as process:
        assert process.stdout.readline() == node.HELLO
        process.stdin.write(encode({"order": "hold", "secret": "s"}))
        process.stdin.write(encode({**order, "files": {"launch": launch}, "environment": {}}))
        process.stdin.flush()
        lines = (json.loads(line) for line in process.stdout)
        path = next(one["path"] for one in lines if one["report"] == "waiting")
        assert "before" in (one["line"] for one in lines if one["report"] == "errors")
        for way in ways:
            getattr(process, way).close()
        (tmp_path / "go").touch()
        until((tmp_path / "done").exists, 60)
        heir, _ = succeed(path, heard=2)
        reports = map(json.loads, heir.stdout)
        assert next(one["line"] for one in reports if one["report"] == "errors") == "after"
        dismissed(heir)


@pytest.mark.more
def test_a_supervisor_whose_manager_does_not_come_back_ends_with_its_hold():
    run = (
        "from apples.malleable import remote_supervisor as it; it.peer.HOLD_SECONDS = 0.5; "
        "it.main()"
    )
    words = [sys.executable, "-c", run]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == node.HELLO
        process.stdin.write(encode({"order": "hold", "secret": "s"}))
        process.stdin.close()
        lines = [json.loads(line) for line in process.stdout]
        (path,) = (one["path"] for one in lines if one["report"] == "waiting")
        assert process.wait(60) == 0
    assert not Path(path).parent.exists()
    heir, said = succeed(path)
    assert said == {"report": "nobody"}
    heir.communicate()


@pytest.mark.more
def test_an_attempt_ends_what_those_before_it_left_on_a_host_and_no_other_jobs(supervisor):
    first, _ = supervisor
    names = [("far", "1"), ("far", "2"), ("other", "1")]
    words = [sys.executable, "-I", "-m", remote_supervisor.__name__]

    def started(job, attempt):
        process = subprocess.Popen(
            [*words, mark(job), attempt], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == node.HELLO
        assert json.loads(process.stdout.readline())["report"] == "alive"
        return process

    far, again, other = (started(f"{job}{os.getpid()}", attempt) for job, attempt in names)
    assert far.wait(60) == 0
    assert (again.poll(), other.poll(), first.poll()) == (None, None, None)
    for process in (far, again, other):
        process.communicate()
        assert process.returncode == 0


LINES = st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"") + b"\n"))


@given(LINES, st.data())
def test_whatever_a_connection_swallows_every_line_comes_once_and_in_order(lines, data):
    stream, taken, buffer, way = ResumableStream(10**6), [], LineBuffer(), b""
    for line in [*lines, None]:
        if line is not None:
            stream.send(line)
        size = data.draw(st.integers(0, len(stream.unsent)), "written")
        way += stream.unsent[:size]
        stream.written(size)
        size = data.draw(st.integers(0, len(way)), "arrived")
        taken += buffer.feed(way[:size])
        way = way[size:]
        if data.draw(st.booleans(), "acknowledged"):
            stream.acknowledged(len(taken))
        if line is None or data.draw(st.integers(0, 3), "cut") == 0:
            stream.cut()
            way, buffer = b"", LineBuffer()
            assert stream.unsent == b""
            stream.resume(len(taken))
    taken += buffer.feed(stream.unsent)
    assert taken == [line.removesuffix(b"\n").removesuffix(b"\r") for line in lines]
    stream.acknowledged(len(lines))
    assert stream.kept == 0


# ------------------------------------------------ through the login that a user's jobs share

OWN = OWN_LOGIN.format(host="bob")
MAPS = [["ada", "bob", "eve"], ["ada", "bob"]]


def logins(sshd):
    return (sshd.folder / "log").read_text().count("Accepted publickey")


def reached(sshd):
    """Return how bob is reached, and the socket of the login that is shared there."""
    reach = ssh.Reach("bob", server.ADDRESSES[0], sys.executable, config=str(sshd.config))
    return reach, sharing.socket_name(reach)


def place(sshd):
    """Return what makes bob a host that the job manager reaches as jobs over ssh do; the others are relayed."""
    reach, shared = reached(sshd)
    joined, own = ssh.command(reach, shared=shared, begins=False), ssh.command(reach)

    def placed(spec):
        if spec.host != "bob":
            return far(spec)
        return replace(far(spec), reach=tuple(joined), again=tuple(own))

    return placed


@contextlib.contextmanager
def looked(sshd):
    """Look at bob for as long as this, as jobs do before they begin: it leaves the login that they share."""
    reach, shared = reached(sshd)
    argv = ssh.command(reach, ["-c", "print(flush=True); open(0).read()"], shared)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as look:
        try:
            assert look.stdout.readline() == b"\n"
            yield
        finally:
            look.kill()  # its end is not that of its output, which a login that hangs holds


def all_done(notices):
    assert [type(one) for one in notices] == [ResizeDone] * (len(MAPS) + 1)


@pytest.mark.ssh
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.more
def test_jobs_make_no_login_where_there_is_one_and_it_ends_after_the_last(
    state, sshd, tmp_path, capfd
):
    with looked(sshd):
        before = logins(sshd)
        all_done(rehearsed(tmp_path, MAPS, place=place(sshd)))
    assert logins(sshd) == before
    assert OWN not in capfd.readouterr().err
    assert len(masters(state)) == 1
    until(lambda: masters(state) == [], 60)
    assert list((state / "apples/ssh").iterdir()) == []


@pytest.mark.more
@pytest.mark.ssh
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("how", ["KILL", "STOP"])
def test_a_shared_login_that_ends_or_hangs_costs_a_job_one_login_and_no_host(
    state, sshd, tmp_path, capfd, how
):
    def maps():
        yield MAPS[0]
        for pid in masters(state):
            os.kill(pid, getattr(signal, f"SIG{how}"))
        yield MAPS[1]

    with looked(sshd):
        before = logins(sshd)
        all_done(rehearsed(tmp_path, maps(), place=place(sshd)))
    assert logins(sshd) == before + 1
    assert capfd.readouterr().err.count(TAKEN_UP.format("bob")) == 1


@pytest.mark.usefixtures("state")
@pytest.mark.ssh
@pytest.mark.mpi
@pytest.mark.slow
def test_a_job_for_which_a_login_has_no_session_left_logs_in_for_itself_and_says_so(
    tmp_path, tmp_path_factory, monkeypatch, capfd
):
    if lacks := server.missing():
        pytest.skip(f"no ssh here: {lacks} missing")
    monkeypatch.setattr(server, "SERVER", server.SERVER + "MaxSessions 1\n")
    strict = server.Sshd(tmp_path_factory.mktemp("strict"))
    with contextlib.closing(strict), looked(strict):
        before = logins(strict)
        all_done(rehearsed(tmp_path, MAPS, place=place(strict)))
        assert logins(strict) == before + 1
    assert capfd.readouterr().err.count(OWN) == 1


@pytest.mark.more
@pytest.mark.usefixtures("state")
@pytest.mark.ssh
@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("what", ["it ended", "it hangs"])
def test_a_shared_login_through_which_nothing_is_heard_is_left_for_one_of_the_job(
    sshd, tmp_path, capfd, monkeypatch, what
):
    word = "exit 255" if what == "it ended" else "exec sleep 1000"
    leave = ProcessGroup.log_in_alone
    with pytest.MonkeyPatch.context() as impatient:
        impatient.setattr(process_groups, "BIRTH_SECONDS", 0.0)
        impatient.setattr(peer, "UNSEEN_SECONDS", 1.0)

        def left(group):
            impatient.undo()
            leave(group)

        monkeypatch.setattr(ProcessGroup, "log_in_alone", left)

        def placed(spec):
            found = place(sshd)(spec)
            way = ("/bin/sh", "-c", word, "sh")
            return replace(found, reach=way) if spec.host == "bob" else found

        all_done(rehearsed(tmp_path, MAPS, place=placed))
    assert capfd.readouterr().err.count(OWN) == 1
