"""A program: spin on some CPUs for a moment and print the share of one CPU that it got.

``python -I -S spin.py SECONDS CPU,CPU,..``. It imports little, so that it
starts quickly on a busy machine.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

# A loop of 0.1 s cuts the turns of a quota, so only whole turns count. A container's usual period
# of 100 ms is longer than the limit below and is still cut.
PAUSE = 5e-4
"""Seconds between two readings of the clock from which on another thread had the CPU."""
MIN_PAUSES = 3
"""Pauses needed to recognise turns; the time from the first to the last is at least half of the loop."""


def spin(
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    used: Callable[[], float] = time.thread_time,
) -> float:
    """Return CPU time over wall time of a loop that lasts `seconds`.

    If the CPU comes in turns (other threads compute, or a quota is used up), the ratio is from the end of the
    first pause to the end of the last: a part of a turn, or the rest of a quota, would count too much
    or too little. Turns longer than a third of the loop are not recognised.
    """
    begin = (clock(), used())
    last, ends = begin[0], []
    while last - begin[0] < seconds:
        now = clock()
        if now - last > PAUSE:
            ends.append((now, used()))
        last = now
    if len(ends) < MIN_PAUSES or ends[-1][0] - ends[0][0] < seconds / 2:
        ends = [begin, (last, used())]
    (wall, cpu), (end_wall, end_cpu) = ends[0], ends[-1]
    return min(1.0, (end_cpu - cpu) / (end_wall - wall))


def main(arguments: list[str]) -> None:
    """Pin, spin, print."""
    seconds, cpus = arguments
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    sys.stdout.write(f"{spin(float(seconds))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
