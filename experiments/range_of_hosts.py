"""Compare turnaround on logs with ranges of processors and with fixed sizes.

    python experiments/range_of_hosts.py LOG:PROCESSORS .. [--jobs 2800] [--least 0.25] [--most 2] [--json FILE]

Slices of consecutive jobs, each simulated on the empty machine. Malleable jobs may have `--least` to `--most`
times their request, under equipartition with Kale's resize costs; the others are rigid. Fixed: one multiple of the
request, under EASY. Changes are of the mean turnaround of all jobs, 95 % intervals by bootstrap over slices.

Result: `benchmarks/results/range_of_hosts.json`.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.scheduling import Easy, Equipartition
from apples.simulation import COSTS, SimulationConfig, Workload, amdahl, mark_malleable, simulate
from apples.simulation.sources import load_workload
from apples.simulation.speedup import Speedup, linear

MULTIPLES = (0.25, 0.5, 1.0, 2.0)
FRACTIONS = (0.2, 0.5, 1.0)
SPEEDUPS: dict[str, Speedup] = {"linear": linear, "amdahl:0.02": partial(amdahl, serial=0.02)}
DRAWS = 4000
Values = NDArray[np.float64]


def fixed(workload: Workload, multiple: float, speedup: Speedup, most: int) -> Workload:
    """Return the workload with its malleable jobs on a fixed multiple of their processors."""
    asked = workload.processors
    multiples = np.where(workload.malleable, multiple, 1.0)
    width = np.clip(np.ceil(asked * multiples), 1, most).astype(np.int64)
    longer = np.array([speedup(a) / speedup(w) for a, w in zip(asked, width, strict=True)])
    return replace(
        workload, processors=width, minimum=width, maximum=width, malleable=np.zeros(len(width), dtype=bool),
        run=np.maximum(1.0, np.round(workload.run * longer)),
        requested=np.maximum(1.0, np.round(workload.requested * longer)),
    )  # fmt: skip


def turnarounds(
    workload: Workload, policy: Easy | Equipartition, config: SimulationConfig
) -> Values:
    """Return the seconds from submission to end, by job."""
    result = simulate(workload, policy, config)
    return np.asarray(result.end - workload.submit)


def change(new: list[Values], old: list[Values]) -> dict[str, Any]:
    """Return the relative change of the mean, with its 95 % interval over slices."""
    sums = np.array([[a.sum(), b.sum()] for a, b in zip(new, old, strict=True)])
    chosen = np.random.default_rng(0).integers(0, len(sums), (DRAWS, len(sums)))
    drawn = sums[chosen].sum(axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1] - 1.0, (0.025, 0.975))
    total = sums.sum(axis=0)
    return {
        "change": float(total[0] / total[1] - 1.0),
        "interval": [float(low), float(high)],
        "better_slices": int((sums[:, 0] < sums[:, 1]).sum()),
        "slices": len(sums),
    }


def measure(words: argparse.Namespace, path: str, machine: str) -> dict[str, Any]:
    """Return the figures of a log."""
    slices, jobs, least, bound = words.slices, words.jobs, words.least, words.most
    multiples = [one for one in MULTIPLES if least <= one <= bound]
    nodes, _, cores = machine.partition("x")
    each = int(cores or 1)
    most = int(nodes) * each
    log = load_workload(path, most).workload
    begins = np.linspace(0, max(0, len(log) - jobs), slices).astype(int)
    parts = [log.take(slice(int(k), int(k) + jobs)) for k in begins]
    document: dict[str, Any] = {
        "log": Path(path).name, "machine": machine, "slices": slices, "jobs_a_slice": jobs,
        "range": [least, bound],
    }  # fmt: skip
    for name, speedup in SPEEDUPS.items():
        config = SimulationConfig(
            int(nodes), each, speedup=speedup, cost=COSTS["kale"], release="at_once"
        )
        rigid = [turnarounds(part, Easy(), config) for part in parts]
        rows: dict[str, Any] = {"rigid_seconds": float(np.concatenate(rigid).mean())}
        for fraction in FRACTIONS:
            marked = [
                mark_malleable(
                    part, fraction, words.seed + k, minimum=least, maximum=bound, most=most
                )
                for k, part in enumerate(parts)
            ]
            found = [turnarounds(part, Equipartition(), config) for part in marked]
            sizes = {
                multiple: [
                    turnarounds(fixed(part, multiple, speedup, most), Easy(), config)
                    for part in marked
                ]
                for multiple in multiples
            }
            best = min(multiples, key=lambda multiple: sum(one.sum() for one in sizes[multiple]))
            others = [~part.malleable for part in marked]
            rows[f"malleable {fraction:g}"] = {
                "against_rigid": change(found, rigid),
                "best_fixed": best,
                "against_best_fixed": change(found, sizes[best]),
                "fixed_against_rigid": {
                    f"{multiple:g}": change(sizes[multiple], rigid) for multiple in multiples
                },
                "of_its_rigid_jobs": change(
                    *([one[which] for one, which in zip(every, others, strict=True)]
                      for every in (found, rigid))
                ) if fraction < 1.0 else None,
            }  # fmt: skip
        document[name] = rows
    return document


def words_of(one: dict[str, Any]) -> str:
    """Return a change with its interval."""
    low, high = one["interval"]
    better = f"{one['better_slices']} of {one['slices']} slices better"
    return f"{one['change']:+6.1%} ({low:+.1%} to {high:+.1%}; {better})"


def main() -> None:
    """Print a table a log, and write the figures as JSON."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("logs", nargs="+", metavar="LOG:NODES[xCORES]")
    words.add_argument("--slices", type=int, default=10)
    words.add_argument("--jobs", type=int, default=2500, help="of a slice")
    words.add_argument("--least", type=float, default=0.25, help="times the processors asked for")
    words.add_argument("--most", type=float, default=2.0)
    words.add_argument("--seed", type=int, default=0)
    words.add_argument("--json", type=Path, help="file for the figures")
    chosen = words.parse_args()
    found = []
    for log in chosen.logs:
        path, _, machine = log.rpartition(":")
        began = time.process_time()
        document = measure(chosen, path, machine)
        found.append(document)
        print(
            f"{document['log']} on {machine}: {chosen.slices} slices of {chosen.jobs} jobs, "
            f"{time.process_time() - began:.0f} s of processor time"
        )
        for name in SPEEDUPS:
            rows = document[name]
            print(f"  {name}: rigid {rows['rigid_seconds']:.0f} s")
            for fraction in FRACTIONS:
                row = rows[f"malleable {fraction:g}"]
                print(f"    malleable {fraction:4.0%}       {words_of(row['against_rigid'])}")
                print(
                    f"      best fixed x {row['best_fixed']:<4g}  {words_of(row['against_best_fixed'])}"
                )
                if row["of_its_rigid_jobs"]:
                    print(f"      its rigid jobs   {words_of(row['of_its_rigid_jobs'])}")
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
