"""Predict start and finish of jobs before their submission, on a simulated log.

    python experiments/start_and_finish.py LOG:PROCESSORS .. [--jobs 600] [--json FILE]

When every n-th job comes, the queue is predicted from estimates, users and run times of ended jobs. Within
tolerance: at most one minute or 10 % off. The reference takes the requested times and no later job.

Result: `benchmarks/results/start_and_finish.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.cluster.queue_future import WAITED_SECONDS, QueueForecaster, simulate_queue
from apples.cluster.queue_snapshot import MAX_PAST, PastJob, QueuedJob, QueueSnapshot
from apples.scheduling.policies import POLICIES
from apples.simulation.config import SimulationConfig, SimulationResult
from apples.simulation.run import simulate
from apples.simulation.sources import load_workload
from apples.simulation.workload import Workload

FIRST = 1000
"""Jobs of the log that are history before the first prediction."""
TOLERANCE_SECONDS, TOLERANCE = 60.0, 0.1
ROUNDING_SECONDS = 1.0
"""Added to both ends of an interval: a log has whole seconds."""
Values = NDArray[np.float64]


class ReplayedLog:
    """The queue of a simulated log at the submission of each job."""

    def __init__(self, log: Workload, result: SimulationResult, nodes: int) -> None:
        self.log, self.nodes = log, nodes
        self.start, self.end = result.start, result.end
        self._users = log.words("user")
        self._by_end = np.argsort(result.end, kind="stable")

    def snapshot(self, k: int) -> QueueSnapshot:
        """Return the queue after the submission of job `k`, which is its last job."""
        now, before = self.log.submit[k], slice(0, k)
        runs = np.flatnonzero((self.start[before] <= now) & (self.end[before] > now))
        waits = np.flatnonzero(self.start[before] > now)
        jobs = [self._job(i, now) for i in (*runs.tolist(), *waits.tolist(), k)]
        over = self._by_end[: np.searchsorted(self.end[self._by_end], now, side="right")]
        last = {*range(max(0, k - MAX_PAST), k), *over[over < k][-MAX_PAST:].tolist()}
        past = tuple(self._past(i, now) for i in sorted(last))
        return QueueSnapshot(self.nodes, tuple(jobs), past, float(now))

    def _job(self, i: int, now: float = -np.inf) -> QueuedJob:
        log, width, user = self.log, int(self.log.processors[i]), self._users[i]
        runs = self.start[i] <= now and self.log.submit[i] < now
        return QueuedJob(
            int(log.job[i]), width, width, float(log.requested[i]), user=user, alike=user,
            nodes=width if runs else 0, done=float(now - self.start[i]) if runs else 0.0,
        )  # fmt: skip

    def _past(self, i: int, now: float) -> PastJob:
        log, start, end = self.log, float(self.start[i]), float(self.end[i])
        over = end <= now
        ratio = float(log.run[i] / log.requested[i]) if over else None
        return PastJob(
            self._job(i), float(log.submit[i]), start if start <= now else None,
            end if over else None, ratio, int(log.processors[i]),
        )  # fmt: skip


def figures(true: Values, low: Values, middle: Values, high: Values) -> dict[str, float]:
    """Return share within tolerance, errors and coverage of predictions; NaN: no prediction."""
    off = middle - true
    within = abs(off) <= np.maximum(TOLERANCE_SECONDS, TOLERANCE * true)
    early = true < low - ROUNDING_SECONDS
    late = ~(true <= high + ROUNDING_SECONDS)
    return {
        "within": float(within.mean()),
        "bias_seconds": float(np.nanmean(off)),
        "median_error_seconds": float(np.nanmedian(abs(off))),
        "true_mean_seconds": float(true.mean()),
        "coverage": float(1.0 - (early | late).mean()),
        "early": float(early.mean()),
        "late": float(late.mean()),
    }


def measure(words: argparse.Namespace, path: str, processors: int) -> dict[str, Any]:
    """Return the figures of a log."""
    log = load_workload(path, processors, attributes=["user"]).workload
    policy = POLICIES[words.policy]()
    result = simulate(log, policy, SimulationConfig(processors, release="at_once"))
    replayed, forecaster = ReplayedLog(log, result, processors), QueueForecaster(policy)
    asked = np.linspace(min(FIRST, len(log) - 1), len(log) - 1, words.jobs).astype(int)
    rows, began = [], time.process_time()
    for k in asked.tolist():
        snapshot, number = replayed.snapshot(k), int(log.job[k])
        found = forecaster.future(snapshot, seed=k, draws=words.draws, recompute=words.recompute)
        plain = simulate_queue(QueueSnapshot(snapshot.nodes, snapshot.jobs), policy)
        nothing = (np.nan,) * 3
        rows.append((
            *(found.starts[number] or nothing), *found.ends.get(number, nothing),
            (plain.starts[number] or nothing)[1], plain.ends.get(number, nothing)[1],
        ))  # fmt: skip
    seconds = (time.process_time() - began) / len(asked)
    columns = np.array(rows).T
    wait, response = (column[asked] - log.submit[asked] for column in (result.start, result.end))
    waited = wait > WAITED_SECONDS
    document: dict[str, Any] = {
        "log": Path(path).name, "policy": words.policy, "jobs": len(asked), "jobs_that_waited": int(waited.sum()),
        "cpu_seconds_a_job": seconds,
    }  # fmt: skip
    for name, chosen in (("all", np.full(len(asked), fill_value=True)), ("waited", waited)):
        requested = [figures(true[chosen], *[column[chosen]] * 3)
                     for true, column in ((wait, columns[6]), (response, columns[7]))]  # fmt: skip
        document[name] = {
            "start": figures(wait[chosen], *columns[0:3, chosen]),
            "finish": figures(response[chosen], *columns[3:6, chosen]),
            "start_by_requested_times": requested[0],
            "finish_by_requested_times": requested[1],
        }
    return document


def main() -> None:
    """Print a table a log, and write the figures as JSON."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("logs", nargs="+", metavar="LOG:PROCESSORS")
    words.add_argument("--policy", default="easy", choices=[*POLICIES])
    words.add_argument("--jobs", type=int, default=200, help="predicted, evenly over the log")
    words.add_argument("--draws", type=int, default=40)
    words.add_argument("--recompute", type=int, default=0, help="past predictions a job")
    words.add_argument("--json", type=Path, help="file for the figures")
    chosen = words.parse_args()
    found = []
    for log in chosen.logs:
        path, _, processors = log.rpartition(":")
        document = measure(chosen, path, int(processors))
        found.append(document)
        print(
            f"{document['log']}, {chosen.policy}: {document['jobs']} jobs, of which "
            f"{document['jobs_that_waited']} waited; "
            f"{document['cpu_seconds_a_job']:.2f} s of processor time a prediction"
        )
        for which in ("all", "waited"):
            for name, one in document[which].items():
                held = "" if "requested" in name else f"; interval holds {one['coverage']:.1%}"
                print(
                    f"  {which:6} {name:26} within {one['within']:5.1%}, bias {one['bias_seconds']:+9.0f} s "
                    f"of {one['true_mean_seconds']:7.0f}, median error {one['median_error_seconds']:6.0f} s"
                    f"{held}",
                    flush=True,
                )
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
