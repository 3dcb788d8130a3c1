"""Kale et al. 2002, Figures 7-10: response and utilisation against load, two schedulers.

The paper's text carries no numbers of these figures, only that the adaptive scheduler is better on
both: that is what is checked. Its speed-up curve (Figure 6) is not in the text either; "naive
parallel algorithm, sub-linear": Amdahl with three serial parts stands in for it.

    python benchmarks/kale_figures.py
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from apples.scheduling import Equipartition, FirstFit
from apples.simulation import (
    COSTS,
    MeanInterval,
    SimulationConfig,
    amdahl,
    interval,
    kale_workload,
    simulate,
)

SEEDS = 20
per_cent = "{:+.0%}".format
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def run(jobs: int, load: float, seed: int, adaptive: bool, serial: float) -> tuple[float, float]:
    """Return mean response and mean utilisation of one experiment."""
    speedup = partial(amdahl, serial=serial)
    config = SimulationConfig(64, speedup=speedup, cost=COSTS["kale"], release="at_once")
    workload = kale_workload(jobs, load, seed, adaptive=adaptive, speedup=speedup)
    result = simulate(workload, Equipartition() if adaptive else FirstFit(), config)
    span = result.end.max() - workload.submit[0]
    return float((result.end - workload.submit).mean()), result.node_seconds / (64 * span)


def said(one: MeanInterval, form: Callable[[float], str]) -> str:
    """Return a mean and half its interval."""
    return f"{form(one.mean)} +- {form(one.half or 0.0)}"


def main() -> None:
    """Print the four figures as tables, and how often the paper's direction holds."""
    for jobs, first in ((50, 7), (10_000, 9)):
        for serial in (0.0, 0.02, 0.1):
            print(
                f"\nFigures {first} (response, s) and {first + 1} (utilisation): "
                f"{jobs} jobs, {SEEDS} seeds, Amdahl serial part {serial:g}, cost of Table 1"
            )
            print(f"{'load':>5} {'adaptive':>16} {'traditional':>16} {'paired change':>18}"
                  f" {'adaptive':>16} {'traditional':>16} {'change':>16}")  # fmt: skip
            for load in LOADS:
                pairs = np.array([
                    [run(jobs, load, seed, adaptive, serial) for adaptive in (True, False)]
                    for seed in range(SEEDS)
                ])  # fmt: skip
                ratio = pairs[:, 0] / pairs[:, 1] - 1
                change, use = (interval(ratio[:, k].tolist()) for k in (0, 1))
                cells = [
                    said(interval(pairs[:, k, metric].tolist()), "{:.4g}".format)
                    for metric in (0, 1)
                    for k in (0, 1)
                ]
                print(
                    f"{load:5.1f} {cells[0]:>16} {cells[1]:>16} {said(change, per_cent):>18} "
                    f"{cells[2]:>16} {cells[3]:>16} {said(use, per_cent):>16}"
                    f"  paper: adaptive better on both; here "
                    f"{'yes' if change.high < 0 else 'no' if change.low > 0 else 'open'} / "
                    f"{'yes' if use.low > 0 else 'no' if use.high < 0 else 'open'}"
                )


if __name__ == "__main__":
    main()
