"""The drawings of a live scheduler's page: hosts and queue over time, hosts as a map, a job's strips to scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from apples.jobs.scheduler_client import OVER
from apples.ui import charts as draw
from apples.ui.charts import Scale, box, line, text
from apples.ui.palette import FILLS

Document = Mapping[str, Any]

MOST_HOSTS, MOST_WAITING = 16, 12
"""Lanes of the drawing: hosts, those that have a job first, and jobs that wait."""
LANE, LETTERS = 13.0, 16.0
LEAST_SPAN, MOST_SPAN = 60.0, 24 * 3600.0
"""Seconds to either side of now that are drawn."""
WIDEST = 3.0
"""How much longer the one side of now may be than the other."""
UNITS = ((3 * 3600.0, 3600.0, "h"), (180.0, 60.0, "min"), (0.0, 1.0, "s"))
ROW = 40
"""Cells in a row of the map of hosts."""
CELL = 10
STATES: Mapping[str, str] = {
    "free": "cell-free", "drained": "cell-drained", "draining": "cell-drained",
    "quarantined": "cell-lost", "lost": "cell-lost",
}  # fmt: skip
"""What a host's cell looks like, by its state; any other is as one that has a job."""


@dataclass(frozen=True, slots=True)
class Occupied:
    """A job on a host: since when and until when as the world's time; `until` None: it is there now.

    Attributes
    ----------
    expected
        When its estimate ends; None where it is over.
    """

    host: str
    job: str
    since: float
    until: float | None
    expected: float | None = None


def expected_end(job: Document) -> float | None:
    """Return when a running job ends by its iterations, else by its estimate.

    On fewer hosts than its most the estimate is longer in proportion.
    """
    if job["started"] is None or not job["hosts"]:
        return None
    if job.get("expected_end") is not None:
        return float(job["expected_end"])
    slower = max(1.0, job["maximum"] / len(job["hosts"]))
    return float(job["started"] + job["requested"] * slower)


def occupied(jobs: Sequence[Document], past: Mapping[str, Sequence[str]]) -> Iterator[Occupied]:
    """Yield where jobs are and were.

    Parameters
    ----------
    past
        The hosts on which jobs that are over were at last, as their records say.
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
    """Return the hosts that get a lane: those that have a job first, in the order of the list."""
    held = sorted(hosts, key=lambda one: one["job"] is None)[:MOST_HOSTS]
    kept = {one["host"] for one in held}
    return [one["host"] for one in hosts if one["host"] in kept]


def time_scale(now: float, times: Sequence[float]) -> Scale:
    """Return an axis of seconds from now that has these times, as far as both sides of now stay readable.

    Examples
    --------
    >>> scale = time_scale(1000.0, [700.0, 1100.0])
    >>> scale.low, scale.limit
    (-315.0, 105.0)
    """
    past = max((now - one for one in times), default=0.0)
    future = max((one - now for one in times), default=0.0)
    past, future = (1.05 * min(MOST_SPAN, max(LEAST_SPAN, one)) for one in (past, future))
    return Scale(min(future, WIDEST * past), low=-min(past, WIDEST * future))


def queue_chart(document: Document, past: Mapping[str, Sequence[str]]) -> Markup:
    """Return who has which host since when, until when by its estimate, and when those that wait start.

    Parameters
    ----------
    document
        As ``apples.queue/1``.
    past
        As of `occupied`.
    """
    now, jobs = document["time"], document["jobs"]
    hosts = drawn_hosts(document["hosts"])
    lanes: dict[str, list[Occupied]] = {host: [] for host in hosts}
    for each in occupied(jobs, past):
        if each.host in lanes:
            lanes[each.host].append(each)
    waiting = [one for one in jobs if one["start"]][:MOST_WAITING]
    times = [one.since for lane in lanes.values() for one in lane]
    times += [
        one.expected
        for lane in lanes.values()
        for one in lane
        if one.expected and one.until is None
    ]
    times += [time for one in waiting for time in one["start"]]
    scale = time_scale(now, times)
    parts, y = [], 6.0
    for host, lane in lanes.items():
        holder = [one.job for one in lane if one.until is None][:1]
        y += LETTERS
        parts.append(text(0, y - 4, [draw.short(host), *(f": {job}" for job in holder)], "label"))
        parts += [part for one in lane for part in _bars(one, now, y, scale)]
        parts.append(line(0, y + LANE + 2, 100, y + LANE + 2, "frame"))
        y += LANE + 4
    for one in waiting:
        first, middle, last = (scale.at(time - now) for time in one["start"])
        y += LETTERS
        parts.append(text(0, y - 4, [one["job"], " may start"], "label"))
        parts.append(box(first, y, max(0.4, last - first), LANE, "band"))
        parts.append(line(middle, y, middle, y + LANE, "whisker"))
        if scale.beyond(one["start"][2] - now):
            parts.append(draw.arrow(99, y + LANE / 2, "end-plan"))
        y += LANE + 4
    here = scale.at(0.0)
    parts.append(line(here, 4, here, y, "moved"))
    size, unit = next((size, unit) for least, size, unit in UNITS if scale.limit - scale.low >= least)  # fmt: skip
    grid = draw.axis(Scale(scale.limit / size, scale.low / size), 4, y, (1.0, unit))
    return draw.drawing(
        "queue",
        "Hosts and queue over time",
        f"Time across, in {unit} from now, which is the upright dashed line. A lane for each host with the jobs "
        "that it had and has, solid, and until their estimates end, hatched. Below, for each job that waits, "
        "the interval in which it is expected to start. The tables below have the values.",
        y + 20,
        grid,
        *parts,
    )


def _bars(one: Occupied, now: float, y: float, scale: Scale) -> Iterator[Markup]:
    """Yield a job on its host: what was, and what is expected."""
    end = now if one.until is None else one.until
    if end - now <= scale.low:
        return
    left, right = scale.at(one.since - now), scale.at(end - now)
    yield _named(box(left, y, right - left, LANE, "box fill-2" if one.until else "run"), one.job)
    if one.until is None and one.expected is not None and one.expected > now:
        yield _named(box(right, y, scale.at(one.expected - now) - right, LANE, "plan"), one.job)


def _named(mark: Markup, name: str) -> Markup:
    """Return a mark that says its name to who points at it."""
    return Markup("<g><title>{}</title>{}</g>").format(name, mark)


def host_map(hosts: Sequence[Document]) -> Markup:
    """Return all hosts as cells, in the order of the list; a path a state, so that a thousand weigh little."""
    steps: dict[str, list[str]] = {}
    for k, one in enumerate(hosts):
        row, column = divmod(k, ROW)
        kind = STATES.get(one["state"], "cell-busy")
        steps.setdefault(kind, []).append(f"M{column * CELL} {row * CELL}h8v8h-8z")
    tall = -(-len(hosts) // ROW) * CELL
    # The steps are numbers of this function.
    paths = [draw.path("".join(each), kind) for kind, each in sorted(steps.items())]
    words = ", ".join(f"{count} {state}" for state, count in counts_of(hosts))
    return Markup(
        '<svg role="img" aria-label="{}" class="map" viewBox="0 0 {} {}" width="{}">{}</svg>'
    ).format(words, ROW * CELL, tall, 2 * ROW * CELL, Markup("").join(paths))


def counts_of(hosts: Sequence[Document]) -> list[tuple[str, int]]:
    """Return how many hosts are in each state, by its name."""
    counts: dict[str, int] = {}
    for one in hosts:
        counts[one["state"]] = counts.get(one["state"], 0) + 1
    return sorted(counts.items())


def strip_bar(hosts: Sequence[str], rows: Sequence[int]) -> Markup:
    """Return the strips of a job beside each other, as wide as their rows."""
    total, x, parts = sum(rows) or 1, 0.0, []
    for k, count in enumerate(rows):
        wide = 100.0 * count / total
        parts.append(box(x, 0, wide, LANE, f"box fill-{k % len(FILLS)}"))
        x += wide
    words = ", ".join(f"{host} {count} rows" for host, count in zip(hosts, rows, strict=False))
    return Markup('<svg role="img" aria-label="{}" width="100%" height="{:g}">{}</svg>').format(
        words, LANE, Markup("").join(parts)
    )
