"""Turn this process into one rank: on its host's CPUs, in its host's cgroup, killed when its launcher dies.

hydra starts it by path as ``python -I -S rank_wrapper.py LAUNCH_FILE HOST_INDEX``; srun does so without the index.
Standard library only, and few modules of it, because every rank starts through this file. The program's arguments
come from the launch file, not from the launcher's command line.

The program replaces this process (exec), so a rank is one process. The supervisor with which the rank registered
notices its end through a pidfd; the launcher prints its exit code.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
CANNOT_START = 127
OUTPUT = "output"
"""The file or pipe of the run to which ranks write events."""
PROCESSES = "processes"
"""File of the run to which every rank appends its process id, if the supervisor has created it."""
COUNTING = "APPLES_COUNT_LIBRARY"
"""Variable with the path of the library that counts a program's messages (`launch.message_counts`)."""
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - MPI's folder for files named by process id
PLACES = "places.json"
"""File with the CPUs of each rank under Slurm, if they were chosen."""


def main() -> NoReturn:
    """Read the launch file and become the rank."""
    by_srun = len(sys.argv) == 2
    folder = os.path.dirname(os.path.abspath(sys.argv[1]))  # noqa: PTH100, PTH120 - pathlib loads in 5 ms
    with open(sys.argv[1], encoding="utf-8") as stream:  # noqa: PTH123 - likewise
        launch = json.load(stream)
    if by_srun:
        rank = int(os.environ["SLURM_PROCID"])
        entry = target(launch["hosts"], rank)
    else:
        # Not under srun: the parent of its tasks is a thread that may end before them.
        die_with(os.getppid())
        rank = int(os.environ.get("PMI_RANK", "0"))
        entry = launch["hosts"][int(sys.argv[2])]
    become(entry, launch, folder, rank, by_srun=by_srun)


def become(
    entry: dict[str, Any], launch: dict[str, Any], folder: str, rank: int, *, by_srun: bool
) -> NoReturn:
    """Prepare this process and replace it by the program."""
    try:
        if by_srun:
            _write_to_file(rank)
            _take_place(folder, rank)
        else:
            _write_to_pipes(folder, rank)
            try:
                _place(entry, rank)
            finally:  # the supervisor reads the rank's cgroup when it registers
                _register(folder, rank)
        _remove_predecessors()
        os.environ.update(entry.get("environment", {}))
        _count_messages(entry["host"])
        task = os.environ.get("APPLES_TASK") or ("task.json" if by_srun else "")
        if task:
            os.environ["APPLES_TASK"] = os.path.join(folder, task)  # noqa: PTH118 - as above
        os.chdir(entry["directory"] if by_srun else launch["directory"])
        # Python ignores these two signals, and the program would inherit that.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        program = entry["program"]
        if by_srun:  # over ssh the host agent has replaced it already
            program = [word.replace("{python}", sys.executable) for word in program]
        os.execvp(program[0], program)  # noqa: S606 - an argument list, no shell
    except OSError as error:
        what = error.filename or entry["program"][0]
        sys.stderr.write(f"apples: cannot start on {entry['host']}: {what}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        os._exit(CANNOT_START)


def die_with(parent: int) -> None:
    """Let the kernel kill this process (also after exec) when its parent dies; exit if it is dead already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent or parent == 1:
        os._exit(CANNOT_START)


def _register(folder: str, rank: int) -> None:
    """Send this rank's process id to the supervisor, and note it for a cleanup if the supervisor is killed."""
    _write_line(folder, "ranks", f"{rank} {os.getpid()}")
    _write_line(folder, PROCESSES, str(os.getpid()))


# The kernel reuses process ids. libfabric opens the file of its process id in /dev/shm before it creates a new
# one. With the file of a killed rank, MPI_Init fails with "Message truncated" or hangs.
def _remove_predecessors() -> None:
    """Remove shared memory files of killed processes with this process id; MPI would use them for this rank."""
    own = f"{os.getpid()}:{os.getuid()}:"
    with contextlib.suppress(OSError):
        for name in os.listdir(SHARED_MEMORY):  # noqa: PTH208 - pathlib is slow to load
            if name.startswith(own):
                os.unlink(os.path.join(SHARED_MEMORY, name))  # noqa: PTH108, PTH118 - likewise


def _write_to_pipes(folder: str, rank: int) -> None:
    """Write to the pipes of the run, not through the launcher, which drops the last output of an abort."""
    # hydra's proxy ends or stops serving MPI when all its ranks have closed their output pipes. Keep a duplicate
    # open.
    os.set_inheritable(os.dup(1), True)
    for names, standard in (((OUTPUT,), 1), ((f"errors-{rank}", "errors"), 2)):
        for name in names:
            try:
                pipe = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK)  # noqa: PTH118
            except OSError:
                continue  # no reader: the command was started by hand, or this rank has no own pipe
            os.set_blocking(pipe, True)
            os.dup2(pipe, standard)
            os.close(pipe)
            break


def _place(entry: dict[str, Any], rank: int) -> None:
    """Move this process to the host's cgroup and CPUs."""
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
    """If requested, preload the library that counts messages into the program."""
    if library := os.environ.get(COUNTING):
        others = os.environ.get("LD_PRELOAD", "")
        os.environ["LD_PRELOAD"] = f"{library}:{others}" if others else library
        os.environ["APPLES_COUNT_HOST"] = host


def _write_to_file(rank: int) -> None:
    """Let the first rank under Slurm write to the file that the follower reads; srun would delay its lines."""
    if rank == 0:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(OUTPUT, flags, 0o600), 1)


def _take_place(folder: str, rank: int) -> None:
    """Bind this process to the CPUs chosen for its rank, if Slurm gave them to its task."""
    try:
        with open(os.path.join(folder, PLACES), encoding="ascii") as stream:  # noqa: PTH118, PTH123
            places = json.load(stream)
    except FileNotFoundError:
        return  # the reason was printed already
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


def _write_line(folder: str, name: str, line: str) -> None:
    """Write a line to a pipe or file of the run; do nothing if it is missing (command started by hand)."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND
    try:
        pipe = os.open(os.path.join(folder, name), flags)  # noqa: PTH118
    except OSError:
        return
    try:
        os.write(pipe, f"{line}\n".encode())
    except OSError:
        return  # the supervisor is gone or does not read
    finally:
        os.close(pipe)


if __name__ == "__main__":
    main()
