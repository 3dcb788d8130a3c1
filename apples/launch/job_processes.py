"""The processes of a job on this machine: found by ancestry or by the mark in their environment, and killed.

Standard library only, and little of it: every run starts a supervisor that loads this.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NoReturn

MARK = "APPLES_JOB"
"""The variable that every process of a job bears, with the job's name."""
RANK_VARIABLES = (b"PMI_RANK", b"PMIX_RANK", b"OMPI_COMM_WORLD_RANK")
"""In which launchers tell a process which rank of its world it is."""
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
DEFAULTED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
REMAINS = "apples.remains/1\n"
"""What `remote.leftovers` says first; a login may say other things before it."""
CANNOT_START = 127
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where the C library puts it
PROCESSES = "processes"
"""A file of a run's folder, in which every rank notes its number before it becomes the program."""
CHILD_FAULTS_FIELD, EXIT_CODE_FIELD = 8, 49
"""Indices of ``cminflt``, the page faults of reaped children, and ``exit_code`` (fields 11 and 52 of proc(5))
among the fields of ``/proc/PID/stat`` after the name."""
READ_BYTES = 1 << 16
"""That are read of a file of /proc at a time."""
REMOVAL_SECONDS = 2.0
"""How long a cgroup is waited for after its last process is gone."""


# ------------------------------------------------------------------ being a parent
def become_subreaper() -> None:
    """Inherit every orphan below this process, as init would."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_at_parents_end(number: int) -> None:
    """Have the kernel send this process a signal when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def exec_launcher(
    argv: list[str], supervisor: int, environment: Mapping[str, str] | None = None
) -> NoReturn:
    """Turn this child into a launcher that dies with its supervisor, in a process group that hydra may kill.

    Parameters
    ----------
    supervisor
        The process that forked this one; where it is gone already nothing is started.
    environment
        The launcher's; this process's own when None.
    """
    die_with(supervisor)
    exec_program(argv, environment)


def die_with(supervisor: int) -> None:
    """Have the kernel kill this child with its supervisor, and be in a process group that hydra may kill."""
    try:
        # hydra kills by process group, and a child that it forked a moment ago is still in hydra's
        # own group. In the supervisor's group, hydra would kill the supervisor.
        os.setpgid(0, 0)
        signal_at_parents_end(signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    except OSError:
        os._exit(CANNOT_START)
    if os.getppid() != supervisor:
        os._exit(CANNOT_START)


def exec_program(argv: list[str], environment: Mapping[str, str] | None = None) -> NoReturn:
    """Turn this child into a program; one that cannot be started is said so on standard error."""
    try:
        for number in DEFAULTED:
            signal.signal(number, signal.SIG_DFL)
        os.execvpe(argv[0], argv, environment or os.environ)  # noqa: S606 - an argument list, no shell
    except OSError as error:
        sys.stderr.write(f"apples: cannot start {argv[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(CANNOT_START)


def as_child(task: Callable[[], int | None]) -> NoReturn:
    """Have this child do a task and end, whatever happens: it must not return into what its parent was at."""
    code = 1
    try:
        code = task() or 0
    except BaseException:  # noqa: BLE001 - a child's last words
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def be(name: str, task: Callable[[], int | None]) -> int:
    """Have a child (`as_child`) do a task as a program of its own would: it has loaded what the task needs.

    Of its parent's open files it keeps the first three.

    Parameters
    ----------
    name
        Under which ``ps -o comm`` and ``top`` show it: its command line is its parent's.
    """
    for number in DEFAULTED:
        ignored = number in IGNORED_BY_PYTHON
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    gc.freeze()  # nothing of its parent's is finalised here: its files are closed now, by number
    close_inherited()
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
    return task() or 0


def close_inherited(spare: int = -1) -> None:
    """Close every open file but the first three and `spare`, one by one: their limit may be a thousand million."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is slow to load
        if int(name) > 2 and int(name) != spare:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(int(name))


# ------------------------------------------------------------------ found by ancestry
def descendants(ancestor: int) -> Iterator[tuple[int, int]]:
    """Yield every descendant with its parent, parents first."""
    children: dict[int, list[int]] = {}
    for pid in all_processes():
        children.setdefault(parent_of(pid), []).append(pid)
    waiting = [ancestor]
    while waiting:
        parent = waiting.pop()
        for pid in children.get(parent, ()):
            yield pid, parent
            waiting.append(pid)


def kill_descendants(ancestor: int, *, spare: int = 0, seconds: float = float("inf")) -> None:
    """Kill all descendants of this process and reap them, until none is left or for at most `seconds`.

    Looking for them is a look at every process of the machine; a process that has no child has none.

    Parameters
    ----------
    spare
        A child that the caller kills and reaps itself; neither it nor its end is touched here.
    """
    deadline = time.monotonic() + seconds
    if ancestor == os.getpid() and childless():
        return
    while found := [pair for pair in descendants(ancestor) if pair[0] != spare]:
        for pid, parent in found:
            kill_child(pid, parent)
        for pid, _ in found:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            return
        time.sleep(0.005)


def childless() -> bool:
    """Whether this process has no child, not even one that has ended and was not reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def kill_child(pid: int, parent: int) -> None:
    """Kill the process `pid` if it still is the child of `parent` (numbers are used again)."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if parent_of(pid) == parent:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def all_processes() -> list[int]:
    """Return the numbers of all processes there are."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib is slow to load


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 when it is gone."""
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def state_of(pid: int) -> str:
    """Return the letter of a process's state; X when it is gone."""
    fields = _stat(pid)
    return fields[0].decode() if fields else "X"


def zombie_status(pid: int) -> int | None:
    """Return the wait status of a process that ended and is not reaped yet; None if it runs, or was reaped.

    The kernel shows the status to processes of the same user, also if they are not the parent.
    """
    fields = _stat(pid)
    return int(fields[EXIT_CODE_FIELD]) if fields and fields[0] == b"Z" else None


def has_reaped(pid: int) -> bool:
    """Whether a process has reaped a child. Each child has page faults, and the kernel adds them to its parent."""
    fields = _stat(pid)
    return len(fields) > CHILD_FAULTS_FIELD and int(fields[CHILD_FAULTS_FIELD]) > 0


def _stat(pid: int) -> list[bytes]:
    """Return the fields after the name: state, parent and more; none where the process is gone."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def read(path: str) -> bytes:
    """Return a file of /proc; empty when its process is gone or another user's."""
    found = b""
    try:
        handle = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC
        )  # a look reads hundreds: no stream for each
    except OSError:
        return b""
    try:
        while more := os.read(handle, READ_BYTES):
            found += more
    except OSError:
        return b""
    finally:
        os.close(handle)
    return found


# ------------------------------------------------------------------ found by the job's mark
def mark(job: str) -> str:
    """Return the word by which the processes of a job are known: in their environment, or among their arguments.

    A process that a login starts on another host has no environment of ours: it bears the word as an argument.
    """
    return f"{MARK}={job}"


def marked(job: str) -> list[int]:
    """Return the other processes that were started with this job's mark, zombies not counted.

    Whoever looks may bear it too: a look over a connection of the job's own does.
    """
    own = os.getpid()
    return [pid for pid in all_processes() if pid != own and _bears(pid, job)]


def end_marked(jobs: Collection[str], seconds: float) -> None:
    """Ask what is left of jobs to end, and wait for `seconds`: a supervisor removes what it has made."""
    deadline = time.monotonic() + seconds
    asked = set[tuple[int, str]]()
    while left := {(pid, job) for job in jobs for pid in marked(job)}:
        for pid, job in left - asked:
            _signal_marked(pid, job, signal.SIGTERM)
        asked |= left
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)


def kill_marked(job: str, seconds: float) -> bool:
    """Kill what is left of a job; whether nothing was left within `seconds`."""
    deadline = time.monotonic() + seconds
    while left := marked(job):
        for pid in left:
            _signal_marked(pid, job, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def sweep(told: dict[str, Any]) -> int:
    """Kill what is left of a job on this host and remove its folder; 0 when nothing is left."""
    cleared = kill_marked(told["job"], told["seconds"])
    remove_run(told["folder"], [])
    return 0 if cleared else 1


def remains(told: dict[str, Any]) -> int:
    """Print how many processes are left of each job on this host, after ending those of jobs that are over.

    A job is followed by whether it is over; the lines are read by `apples.launch.remote.leftovers`.
    """
    sys.stdout.write(REMAINS)
    end_marked([job for job, over in told["jobs"].items() if over], told["seconds"])
    for job, over in told["jobs"].items():
        if over:
            kill_marked(job, told["seconds"])
        sys.stdout.write(f"{job} {len(marked(job))}\n")
    sys.stdout.write("end\n")
    return 0


def expect_processes(directory: str) -> None:
    """Make the file in which the ranks of a run note their process numbers."""
    path = os.path.join(directory, PROCESSES)  # noqa: PTH118 - pathlib is slow to load
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def noted_processes(directory: str) -> set[int]:
    """Return the numbers of all processes that ever were ranks of the run in this directory."""
    path = os.path.join(directory, PROCESSES)  # noqa: PTH118 - as above
    return {int(number) for number in read(path).split() if number.isdigit()}


def remove_shared_memory(pids: Collection[int], folder: str = SHARED_MEMORY) -> None:
    """Remove the shared memory in a folder that processes have left which were ranks and are gone.

    MPI (libfabric) names it ``PROCESS:USER:..``, and removes none of a process that was killed. A number may be
    another process's by now: what a living one may have made stays, and so does what nobody says was a rank's,
    for it may be that of a process whom only another container sees.
    """
    # Only files of noted processes are removed. A sweep over all numbers without a process would
    # remove files of other containers, which can share /dev/shm and not the process numbers.
    user = str(os.getuid())
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 - as above
            number, _, rest = name.partition(":")
            if not number.isdecimal() or rest.partition(":")[0] != user or int(number) not in pids:
                continue
            # A killed process gives its memory back a moment before it is a zombie.
            if state_of(int(number)) in "ZX" or read(f"/proc/{number}/statm").startswith(b"0 "):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))  # noqa: PTH108, PTH118 - as above


def remove_run(directory: str, cgroups: list[str], memory: str = SHARED_MEMORY) -> None:
    """Remove a run's shared memory, cgroups and directory of plain files; what is gone already is fine.

    Parameters
    ----------
    memory
        The folder in which MPI keeps shared memory.
    """
    remove_shared_memory(noted_processes(directory), memory)
    deadline = time.monotonic() + REMOVAL_SECONDS
    for cgroup in cgroups:
        while True:
            try:
                os.rmdir(cgroup)  # noqa: PTH106 - pathlib is slow to load
            except FileNotFoundError:
                break
            except OSError:  # its last process is still being taken away
                if time.monotonic() > deadline:
                    break
                time.sleep(0.005)
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            os.unlink(entry.path)  # noqa: PTH108
        os.rmdir(directory)  # noqa: PTH106


def _bears(pid: int, job: str) -> bool:
    word = mark(job).encode()
    for each in ("environ", "cmdline"):
        words = read(f"/proc/{pid}/{each}")
        if word in words and word in words.split(b"\0"):
            return True
    return False


def _signal_marked(pid: int, job: str, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if _bears(pid, job):
                signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)
