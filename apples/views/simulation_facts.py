"""What a simulation report says, as numbers, before any of it is drawn."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from apples.simulation.config import SimulationConfig, SimulationResult
from apples.simulation.metrics import job_outcomes
from apples.simulation.sweep import MetricChange, change_of
from apples.simulation.workload import Workload

HOUR, DAY = 3600.0, 86400.0
BATCHES = 20
SIZES = (1, 2, 16, 64, 128, 256, 512, 1024, 1 << 40)
DURATIONS = (0, 10 * 60, HOUR, 4 * HOUR, 12 * HOUR, DAY, 2 * DAY, float("inf"))
DURATION_NAMES = ("< 10 min", "< 1 h", "< 4 h", "< 12 h", "< 1 d", "< 2 d", "longer")
Values = NDArray[np.float64]


@dataclass(frozen=True)
class SimulatedRun:
    """A policy's schedule of the report's workload."""

    name: str
    workload: Workload
    schedule: SimulationResult
    setting: SimulationConfig


def paired_change(base: Values, other: Values) -> MetricChange:
    """Return the relative change of a mean over jobs, with a 95 % interval by batch means.

    The jobs, in order of submission, make twenty batches; the log ratios of the batch means are taken
    as independent. One log is one sample of a workload: the interval says how much the change varies
    along this log, not what another log would give.
    """
    count = min(BATCHES, len(base))
    before, after = (
        [max(float(batch.mean()), 1.0) for batch in np.array_split(values, count)]
        for values in (base, other)
    )
    return change_of([b / a for a, b in zip(before, after, strict=True)], "slices")


def over_time(run: SimulatedRun, points: int = 400) -> tuple[Values, Values, Values]:
    """Return times (days from the first submission), utilisation and jobs waiting."""
    workload, schedule = run.workload, run.schedule
    first, last = workload.submit[0], np.nanmax(schedule.end)
    grid = np.linspace(first, last, points + 1)
    time = np.array([change[0] for change in schedule.changes])
    job = [change[1] for change in schedule.changes]
    cores = np.array([change[2] for change in schedule.changes], dtype=float)
    held: dict[int, float] = {}
    step = np.empty(len(cores))
    for k, number in enumerate(job):
        step[k] = cores[k] - held.get(number, 0.0)
        held[number] = cores[k]
    level = np.cumsum(step)
    # Mean over each interval: the integral up to a time is piecewise linear.
    area = np.concatenate(([0.0], np.cumsum(level[:-1] * np.diff(time))))
    used = np.interp(grid, time, area)
    utilisation = np.diff(used) / np.diff(grid) / run.setting.processors
    start = np.sort(schedule.start[np.isfinite(schedule.start)])
    middle = (grid[1:] + grid[:-1]) / 2
    waiting = np.searchsorted(workload.submit, middle, "right") - np.searchsorted(
        start, middle, "right"
    )
    days: Values = np.asarray((middle - first) / DAY, dtype=np.float64)
    return days, np.asarray(utilisation, dtype=np.float64), waiting.astype(np.float64)


def per_day(run: SimulatedRun) -> tuple[Values, Values, Values]:
    """Return days, mean slowdown of the jobs that ended then, malleable starts (Figure 7)."""
    first = run.workload.submit[0]
    done = run.schedule.completed
    end_day = ((run.schedule.end[done] - first) // DAY).astype(int)
    slowdown = job_outcomes(run.workload, run.schedule).slowdown
    days = int(end_day.max()) + 1
    count = np.bincount(end_day, minlength=days)
    total = np.bincount(end_day, weights=slowdown, minlength=days)
    started = run.schedule.guest & np.isfinite(run.schedule.start)
    start_day = ((run.schedule.start[started] - first) // DAY).astype(int)
    mean = np.divide(total, count, out=np.full(days, np.nan), where=count > 0)
    starts = np.bincount(start_day, minlength=days)[:days]
    return (
        np.arange(days, dtype=np.float64),
        np.asarray(mean, dtype=np.float64),
        starts.astype(np.float64),
    )


@dataclass(frozen=True)
class HeatMap:
    """Ratios of class means, first run over second: over 1 the second is better."""

    name: str
    columns: Sequence[str]
    rows: Sequence[str]
    ratio: list[list[float | None]]
    counts: list[list[int]]


def heat_maps(base: SimulatedRun, other: SimulatedRun) -> list[HeatMap]:
    """Return the ratios of slowdown, run time and wait by nodes and duration (Figures 4-6)."""
    need = base.setting.need(base.workload.processors)
    size = np.searchsorted(SIZES, need, "right") - 1
    duration = np.searchsorted(DURATIONS, base.workload.run, "right") - 1
    both = base.schedule.completed & other.schedule.completed
    used = sorted(set(size.tolist()))
    names = [
        f"{SIZES[k]}{'' if SIZES[k + 1] - SIZES[k] == 1 else '-' + str(SIZES[k + 1] - 1)}"
        if k + 2 < len(SIZES)
        else f"{SIZES[k]} or more"
        for k in used
    ]
    maps = []
    for name in ("slowdown", "run time", "wait"):
        first, second = (_per_job(run, name) for run in (base, other))
        ratio: list[list[float | None]] = []
        counts: list[list[int]] = []
        for d in range(len(DURATION_NAMES)):
            cells = [both & (duration == d) & (size == s) for s in used]
            counts.append([int(cell.sum()) for cell in cells])
            ratio.append([_ratio(first[cell], second[cell]) for cell in cells])
        columns = [f"{text} nodes" for text in names]
        maps.append(HeatMap(name, columns, DURATION_NAMES, ratio, counts))
    return maps


def _per_job(run: SimulatedRun, name: str) -> Values:
    schedule, workload = run.schedule, run.workload
    if name == "wait":
        return schedule.start - workload.submit
    if name == "run time":
        return schedule.end - schedule.start
    return (schedule.end - workload.submit) / workload.run


def _ratio(first: Values, second: Values) -> float | None:
    if not len(first):
        return None
    if second.mean() == 0:
        return 1.0 if first.mean() == 0 else None
    return float(first.mean() / second.mean())


@dataclass(frozen=True)
class SizeClass:
    """How jobs of about one size fare, the one that lost most and the one that gained most.

    `worst_job` and `best_job` are positions in the workload.
    """

    name: str
    jobs: int
    base: float
    other: float
    worst_job: int
    worst: tuple[float, float]
    best_job: int
    best: tuple[float, float]


def by_size(base: SimulatedRun, other: SimulatedRun) -> list[SizeClass]:
    """Return mean bounded slowdowns by size."""
    need = base.setting.need(base.workload.processors)
    both = base.schedule.completed & other.schedule.completed
    first, second = (
        np.maximum(
            1.0,
            (run.schedule.end - run.workload.submit) / np.maximum(run.workload.run, 10.0),
        )
        for run in (base, other)
    )
    classes = []
    edges = [1, 2, 4, 16, 64, 256, 1024, 1 << 40]
    for low, high in pairwise(edges):
        mine = np.flatnonzero(both & (need >= low) & (need < high))
        if not len(mine):
            continue
        change = second[mine] / first[mine]
        worst, best = int(mine[np.argmax(change)]), int(mine[np.argmin(change)])
        name = f"{low}" if high == low + 1 else f"{low} to {high - 1}"
        classes.append(
            SizeClass(
                name if high < 1 << 40 else f"{low} or more",
                len(mine),
                float(first[mine].mean()),
                float(second[mine].mean()),
                worst,
                (float(first[worst]), float(second[worst])),
                best,
                (float(first[best]), float(second[best])),
            )
        )
    return classes


MOST_STEPS, MOST_REASONS, MOST_NAMES = 12, 20, 3


def stories(base: SimulatedRun, other: SimulatedRun, classes: Sequence[SizeClass]) -> str:
    """Return for every size class the job that lost most and the one that gained most, folded."""
    parts = []
    for one in classes:
        if one.worst[1] > one.worst[0]:
            parts.append(_panel(base, other, one, one.worst_job, one.worst, "lost most"))
        else:
            parts.append(f"<p>{escape(one.name)} nodes: nobody lost.</p>")
        if one.best[1] < one.best[0]:
            parts.append(_panel(base, other, one, one.best_job, one.best, "gained most"))
        else:
            parts.append(f"<p>{escape(one.name)} nodes: nobody gained.</p>")
    return "".join(parts)


def _panel(
    base: SimulatedRun,
    other: SimulatedRun,
    size: SizeClass,
    k: int,
    change: tuple[float, float],
    what: str,
) -> str:
    number = int(base.workload.job[k])
    steps = "".join(
        f"<h3>under {escape(run.name)}</h3><ol>"
        + "".join(f"<li>{escape(step)}</li>" for step in story(run, k))
        + "</ol>"
        for run in (base, other)
    )
    return (
        f"<details><summary>#{number} {what} of {size.jobs} jobs on {escape(size.name)} nodes: "
        f"bounded slowdown {change[0]:.4g} to {change[1]:.4g}; why</summary>{steps}</details>"
    )


def story(run: SimulatedRun, k: int) -> list[str]:
    """Return what happened to a job: submitted, started, resized, ended, each with its reason."""
    workload, schedule = run.workload, run.schedule
    submit, start, end = float(workload.submit[k]), schedule.start[k], schedule.end[k]
    ran = int(((schedule.start <= submit) & (schedule.end > submit)).sum())
    ahead = int(((workload.submit <= submit) & (schedule.start > submit)).sum())
    ahead -= int(start > submit)
    passed = (workload.submit > submit) & (schedule.start < start)
    guests = int((passed & schedule.guest).sum())
    asked = f"{workload.processors[k]} processors and {workload.requested[k]:.6g} s"
    where = " inside the nodes of its mates" if schedule.guest[k] else ""
    others = f"{ran} jobs ran, {ahead} waited"
    overtaken = f"overtaken by {int(passed.sum())} jobs, {guests} of them inside mates' nodes"
    steps = [
        f"{submit:.10g} s: submitted, for {asked} (it needs {workload.run[k]:.6g} s); {others}",
        f"{start:.10g} s: started after {start - submit:.6g} s{where}; {overtaken}",
    ]
    mine = [(time, cores) for time, job, cores in schedule.changes if job == k]
    held = mine[0][1]
    resized = []
    for time, cores in mine[1:]:
        if 0 < cores != held:
            word = "shrunk" if cores < held else "grown"
            why = _at(run, time, k)
            resized.append(f"{time:.10g} s: {word} {held} to {cores} processors{why}")
        held = cores
    steps += resized[:MOST_STEPS]
    if len(resized) > MOST_STEPS:
        steps.append(f"and resized {len(resized) - MOST_STEPS} times more")
    steps.append(f"{end:.10g} s: ended, {end - submit:.6g} s after its submission")
    return steps


def _at(run: SimulatedRun, time: float, k: int) -> str:
    """Return who started and who ended at an instant."""
    schedule = run.schedule
    begun, ended = schedule.start == time, schedule.end == time
    reasons = []
    for chosen, word in (
        (begun & schedule.guest, "started inside mates' nodes"),
        (begun & ~schedule.guest, "started"),
        (ended, "ended"),
    ):
        jobs = run.workload.job[np.flatnonzero(chosen & (np.arange(len(begun)) != k))].tolist()
        if jobs:
            names = ", ".join(f"#{job}" for job in jobs[:MOST_NAMES])
            more = f" and {len(jobs) - MOST_NAMES} more" if len(jobs) > MOST_NAMES else ""
            reasons.append(f"{names}{more} {word}")
    return f", as {'; '.join(reasons)}" if reasons else ""


def rejections(runs: Sequence[SimulatedRun]) -> list[tuple[str, str, int]]:
    """Return (policy, reason, jobs) of what the policies refused; numbers in reasons are one."""
    rows = []
    for run in runs:
        counts = Counter(
            re.sub(r"\d+(\.\d+)?", "N", why) for why in run.schedule.rejected.values()
        )
        rows += [(run.name, why, count) for why, count in counts.most_common(MOST_REASONS)]
    return rows


def markdown(
    title: str, sentences: Sequence[str], *tables: tuple[Sequence[str], Sequence[Sequence[object]]]
) -> str:
    """Return the findings as Markdown, to be copied."""
    parts = [f"# {title}", *sentences]
    for head, rows in tables:
        lines = [head, ["---"] * len(head), *rows]
        parts.append(
            "\n".join(
                "| " + " | ".join(str(word).replace("|", "\\|") for word in line) + " |"
                for line in lines
            )
        )
    return "\n\n".join(parts) + "\n"
