"""What happened to single jobs, step by step and why, and what was refused by reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from html import escape

import numpy as np

from apples.views.sim_facts import Run, SizeClass

MOST_STEPS, MOST_REASONS, MOST_NAMES = 12, 20, 3


def stories(base: Run, other: Run, classes: Sequence[SizeClass]) -> str:
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
    base: Run, other: Run, size: SizeClass, k: int, change: tuple[float, float], what: str
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


def story(run: Run, k: int) -> list[str]:
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


def _at(run: Run, time: float, k: int) -> str:
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


def rejections(runs: Sequence[Run]) -> list[tuple[str, str, int]]:
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
