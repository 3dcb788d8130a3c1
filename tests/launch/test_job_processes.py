"""A tree of processes, drawn:

this test --> parent --> child --> grandchild     (the parent and the child end: the grandchild is an orphan)
"""

import os
import secrets
import shlex
import signal
import subprocess
import sys

import pytest
from waiting import until

from apples.launch import (
    MARK,
    descendants,
    expect_processes,
    job_processes,
    kill_marked,
    mark,
    marked,
    remove_run,
    remove_shared_memory,
)

TREE = 'exec {python} -S -c \'import subprocess as s; s.run(["sleep", "600"])\''
CHILD = """
import os, signal, sys
from apples.launch import job_processes
signal.signal(signal.SIGTERM, lambda *_: None)
opened = os.open("/dev/null", os.O_RDONLY), *os.pipe(), os.dup2(0, 200)
def is_open(handle):
    try:
        return bool(os.fstat(handle))
    except OSError:
        return False
if os.fork() == 0:
    def task():
        found = [one for one in opened if is_open(one)]
        defaults = [signal.getsignal(n) == signal.SIG_DFL for n in (signal.SIGTERM, signal.SIGPIPE)]
        print(found, defaults, open("/proc/self/comm").read(), end="", flush=True)
        %s
    job_processes.as_child(lambda: job_processes.be("apples-test", task))
    print("returned", flush=True)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""
SUBREAPER = """
import os, subprocess, sys
from apples.launch import job_processes
job_processes.become_subreaper()
subprocess.run(["sh", "-c", "sleep 600 & sleep 600 & true"])
print(len(list(job_processes.descendants(os.getpid()))), job_processes.childless(), flush=True)
job_processes.kill_descendants(os.getpid())
print(len(list(job_processes.descendants(os.getpid()))), job_processes.childless(), flush=True)
"""


@pytest.fixture
def tree():
    """A process of a job that has a child; gives its handle and the job's name."""
    job = secrets.token_hex(8)
    words = ["sh", "-c", TREE.format(python=shlex.quote(sys.executable))]
    process = subprocess.Popen(words, env={**os.environ, MARK: job})
    yield process, job
    kill_marked(job, 120.0)
    process.wait()


def test_descendants_come_with_their_parents_parents_first(tree):
    process, job = tree
    until(lambda: len(marked(job)) == 2)
    found = [pair for pair in descendants(os.getpid()) if pair[0] in marked(job)]
    assert found[0] == (process.pid, os.getpid())
    assert found[1][1] == process.pid


def test_what_bears_the_mark_is_killed_whoever_its_parent_is(tree):
    process, job = tree
    until(lambda: len(marked(job)) == 2)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(marked(job)) == 1  # an orphan by now
    assert kill_marked(job, 120.0)
    assert marked(job) == []


def test_a_process_that_has_just_begun_its_program_is_found(monkeypatch):
    """Popen may return inside execve, before the kernel shows the environment."""
    words = ["sleep", "600"]
    for _ in range(500):
        job = secrets.token_hex(8)
        process = subprocess.Popen(words, env={MARK: job})
        monkeypatch.setattr(job_processes, "all_processes", lambda pid=process.pid: [pid])
        found = marked(job)
        process.kill()
        process.wait()
        assert found == [process.pid]


def test_another_jobs_processes_are_not_touched(tree):
    process, job = tree
    assert kill_marked(job + "0", 120.0)
    assert kill_marked(job[:-1], 120.0)
    assert process.poll() is None


def test_a_subreaper_inherits_orphans_and_leaves_none():
    done = subprocess.run(
        [sys.executable, "-c", SUBREAPER], capture_output=True, timeout=120, check=True
    )
    assert done.stdout.split() == [b"2", b"False", b"0", b"True"]


def test_a_process_that_is_gone_has_no_parent_and_no_state():
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    assert job_processes.parent_of(process.pid) == 0
    assert job_processes.state_of(process.pid) == "X"
    job_processes.kill_child(process.pid, os.getpid())


def test_a_number_that_was_used_again_is_not_killed(tree):
    process, _ = tree
    job_processes.kill_child(process.pid, parent=1)
    assert process.poll() is None


@pytest.fixture
def gone():
    """A process that has ended and whose number cannot be used again before the test is over."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    yield process.pid
    process.wait()


def test_shared_memory_of_ranks_that_are_gone_is_removed_and_no_other(gone, tree, tmp_path):
    living, user = tree[0].pid, os.getuid()
    left = {f"{gone}:{user}:0", f"{gone}:{user}:1"}
    others = {
        *(f"{living}:{user}:0", f"{gone}:{user + 1}:0", f"{gone}0:{user}:0"),
        *(f"{gone}:{user}0:0", f"{gone}", f"x{gone}:{user}:0", "mpich_shm_1"),
    }
    for name in left | others:
        (tmp_path / name).touch()
    remove_shared_memory({living}, str(tmp_path))
    assert {one.name for one in tmp_path.iterdir()} == left | others
    remove_shared_memory({gone, living}, str(tmp_path))
    assert {one.name for one in tmp_path.iterdir()} == others


def test_a_run_that_is_removed_takes_along_the_shared_memory_of_the_ranks_it_noted(gone, tmp_path):
    folder, segment = tmp_path / "run", tmp_path / f"{gone}:{os.getuid()}:0"
    folder.mkdir()
    segment.touch()
    expect_processes(str(folder))
    remove_run(str(folder), [], str(tmp_path))
    assert segment.exists()

    folder.mkdir()
    expect_processes(str(folder))
    (folder / "processes").write_text(f"1\n{gone}\n")
    remove_run(str(folder), [], str(tmp_path))
    assert not segment.exists()
    assert not folder.exists()


def test_a_runs_folder_goes_with_its_files_and_one_that_is_gone_is_fine(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "task.json").write_text("{}")
    os.mkfifo(folder / "ranks")
    remove_run(str(folder), [str(tmp_path / "no-such-cgroup")])
    remove_run(str(folder), [])
    assert not folder.exists()


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("return 3", 3, ""),
        ("return None", 0, ""),
        ("raise RuntimeError('no')", 1, "RuntimeError: no"),
        ("sys.exit(2)", 1, "SystemExit: 2"),
    ],
)
def test_a_child_that_is_another_program_has_its_own_name_and_files_and_never_returns(
    end, code, said
):
    words = [sys.executable, "-c", CHILD % end]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == f"[] [True, False] apples-test\n{code}\n"
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)


def test_whoever_looks_for_a_job_under_its_mark_neither_counts_nor_kills_itself():
    lines = "import sys; from apples.launch import job_processes as j; print(j.kill_marked(sys.argv[2], 9))"
    words = [sys.executable, "-c", lines, mark("fee1fa11"), "fee1fa11"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "True\n"
