"""Killing and placing processes by what they are in, never by a number that may be another's by now."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path

from apples.topology.cpus import CpuSet

AT_ONCE = 200
"""Descriptors of processes that are open at a time."""
ROUNDS = 50


def signal_members(members: Callable[[], frozenset[int]], number: int = signal.SIGKILL) -> None:
    """Send a signal to every member there is now.

    Each is opened first and must be a member still: a number that was freed and given to a stranger in
    between is no member, and one that is freed later cannot be reached through the old descriptor.
    """
    listed = sorted(members() - {1, os.getpid()})
    for start in range(0, len(listed), AT_ONCE):
        opened: dict[int, int] = {}
        try:
            for process in listed[start : start + AT_ONCE]:
                with contextlib.suppress(OSError):
                    opened[process] = os.pidfd_open(process)
            for process in members() & opened.keys():
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(opened[process], number)
        finally:
            for descriptor in opened.values():
                os.close(descriptor)


def place_threads(process: int, cpus: CpuSet) -> None:
    """Set the mask of all threads of a process, also of those that appear meanwhile.

    Raises
    ------
    OSError
        There is no such process, it is another's, or none of the CPUs is open to it.
    """
    placed: set[int] = set()
    for _ in range(ROUNDS):
        found = _threads(process)
        if not found:
            raise ProcessLookupError(f"there is no process {process}")
        if found <= placed:
            return
        for thread in found - placed:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread, cpus)
            placed.add(thread)


def _threads(process: int) -> set[int]:
    try:
        return {int(path.name) for path in Path(f"/proc/{process}/task").iterdir()}
    except OSError:
        return set()
