"""How far real runs end from their predictions, and how many end inside the promised 80 % interval.

Run: python benchmarks/intervals.py [--cpus 2,4] [--sessions one,own] [--repeat 12]. For each number of CPUs, and
with all competing processes in the agent's session or each in its own, the four methods of ``apples demo`` run
in turn on unequal hosts made of those CPUs: 48 runs a layout with the default of 12 repetitions.

Bars: median error <= 8 %, each method <= 15 %, 70 to 90 % inside. Also printed: what the same errors would have
had inside with a history a method, and with the models' own intervals. Writes runs/figures/intervals.json.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

from apples.agent.models.conformal import PastRun, half_width
from apples.agent.session.results import RunResult
from apples.jobs.demo.comparison import compare
from apples.jobs.text.demo import METHODS

WRITTEN = Path("runs/figures/intervals.json")


def options():
    """Return what is to be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpus", default="2,4")
    parser.add_argument("--sessions", default="one,own")
    parser.add_argument("--repeat", type=int, default=12)
    parser.add_argument("--grid", type=int, default=0)
    return parser.parse_args()


def layout(cpus, sessions, repeat, grid):
    """Return the runs on the first so many CPUs."""
    own, begun = sorted(os.sched_getaffinity(0)), time.monotonic()

    def say(line):
        print(f"  {time.monotonic() - begun:4.0f} s  {line}", file=sys.stderr, flush=True)

    if len(own) < cpus:
        print(f"{cpus} CPUs: this machine offers {len(own)}; left out")
        return None
    os.sched_setaffinity(0, own[:cpus])
    try:
        return compare(METHODS, repeat, grid, say, sessions == "own")
    finally:
        os.sched_setaffinity(0, own)


def row(run):
    """Return what is kept of a run."""
    past, basis = run.check.past, run.plan.estimate.basis
    return {
        "method": run.plan.blueprint,
        "off": run.check.off,
        "inside": run.check.inside,
        "class": basis.set_class,
        "error": math.log(past.measured / past.predicted),
        "own": basis.own,
        "promised": past.promised,
        "predicted": past.predicted,
        "got": {h.host: h.processor / h.measured_compute for h in run.check.hosts if h.processor},
        "forecast": {
            h.host.name: run.plan.information.conditions.cpu(h.host).value
            for h in run.plan.estimate.hosts
        },
        "bias": dict(run.plan.information.model.share_bias),
    }


def replayed(rows, history):
    """Return the share of runs inside where each history, by `history` of a row, is one of its own."""
    known, inside = {}, []
    for one in rows:
        runs = known.setdefault(history(one), [])
        width = half_width(runs) if runs else one["own"]
        inside.append(abs(one["error"]) <= width)
        ends = (math.exp(-width), math.exp(width))
        runs.append(PastRun("site", 1.0, one["own"], ends, math.exp(one["error"])))
    return statistics.mean(inside)


def told(rows):
    """Yield the lines of one layout."""
    offs = [abs(one["off"]) for one in rows]
    inside = statistics.mean(one["inside"] is True for one in rows)
    median = statistics.median(offs)
    yield f"  {len(rows)} runs: median error {median:.1%}, worst {max(offs):.0%}, {inside:.0%} inside"
    for method in METHODS:
        own = [one for one in rows if one["method"] == method]
        if own:
            error = statistics.median(abs(one["off"]) for one in own)
            held = sum(one["inside"] is True for one in own)
            yield f"    {method:24} median error {error:6.1%}, {held} of {len(own)} inside"
    shared = replayed(rows, lambda one: one["class"])
    each = replayed(rows, lambda one: (one["class"], one["method"]))
    models = statistics.mean(abs(one["error"]) <= one["own"] for one in rows)
    yield f"    inside with one history {shared:.0%}, a history a method {each:.0%}, the models' own {models:.0%}"
    ratios = [one["got"][h] / one["forecast"][h] for one in rows for h in one["got"]]
    off = statistics.median(abs(ratio - 1) for ratio in ratios)
    yield f"    share of a CPU: got over forecast off by {off:.1%} in the median"


def main():
    """Run every layout and print its figures."""
    asked = options()
    found = {}
    for cpus in map(int, asked.cpus.split(",")):
        for sessions in asked.sessions.split(","):
            print(f"{cpus} CPUs, competitors in {sessions} session" + "s" * (sessions == "own"))
            begun = time.monotonic()
            runs = layout(cpus, sessions, asked.repeat, asked.grid)
            if runs is None:
                continue
            rows = [row(run) for run in runs if isinstance(run, RunResult)]
            found[f"{cpus} {sessions}"] = rows
            print("\n".join(told(rows)))
            print(f"    {time.monotonic() - begun:.0f} s in all", flush=True)
    WRITTEN.parent.mkdir(parents=True, exist_ok=True)
    WRITTEN.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
