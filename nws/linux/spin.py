"""A program: spin on some CPUs for a moment and print the share of one CPU that it got.

``python -I -S spin.py SECONDS CPU,CPU,..``. It imports nothing but built-in modules, so that it
starts quickly on a busy machine.
"""

import os
import sys
import time


def spin(seconds: float) -> float:
    """Return CPU time over wall time of a loop that lasts `seconds`."""
    wall, cpu = time.monotonic(), time.thread_time()
    elapsed = 0.0
    while elapsed < seconds:
        elapsed = time.monotonic() - wall
    return min(1.0, (time.thread_time() - cpu) / elapsed)


def main(arguments: list[str]) -> None:
    """Pin, spin, print."""
    seconds, cpus = arguments
    os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})
    sys.stdout.write(f"{spin(float(seconds))}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
