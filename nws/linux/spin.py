"""A program: spin on some CPUs for a moment and print the share of one CPU that it got.

``python -I -S spin.py SECONDS CPU,CPU,..``. It imports nothing but built-in modules, so that it
starts quickly on a busy machine.
"""

import os
import sys
import time

PAUSE = 5e-4
"""Seconds between two looks at the clock that mean that somebody else had the CPU."""
FEWEST = 3
"""Pauses it takes to tell turns."""


def spin(seconds: float) -> float:
    """Return CPU time over wall time of a loop that lasts `seconds`.

    Where the CPU comes in turns (others compute too, a quota is used up) it is taken from the end of the
    first pause to the end of the last: a part of a turn, and what was left of a quota, would count too much
    or too little.
    """
    begin = (time.monotonic(), time.thread_time())
    last, ends = begin[0], []
    while last - begin[0] < seconds:
        now = time.monotonic()
        if now - last > PAUSE:
            ends.append((now, time.thread_time()))
        last = now
    if len(ends) < FEWEST:
        ends = [begin, (last, time.thread_time())]
    (wall, cpu), (end_wall, end_cpu) = ends[0], ends[-1]
    return min(1.0, (end_cpu - cpu) / (end_wall - wall))


def main(arguments: list[str]) -> None:
    """Pin, spin, print."""
    seconds, cpus = arguments
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    sys.stdout.write(f"{spin(float(seconds))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
