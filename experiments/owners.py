"""Simulate twelve workstations with owners that come and go, and deciders that move 24 tasks.

    python experiments/owners.py [--seeds N]

Never moving, Dynamite's rule at four thresholds, `migrate`, and an oracle that knows the next minute's loads.
Prints iterations in ten minutes relative to the oracle's, with 95 % intervals. Exit code 1: a bar is missed.

Result: `benchmarks/results/owners.json`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from scipy.stats import t as student

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from adversaries.owners_model import OwnersWorld, emulate

THRESHOLDS = (0.5, 0.55, 0.6, 0.7)
BETTER, BEHIND = 1.3, 1.15


def main() -> bool:
    """Print the table; say whether the bars hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10)
    seeds = range(parser.parse_args().seeds)
    worlds = [OwnersWorld.drawn(seed) for seed in seeds]
    oracle = [emulate(world, "oracle", seed) for seed, world in zip(seeds, worlds, strict=True)]
    print(f"{len(seeds)} seeds; iterations of the oracle {mean(o.iterations for o in oracle):.0f}")
    print(f"{'decider':16} {'of the oracle':>24} {'moves':>6}")
    ways = [
        ("never", 0.6),
        *(("decider", threshold) for threshold in THRESHOLDS),
        ("migrate", 0.6),
    ]
    found = {}
    for name, threshold in ways:
        title = f"{name} T={threshold:g}" if name == "decider" else name
        runs = [
            emulate(w, name, s, threshold=threshold) for s, w in zip(seeds, worlds, strict=True)
        ]
        found[title] = [run.iterations for run in runs]
        parts = [run.iterations / best.iterations for run, best in zip(runs, oracle, strict=True)]
        print(
            f"{title:16} {interval(parts):>24} {mean(run.moves for run in runs):6.1f}", flush=True
        )
    print(f"{'oracle':16} {'1':>24} {mean(o.moves for o in oracle):6.1f}")
    ours = found["migrate"]
    literal = max((v for k, v in found.items() if k.startswith("decider")), key=mean)
    gain = [a / b for a, b in zip(ours, literal, strict=True)]
    behind = [best.iterations / mine for best, mine in zip(oracle, ours, strict=True)]
    calm = [emulate(OwnersWorld.drawn(s, changes=False), "migrate", s).moves for s in seeds]
    bars = (
        (f"migrate over the best decider: {interval(gain)}", mean(gain) >= BETTER),
        (f"oracle over migrate: {interval(behind)}", mean(behind) <= BEHIND),
        (f"moves of migrate under constant load: {sum(calm)} in {len(calm)} runs", not sum(calm)),
    )
    for line, held in bars:
        print("ok  " if held else "OVER", line)
    return all(held for _, held in bars)


def mean(values: Iterable[float]) -> float:
    """Return the mean of some numbers."""
    return statistics.fmean(values)


def interval(values: Sequence[float]) -> str:
    """Return mean and 95 % interval, in words."""
    half = 0.0
    if len(values) > 1:
        spread = statistics.stdev(values) / len(values) ** 0.5
        half = float(student.ppf(0.975, len(values) - 1)) * spread
    return f"{mean(values):.2f} ({mean(values) - half:.2f} to {mean(values) + half:.2f})"


if __name__ == "__main__":
    sys.exit(not main())
