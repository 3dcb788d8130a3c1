"""How often a job's start is inside the interval that is foretold when it comes: a log, under policies.

The log is simulated; then the queue is looked at as it was when some of the jobs came that had to wait, with what
was known then of runs that were over. Estimates are the log's own. Where a job was its user is known; nothing of
what is still to come.

    python benchmarks/start_intervals.py LOG --processors 100 --policy easy --jobs 200 --every 5
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from apples.cluster.queue_future import WAITED_SECONDS, QueueForecaster, simulate_queue
from apples.cluster.queue_snapshot import MOST_PAST, PastJob, QueuedJob, QueueSnapshot
from apples.scheduling.policies import POLICIES
from apples.simulation.config import SimulationConfig, SimulationResult
from apples.simulation.run import simulate
from apples.simulation.sources import load_workload
from apples.simulation.workload import Workload

FIRST = 1000
"""Jobs of the log that are history before the first one is looked at."""


def snapshots(
    log: Workload, result: SimulationResult, nodes: int, chosen: list[int]
) -> Iterator[tuple[int, QueueSnapshot]]:
    """Yield the queue as it was when each of these jobs came."""
    widths, users = log.processors.tolist(), log.words("user")
    jobs = [
        QueuedJob(number, width, width, seconds, user=user, alike=user)
        for number, width, seconds, user in zip(
            log.job.tolist(), widths, log.requested.tolist(), users, strict=True
        )
    ]
    start, end = result.start.tolist(), result.end.tolist()
    submit, ratio = log.submit.tolist(), (log.run / log.requested).tolist()
    for k in chosen:
        now = submit[k]
        runs = [i for i in range(k) if start[i] <= now < end[i]]
        here = [replace(jobs[i], nodes=widths[i], done=now - start[i]) for i in runs]
        here += [jobs[i] for i in range(k) if start[i] > now]
        past = [
            PastJob(
                jobs[i], submit[i], start[i] if start[i] <= now else None,
                end[i] if end[i] <= now else None, ratio[i] if end[i] <= now else None, widths[i],
            )
            for i in range(max(0, k - MOST_PAST), k)
        ]  # fmt: skip
        yield k, QueueSnapshot(nodes, (*here, jobs[k]), tuple(past), now)


def main() -> None:
    """Print a line a policy."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("log")
    words.add_argument("--processors", type=int, required=True)
    words.add_argument("--policy", action="append", choices=[*POLICIES])
    words.add_argument("--jobs", type=int, default=200)
    words.add_argument(
        "--every", type=int, default=5, help="of the jobs that waited, each so manieth"
    )
    words.add_argument("--most", type=int, default=9000, help="jobs of the log")
    chosen = words.parse_args()
    source = load_workload(chosen.log, chosen.processors, attributes=["user"])
    log = source.workload.take(slice(0, chosen.most))
    for name in chosen.policy or ["easy"]:
        policy = POLICIES[name]()
        result = simulate(log, policy, SimulationConfig(chosen.processors, release="at_once"))
        waits = result.start - log.submit
        waited = np.flatnonzero(waits > WAITED_SECONDS)
        picked = waited[waited >= FIRST][: chosen.jobs * chosen.every : chosen.every].tolist()
        forecaster, began = QueueForecaster(policy), time.perf_counter()
        inside = drawn = later = 0
        widths = []
        for k, snapshot in snapshots(log, result, chosen.processors, picked):
            low, _, high = forecaster.future(snapshot, seed=k).starts[int(log.job[k])] or (0, 0, 0)
            first, _, last = simulate_queue(snapshot, policy, seed=k).starts[int(log.job[k])] or (
                0,
                0,
                0,
            )
            inside += low - 1.0 <= waits[k] <= high + 1.0
            drawn += first - 1.0 <= waits[k] <= last + 1.0
            later += waits[k] > high + 1.0
            widths.append((high - low) / max(60.0, waits[k]))
        count = len(picked)
        print(
            f"{name}: {inside / count:.1%} of {count} starts inside, {later / count:.1%} later "
            f"(as drawn, not corrected: {drawn / count:.1%}); width by wait {np.median(widths):.2f}; "
            f"{(time.perf_counter() - began) / count:.2f} s a job"
        )


if __name__ == "__main__":
    main()
