"""A job on a machine that is loaded: ``loaded.py SECONDS [--load L] [--lab]``; no host may be taken for lost.

So many processes a CPU spin beside it. It prints how often a host was lost, the longest time that one was silent
and that the job's manager had no CPU, and which part of a CPU each spinning process had; the exit code is 1 if a
host was lost. With `--lab` the hosts are those of a lab of its own (root), reached over ssh. At SIGTERM it ends
early, and says so.
"""

import argparse
import contextlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from apples.jobs import spin
from apples.malleable import HostShare, RolledBack, rehearse

sys.path.append(str(Path(__file__).parents[2]))
from labs import a_lab, placing

COUNTING = Path(__file__).parents[1] / "programs_mpi" / "counting.py"
SLOTS = {"ada": 1, "bob": 2, "eve": 1}
LAB = """
name = "loaded"
slurm = false
[[host]]
name = "ada"
[[host]]
name = "bob"
[[host]]
name = "eve"
"""
"""Hosts without a quota: all that they run is in the cgroup of who starts this."""


class Heard(io.StringIO):
    """What was said on standard error, which hears it too."""

    def write(self, text):
        sys.__stderr__.write(text)
        return super().write(text)


class Silences:
    """The longest silences of a job's hosts, and of its manager, which hears nobody while it has no CPU."""

    def __init__(self):
        self.host = self.manager = 0.0

    def watch(self, manager):
        """Look at each turn of the manager's loop."""
        engine, tick, turned = manager.engine, manager.engine.tick, [time.monotonic()]

        def look_then_tick():
            now = time.monotonic()
            self.manager = max(self.manager, now - turned[0])
            turned[0] = now
            heard = [one.last_report_at for one in engine.groups if one.reported and not one.gone]
            self.host = max([self.host, *(now - at for at in heard)])
            tick()

        engine.tick = look_then_tick


def main(seconds, load, place):
    """Run a job for so long; return how often a host of it was lost."""
    spinning = [sys.executable, "-I", "-S", spin.__file__]
    cpus = sorted(os.sched_getaffinity(0))
    processes = [
        subprocess.Popen([*spinning, str(cpu), str(os.getpid())], stdout=subprocess.DEVNULL)
        for cpu in cpus
        for _ in range(load)
    ]
    began = time.monotonic()
    until = [began + seconds]
    signal.signal(signal.SIGTERM, lambda *_: until.__setitem__(0, 0.0))
    silences, said = Silences(), Heard()
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said):
            stop = Path(folder) / "stop"

            def maps():
                while time.monotonic() < until[0]:
                    yield [HostShare(host) for host in SLOTS]
                stop.touch()

            program = (sys.executable, str(COUNTING), "60", "0.05", str(stop))
            everywhere = [HostShare(host) for host in SLOTS]
            run = rehearse(
                program, SLOTS, everywhere, maps(), pause=10.0, place=place, watch=silences.watch
            )
        lasted = time.monotonic() - began
        spun = sum(cpu_seconds(one.pid) for one in processes) / max(1, len(processes))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    lost = [notice for notice in run.notices if isinstance(notice, RolledBack)]
    for notice in lost:
        print(f"{', '.join(notice.lost)}: {notice.reason}")
    print(
        f"{lasted:.0f} s at load {load} a CPU, {len(cpus)} CPUs, {spun / lasted:.3f} of one for each that spins"
        f" (load of the machine {os.getloadavg()[0]:.0f}): {len(lost)} hosts lost; a host silent for"
        f" {silences.host:.1f} s at most, the manager without a CPU for {silences.manager:.1f} s; {run.ended}"
    )
    return len(lost) + (run.ended.state != "finished")


def cpu_seconds(pid):
    """Return the CPU time that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--load", type=int, default=8)
    parser.add_argument("--lab", action="store_true")
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        place = placing(stack.enter_context(a_lab(LAB))) if asked.lab else lambda spec: spec
        sys.exit(1 if main(asked.seconds, asked.load, place) else 0)
