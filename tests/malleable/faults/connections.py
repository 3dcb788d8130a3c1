"""Trials: the way to a host is killed, stopped, cut or slow, in a stage of a change, over ssh in a lab (root).

``connections.py N [--seed S] [--cuts 2,8,30] [--log FILE]`` runs N of them on the three hosts of a lab of its own
and prints how often each stage and each fault was met and what came of it; with `--log` each is a line of JSON in
a file as soon as it is over. A cut that ssh survives (`SSH_SECONDS`) must cost no iteration, one that is longer
and a connection that is killed or stopped no more than the host, and a link of 10 kB/s nothing; every job must end
with the right total. A link that is cut, or too slow for a change, while MPI connects newcomers over it may refuse
that change: MPI waits for no link. At SIGTERM it ends after the trial under way.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from labs import SMALL, a_lab, cut_off, placing, slowed
from strikes import Strike, strike_in_loop

from apples.malleable import HostShare, ResizeRefused, RolledBack, rehearse

COUNTING = Path(__file__).parents[1] / "programs_mpi" / "counting.py"
STAGES = ("idle", "start", "merge", "wait", "prefetch", "change", "leave")
FAULTS = ("killed", "stopped", "cut", "slow")
HOSTS = ("ada", "bob", "far")
SSH_SECONDS = 15.0
"""ssh ends a connection that brought nothing for so long (`apples.launch.remote.ssh.OPTIONS`)."""


class Link(Strike):
    """Has a host's link as `broken` has it (`cut_off`, `slowed`), for some seconds, in a thread."""

    def __init__(self, stage, host, lab, broken, seconds):
        super().__init__(stage, host, "connection")
        self.lab, self.broken, self.seconds, self.thread = lab, broken, seconds, None

    def _strike_connection(self, group):
        if not group.reported:
            return False
        begun = threading.Event()

        def hold():
            with self.broken(self.lab, group.host):
                begun.set()
                time.sleep(self.seconds)

        self.thread = threading.Thread(target=hold)
        self.thread.start()
        begun.wait()
        self.struck = 1
        return True


def trial(lab, seed, cuts):
    """Run one; return its stage, its fault, what came of it and, where that must not be, why."""
    draw = random.Random(seed)
    stage, fault = draw.choice(STAGES), draw.choice(FAULTS)
    newcomer = stage in ("merge", "wait", "change") and draw.random() < 0.5
    host = "far" if newcomer else "bob"
    seconds = draw.choice(cuts) if fault in ("cut", "slow") else 0.0
    harmless = fault == "slow" or 0.0 < seconds < SSH_SECONDS
    if seconds:
        strike = Link(stage, host, lab, slowed if fault == "slow" else cut_off, seconds)
        fault = f"{fault} for {seconds:g} s"
    else:
        strike = Strike(stage, host, "connection", "KILL" if fault == "killed" else "STOP")
    said, struck = io.StringIO(), []
    with tempfile.TemporaryDirectory() as folder:
        stop = Path(folder) / "stop"

        def maps():
            for hosts in [HOSTS, HOSTS[:2]] * 3 + [HOSTS[:1]]:
                yield [HostShare(host) for host in hosts]
            stop.touch()

        words = ["prefetch"] if stage == "prefetch" else []
        program = (sys.executable, str(COUNTING), "60", "0.05", str(stop), *words)
        first = [HostShare(host) for host in HOSTS[:2]]
        with contextlib.redirect_stdout(said):
            run = rehearse(
                program, dict.fromkeys(HOSTS, 1), first, maps(), commit_seconds=0.1, place=placing(lab),
                watch=lambda manager: strike_in_loop(manager, [strike], struck.append),
            )  # fmt: skip
    if seconds and strike.thread:
        strike.thread.join()

    def may_be(cost):
        return bool(seconds) and isinstance(cost, ResizeRefused)

    costs = [one for one in run.notices if isinstance(one, RolledBack | ResizeRefused)]
    wrong = ""
    if run.ended.state != "finished" or said.getvalue().count("total right on") != 1:
        wrong = f"{run.ended} {said.getvalue()[-500:]}"
    elif harmless and (unasked := [one for one in costs if not may_be(one)]):
        wrong = f"{unasked}"
    came = type(costs[0]).__name__ if costs else "-"
    return stage if struck else "nobody", fault, came, wrong


def main(count, seed, cuts, log):
    """Run the trials; return how many were wrong."""
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    stages, faults, bad = collections.Counter(), collections.Counter(), 0
    with a_lab(f"slurm = false\n{SMALL}") as lab:
        for number in range(seed, seed + count):
            if over.is_set():
                break
            stage, fault, came, wrong = trial(lab, number, cuts)
            stages[stage] += 1
            faults[fault] += stage != "nobody"
            bad += bool(wrong)
            print(f"{number}: {stage}: {fault}: {came}{wrong and f' WRONG {wrong}'}", flush=True)
            if log:
                words = {
                    "seed": number,
                    "stage": stage,
                    "fault": fault,
                    "came": came,
                    "wrong": wrong,
                }
                with log.open("a") as file:
                    file.write(json.dumps(words | {"load": os.getloadavg()[0]}) + "\n")
    print(
        f"stages {dict(stages)}, faults {dict(faults)}, wrong {bad}; load {os.getloadavg()[0]:.0f}"
    )
    return bad


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cuts", default="2,8,30")
    parser.add_argument("--log", type=Path)
    asked = parser.parse_args()
    cuts = [float(one) for one in asked.cuts.split(",")]
    sys.exit(bool(main(asked.count, asked.seed, cuts, asked.log)))
