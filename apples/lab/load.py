"""Competing load on an emulated host, on a schedule.

Run by path as ``python -I -S load.py ZERO JSON``; standard library only. `ZERO` is the moment the lab
came up, by the machine's monotonic clock. The JSON lists intervals: start, stop (null: never) and the number of
processes that compete in it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Begin and end each interval at its time."""
    zero = float(sys.argv[1])
    changes = []
    for number, (start, stop, processes) in enumerate(json.loads(sys.argv[2])):
        changes.append((start, number, processes))
        if stop is not None:
            changes.append((stop, number, 0))
    running: dict[int, list[int]] = {}
    for when, number, processes in sorted(changes):
        time.sleep(max(0.0, zero + when - time.monotonic()))
        if processes:
            running[number] = [_spin() for _ in range(processes)]
        else:
            _end(running.pop(number))
    for children in running.values():
        os.waitpid(children[0], 0)


def _spin() -> int:
    """Start one process that computes and never waits; it ends with this process."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        while os.getppid() == parent:
            for _ in range(1_000_000):
                pass
        os._exit(0)
    return child


def _end(children: list[int]) -> None:
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
