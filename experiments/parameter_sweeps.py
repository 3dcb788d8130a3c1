"""Measure the quality and the speed of parameter-sweep plans by heuristic.

    python experiments/parameter_sweeps.py [--worlds 200] [--tasks 1000] [--hosts 100]

Prints ratios to the best heuristic of each world and the CPU time of a plan. Exit code 1: a bar is missed.

Result: `benchmarks/results/parameter_sweeps.json`.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sweep_worlds import sweep_world

from apples.applications import HEURISTICS, plan_by, plan_sweep

MEAN, WORST, SECONDS = 1.01, 1.05, 1.0


def ratios(worlds):
    """Return the makespan of the chosen plan and of each heuristic, over the best of the world."""
    generator, found = np.random.default_rng(21), {name: [] for name in ("chosen", *HEURISTICS)}
    for _ in range(worlds):
        files = int(generator.choice([1, 5, 20, 40, 150]))
        inputs = int(generator.choice([1, 3]))
        world = sweep_world(generator, tasks=150, files=files, inputs=inputs)
        decision = plan_sweep(world.costs)
        best = min(decision.makespans.values())
        found["chosen"].append(decision.plan.makespan / best)
        for name, seconds in decision.makespans.items():
            found[name].append(seconds / best)
    return found


def plan_seconds(tasks, hosts):
    """Return the processor seconds of a plan by each heuristic: hosts of ten sites, a file for ten tasks."""
    world = sweep_world(
        np.random.default_rng(1),
        sites=10,
        hosts=(hosts // 10, hosts // 10),
        tasks=tasks,
        files=tasks // 10,
    )
    costs, found = world.costs, {}
    for name, heuristic in HEURISTICS.items():
        begun = time.process_time()
        plan_by(name, heuristic, costs)
        found[name] = time.process_time() - begun
    return found


def main():
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--hosts", type=int, default=100)
    asked = parser.parse_args()
    found = ratios(asked.worlds)
    for name, values in found.items():
        print(f"{name:11s} {np.mean(values):.3f} of the best, worst {np.max(values):.2f}")
    seconds = plan_seconds(asked.tasks, asked.hosts)
    seconds["all"] = sum(seconds.values())
    for name, value in seconds.items():
        print(f"{name:11s} {value:.2f} s for {asked.tasks} tasks on {asked.hosts} hosts")
    kept = np.mean(found["chosen"]) <= MEAN and np.max(found["chosen"]) <= WORST
    return 0 if kept and max(seconds.values()) <= SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
