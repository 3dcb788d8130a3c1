"""What a simulation report says, as numbers, before any of it is drawn."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.simulation.config import SimulationConfig, SimulationResult
from apples.simulation.log_validation import WaitExplanation
from apples.simulation.metrics import job_outcomes, summary
from apples.simulation.sweep import MetricChange, change_of
from apples.simulation.text import (
    BY_FRACTION,
    ends_of,
    failed_words,
    fraction_entry,
    verdict_word,
)
from apples.simulation.workload import Workload

HOUR, DAY = 3600.0, 86400.0
BATCHES = 20
SIZES = (1, 2, 16, 64, 128, 256, 512, 1024, 1 << 40)
DURATIONS = (0, 10 * 60, HOUR, 4 * HOUR, 12 * HOUR, DAY, 2 * DAY, float("inf"))
DURATION_NAMES = ("< 10 min", "< 1 h", "< 4 h", "< 12 h", "< 1 d", "< 2 d", "longer")
Values = NDArray[np.float64]
Document = dict[str, Any]


@dataclass(frozen=True)
class SimulatedRun:
    """A policy's schedule of the report's workload."""

    name: str
    workload: Workload
    schedule: SimulationResult
    setting: SimulationConfig
    malleable: float | None = None
    """Fraction of malleable jobs, where several are compared; the name ends with it then."""


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


def over_time(
    run: SimulatedRun, points: int = 400, last: float | None = None
) -> tuple[Values, Values, Values]:
    """Return times (seconds from the first submission), utilisation and jobs waiting, up to a moment."""
    workload, schedule = run.workload, run.schedule
    first, last = workload.submit[0], np.nanmax(schedule.end) if last is None else last
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
    return (
        np.asarray(middle - first, dtype=np.float64),
        np.asarray(utilisation, dtype=np.float64),
        waiting.astype(np.float64),
    )


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


MOST_STEPS, MOST_REASONS, MOST_NAMES = 8, 20, 3


def stories(
    base: SimulatedRun, other: SimulatedRun, classes: Sequence[SizeClass]
) -> list[Document]:
    """Return for every size class the job that lost most and the one that gained most, or that nobody did."""
    told: list[Document] = []
    for one in classes:
        for k, (before, after), word in (
            (one.worst_job, one.worst, "lost"),
            (one.best_job, one.best, "gained"),
        ):
            if after == before or (after > before) != (word == "lost"):
                told.append({"summary": f"{one.name} nodes: nobody {word}.", "under": {}})
                continue
            summary = (
                f"#{int(base.workload.job[k])} {word} most of {one.jobs} jobs on {one.name} nodes: "
                f"bounded slowdown {before:.4g} to {after:.4g}; why"
            )
            steps = {run.name: story(run, k) for run in (base, other)}
            told.append({"summary": summary, "under": steps})
    return told


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


METRICS = (("slowdown", "slowdown"), ("bounded_slowdown", "bounded slowdown"), ("wait", "wait"),
           ("response", "response"))  # fmt: skip
PARTS = 10
"""Equal parts of the time in the table below the chart of a machine."""


def comparison_document(
    log: str, runs: Sequence[SimulatedRun], explained: WaitExplanation | str = ""
) -> Document:
    """Return what a page says that compares runs of one workload; the first is the baseline.

    Parameters
    ----------
    explained
        Whether the model explains the waits that the log tells of: the page opens with it, and where
        it does not, no verdict is given. A sentence says why it is not known, and there is no verdict
        either; empty: there is no site, the jobs are a model's.
    """
    base, withheld = runs[0], _is_withheld(explained)
    changes = {one.name: _changes(base, one) for one in runs[1:]}
    fractions = _fractions(log, runs, changes)
    findings = [str(explained)] if str(explained) else []
    findings += [_verdict(base, one, changes[one.name], withheld) for one in runs[1:]]
    findings += [one["finding"] for one in fractions]
    findings += [
        f"{one.name}: {words}."
        for one in runs
        if (words := failed_words(one.schedule.failed_passes))
    ]
    last = last_end(runs)
    return {
        "log": log,
        "jobs": len(base.workload),
        "processors": base.setting.processors,
        "baseline": base.name,
        "explained": explained.is_explained if isinstance(explained, WaitExplanation) else None,
        "withheld": withheld,
        "headline": _headline(base, explained, changes),
        "findings": findings,
        "policies": [
            {
                "policy": run.name,
                **summary(run.workload, run.schedule, run.setting),
                "changes": {
                    name: {
                        "change": one.mean,
                        "change_interval": ends_of(one),
                        "over": one.over,
                        "count": one.count,
                        "verdict": verdict_word(one.mean, ends_of(one)),
                    }
                    for name, one in changes.get(run.name, {}).items()
                },
            }
            for run in runs
        ],
        "fractions": fractions,
        "over_time": [{"policy": run.name, "parts": _parts(run, last)} for run in runs],
        "against": [_against(base, one) for one in runs[1:]],
        "refused": [
            {"policy": name, "reason": why, "jobs": jobs} for name, why, jobs in rejections(runs)
        ],
    }


def last_end(runs: Sequence[SimulatedRun]) -> float:
    """Return when the last job of all runs ended."""
    return max(float(np.nanmax(run.schedule.end)) for run in runs)


def _changes(base: SimulatedRun, other: SimulatedRun) -> dict[str, MetricChange]:
    first, second = (job_outcomes(run.workload, run.schedule) for run in (base, other))
    return {
        f"mean_{name}": paired_change(getattr(first, name), getattr(second, name))
        for name, _ in METRICS
    }


def _verdict(
    base: SimulatedRun, other: SimulatedRun, changes: dict[str, MetricChange], withheld: bool
) -> str:
    """Return the answer in a sentence: what changes, by how much, how surely."""
    first, second = (job_outcomes(run.workload, run.schedule) for run in (base, other))
    parts = []
    for name, word in METRICS:
        before, after = getattr(first, name).mean(), getattr(second, name).mean()
        change = changes[f"mean_{name}"]
        figures = f"mean {word} {before:.4g} to {after:.4g}"
        ends = (
            f"{change.low:+.1%} .. {change.high:+.1%}"
            if change.count > 1
            else "one run: no verdict"
        )
        if change.is_sure:
            over = f"{change.mean:+.1%} over {change.count} {change.over}, 95 %: {ends}"
            parts.append(f"{figures} ({over})")
        else:
            parts.append(f"{figures}: no clear difference ({ends})")
    if withheld:
        return (
            f"{other.name} against {base.name}, no verdict: in this simulation {'; '.join(parts)}."
        )
    return f"{other.name} {_beats(changes)} {base.name} on this log: {'; '.join(parts)}."


def _beats(changes: dict[str, MetricChange]) -> str:
    words = {verdict_word(one.mean, ends_of(one)) for one in changes.values()} & {
        "better",
        "worse",
    }
    return {"better": "beats", "worse": "loses to"}[words.pop()] if len(words) == 1 else "against"


def _is_withheld(explained: WaitExplanation | str) -> bool:
    """Whether no verdict is given: there is a site, and its waits are not known to be explained."""
    if isinstance(explained, WaitExplanation):
        return not explained.is_explained
    return bool(explained)


def _headline(
    base: SimulatedRun,
    explained: WaitExplanation | str,
    changes: dict[str, dict[str, MetricChange]],
) -> str:
    """Return the first line of the page."""
    if _is_withheld(explained):
        if isinstance(explained, WaitExplanation):
            return "Do not conclude: the model does not explain the site's waits"
        return "Do not conclude: whether the model explains the site's waits is not known"
    if not changes:
        return f"{base.name}, compared with no other policy"
    if len(changes) == 1:
        ((name, one),) = changes.items()
        word = _beats(one)
        if word == "against":
            return f"{name} neither beats {base.name} nor loses to it on this log"
        return f"{name} {word} {base.name} on this log"
    counts = Counter(_beats(one) for one in changes.values())
    return (
        f"Against {base.name} on this log: {counts['beats']} of {len(changes)} better, "
        f"{counts['loses to']} worse, {counts['against']} neither"
    )


def _fractions(
    log: str, runs: Sequence[SimulatedRun], changes: dict[str, dict[str, MetricChange]]
) -> list[Document]:
    groups: dict[str, list[tuple[float, str]]] = {}
    for run in runs[1:]:
        if run.malleable is not None:
            policy = run.name.partition(" malleable=")[0]
            groups.setdefault(policy, []).append((run.malleable, run.name))
    return [
        fraction_entry(
            log, policy, runs[0].name,
            {
                metric: [(fraction, changes[name][metric]) for fraction, name in sorted(mine)]
                for metric in BY_FRACTION
            },
        )
        for policy, mine in groups.items() if len(mine) > 1
    ]  # fmt: skip


def _parts(run: SimulatedRun, last: float) -> list[Document]:
    """Return means of equal parts of the time."""
    first = float(run.workload.submit[0])
    _, used, waiting = over_time(run, PARTS * 40, last)
    start = run.schedule.start[run.schedule.guest]
    edges = np.linspace(first, last, PARTS + 1)
    started = np.histogram(start[np.isfinite(start)], edges)[0]
    return [
        {
            "until": float(edges[k + 1] - first),
            "utilisation": float(used[k * 40 : (k + 1) * 40].mean()),
            "waiting": float(waiting[k * 40 : (k + 1) * 40].mean()),
            "malleable_starts": int(started[k]),
        }
        for k in range(PARTS)
    ]


def _against(base: SimulatedRun, other: SimulatedRun) -> Document:
    """Return who gains and who loses under a policy: by size, by size and run time, and single jobs."""
    sizes = by_size(base, other)
    job = base.workload.job
    return {
        "policy": other.name,
        "sizes": [
            {
                "nodes": one.name,
                "jobs": one.jobs,
                "before": one.base,
                "after": one.other,
                "worst": {
                    "job": int(job[one.worst_job]),
                    "before": one.worst[0],
                    "after": one.worst[1],
                },
                "best": {
                    "job": int(job[one.best_job]),
                    "before": one.best[0],
                    "after": one.best[1],
                },
            }
            for one in sizes
        ],
        "heat_maps": [
            {
                "of": one.name,
                "columns": list(one.columns),
                "rows": list(one.rows),
                "ratio": one.ratio,
                "counts": one.counts,
            }
            for one in heat_maps(base, other)
        ],
        "single_jobs": stories(base, other, sizes),
    }


def comparison_text(document: Document) -> str:
    """Return the page's findings and its table of policies as text."""
    lines = [document["headline"], *document["findings"]]
    lines.append(f"{'policy':22}{'slowdown':>12}{'bounded':>12}{'wait s':>12}{'used':>8}")
    lines += [
        f"{one['policy']:22}{one['mean_slowdown']:>12.5g}{one['mean_bounded_slowdown']:>12.5g}"
        f"{one['mean_wait']:>12.6g}{one['utilisation']:>8.3f}"
        for one in document["policies"]
    ]
    return "\n".join(lines)
