"""The charts of a live scheduler's page: hosts and queue over time, hosts as a map, a job's strips to scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from markupsafe import Markup

from apples.jobs.scheduler_client import OVER
from apples.ui.charts import Box, Chart, Lane, Line, Mark, Rule, Scale, short
from apples.ui.palette import FILLS

Document = Mapping[str, Any]

MAX_HOSTS, MAX_WAITING = 16, 12
"""Lanes of the drawing: hosts, those with a job first, and waiting jobs."""
LANE = 13.0
MIN_SPAN, MAX_SPAN = 60.0, 24 * 3600.0
"""Bounds of the drawn time on each side of now, in seconds."""
WIDEST = 3.0
"""Largest ratio of the drawn times on the two sides of now."""
ROW = 40
"""Cells in a row of the map of hosts."""
CELL = 10
STATES: Mapping[str, str] = {
    "free": "cell-free", "drained": "cell-drained", "draining": "cell-drained",
    "quarantined": "cell-lost", "lost": "cell-lost",
}  # fmt: skip
"""State of a host -> class of its cell; any other state has the class of a host with a job."""


@dataclass(frozen=True, slots=True)
class Occupied:
    """A job on a host, with times in seconds since the epoch; `until` None: it is there now.

    Attributes
    ----------
    expected
        End of its estimate; None if it is over.
    """

    host: str
    job: str
    since: float
    until: float | None
    expected: float | None = None


def expected_end(job: Document) -> float | None:
    """Return the expected end of a running job by its iterations, else by its estimate.

    On fewer hosts than its maximum, the estimate grows in proportion.
    """
    if job["started"] is None or not job["hosts"]:
        return None
    if job.get("expected_end") is not None:
        return float(job["expected_end"])
    slower = max(1.0, job["maximum"] / len(job["hosts"]))
    return float(job["started"] + job["requested"] * slower)


def occupied(jobs: Sequence[Document], past: Mapping[str, Sequence[str]]) -> Iterator[Occupied]:
    """Yield the present and past hosts of jobs.

    Parameters
    ----------
    past
        The last hosts of ended jobs, from their records.
    """
    for one in jobs:
        if one["started"] is None:
            continue
        over = one["state"] in OVER
        for host in past.get(one["job"], ()) if over else one["hosts"]:
            until = one["ended"] if over else None
            if not over or until is not None:
                yield Occupied(host, one["job"], one["started"], until, expected_end(one))


def drawn_hosts(hosts: Sequence[Document]) -> list[str]:
    """Return the hosts that get a lane: those with a job first, in the order of the list."""
    held = sorted(hosts, key=lambda one: one["job"] is None)[:MAX_HOSTS]
    kept = {one["host"] for one in held}
    return [one["host"] for one in hosts if one["host"] in kept]


def time_scale(now: float, times: Sequence[float]) -> Scale:
    """Return an axis of seconds from now that contains these times, if both sides of now stay readable.

    Examples
    --------
    >>> scale = time_scale(1000.0, [700.0, 1100.0])
    >>> scale.low, scale.limit
    (-315.0, 105.0)
    """
    past = max((now - one for one in times), default=0.0)
    future = max((one - now for one in times), default=0.0)
    past, future = (1.05 * min(MAX_SPAN, max(MIN_SPAN, one)) for one in (past, future))
    return Scale(min(future, WIDEST * past), low=-min(past, WIDEST * future))


def queue_chart(document: Document, past: Mapping[str, Sequence[str]]) -> Markup:
    """Return the chart of the jobs of each host, their expected ends, and the starts of the waiting jobs.

    Parameters
    ----------
    document
        As ``apples.queue/1``.
    past
        As in `occupied`.
    """
    now, jobs = document["time"], document["jobs"]
    held: dict[str, list[Occupied]] = {host: [] for host in drawn_hosts(document["hosts"])}
    for job in occupied(jobs, past):
        if job.host in held:
            held[job.host].append(job)
    shown = [job for own in held.values() for job in own]
    waiting = [job for job in jobs if job["start"]][:MAX_WAITING]
    times = [job.since for job in shown]
    times += [job.expected for job in shown if job.expected and job.until is None]
    times += [time for job in waiting for time in job["start"]]
    scale = time_scale(now, times).timed("h")
    lanes = []
    for host, own in held.items():
        words = [short(host), *(f": {job.job}" for job in own if job.until is None)]
        marks = [mark for job in own for mark in _boxes(job, now, scale)]
        lanes.append(Lane([(words[:2], "label")], LANE, marks, base=True))
    for job in waiting:
        first, middle, last = (time - now for time in job["start"])
        interval: list[Mark] = [Box(first, last, "band"), Line(middle, middle, "whisker", 0, 1)]
        lanes.append(Lane([([job["job"], " may start"], "label")], LANE, interval))
    return Chart(
        "queue",
        "Hosts and queue over time",
        f"Time across, in {scale.unit[1]} from now, which is the upright dashed line. A lane for each host "
        "with the jobs that it had and has, solid, and until their estimates end, hatched. Below, for each "
        "job that waits, the interval in which it is expected to start. The tables below have the values.",
        scale,
        lanes,
        rules=[Rule(0.0)],
    ).svg()


def _boxes(job: Occupied, now: float, scale: Scale) -> Iterator[Box]:
    """Yield the boxes of a job on its host: past time, and expected time."""
    end = 0.0 if job.until is None else job.until - now
    if end > scale.low:
        yield Box(job.since - now, end, "box fill-2" if job.until else "run", name=job.job)
    if job.until is None and job.expected is not None and job.expected > now:
        yield Box(0.0, job.expected - now, "plan", name=job.job)


def host_map(hosts: Sequence[Document]) -> Markup:
    """Return all hosts as cells, in the order of the list; one path for each state keeps large maps small."""
    steps: dict[str, list[str]] = {}
    for k, one in enumerate(hosts):
        row, column = divmod(k, ROW)
        kind = STATES.get(one["state"], "cell-busy")
        steps.setdefault(kind, []).append(f"M{column * CELL} {row * CELL}h8v8h-8z")
    tall = -(-len(hosts) // ROW) * CELL
    # The steps are numbers of this function.
    paths = [
        Markup('<path d="{}" class="{}"/>').format("".join(each), kind)
        for kind, each in sorted(steps.items())
    ]
    words = ", ".join(f"{count} {state}" for state, count in counts_of(hosts))
    return Markup(
        '<svg role="img" aria-label="{}" class="map" viewBox="0 0 {} {}" width="{}">{}</svg>'
    ).format(words, ROW * CELL, tall, 2 * ROW * CELL, Markup("").join(paths))


def counts_of(hosts: Sequence[Document]) -> list[tuple[str, int]]:
    """Return the number of hosts in each state, sorted by state."""
    counts: dict[str, int] = {}
    for one in hosts:
        counts[one["state"]] = counts.get(one["state"], 0) + 1
    return sorted(counts.items())


def strip_bar(hosts: Sequence[str], rows: Sequence[int]) -> Markup:
    """Return the strips of a job beside each other, with widths in proportion to their rows."""
    ends = [0, *accumulate(rows)]
    boxes = [
        Box(left, right, f"box fill-{k % len(FILLS)}")
        for k, (left, right) in enumerate(pairwise(ends))
    ]
    words = ", ".join(f"{host} {count} rows" for host, count in zip(hosts, rows, strict=False))
    lane = Lane(height=LANE, marks=boxes)
    return Chart("", words, "", Scale(ends[-1] or 1), [lane], axis=False).svg()
