"""Table 1 and Figures 1 to 8 of D'Amico et al. 2019: SD-Policy against backfilling. Simulated.

Not available: the full CEA-Curie log (an excerpt of 23 days stands in), the coefficients of the Cirne model (a
similar generator stands in), and the selection of 10,000 jobs of RICC. The paper's base is Slurm's backfill; the
base here is EASY. Results depend chaotically on ties: intervals are over slices of logs and seeds of models.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from apples.scheduling import Easy, SchedulingPolicy, SlowdownDriven
from apples.scheduling.policies import SlurmBackfill
from apples.simulation import (
    CirneLike,
    SimulationConfig,
    Workload,
    cirne_like_workload,
    clean,
    interval,
    job_outcomes,
    lublin_workload,
    makespan,
    mark_malleable,
    read_swf,
    simulate,
    slice_jobs,
)
from apples.simulation.pages.facts import SimulatedRun, heat_maps, per_day
from benchmarks.common import Row, Settings, Skipped

MONTH = 1283266800 - 1272639895  # RICC: the first of September 2010 in Tokyo
DAY = 86400.0
CIRNE, EXACT, RICC, CURIE = "Cirne-like", "exact requests", "RICC", "CEA-Curie excerpt"
PAPER = {CIRNE: "-49.5 %", EXACT: "-31 %", RICC: "-25.7 %", CURIE: "-70.4 %"}
"""The paper's best change of the mean slowdown."""
NUMBERS = {CIRNE: 1, EXACT: 2, RICC: 3, CURIE: 4}
METRICS = ("makespan", "response", "slowdown")
Cases = list[tuple[Workload, SimulationConfig]]


def cases(name: str, settings: Settings) -> Cases:
    """Return the slices or seeds of a workload."""
    seeds = range(settings.pick(6, 2))
    if name in {CIRNE, EXACT}:
        several = [
            (cirne_like_workload(settings.pick(2000, 100), 1024, 48, 128, seed,
                                 coefficients=CirneLike(load=1.3), exact_requests=name == EXACT),
             SimulationConfig(1024, 48))
            for seed in seeds
        ]  # fmt: skip
    elif name == RICC:
        log, _ = clean(read_swf(settings.file("swf/RICC-2010-2.swf.gz")), 576)
        several = [
            (
                slice_jobs(log, MONTH + k * 5 * DAY).take(slice(0, settings.pick(5000, 200))),
                SimulationConfig(1024, 8),
            )
            for k in seeds
        ]
    elif name == CURIE:
        log = curie(settings)
        bounds = np.linspace(0, settings.pick(len(log), 400), len(seeds) + 1).astype(int)
        several = [
            (log.take(slice(int(a), int(b))), SimulationConfig(5040, 16))
            for a, b in pairwise(bounds)
        ]
    else:
        several = [
            (lublin_workload(settings.pick(4000, 200), 256, s), SimulationConfig(64, 4))
            for s in seeds
        ]
    return [(mark_malleable(workload, 1.0, 0), config) for workload, config in several]


def curie(settings: Settings) -> Workload:
    """Return the excerpt of the CEA-Curie log."""
    return clean(read_swf(settings.file("swf/CEA-Curie-2011-sample.swf.gz")), 80640)[0]


def outcome(
    workload: Workload, policy: SchedulingPolicy, config: SimulationConfig
) -> tuple[Any, Any]:
    """Return makespan, mean response and mean slowdown; and the result."""
    result = simulate(workload, policy, config)
    jobs = job_outcomes(workload, result)
    return np.array(
        [makespan(workload, result), jobs.response.mean(), jobs.slowdown.mean()]
    ), result


def change(name: str, measures: str, values: list[float], paper: str = "") -> Row:
    """Return the row of a mean relative change with its 95 % interval."""
    found = interval([100 * value for value in values])
    return Row(name, measures, found.mean, "%", found.low, found.high, paper=paper)


def cuts_of(name: str) -> Any:
    """Return the part that varies MAX_SLOWDOWN on a workload."""

    def part(settings: Settings) -> Iterator[Row]:
        several = cases(name, settings)
        static = [outcome(w, Easy(), config)[0] for w, config in several]
        settings.raw["static"] = np.mean(static, axis=0).tolist()
        title = f"Workload {NUMBERS[name]}, {name}" if name in NUMBERS else name
        for cut in settings.pick((5.0, 10.0, 50.0, float("inf"), "dynamic"), (10.0,)):
            policy = SlowdownDriven(max_slowdown=cut)
            runs = [outcome(w, policy, config) for w, config in several]
            ratios = [values / base - 1 for (values, _), base in zip(runs, static, strict=True)]
            label = "DynAVGSD" if cut == "dynamic" else f"MAX_SLOWDOWN {cut:g}"
            for k, metric in enumerate(METRICS):
                yield change(
                    f"{metric}, {label}", f"{title}: {metric}, {label}", [r[k] for r in ratios],
                    PAPER.get(name, "") if metric == "slowdown" else "",
                )  # fmt: skip
            guests, mates = (
                100 * np.mean([getattr(r, f).mean() for _, r in runs]) for f in ("guest", "mate")
            )
            known = name == CURIE and cut == 10.0
            yield Row(f"guests, {label}", f"{title}: malleable starts, {label}", guests, "%",
                      paper="10.3 %" if known else "")  # fmt: skip
            yield Row(
                f"mates, {label}",
                f"{title}: mates, {label}",
                mates,
                "%",
                paper="8.6 %" if known else "",
            )

    part.__doc__ = f"Vary MAX_SLOWDOWN on {name}, Figures 1 to 3: makespan, response and slowdown."
    return part


def models(settings: Settings) -> Iterator[Row]:
    """Compare the worst-case run-time model with the ideal one under DynAVGSD: Figure 8."""
    papers = {CIRNE: "+16 %", RICC: "+3.5 %", CURIE: "+1 %"}
    policy = SlowdownDriven(max_slowdown="dynamic")
    missing = []
    for name in (CIRNE, EXACT, RICC, CURIE):
        try:
            several = cases(name, settings)
        except Skipped as reason:
            missing.append(reason)
            continue
        ratios = []
        for workload, config in several:
            ideal, worst = (
                outcome(workload, policy, SimulationConfig(
                    config.nodes, config.cores_per_node, runtime_model=model))[0]
                for model in ("ideal", "worst")
            )  # fmt: skip
            ratios.append(worst[2] / ideal[2] - 1)
        yield change(
            name, f"Figure 8, {name}: slowdown with the worst model", ratios, papers.get(name, "")
        )
    if missing:
        raise missing[0]


def depth(settings: Settings) -> Iterator[Row]:
    """Vary the depth of the search in the queue on RICC, with the head of the queue protected and without."""
    several = cases(RICC, settings)
    static = [outcome(w, Easy(), config)[0][2] for w, config in several]
    for count in settings.pick((1, 10, 100, 1000, 10_000), (10,)):
        for protect in (True, False):
            policy = SlowdownDriven(depth=count, protect=protect)
            ratios = [
                outcome(w, policy, config)[0][2] / base - 1
                for (w, config), base in zip(several, static, strict=True)
            ]
            way = "protected" if protect else "as in the paper"
            yield change(f"{count}, {way}", f"RICC: slowdown, depth {count}, {way}", ratios)


def whole(settings: Settings) -> Iterator[Row]:
    """Simulate the whole CEA-Curie excerpt in one run: Figures 4 to 7, by class of job and by day."""
    log = curie(settings)
    workload, config = (
        mark_malleable(log.take(slice(0, settings.pick(len(log), 500))), 1.0, 0),
        SimulationConfig(5040, 16),
    )
    static, shared = (outcome(workload, policy, config) for policy in (Easy(), SlowdownDriven()))
    runs = [SimulatedRun(name, workload, result, config) for name, (_, result) in
            (("static", static), ("MAX_SLOWDOWN 10", shared))]  # fmt: skip
    settings.raw["heat maps"] = list(heat_maps(*runs))
    settings.raw["by day"] = [
        [np.asarray(column).tolist() for column in per_day(run)] for run in runs
    ]
    for k, metric in enumerate(METRICS):
        yield Row(metric, f"CEA-Curie excerpt, one run: {metric}, MAX_SLOWDOWN 10",
                  100 * (shared[0][k] / static[0][k] - 1), "%",
                  paper=("0 %", "-50 %", "-70.4 %")[k])  # fmt: skip


def slurm(settings: Settings) -> Iterator[Row]:
    """Simulate Table 1, row 3: RICC under Slurm's backfill by first day and weights, which the paper omits."""
    log, _ = clean(read_swf(settings.file("swf/RICC-2010-2.swf.gz")), 576)
    printed = np.array([407_043.0, 43_537.0, 1341.0])
    nearest = float("inf")
    for day in settings.pick((1, 3, 6, 11, 16, 21, 26), (1,)):
        part = slice_jobs(log, MONTH + (day - 1) * DAY).take(slice(0, settings.pick(10_000, 200)))
        for name, (age, size) in {
            "none": (0, 0),
            "small": (0, 1),
            "age 1, small 2": (1, 2),
        }.items():
            policy = SlurmBackfill(
                bf_interval=23, bf_max_job_test=1000, PriorityFavorSmall=True,
                PriorityWeightAge=age, PriorityWeightJobSize=size,
            )  # fmt: skip
            values, _ = outcome(part, policy, SimulationConfig(1024, 8))
            settings.raw[f"day {day}, weights {name}"] = values.tolist()
            nearest = min(nearest, float(np.abs(values / printed - 1).max()))
    yield Row(
        "nearest", "Table 1, row 3: largest deviation, best setting",
        100 * nearest, "%", at_most=10, paper="407,043 s; 43,537 s; 1341",
    )  # fmt: skip


PARTS = {
    "cirne": cuts_of(CIRNE),
    "exact": cuts_of(EXACT),
    "ricc": cuts_of(RICC),
    "curie": cuts_of(CURIE),
    "lublin": cuts_of("Lublin-Feitelson"),
    "models": models,
    "depth": depth,
    "whole": whole,
    "slurm": slurm,
}
