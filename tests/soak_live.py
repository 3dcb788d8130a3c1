"""Histories of the live scheduler by the thousand: python tests/soak_live.py --n 10000 [--from SEED].

Prints one JSON line; exit code 1 and the seed where a promise is broken. A seed gives the same history each time:
`--from SEED --n 1` replays it; `--policy sd` has that policy in all. `--planted NAME` plants a fault of
`planted_live.py` first: then it has to fail.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from adversaries.live_scheduler import SimulatedCluster
from adversaries.protocol.simulation import BrokenPromiseError
from planted_live import FAULTS, FAULTS_OF_SHARING, plant


def history(seed, policy=""):
    """Return the cluster of a seed after its history; raises where a promise is broken."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = SimulatedCluster(seed, Path(directory), policy=policy)
        cluster.run()
        return cluster


def first_broken(seeds, policy=""):
    """Return the first seed with a broken promise, and which; None: there is none."""
    for seed in seeds:
        try:
            history(seed, policy)
        except BrokenPromiseError as broken:
            return seed, str(broken)
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--policy", default="")
    parser.add_argument("--planted", choices=sorted(FAULTS))
    asked = parser.parse_args()
    if asked.planted:
        asked.policy = asked.policy or "sd" * (asked.planted in FAULTS_OF_SHARING)
        plant(asked.planted)
    counts = Counter()
    for seed in range(asked.first, asked.first + asked.n):
        try:
            cluster = history(seed, asked.policy)
        except BrokenPromiseError as broken:
            print(json.dumps({"part": "live", "seed": seed, "broken": str(broken)}))
            return 1
        counts.update(
            events=cluster.clock.events, crashes=cluster.crashes, lost=cluster.network.lost,
            doubled=cluster.network.doubled, jobs=len(cluster.acknowledged),
            attempts=len(cluster.executor.begun), passes=cluster.passes,
            resizes=sum(one.epoch for one in cluster.executor.attempts.values()),
            downs=cluster.downs,
            guests=sum(bool(job.share < 1) for job in cluster.scheduler.state.jobs.values()),
        )  # fmt: skip
    print(json.dumps({"part": "live", "trials": asked.n, "failures": 0, **counts}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
