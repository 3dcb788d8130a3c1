"""Child processes of a scheduler: answers of functions, and supervisors of jobs, from one fork server."""

import os
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest
from waiting import until

from apples.errors import DeadlineError, LaunchError, UsageError
from apples.jobs import ProgramSpec, children, store
from apples.launch import parent_of

LIMIT = 60.0
THREADS, TURNS = 8, 5
FUNCTIONS = """
import os, subprocess, sys, threading, time
from pathlib import Path
from apples.errors import UsageError

def add(first, second):
    return {"sum": first + second}

def refuse():
    raise UsageError("no such host", code="host-unknown", host="zoe")

def fail():
    raise ZeroDivisionError("mine")

def leave():
    os._exit(3)

def files():
    return [int(name) for name in os.listdir("/proc/self/fd")]

def never_return(file):
    child = subprocess.Popen(["sleep", "1000"])
    Path(file).write_text(f"{os.getpid()} {child.pid}\\n")
    time.sleep(1000)

def start_thread(file):
    threading.Thread(target=never_return, args=(file,)).start()
    while not (Path(file).exists() and Path(file).read_text()):
        time.sleep(0.01)
    return file
"""
ASK = """
import os, sys
from apples.jobs import children
{before}
print(children.call(sys.argv[1], **dict(word.split("=") for word in sys.argv[2:])), flush=True)
{after}
"""


@pytest.fixture(autouse=True)
def own_functions(tmp_path, monkeypatch):
    (tmp_path / "functions_of_a_user.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


def call(name, **arguments):
    return children.call(f"functions_of_a_user:{name}", **arguments)


def ended(process):
    """Return whether a process that is not a child of this one ends in time."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], LIMIT)[0])
    finally:
        os.close(handle)


def processes_in(file):
    return [int(word) for word in until(lambda: file.exists() and file.read_text()).split()]


def test_answer_of_a_function_comes_back():
    assert call("add", first=1, second=2) == {"sum": 3}


def test_child_keeps_of_its_fork_server_only_the_standard_files_and_its_pipe():
    assert len({*call("files")} - {0, 1, 2}) == 2  # the pipe, and the listing's own


def test_error_of_a_function_keeps_its_class_code_and_fields():
    with pytest.raises(UsageError) as refused:
        call("refuse")
    assert (refused.value.code, refused.value.fields["host"]) == ("host-unknown", "zoe")


def test_exception_of_a_users_code_is_reported():
    with pytest.raises(UsageError) as failed:
        children.call(
            "apples.io.plugins:resolve",
            reference="functions_of_a_user:none",
            known={},
            what="model",
        )
    assert failed.value.code == "user-code-missing"
    with pytest.raises(Exception, match="ZeroDivisionError"):
        call("fail")


def test_function_that_ends_its_process_is_a_lost_child():
    with pytest.raises(LaunchError) as lost:
        call("leave")
    assert lost.value.code == "child-lost"
    assert lost.value.fields["value"] == "functions_of_a_user:leave"


def test_function_that_never_returns_is_killed_at_its_limit(tmp_path):
    file = tmp_path / "processes"
    with pytest.raises(DeadlineError) as late:
        call("never_return", seconds=2.0, file=str(file))
    assert (late.value.code, late.value.fields["seconds"]) == ("child-timeout", 2.0)
    assert all(ended(process) for process in processes_in(file))


def test_processes_that_a_function_leaves_end_after_its_answer(tmp_path):
    file = tmp_path / "processes"
    assert call("start_thread", file=str(file)) == str(file)
    assert all(ended(process) for process in processes_in(file))


@pytest.mark.more
def test_child_ends_with_the_process_that_asks(tmp_path):
    file = tmp_path / "processes"
    words = ["functions_of_a_user:never_return", f"file={file}"]
    script = ASK.format(before="", after="")
    with subprocess.Popen([sys.executable, "-c", script, *words]) as asker:
        child, _ = processes_in(file)
        asker.kill()
    assert ended(child)


def test_long_temporary_directory_is_no_obstacle(tmp_path):
    long = tmp_path / ("long" * 20) / ("er" * 40)
    long.mkdir(parents=True)
    before = "print(children.get_temp_dir().startswith(os.environ['TMPDIR']))"
    words = ["functions_of_a_user:add", "first=a", "second=b"]
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(before="", after=before), *words],
        env={**os.environ, "TMPDIR": str(long)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split("\n") == ["{'sum': 'ab'}", "False", ""]
    assert done.stderr == ""
    assert list(long.iterdir()) == []


def test_nothing_is_left_of_a_process_that_ends_without_exit_handlers():
    after = (
        "from multiprocessing import forkserver\n"
        "print(children.get_temp_dir(), forkserver._forkserver._forkserver_pid, flush=True)\n"
        "children.end_process()"
    )
    words = ["functions_of_a_user:add", "first=a", "second=b"]
    done = subprocess.run(
        [sys.executable, "-c", ASK.format(before="", after=after), *words],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    folder, server = done.stdout.splitlines()[-1].split()
    assert not os.path.exists(folder)  # noqa: PTH110 - a path of another process
    assert ended(int(server))
    assert done.stderr == ""


def test_no_folder_is_left_of_a_process_that_is_killed():
    script = ASK.format(before="", after="print(children.get_temp_dir(), flush=True); input()")
    words = ["functions_of_a_user:add", "first=a", "second=b"]
    with subprocess.Popen(
        [sys.executable, "-c", script, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as asker:
        asker.stdout.readline()
        folder = Path(asker.stdout.readline().decode().strip())
        assert [*folder.iterdir()]
        asker.kill()
    until(lambda: not folder.exists(), LIMIT)


@pytest.fixture
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.usefixtures("own_state")
def test_supervisor_outlives_the_process_that_starts_it(tmp_path):
    spec = ProgramSpec(("x",), Path("none.toml"), ("ada",), directory=tmp_path)
    job = store.create(spec.document(), "")
    children.begin(job)
    handle = job.supervisor()
    if handle >= 0:
        process = int((job.folder / "lock").read_text())
        assert parent_of(process) != os.getpid()
        os.close(handle)
    until(lambda: job.record()["state"] == "failed")
    assert "none.toml" in job.record()["reason"]
    until(lambda: not job.supervised())
    assert "none.toml" in job.log.read_text()


@pytest.mark.usefixtures("own_state")
def test_many_threads_start_children_at_once(tmp_path):
    spec = ProgramSpec(("x",), Path("none.toml"), ("ada",), directory=tmp_path)

    def start_and_question(thread):
        jobs, answers = [], []
        for turn in range(TURNS):
            jobs.append(store.create(spec.document(), ""))
            children.begin(jobs[-1])
            answers.append(call("add", first=TURNS * thread, second=turn)["sum"])
        return jobs, answers

    with ThreadPoolExecutor(THREADS) as threads:
        jobs, answers = zip(*threads.map(start_and_question, range(THREADS)), strict=True)
    assert [*chain(*answers)] == list(range(THREADS * TURNS))
    for job in chain(*jobs):
        until(lambda job=job: not job.supervised())
        assert "none.toml" in job.record()["reason"]


@pytest.mark.usefixtures("own_state")
def test_job_whose_supervisor_ends_before_it_has_started_is_on_record_as_failed():
    job = store.create({}, "")
    job.log.unlink()
    with pytest.raises(LaunchError) as lost:
        children.begin(job)
    assert lost.value.code == "child-lost"
    assert job.record()["state"] == "failed"
    until(lambda: not job.supervised())


@pytest.mark.usefixtures("own_state")
def test_job_that_has_a_supervisor_gets_no_second():
    job = store.create({}, "")
    with job.supervising(), pytest.raises(BlockingIOError):
        children.begin(job)


def test_lost_fork_server_is_replaced():
    """The first call after its end may fail, and is given again, as the orders of a scheduler are."""
    process = children.call("os:getppid")
    os.kill(process, signal.SIGKILL)

    def answer():
        try:
            return call("add", first=1, second=2)
        except LaunchError:
            return None

    assert until(answer) == {"sum": 3}
