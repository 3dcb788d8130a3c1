"""The figures and sentences of a simulation report."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from apples.simulation.config import SimulationConfig, SimulationResult
from apples.simulation.documents import (
    FractionGains,
    HeatMap,
    JobChange,
    JobStory,
    PolicyDetails,
    RejectionInfo,
    RelativeChange,
    ReportFigures,
    SizeChange,
    TimePart,
)
from apples.simulation.log_validation import WaitExplanation
from apples.simulation.metrics import job_outcomes, summary
from apples.simulation.sweep import MetricChange, change_of
from apples.simulation.text import BY_FRACTION, failed_words, fraction_entry
from apples.simulation.verdicts import (
    BETTER,
    WORSE,
    change_words,
    overall_word,
    relative_change,
    tally,
    verdict_word,
)
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
    malleable: float | None = None
    """Fraction of malleable jobs if the report compares several; the name then ends with it."""


def paired_change(base: Values, other: Values) -> MetricChange:
    """Return the relative change of a mean over jobs, with a 95 % interval by batch means.

    The jobs, in order of submission, form twenty batches; the log ratios of the batch means are assumed to be
    independent. One log is one sample of a workload: the interval shows the variation of the change along this
    log, not between logs.
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
    """Return times (seconds from the first submission), utilisation and number of waiting jobs."""
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
    # The mean over an interval follows from the integral, which is piecewise linear.
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
    """Return days, mean slowdown of the jobs that ended on each day, and malleable starts (Figure 7)."""
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
        maps.append(
            HeatMap(of=name, columns=columns, rows=[*DURATION_NAMES], ratio=ratio, counts=counts)
        )
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


def by_size(base: SimulatedRun, other: SimulatedRun) -> list[SizeChange]:
    """Return the mean bounded slowdowns by size, with the jobs of the largest loss and gain."""
    need = base.setting.need(base.workload.processors)
    both = base.schedule.completed & other.schedule.completed
    first, second = (
        np.maximum(
            1.0, (run.schedule.end - run.workload.submit) / np.maximum(run.workload.run, 10.0)
        )
        for run in (base, other)
    )

    def job_change(k: int) -> JobChange:
        number = int(base.workload.job[k])
        return {"job": number, "before": float(first[k]), "after": float(second[k])}

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
            SizeChange(
                nodes=name if high < 1 << 40 else f"{low} or more",
                jobs=len(mine),
                before=float(first[mine].mean()),
                after=float(second[mine].mean()),
                worst=job_change(worst),
                best=job_change(best),
            )
        )
    return classes


MAX_STEPS, MAX_REASONS, MAX_NAMES = 8, 20, 3


def stories(
    base: SimulatedRun, other: SimulatedRun, classes: Sequence[SizeChange]
) -> list[JobStory]:
    """Return the steps of the jobs with the largest loss and gain in each size class, or a note."""
    told: list[JobStory] = []
    for size in classes:
        for change, word in ((size["worst"], "lost"), (size["best"], "gained")):
            job, before, after = change["job"], change["before"], change["after"]
            if after == before or (after > before) != (word == "lost"):
                told.append({"summary": f"{size['nodes']} nodes: no job {word}.", "under": {}})
                continue
            summary = (
                f"#{job} {word} most of {size['jobs']} jobs on {size['nodes']} nodes: "
                f"bounded slowdown {before:.4g} to {after:.4g}; why"
            )
            place = int(np.flatnonzero(base.workload.job == job)[0])
            steps = {run.name: story(run, place) for run in (base, other)}
            told.append({"summary": summary, "under": steps})
    return told


def story(run: SimulatedRun, k: int) -> list[str]:
    """Return the steps of a job as sentences: submission, start, resizes with their reasons, and end."""
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
    steps += resized[:MAX_STEPS]
    if len(resized) > MAX_STEPS:
        steps.append(f"and resized {len(resized) - MAX_STEPS} times more")
    steps.append(f"{end:.10g} s: ended, {end - submit:.6g} s after its submission")
    return steps


def _at(run: SimulatedRun, time: float, k: int) -> str:
    """Return the other jobs that started or ended at an instant, as text."""
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
            names = ", ".join(f"#{job}" for job in jobs[:MAX_NAMES])
            more = f" and {len(jobs) - MAX_NAMES} more" if len(jobs) > MAX_NAMES else ""
            reasons.append(f"{names}{more} {word}")
    return f", as {'; '.join(reasons)}" if reasons else ""


def rejections(runs: Sequence[SimulatedRun]) -> list[RejectionInfo]:
    """Return the rejected jobs by policy and reason; reasons that differ only in numbers count as one."""
    rows: list[RejectionInfo] = []
    for run in runs:
        counts = Counter(
            re.sub(r"\d+(\.\d+)?", "N", why) for why in run.schedule.rejected.values()
        )
        rows += [
            {"policy": run.name, "reason": why, "jobs": count}
            for why, count in counts.most_common(MAX_REASONS)
        ]
    return rows


def markdown(
    title: str, sentences: Sequence[str], *tables: tuple[Sequence[str], Sequence[Sequence[object]]]
) -> str:
    """Return the findings as Markdown for copying."""
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
VERBS = {BETTER: "beats", WORSE: "loses to"}
Changes = dict[str, RelativeChange]
"""The change of each mean against the baseline, by metric."""
PARTS = 10
"""Number of equal parts of the time in the table below the chart of a machine."""


def comparison_document(
    log: str, runs: Sequence[SimulatedRun], explained: WaitExplanation | str = ""
) -> ReportFigures:
    """Return the figures of a page that compares runs of one workload; the first run is the baseline.

    Parameters
    ----------
    explained
        The comparison with the recorded waits of the log, with which the page opens; if the model does not explain
        the waits, the page gives no verdict. A text is the reason why the explanation is unknown; the page then
        gives no verdict either. Empty if a workload model made the jobs, because they have no recorded waits.
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
                    name: {**one, "verdict": verdict_word(one)}
                    for name, one in changes.get(run.name, {}).items()
                },
            }
            for run in runs
        ],
        "fractions": fractions,
        "over_time": [{"policy": run.name, "parts": _parts(run, last)} for run in runs],
        "against": [_against(base, one) for one in runs[1:]],
        "refused": rejections(runs),
    }


def last_end(runs: Sequence[SimulatedRun]) -> float:
    """Return the end of the last job of all runs."""
    return max(float(np.nanmax(run.schedule.end)) for run in runs)


def _changes(base: SimulatedRun, other: SimulatedRun) -> Changes:
    first, second = (job_outcomes(run.workload, run.schedule) for run in (base, other))
    return {
        f"mean_{name}": relative_change(paired_change(getattr(first, name), getattr(second, name)))
        for name, _ in METRICS
    }


def _verdict(base: SimulatedRun, other: SimulatedRun, changes: Changes, withheld: bool) -> str:
    """Return the verdict as a sentence: the change of each mean with its interval."""
    first, second = (job_outcomes(run.workload, run.schedule) for run in (base, other))
    parts = "; ".join(
        f"mean {word} {getattr(first, name).mean():.4g} to {getattr(second, name).mean():.4g} "
        f"({change_words(changes[f'mean_{name}'])})"
        for name, word in METRICS
    )
    if withheld:
        return f"{other.name} against {base.name}, no verdict: in this simulation {parts}."
    verb = VERBS.get(overall_word(changes.values()), "against")
    return f"{other.name} {verb} {base.name} on this log, 95 % intervals: {parts}."


def _is_withheld(explained: WaitExplanation | str) -> bool:
    """Whether the page gives no verdict: the log is of a site, and the model is not known to explain its waits."""
    if isinstance(explained, WaitExplanation):
        return not explained.is_explained
    return bool(explained)


def _headline(
    base: SimulatedRun, explained: WaitExplanation | str, changes: Mapping[str, Changes]
) -> str:
    """Return the first line of the page."""
    if _is_withheld(explained):
        if isinstance(explained, WaitExplanation):
            return "Do not conclude: the model does not explain the site's waits"
        return "Do not conclude: whether the model explains the site's waits is not known"
    if not changes:
        return f"{base.name}, compared with no other policy"
    words = {name: overall_word(one.values()) for name, one in changes.items()}
    if len(words) > 1:
        return f"Against {base.name} on this log: {tally(words.values())}"
    ((name, word),) = words.items()
    if word in VERBS:
        return f"{name} {VERBS[word]} {base.name} on this log"
    return f"{name} neither beats {base.name} nor loses to it on this log"


def _fractions(
    log: str, runs: Sequence[SimulatedRun], changes: Mapping[str, Changes]
) -> list[FractionGains]:
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


def _parts(run: SimulatedRun, last: float) -> list[TimePart]:
    """Return the means over equal parts of the time."""
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


def _against(base: SimulatedRun, other: SimulatedRun) -> PolicyDetails:
    """Return the gains and losses under a policy by size, by size and run time, and for single jobs."""
    sizes = by_size(base, other)
    return {
        "policy": other.name,
        "sizes": sizes,
        "heat_maps": heat_maps(base, other),
        "single_jobs": stories(base, other, sizes),
    }


def comparison_text(document: ReportFigures) -> str:
    """Return the page's findings and its table of policies as text."""
    lines = [document["headline"], *document["findings"]]
    lines.append(f"{'policy':22}{'slowdown':>12}{'bounded':>12}{'wait s':>12}{'used':>8}")
    lines += [
        f"{one['policy']:22}{one['mean_slowdown']:>12.5g}{one['mean_bounded_slowdown']:>12.5g}"
        f"{one['mean_wait']:>12.6g}{one['utilisation']:>8.3f}"
        for one in document["policies"]
    ]
    return "\n".join(lines)
