"""The parked interpreter: its forks do what the asker would have done itself, and nobody depends on it."""

import errno
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from apples import LaunchError, RunSpec, UsageError
from apples.io import state
from apples.jobs import JobSpec, parked
from apples.launch import MARK, kill_marked, marked

HERE = Path(__file__).parent / "sample"
FILES = [HERE / f"{name}.toml" for name in ("hosts", "template", "user")]
NAMES = ("--hosts", "--template", "--user")
HEAVY = {
    "numpy",
    "pydantic",
    "tomlkit",
    "hat.document",
    "nws",
    "apples.resources.host_list",
    "apples.launch.actuators",
    "apples.launch.run",
}
LIMIT = 60.0
MINE = """
import atexit, json, os, subprocess, sys, threading, time
from pathlib import Path
from apples.launch import LocalActuator

class Mine(LocalActuator):
    pass

umask = os.umask(0)
os.umask(umask)
facts = {
    "pid": os.getpid(), "parent": os.getppid(), "directory": os.getcwd(), "umask": umask,
    "cpus": sorted(os.sched_getaffinity(0)), "found": sys.path[0], "word": os.environ.get("WORD"),
    "left": os.environ.get("LEFT"), "nice": os.nice(0), "files": sorted(os.listdir("/proc/self/fd")),
    "session": os.getsid(0),
    "signals": [line.split()[1] for line in open("/proc/self/status") if line[:6] in ("SigBlk", "SigIgn")],
}
print("loaded", flush=True)
word = os.environ.get("WORD")
if word == "wait":
    facts["child"] = subprocess.Popen(["sleep", "1000"]).pid
Path("facts.json").write_text(json.dumps(facts))
class Last:
    def __del__(self):
        time.sleep(1000)  # what interrupts it here Python says, and forgets

if word == "wait":
    Last()
    time.sleep(1000)
if word == "fail":
    raise ZeroDivisionError("mine")
if word == "gone":
    os._exit(3)
if word == "thread":
    threading.Thread(target=time.sleep, args=(1000,)).start()

class Kept:
    def __del__(self):
        Path("apart").touch()

if word == "registers":
    kept = Kept()
    atexit.register(Path("left").touch)
    print("last", end="")
"""
ASK = """
import sys
from pathlib import Path
from apples.jobs import parked
import json
print(parked.call("check", order=json.loads(sys.argv[1]))["actuator"])
"""


@pytest.fixture(scope="module", autouse=True)
def own_state(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
        for path in state.directory().glob("parked-*"):
            path.unlink()  # whom nobody can reach ends


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)


def order(actuator="mine.py:Mine"):
    return JobSpec(RunSpec(*FILES, weather="static", actuator=actuator)).document()


def facts(tmp_path):
    """What a fork found when it looked around."""
    assert parked.call("check", order=order())["actuator"] == "mine.py:Mine"
    return json.loads((tmp_path / "facts.json").read_text())


def ended(process):
    """Whether a process ends, waiting for it; it is another's child."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], LIMIT)[0])
    finally:
        os.close(handle)


def test_a_fork_is_in_all_that_can_be_handed_over_what_its_asker_is(tmp_path, monkeypatch, capfd):
    before = facts(tmp_path)
    monkeypatch.setenv("WORD", "changed")
    monkeypatch.setenv("LEFT", "here")
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    Path("mine.py").write_text(MINE)
    cpus, umask = os.sched_getaffinity(0), os.umask(0o027)
    try:
        os.sched_setaffinity(0, [min(cpus)])
        found = facts(tmp_path / "inside")
    finally:
        os.sched_setaffinity(0, cpus)
        os.umask(umask)
    assert found["word"] == "changed"
    assert found["directory"] == found["found"] == str(tmp_path / "inside")
    assert (found["cpus"], found["umask"]) == ([min(cpus)], 0o027)
    assert found["session"] == found["pid"] != before["pid"]
    assert found["parent"] == before["parent"]
    monkeypatch.delenv("LEFT")
    assert facts(tmp_path / "inside")["left"] is None
    assert capfd.readouterr().out == ""
    assert found["files"] == before["files"]  # nothing of another fork's, or of the interpreter's


def test_what_a_fork_says_and_what_it_refuses_are_its_askers(monkeypatch, capfd):
    with pytest.raises(UsageError) as refused:
        parked.call("check", order=order("cloud"))
    assert (refused.value.code, refused.value.fields["value"]) == ("launcher-unknown", "cloud")
    assert "local" in refused.value.fields["known"]
    monkeypatch.setenv("WORD", "fail")
    with pytest.raises(UsageError) as failed:
        parked.call("check", order=order())
    assert failed.value.code == "user-code-failed"
    assert failed.value.fields["kind"] == "ZeroDivisionError"
    assert failed.value.fields["file"].endswith("mine.py")
    assert capfd.readouterr() == ("", "loaded\n")


def test_one_that_is_niced_or_loads_other_code_has_an_interpreter_of_its_own(
    tmp_path, monkeypatch
):
    first = facts(tmp_path)
    words = [sys.executable, "-c", ASK, json.dumps(order())]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout == "mine.py:Mine\n"
    assert json.loads((tmp_path / "facts.json").read_text())["parent"] == first["parent"]
    words = [shutil.which("nice"), "-n", "3", *words]
    subprocess.run(words, capture_output=True, timeout=LIMIT, check=True)
    niced = json.loads((tmp_path / "facts.json").read_text())
    assert niced["parent"] != first["parent"]
    assert niced["nice"] == first["nice"] + 3
    (tmp_path / "code").mkdir()
    before = parked.address()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "code"))
    assert parked.address() != before


@pytest.mark.more
def test_a_fork_whose_asker_is_killed_is_stopped(tmp_path):
    words = [sys.executable, "-c", ASK, json.dumps(order())]
    environment = {**os.environ, "WORD": "wait"}
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE) as asker:
        assert asker.stderr.readline() == b"loaded\n"
        facts = tmp_path / "facts.json"
        found = json.loads(until(lambda: facts.exists() and facts.read_text()))
        asker.kill()
        assert ended(found["pid"])
        assert ended(found["child"])
        assert asker.stderr.read() == b""  # not a word to a terminal that is another's by now


@pytest.mark.more
def test_what_a_users_code_leaves_running_ends_after_the_answer(tmp_path, monkeypatch):
    monkeypatch.setenv("WORD", "thread")
    assert ended(facts(tmp_path)["pid"])


def test_a_fork_does_what_is_registered_for_its_exit_and_is_not_taken_apart(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setenv("WORD", "registers")
    assert ended(facts(tmp_path)["pid"])
    assert (tmp_path / "left").exists()
    assert not (tmp_path / "apart").exists()
    assert capfd.readouterr() == ("", "loaded\nlast")


def test_a_users_code_that_ends_its_process_is_said_to_have(monkeypatch):
    monkeypatch.setenv("WORD", "gone")
    with pytest.raises(LaunchError) as lost:
        parked.call("check", order=order())
    assert (lost.value.code, lost.value.fields["value"]) == ("fork-lost", "check")


@pytest.mark.more
def test_a_fork_that_does_not_answer_in_time_is_ended(tmp_path, monkeypatch):
    there = facts(tmp_path)["parent"]
    monkeypatch.setenv("WORD", "wait")
    with pytest.raises(parked.UnansweredError) as late:
        parked.call("check", seconds=0.5, order=order())
    assert late.value.code == "fork-unanswered"
    assert late.value.fields == {"value": "check", "seconds": 0.5}
    forks = Path(f"/proc/{there}/task/{there}/children")
    until(lambda: not forks.read_text())


@pytest.mark.more
@pytest.mark.parametrize("how", ["killed", "stopped", "out of reach"])
def test_an_interpreter_that_is_lost_is_replaced_by_the_next_that_needs_one(tmp_path, how):
    lost = facts(tmp_path)["parent"]
    if how == "killed":
        os.kill(lost, signal.SIGKILL)
    elif how == "stopped":
        os.kill(lost, signal.SIGSTOP)
        with socket.socket(socket.AF_UNIX) as one, parked.in_its_folder(parked.address()) as name:
            one.connect(name)
            assert not parked.greeted(one)  # who has come already does not wait for it either
    else:
        parked.address().unlink()
    there = facts(tmp_path)["parent"]
    assert there != lost
    if how == "stopped":
        os.kill(lost, signal.SIGCONT)
    assert ended(lost)
    assert facts(tmp_path)["parent"] == there


def fresh(words=()):
    """Have another process ask, which has to start an interpreter, through a command that runs a command."""
    parked.address().unlink(missing_ok=True)
    words = [*words, sys.executable, "-c", ASK, json.dumps(order())]
    subprocess.run(words, timeout=LIMIT, check=True)


def test_an_interpreter_is_none_the_worse_for_who_started_it(tmp_path, monkeypatch):
    """Standard files closed, signals blocked and ignored, and variables of its own."""
    blocking = (
        "import os, signal, sys; signal.signal(signal.SIGUSR1, signal.SIG_IGN); "
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGCHLD]); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    monkeypatch.setenv("SECRET_OF_MINE", "1")
    fresh([sys.executable, "-c", blocking, "/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"])
    found = json.loads((tmp_path / "facts.json").read_text())
    blocked, ignored = (int(one, 16) for one in found["signals"])
    assert blocked == 0
    assert not ignored & 1 << signal.SIGUSR1 - 1
    variables = Path(f"/proc/{found['parent']}/environ").read_bytes()
    assert b"HOME=" in variables
    assert b"SECRET_OF_MINE" not in variables
    monkeypatch.delenv("SECRET_OF_MINE")
    assert facts(tmp_path)["parent"] == found["parent"]


def test_processes_of_a_job_have_an_interpreter_that_ends_with_the_job(tmp_path, monkeypatch):
    """What ends a job ends all that it started; no other job may depend on that."""
    shared = facts(tmp_path)["parent"]
    with parked.forked():  # it stays for as long as one waits
        monkeypatch.setenv(MARK, "0123abcd")
        own = facts(tmp_path)["parent"]
        assert own != shared
        assert own in marked("0123abcd")
        assert kill_marked("0123abcd", LIMIT)
        monkeypatch.delenv(MARK)
        assert facts(tmp_path)["parent"] == shared


def test_every_change_of_the_sources_and_every_installation_is_seen(tmp_path, monkeypatch):
    """Whichever file changes, to whatever age, and however long ago the newest did."""
    package, site = tmp_path / "apples", tmp_path / "lib" / "site-packages"
    package.mkdir()
    site.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    for name in ("a.py", "b.py"):
        (package / name).write_text("one = 1")
    os.utime(site, ns=(0, 0))  # some kernels count the times of files in hundredths of a second
    root = str(tmp_path)
    seen = [parked.address(root)]
    assert parked.address(root) == seen[0]
    (package / "old").write_text("one = 2")
    os.utime(package / "old", ns=(0, (package / "a.py").stat().st_mtime_ns))
    (package / "old").replace(package / "a.py")  # as an older version is put in place of a newer
    seen.append(parked.address(root))
    (site / "numpy-9.9.dist-info").mkdir()
    seen.append(parked.address(root))
    assert len(set(seen)) == 3


def test_where_no_socket_can_be_made_a_command_loads_all_for_itself(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (state.directory() / "parked.lock").mkdir()
    found = facts(tmp_path)
    assert found["found"] == str(tmp_path)
    lock = state.directory() / "parked.lock"
    (line,) = [one for one in capfd.readouterr().err.splitlines() if one != "loaded"]
    assert f"{lock}: {os.strerror(errno.EISDIR)}" in line
    assert list(state.directory().iterdir()) == [lock]
    assert ended(found["pid"])


@pytest.mark.more
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_nothing_is_told_to_another_users_socket(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = parked.address()
    with socket.socket(socket.AF_UNIX) as listener:
        with parked.in_its_folder(path) as name:
            listener.bind(name)
        os.seteuid(65534)
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        facts(tmp_path)
        assert str(path) in capfd.readouterr().err
        listener.setblocking(False)
        with listener.accept()[0] as asking:
            assert asking.recv(100) == b""


@pytest.mark.more
def test_what_interpreters_leave_that_were_killed_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    machine = parked.address().name.rpartition("-")[0]
    left, lives = (state.directory() / f"{machine}-{digit * 16}" for digit in "01")
    parked.log_of(left).write_text("")
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX) as listener:
        for one, path in ((dead, left), (listener, lives)):
            with parked.in_its_folder(path) as name:
                one.bind(name)
        listener.listen()
        listener.setblocking(False)
        dead.close()
        facts(tmp_path)
        with pytest.raises(BlockingIOError):
            listener.accept()  # nobody has disturbed it
    there = parked.address()
    assert {one.name for one in state.directory().glob("parked-*")} == {
        lives.name,
        there.name,
        parked.log_of(there).name,
    }
    there.unlink()


@pytest.mark.parametrize("sent", [b"rubbish\n", b"{}\n", b""])
def test_who_asks_nothing_that_can_be_understood_harms_nobody(tmp_path, sent):
    there = facts(tmp_path)["parent"]
    with socket.socket(socket.AF_UNIX) as rude, parked.in_its_folder(parked.address()) as name:
        rude.settimeout(LIMIT)
        rude.connect(name)
        assert rude.recv(100) == parked.HELLO
        rude.sendall(sent)
        rude.shutdown(socket.SHUT_WR)
        assert rude.recv(100) == b""
    assert facts(tmp_path)["parent"] == there


def test_an_interpreter_that_cannot_load_says_why(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "numpy.py").write_text("raise ImportError('no such luck')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "code"))
    with pytest.raises(LaunchError) as ended:
        parked.call("check", order=order("local"))
    assert ended.value.code == "fork-server-ended"
    assert "no such luck" in ended.value.fields["value"]
    assert ended.value.fields["file"] == str(parked.log_of(parked.address()))


def test_a_command_that_submits_loads_nothing_that_its_job_needs():
    words = [word for name, path in zip(NAMES, FILES, strict=True) for word in (name, str(path))]
    loaded = (
        f"import sys; sys.argv = {['apples', 'run', '--detach', *words, '--actuator', 'cloud']!r}\n"
        "from apples.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 2\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert "apples.jobs.parked" in done.stdout.split()
    assert not HEAVY & set(done.stdout.split())


def test_nobody_but_its_owner_may_connect(tmp_path):
    facts(tmp_path)
    assert parked.address().stat().st_mode & 0o777 == 0o600
