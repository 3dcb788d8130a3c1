"""Starts one rank and stays beside it: on its host's CPUs, in its host's cgroup, never outliving its launcher.

Run by path as ``python -I -S rank_wrapper.py LAUNCH_FILE HOST_INDEX`` by hydra, and without the index by srun;
standard library only, and little of it, because every rank starts through here. The program's arguments come from
the launch file and never pass through a launcher's command line.

The rank is a child of this process, because only a parent learns by which signal a process ended. What became
of the rank is told to whoever supervises it; then this process ends in the same way, which is what the launcher
sees.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
CANNOT_START = 127
OUTPUT = "output"
"""What the first rank under Slurm says: the events of the run."""
PROCESSES = "processes"
"""The file of the run in which every rank notes its number, where the run's supervisor has made it."""
INTERPRETER = "APPLES_RANK_INTERPRETER"
"""The variable that names the socket of the host's parked interpreter, where there is one that forks ranks."""
BESIDE = "APPLES_BESIDE"
"""The variable by which a rank that was forked there knows the process that stays beside it."""
WORD_BYTES = 1 << 10
COUNTING = "APPLES_COUNT_LIBRARY"
"""The variable that names the library which counts a program's messages (`launch.message_counts`)."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where MPI puts it, by the number of its process
PLACES = "places.json"
"""The CPUs of each rank under Slurm, where they were decided."""
TOLD = "apples: rank "
"""How a line about a rank begins that is told on standard error, where there is no other way."""
LOOK_MILLISECONDS = 400
"""Between two looks at a rank; two in a row must see it wait for the launcher."""
READ = {"x86_64": b"0", "aarch64": b"63"}
"""The number of the system call `read`, by machine."""
LEFT_TO_LAUNCHER = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Launchers send these to the process group: the rank decides what becomes of it."""


def main() -> NoReturn:
    """Start the rank, stay until it has ended, and end as it did."""
    by_srun = len(sys.argv) == 2
    folder = os.path.dirname(os.path.abspath(sys.argv[1]))  # noqa: PTH100, PTH120 - pathlib costs 5 ms a rank
    with open(sys.argv[1], encoding="utf-8") as stream:  # noqa: PTH123 - likewise
        launch = json.load(stream)
    if by_srun:
        rank = int(os.environ["SLURM_PROCID"])
        entry = target(launch["hosts"], rank)
    else:
        die_with(os.getppid())  # of srun's daemon it would be one thread
        rank = int(os.environ.get("PMI_RANK", "0"))
        entry = launch["hosts"][int(sys.argv[2])]
    if forked := _forked_elsewhere(rank):
        child, channel = forked
        for number in LEFT_TO_LAUNCHER:
            signal.signal(number, lambda sent, _: _pass_on(sent, channel))
        tell = lambda line: _tell(folder, child, line)  # noqa: E731
        end_as(watch(child, rank, tell, channel.fileno(), lambda: _status_of(channel)))
    # The program does not inherit this pipe: its end says that it was started.
    started, starting = os.pipe()
    own = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(started)
        die_with(own)
        become(entry, launch, folder, rank, by_srun=by_srun)
    for number in LEFT_TO_LAUNCHER:
        signal.signal(number, signal.SIG_IGN)
    os.close(starting)
    os.read(started, 1)
    tell = on_standard_error if by_srun else lambda line: _tell(folder, child, line)
    end_as(watch(child, rank, tell, os.pidfd_open(child), lambda: os.waitpid(child, 0)[1]))


# ------------------------------------------------------------------ a rank that is another's child
def _forked_elsewhere(rank: int) -> tuple[int, Any] | None:
    """Have the host's parked interpreter fork the rank; None where there is none, or it is not for this program.

    Returns
    -------
    tuple
        The rank's process, and the connection that says how it ended; the rank ends when this process does.
    """
    path, pmi = os.environ.pop(INTERPRETER, ""), os.environ.get("PMI_FD", "")
    os.environ.pop(BESIDE, None)  # another rank's, from which this job was started
    if not (path and pmi.isdecimal()):
        return None
    import _socket  # noqa: PLC0415 - as in `_tell`

    request = {
        "launch": os.path.abspath(sys.argv[1]),  # noqa: PTH100 - as above
        "index": int(sys.argv[2]), "rank": rank, "pmi": int(pmi), "environment": dict(os.environ),
        "ignored": [
            int(one) for one in signal.valid_signals() if signal.getsignal(one) == signal.SIG_IGN
        ],
    }  # fmt: skip
    handles = b"".join(one.to_bytes(4, sys.byteorder) for one in (0, 1, 2, int(pmi)))
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        channel.connect(path)
        files = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handles)]
        channel.sendmsg([json.dumps(request).encode()], files)
        return json.loads(channel.recv(WORD_BYTES))["pid"], channel
    except (OSError, ValueError):
        channel.close()
    return None


def _pass_on(number: int, channel: Any) -> None:
    """Have a rank that is another's child get a signal which a child of this process would have got as well."""
    try:
        channel.send(str(number).encode())
    except OSError:
        return  # it has ended


def _status_of(channel: Any) -> int:
    """Return how a rank ended, as its parent says it; a rank is killed with its parent."""
    try:
        return int(channel.recv(WORD_BYTES))
    except (OSError, ValueError):
        return int(signal.SIGKILL)


# ------------------------------------------------------------------ in the child: becoming the rank
def _execute(program: list[str]) -> NoReturn:
    os.execvp(program[0], program)  # noqa: S606 - an argument list, no shell


def become(
    entry: dict[str, Any],
    launch: dict[str, Any],
    folder: str,
    rank: int,
    *,
    by_srun: bool,
    run: Callable[[list[str]], NoReturn] = _execute,
) -> NoReturn:
    """Prepare this process and become the program."""
    try:
        if by_srun:
            _write_to_file(rank)
            _take_place(folder, rank)
        else:
            _register(folder, rank)
            _speak_directly(folder, rank)
            _place(entry, rank)
        _remove_predecessors()
        os.environ.update(entry.get("environment", {}))
        _count_messages(entry["host"])
        task = os.environ.get("APPLES_TASK") or ("task.json" if by_srun else "")
        if task:
            os.environ["APPLES_TASK"] = os.path.join(folder, task)  # noqa: PTH118 - as above
        os.chdir(entry["directory"] if by_srun else launch["directory"])
        for number in (
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):  # Python ignores them, which a program would inherit
            signal.signal(number, signal.SIG_DFL)
        run(entry["program"])
    except OSError as error:
        what = error.filename or entry["program"][0]
        sys.stderr.write(f"apples: cannot start on {entry['host']}: {what}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(CANNOT_START)


def die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; die at once if it already did."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent or parent == 1:
        os._exit(CANNOT_START)


def _register(folder: str, rank: int) -> None:
    """Tell the supervisor which process is which rank, and note it for whoever clears up where that is killed."""
    _say(folder, f"{rank} {os.getpid()}")
    _say(folder, str(os.getpid()), PROCESSES)


# Process numbers come again. libfabric opens a file of /dev/shm by number before it makes it anew:
# with the file of a killed rank, MPI_Init ends with "Message truncated" or never.
def _remove_predecessors() -> None:
    """Remove what killed processes of this number left in shared memory: MPI would take it for this one's."""
    own = f"{os.getpid()}:{os.getuid()}:"
    with contextlib.suppress(OSError):
        for name in os.listdir(SHARED_MEMORY):  # noqa: PTH208 - pathlib is slow to load
            if name.startswith(own):
                os.unlink(os.path.join(SHARED_MEMORY, name))  # noqa: PTH108, PTH118 - likewise


def _speak_directly(folder: str, rank: int) -> None:
    """Write to the agent and not through the launcher, which drops the last words of an abort."""
    for names, standard in (((OUTPUT,), 1), ((f"errors-{rank}", "errors"), 2)):
        for name in names:
            try:
                pipe = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK)  # noqa: PTH118
            except OSError:
                continue  # nobody listens when started by hand, or to one rank alone
            os.set_blocking(pipe, True)
            os.dup2(pipe, standard)
            os.close(pipe)
            break


def _place(entry: dict[str, Any], rank: int) -> None:
    """Go to the host's cgroup and CPUs."""
    if entry["cgroup"]:
        with open(entry["cgroup"], "w", encoding="ascii") as stream:  # noqa: PTH123 - pathlib is slow to load
            stream.write("0")
    cpus = entry["cpus"]
    if entry.get("rank_cpus"):
        cpus = entry["rank_cpus"][rank - entry["first_rank"]]
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            error.filename = "CPUs " + ", ".join(map(str, cpus))
            raise


def _count_messages(host: str) -> None:
    """Let the program be loaded with the library that counts its messages, where that is wanted."""
    if library := os.environ.get(COUNTING):
        others = os.environ.get("LD_PRELOAD", "")
        os.environ["LD_PRELOAD"] = f"{library}:{others}" if others else library
        os.environ["APPLES_COUNT_HOST"] = host


def _write_to_file(rank: int) -> None:
    """Under Slurm the first rank writes where the agent reads; srun would hold its lines back."""
    if rank == 0:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(OUTPUT, flags, 0o600), 1)


def _take_place(folder: str, rank: int) -> None:
    """Go to the CPUs that were decided for this rank, among those its task of Slurm was given."""
    try:
        with open(os.path.join(folder, PLACES), encoding="ascii") as stream:  # noqa: PTH118, PTH123
            places = json.load(stream)
    except FileNotFoundError:
        return  # it was said why
    if not places:
        return
    if set(places[rank]) <= os.sched_getaffinity(0):
        os.sched_setaffinity(0, places[rank])
    else:
        sys.stderr.write(f"apples: note: rank {rank} is not bound: Slurm gave it other CPUs now\n")
        sys.stderr.flush()


def target(hosts: list[dict[str, Any]], rank: int) -> dict[str, Any]:
    """Return the entry of the host that has this rank."""
    for entry in hosts:
        if rank < entry["ranks"]:
            return entry
        rank -= entry["ranks"]
    raise SystemExit(f"apples: Slurm started rank {rank} too many")


# ------------------------------------------------------------------ beside the rank: what becomes of it
def watch(
    child: int, rank: int, tell: Callable[[str], None], ended: int, status_of: Callable[[], int]
) -> int:
    """Return the status with which the rank ended; what becomes of it is told meanwhile.

    Parameters
    ----------
    ended
        An open file that can be read when it has.
    status_of
        Says then how.
    """
    kills = OutOfMemoryKills(child)
    pmi = os.environ.get("PMI_FD", "")
    if pmi.isdecimal():
        with contextlib.suppress(OSError):
            os.close(int(pmi))  # it is the rank's: its end is to be the connection's
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    waited = told = False
    while not poll.poll(LOOK_MILLISECONDS):
        waits = pmi.isdecimal() and waits_for_launcher(child, int(pmi))
        if (waits and waited) != told:
            told = waits and waited
            tell(f"{rank} {'waits' if told else 'goes on'}")
        waited = waits
    status = status_of()
    tell(f"{rank} ended {how_it_ended(status)}{kills.words(status)}")
    return status


# A rank that raises or calls sys.exit hangs in MPI_Finalize. It then sleeps in read(2) on PMI_FD.
# No rank does that between MPI_Init and MPI_Finalize, where MPI waits by spinning.
def waits_for_launcher(pid: int, pmi: int) -> bool:
    """Whether a rank waits for the launcher's word: in MPI_Init for ranks to come, in MPI_Finalize to go."""
    fields = _bytes(f"/proc/{pid}/syscall").split()
    if len(fields) < 2 or fields[0] != READ.get(os.uname().machine):
        return False
    return int(fields[1], 16) == pmi


def how_it_ended(status: int) -> str:
    """Return in words how a process ended.

    Examples
    --------
    >>> how_it_ended(9), how_it_ended(5 << 8)
    ('killed by SIGKILL', 'exit code 5')
    """
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal_name(-code)}" if code < 0 else f"exit code {code}"


def signal_name(number: int) -> str:
    """Return a signal's name, its number where it has none.

    Examples
    --------
    >>> signal_name(11), signal_name(40)
    ('SIGSEGV', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def end_as(status: int) -> NoReturn:
    """End this process as another has ended, without a second file of its memory."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


class OutOfMemoryKills:
    """How many processes the kernel has killed for lack of memory: in a process's group, and on the machine."""

    def __init__(self, pid: int) -> None:
        self.file = memory_account(
            _bytes(f"/proc/{pid}/cgroup").decode(errors="replace"),
            _bytes("/proc/self/mountinfo").decode(errors="replace"),
        )
        self.before = self.count()

    def count(self) -> tuple[int, int]:
        """Return both numbers as they are now."""
        return oom_kills(_bytes(self.file)), oom_kills(_bytes("/proc/vmstat"))

    def words(self, status: int) -> str:
        """Return what the kernel's account adds to the end of a process that was killed."""
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            return ""
        group, machine = (
            now - before for now, before in zip(self.count(), self.before, strict=True)
        )
        if group > 0:
            return f"; the memory limit of its group was hit (oom_kill {group})"
        if machine > 0:
            return f"; the kernel ended processes for lack of memory (oom_kill {machine} on this machine)"
        return ""


def oom_kills(account: bytes) -> int:
    r"""Return the number beside ``oom_kill`` in a file of the kernel's; 0 where there is none.

    Examples
    --------
    >>> oom_kills(b"low 0\noom 2\noom_kill 1\noom_group_kill 0\n"), oom_kills(b"")
    (1, 0)
    """
    for line in account.splitlines():
        name, _, number = line.partition(b" ")
        if name == b"oom_kill" and number.isdigit():
            return int(number)
    return 0


def memory_account(groups: str, mounts: str) -> str:
    r"""Return the file in which the kernel counts what it killed in a process's group; empty where none is seen.

    Parameters
    ----------
    groups, mounts
        The process's ``cgroup`` and this one's ``mountinfo``.

    Examples
    --------
    >>> mount = "30 25 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw"
    >>> memory_account("0::/user.slice/app", mount)
    '/sys/fs/cgroup/user.slice/app/memory.events'
    >>> mount = "33 28 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
    >>> memory_account("4:memory:/lab/ada\n0::/", mount)
    '/sys/fs/cgroup/memory/lab/ada/memory.oom_control'
    """
    paths = {}
    for line in groups.splitlines():
        number, names, path = [*line.split(":", 2), "", ""][:3]
        if "memory" in names.split(","):
            paths["cgroup"] = path
        elif number == "0":
            paths["cgroup2"] = path
    files = {}
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), [*after.split(" ", 2), "", "", ""][:3]
        if len(fields) < 5 or (kind == "cgroup" and "memory" not in options.split(",")):
            continue
        if kind in paths:
            root, path = fields[3].rstrip("/"), paths[kind]
            inside = path.removeprefix(root)
            name = "memory.oom_control" if kind == "cgroup" else "memory.events"
            files[kind] = "/".join((fields[4].rstrip("/"), inside.strip("/"), name)).replace(
                "//", "/"
            )
    return files.get("cgroup", files.get("cgroup2", ""))


def _tell(folder: str, child: int, line: str) -> None:
    """Tell the supervisor of the run something of the rank; that of the node too where the job is malleable."""
    _say(folder, line)
    node = os.environ.get("APPLES_MALLEABLE")
    rank, what, how = [*line.split(" ", 2), ""][:3]
    if node and what == "ended":
        import _socket  # noqa: PLC0415 - only a malleable job needs it; `socket` takes six times as long to load

        message = {"event": "ended", "rank": int(rank), "pid": child, "how": how}
        try:
            channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
            channel.connect(node)
            channel.send(json.dumps(message).encode())
            channel.close()
        except OSError:
            return  # it is gone, and with it whoever would want to know


def on_standard_error(line: str) -> None:
    """Tell a line about a rank on standard error."""
    sys.stderr.write(f"{TOLD}{line}\n")
    sys.stderr.flush()


def _say(folder: str, line: str, name: str = "ranks") -> None:
    """Write a line to the pipe of the ranks, or to another file; there is none when started by hand."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND
    try:
        pipe = os.open(os.path.join(folder, name), flags)  # noqa: PTH118
    except OSError:
        return
    try:
        os.write(pipe, f"{line}\n".encode())
    except OSError:
        return  # a supervisor that is gone, or reads nothing any more
    finally:
        os.close(pipe)


def _bytes(path: str) -> bytes:
    """Return what a file of the kernel's holds; nothing where it cannot be read."""
    try:
        with open(path, "rb") as stream:  # noqa: PTH123 - as above
            return stream.read()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
