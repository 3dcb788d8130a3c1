"""A job on a machine that is loaded: ``loaded.py SECONDS [--load L]``; no host of it may be taken for lost.

So many processes a CPU spin beside it. It prints how often a host was lost; 1 is the exit code if one was.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from apples.malleable.control.command import HostShare, RolledBack
from apples.testing import spin
from apples.testing.rehearsal import rehearse

COUNTING = Path(__file__).parents[1] / "programs_mpi" / "counting.py"
SLOTS = {"ada": 1, "bob": 2, "eve": 1}


def main(seconds, load):
    """Run a job for so long; return how often a host of it was lost."""
    spinning = [sys.executable, "-I", "-S", spin.__file__]
    cpus = sorted(os.sched_getaffinity(0))
    processes = [
        subprocess.Popen([*spinning, str(cpu), str(os.getpid())], stdout=subprocess.DEVNULL)
        for cpu in cpus
        for _ in range(load)
    ]
    until = time.monotonic() + seconds
    try:
        with tempfile.TemporaryDirectory() as folder:
            stop = Path(folder) / "stop"

            def maps():
                while time.monotonic() < until:
                    yield [HostShare(host) for host in SLOTS]
                stop.touch()

            program = (sys.executable, str(COUNTING), "60", "0.05", str(stop))
            everywhere = [HostShare(host) for host in SLOTS]
            run = rehearse(program, SLOTS, everywhere, maps(), pause=10.0)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    lost = [notice for notice in run.notices if isinstance(notice, RolledBack)]
    for notice in lost:
        print(f"{', '.join(notice.lost)}: {notice.reason}")
    print(
        f"{seconds:g} s at load {load} a CPU, {len(cpus)} CPUs: {len(lost)} hosts lost; {run.ended}"
    )
    return len(lost) + (run.ended.state != "finished")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--load", type=int, default=8)
    asked = parser.parse_args()
    sys.exit(1 if main(asked.seconds, asked.load) else 0)
