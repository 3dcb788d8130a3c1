"""Find and kill the processes of a job on this machine, by ancestry or by the job tag in their environment.

Standard library only, and few modules of it, because every run starts a supervisor that loads this module.
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
"""Environment variable of every process of a job; its value is the job's name."""
RANK_VARIABLES = (b"PMI_RANK", b"PMIX_RANK", b"OMPI_COMM_WORLD_RANK")
"""Environment variables in which launchers pass a process its rank."""
PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
DEFAULTED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
REMAINS = "apples.remains/1\n"
"""First line that `remains` prints for `remote.leftovers`; a login may print other text before it."""
CANNOT_START = 127
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - fixed by the C library
PROCESSES = "processes"
"""File in a run's folder to which every rank appends its process id before it becomes the program."""
CHILD_FAULTS_FIELD, MEMORY_FIELD, ENVIRONMENT_END_FIELD, EXIT_CODE_FIELD = 8, 20, 48, 49
"""Indices of ``cminflt``, the page faults of reaped children, ``vsize``, ``env_end`` and ``exit_code`` (fields 11,
23, 51 and 52 of proc(5)) among the fields of ``/proc/PID/stat`` after the name."""
EXEC_SECONDS = 1.0
"""Time limit for a process to leave execve, before a search passes it over."""
READ_BYTES = 1 << 16
"""Size of one read of a file in /proc."""
REMOVAL_SECONDS = 2.0
"""Time limit for the removal of a cgroup after its last process ended."""


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
        Process id of the parent. If the parent already ended, this child exits instead.
    environment
        Environment of the launcher; None: that of this process.
    """
    die_with(supervisor)
    exec_program(argv, environment)


def die_with(supervisor: int) -> None:
    """Let the kernel kill this child with its supervisor; join a new process group that hydra may kill."""
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
    """Turn this child into a program; if it cannot start, print an error and exit with `CANNOT_START`."""
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
    """Run a task in this forked child and exit in any case, so that it never returns into its parent's code."""
    code = 1
    try:
        code = task() or 0
    except BaseException:  # noqa: BLE001 - printed; the child must exit
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def be(name: str, task: Callable[[], int | None]) -> int:
    """Run a task in a forked child (`as_child`) under the conditions of a new program; return its exit code.

    The child resets its signal handlers and closes its parent's files, except the first three. The fork saves the
    start of an interpreter, because the parent has loaded the modules of the task.

    Parameters
    ----------
    name
        Name of the process in ``ps -o comm`` and ``top``; its command line stays that of its parent.
    """
    for number in DEFAULTED:
        ignored = number in IGNORED_BY_PYTHON
        signal.signal(number, signal.SIG_IGN if ignored else signal.SIG_DFL)
    gc.freeze()  # the parent's objects must not be finalised here: `close_inherited` closes their files
    close_inherited()
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
    return task() or 0


def close_inherited(spare: int = -1) -> None:
    """Close every open file except the first three and `spare`.

    It closes only descriptors that are open: the limit of open files may be a thousand million.
    """
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - pathlib is slow to load
        if int(name) > 2 and int(name) != spare:
            with contextlib.suppress(OSError):  # the descriptor of the listing is closed already
                os.close(int(name))


# ------------------------------------------------------------------ found by ancestry
def descendants(ancestor: int) -> Iterator[tuple[int, int]]:
    """Yield the process id of every descendant with that of its parent, parents first."""
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
    """Kill all descendants of a process and reap its children, until none is left or for at most `seconds`.

    The search reads every process of the machine. It is skipped if `ancestor` is this process and has no child.

    Parameters
    ----------
    spare
        A child that the caller kills and reaps; it is neither killed nor reaped here.
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
    """Whether this process has no child, including children that ended and were not reaped."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def kill_child(pid: int, parent: int) -> None:
    """Kill the process `pid` if it still is the child of `parent`: the kernel reuses process ids."""
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if parent_of(pid) == parent:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def all_processes() -> list[int]:
    """Return the ids of all processes of this machine."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - pathlib is slow to load


def parent_of(pid: int) -> int:
    """Return the process id of the parent of a process; 0 if the process is gone."""
    fields = _stat(pid)
    return int(fields[1]) if len(fields) > 1 else 0


def state_of(pid: int) -> str:
    """Return the state letter of a process, as in proc(5); X if it is gone."""
    fields = _stat(pid)
    return fields[0].decode() if fields else "X"


def zombie_status(pid: int) -> int | None:
    """Return the wait status of a process that ended and is not reaped yet; None if it runs or was reaped.

    The kernel shows the status to all processes of the same user, not only to the parent.
    """
    fields = _stat(pid)
    return int(fields[EXIT_CODE_FIELD]) if fields and fields[0] == b"Z" else None


def has_reaped(pid: int) -> bool:
    """Whether a process has reaped a child: the kernel adds the child's page faults to the parent's count."""
    fields = _stat(pid)
    return len(fields) > CHILD_FAULTS_FIELD and int(fields[CHILD_FAULTS_FIELD]) > 0


def _stat(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` after the name: state, parent and more; empty if it is gone."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def read(path: str) -> bytes:
    """Return the contents of a file in /proc; empty if its process is gone or belongs to another user."""
    found = b""
    try:
        # A search reads hundreds of files; a stream for each would be slow.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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
    """Return the job tag, ``APPLES_JOB=NAME``: each process of a job has it in its environment or arguments.

    A process that a login starts on another host does not inherit our environment; it has the tag as an argument.
    """
    return f"{MARK}={job}"


def marked(job: str) -> list[int]:
    """Return the ids of all processes with this job's tag, except this process and zombies.

    This process may have the tag too: a search over one of the job's own connections does.
    """
    own = os.getpid()
    return [pid for pid in all_processes() if pid != own and _bears(pid, job)]


def end_marked(jobs: Collection[str], seconds: float) -> None:
    """Send SIGTERM to the processes of jobs; wait at most `seconds`, so that supervisors remove their files."""
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
    """Kill the processes of a job; return whether none is left within `seconds`."""
    deadline = time.monotonic() + seconds
    while left := marked(job):
        for pid in left:
            _signal_marked(pid, job, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def sweep(told: dict[str, Any]) -> int:
    """Kill the processes of a job on this host and remove its folder; return 0 if none is left, else 1."""
    cleared = kill_marked(told["job"], told["seconds"])
    remove_run(told["folder"], [])
    return 0 if cleared else 1


def remains(told: dict[str, Any]) -> int:
    """Print the number of processes of each job on this host, after ending those of jobs that are over.

    `told` maps ``jobs`` to a dictionary from job name to whether the job is over. `apples.launch.remote.leftovers`
    reads the output.
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
    """Create the file in which the ranks of a run note their process ids."""
    path = os.path.join(directory, PROCESSES)  # noqa: PTH118 - pathlib is slow to load
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))


def noted_processes(directory: str) -> set[int]:
    """Return the ids of all processes that ever were ranks of the run in this directory."""
    path = os.path.join(directory, PROCESSES)  # noqa: PTH118 - as above
    return {int(number) for number in read(path).split() if number.isdigit()}


def remove_shared_memory(pids: Collection[int], folder: str = SHARED_MEMORY) -> None:
    """Remove the shared memory files that ended ranks (`pids`) left in a folder.

    MPI (libfabric) names a file ``PROCESS:USER:..`` and does not remove the files of a killed process. The kernel
    may have reused a process id; if a live process has it, its files stay.
    """
    # Only files of noted ranks are removed. A sweep over all ids without a process would remove files of other
    # containers, which may share /dev/shm and have separate process ids.
    user = str(os.getuid())
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 - as above
            number, _, rest = name.partition(":")
            if not number.isdecimal() or rest.partition(":")[0] != user or int(number) not in pids:
                continue
            # A killed process frees its memory shortly before it becomes a zombie.
            if state_of(int(number)) in "ZX" or read(f"/proc/{number}/statm").startswith(b"0 "):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))  # noqa: PTH108, PTH118 - as above


def remove_run(directory: str, cgroups: list[str], memory: str = SHARED_MEMORY) -> None:
    """Remove a run's shared memory, cgroups and directory of plain files, as far as they still exist.

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
            except OSError:  # the kernel still removes its last process
                if time.monotonic() > deadline:
                    break
                time.sleep(0.005)
    with contextlib.suppress(OSError):
        for entry in os.scandir(directory):
            os.unlink(entry.path)  # noqa: PTH108
        os.rmdir(directory)  # noqa: PTH106


def environment_of(pid: int) -> set[bytes]:
    """Return the environment of a process, ``NAME=value`` each; empty if it is gone or belongs to another user."""
    found = read(f"/proc/{pid}/environ")
    if not found:
        until = time.monotonic() + EXEC_SECONDS
        while _is_in_exec(pid) and time.monotonic() < until:
            time.sleep(0.001)
        found = read(f"/proc/{pid}/environ")
    return set(found.split(b"\0"))


def _bears(pid: int, job: str) -> bool:
    word = mark(job).encode()
    return word in environment_of(pid) or word in read(f"/proc/{pid}/cmdline").split(b"\0")


def _is_in_exec(pid: int) -> bool:
    """Whether a process has new memory into which the kernel has not written the environment yet."""
    fields = _stat(pid)
    # A kernel thread, or a process that ended, has no memory.
    if (
        len(fields) <= EXIT_CODE_FIELD
        or fields[MEMORY_FIELD] == b"0"
        or fields[ENVIRONMENT_END_FIELD] != b"0"
    ):
        return False
    try:
        os.close(os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:  # gone, or the kernel hides the end of the environment as well
        return False
    return True


def _signal_marked(pid: int, job: str, number: signal.Signals) -> None:
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if _bears(pid, job):
                signal.pidfd_send_signal(pidfd, number)
        finally:
            os.close(pidfd)
