"""Spins on one CPU until its owner ends: an artificial competing load.

Run by path as ``python -I -S spin.py CPU OWNER_PID``; standard library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Pin this process, print ``spinning``, and spin."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != int(sys.argv[2]):
        return  # the owner died before it could be watched
    os.sched_setaffinity(0, {int(sys.argv[1])})
    sys.stdout.write("spinning\n")
    sys.stdout.flush()
    while True:
        pass


if __name__ == "__main__":
    main()
