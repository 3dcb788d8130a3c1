"""How far real runs end from their predictions, and how many end inside the printed 80 % interval.

Run: python benchmarks/intervals.py [--cpus 2,4] [--sessions one,own] [--repeat 12]. For each number of CPUs, and
with all competing processes in the agent's session or each in its own, the four methods of ``apples demo`` run
in turn on unequal hosts made of those CPUs: 48 runs a layout with the default of 12 repetitions. Writes
runs/figures/intervals.json. With --stored FILE: print the figures of that file, or of an ``apples.demo/1``
document, and run nothing.

Bars: median error <= 8 %, each method <= 15 %, 70 to 90 % inside. The share inside is of the runs with a printed
interval. Also printed: the share that the intervals of the runs before would have held, with a history for each
class of sets, and with one for each class and method.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

from apples.agent import MIN_RUNS, PastRun, next_interval
from apples.jobs import METHODS
from apples.jobs.demo.comparison import compare

WRITTEN = Path("runs/figures/intervals.json")


def options():
    """Return what is to be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpus", default="2,4")
    parser.add_argument("--sessions", default="one,own")
    parser.add_argument("--repeat", type=int, default=12)
    parser.add_argument("--grid", type=int, default=0)
    parser.add_argument("--stored", type=Path, help="figures of a stored result; run nothing")
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
    """Return what is kept of the document of a run."""
    execution, strips = run["execution"], run["plan"]["chosen"]["strips"]
    low, high = execution["interval"]
    got = {host["host"]: host["cpu_got"] for host in execution["hosts"] if host["cpu_got"]}
    return {
        "method": run["plan"]["blueprint"],
        "off": execution["off"],
        "inside": execution["inside"],
        "class": execution["coverage"]["class"],
        "error": math.log1p(execution["off"]),
        "promised": [low, high] if low < high else None,
        "got": got,
        "forecast": {strip["host"]: strip["cpu"] for strip in strips},
    }


def rows_of(document):
    """Return the rows of a stored result by layout."""
    if document.get("schema") != "apples.demo/1":
        return document
    return {"demo": [row(run) for run in document["runs"] if run["execution"] is not None]}


def held(rows, history):
    """Return the share inside of the runs that would have a printed interval, by `history` of a row."""
    errors = {}
    for one in rows:
        errors.setdefault(history(one), []).append(one["error"])
    inside = []
    for known in errors.values():
        runs = [PastRun("site", 1.0, None, None, math.exp(error)) for error in known]
        interval = next_interval(runs)
        # The intervals of the runs before `MIN_RUNS` are not printed.
        inside += interval.held[-(len(runs) - MIN_RUNS) :] if len(runs) > MIN_RUNS else ()
    return f"{statistics.mean(inside):.0%} of {len(inside)}" if inside else "too few runs"


def figures(rows):
    """Yield the lines of one layout."""
    offs = [abs(one["off"]) for one in rows]
    yield (
        f"  {len(rows)} runs: median error {statistics.median(offs):.1%}, worst {max(offs):.0%}, "
        f"{inside_words(rows)}"
    )
    for method in METHODS:
        own = [one for one in rows if one["method"] == method]
        if own:
            error = statistics.median(abs(one["off"]) for one in own)
            yield f"    {method:24} median error {error:6.1%}, {inside_words(own)}"
    shared = held(rows, lambda one: one["class"])
    each = held(rows, lambda one: (one["class"], one["method"]))
    yield f"    held with a history a class {shared}, a history a class and method {each}"
    ratios = [one["got"][h] / one["forecast"][h] for one in rows for h in one["got"]]
    if ratios:
        off = statistics.median(abs(ratio - 1) for ratio in ratios)
        yield f"    share of a CPU: got over forecast off by {off:.1%} in the median"


def inside_words(rows):
    """Return how many of the runs with a printed interval ended inside it."""
    printed = [one["inside"] for one in rows if one["inside"] is not None]
    return f"{sum(printed)} of {len(printed)} inside" if printed else "no interval printed"


def main():
    """Run every layout and print its figures."""
    asked = options()
    if asked.stored:
        for name, rows in rows_of(json.loads(asked.stored.read_text())).items():
            print(name)
            print("\n".join(figures(rows)))
        return
    results = {}
    for cpus in map(int, asked.cpus.split(",")):
        for sessions in asked.sessions.split(","):
            print(f"{cpus} CPUs, competitors in {sessions} session" + "s" * (sessions == "own"))
            begun = time.monotonic()
            runs = layout(cpus, sessions, asked.repeat, asked.grid)
            if runs is None:
                continue
            rows = [row(run) for run in runs if run["execution"] is not None]
            results[f"{cpus} {sessions}"] = rows
            print("\n".join(figures(rows)))
            print(f"    {time.monotonic() - begun:.0f} s in all", flush=True)
    WRITTEN.parent.mkdir(parents=True, exist_ok=True)
    WRITTEN.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
