"""Becomes one rank: on its host's CPUs, in its host's cgroup, never outliving its launcher.

Run by path as ``python -I -S bind.py LAUNCH_FILE HOST_INDEX``; standard library only, and little of it,
because every rank starts through here. The program's arguments come from the launch file and never
pass through a launcher's command line.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
CANNOT_START = 127


def main() -> NoReturn:
    """Prepare this process and become the program."""
    parent = os.getppid()
    _die_with(parent)
    folder = os.path.dirname(os.path.abspath(sys.argv[1]))  # noqa: PTH100, PTH120 - pathlib costs 5 ms a rank
    with open(sys.argv[1], encoding="utf-8") as stream:  # noqa: PTH123 - likewise
        launch = json.load(stream)
    entry = launch["hosts"][int(sys.argv[2])]
    try:
        _register(folder)
        _speak_directly(folder)
        _place(entry)
        os.environ.update(entry.get("environment", {}))
        task = os.environ.get("APPLES_TASK")
        if task:
            os.environ["APPLES_TASK"] = os.path.join(folder, task)  # noqa: PTH118 - likewise
        os.chdir(launch["directory"])
        for number in (
            signal.SIGPIPE,
            signal.SIGXFSZ,
        ):  # Python ignores them, which a program would inherit
            signal.signal(number, signal.SIG_DFL)
        os.execvp(entry["program"][0], entry["program"])  # noqa: S606 - an argument list, no shell
    except OSError as error:
        what = error.filename or entry["program"][0]
        sys.stderr.write(f"apples: cannot start on {entry['host']}: {what}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(CANNOT_START)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies; die at once if it already did."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent or parent == 1:
        os._exit(CANNOT_START)


def _register(folder: str) -> None:
    """Tell the supervisor which process is which rank; nobody listens when started by hand."""
    try:
        pipe = os.open(os.path.join(folder, "ranks"), os.O_WRONLY | os.O_NONBLOCK)  # noqa: PTH118
    except OSError:
        return
    rank = os.environ.get("PMI_RANK", "0")
    os.write(pipe, f"{rank} {os.getpid()}\n".encode())
    os.close(pipe)


def _speak_directly(folder: str) -> None:
    """Write to the agent and not through the launcher, which drops the last words of an abort."""
    for name, standard in (("output", 1), ("errors", 2)):
        try:
            pipe = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_NONBLOCK)  # noqa: PTH118
        except OSError:
            continue  # nobody listens when started by hand
        os.set_blocking(pipe, True)
        os.dup2(pipe, standard)
        os.close(pipe)


def _place(entry: dict[str, Any]) -> None:
    """Go to the host's cgroup and CPUs."""
    if entry["cgroup"]:
        with open(entry["cgroup"], "w", encoding="ascii") as stream:  # noqa: PTH123 - pathlib is slow to load
            stream.write("0")
    cpus = entry["cpus"]
    if entry.get("rank_cpus"):
        cpus = entry["rank_cpus"][int(os.environ.get("PMI_RANK", "0")) - entry["first_rank"]]
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except OSError as error:
            error.filename = "CPUs " + ", ".join(map(str, cpus))
            raise


if __name__ == "__main__":
    main()
