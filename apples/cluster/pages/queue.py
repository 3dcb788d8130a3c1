"""The page of a live scheduler: the parts of a long queue that it shows, and their text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup

from apples.cluster.pages.charts import counts_of, host_map, queue_chart, strip_bar
from apples.cluster.text import asks_text, interval_text, rest_text
from apples.jobs.scheduler_client import OVER
from apples.jobs.text.job import iteration_text, pace_text
from apples.ui.formats import moment
from apples.ui.lists import matching, part_of

Document = Mapping[str, Any]

PER_PAGE = 100
"""Hosts, and waiting jobs, on one page."""
SEARCHED = ("host", "job", "name", "state", "reason", "kind")
"""Searched values, besides the names of hosts."""
MAX_RUNNING = 50
MAX_SAID = 12
MAPPED = 40
"""From this number of hosts on, the page also shows them as a map."""


@dataclass(frozen=True, slots=True)
class ClusterQuery:
    """The query of the page.

    Attributes
    ----------
    words
        A listed host or job must contain all of them in its name, state, reason or hosts.
    waiting_page, hosts_page
        From 1.
    """

    words: str = ""
    waiting_page: int = 1
    hosts_page: int = 1

    def address(self, changes: Mapping[str, Any]) -> str:
        """Return the relative address of the page with changes of the query."""
        return f"?{urlencode({**asdict(self), **changes})}"


def cluster_address(name: str) -> str:
    """Return the address of a scheduler's page.

    Examples
    --------
    >>> cluster_address("lab 2")
    '/cluster/lab%202'
    """
    return f"/cluster/{quote(name, safe='')}"


def is_waiting(job: Document) -> bool:
    """Return whether a job has no host yet."""
    return job["state"] not in OVER and not job["hosts"]


def said(document: Document) -> list[tuple[float, str]]:
    """Return the last events, the latest first: decisions on jobs, and alarms."""
    found = [(one["time"], one["text"]) for one in document["alarms"]]
    for one in document["jobs"]:
        found += _happened(one)
    found.sort(key=lambda each: -each[0])
    return found[:MAX_SAID]


def _happened(job: Document) -> Iterator[tuple[float, str]]:
    if job["started"] is not None:
        hosts = job.get("started_on", ())  # an older scheduler does not report it
        on = f" on {', '.join(hosts[:4])}" if hosts else ""
        more = " and more" if len(hosts) > 4 else ""
        waited = f", after {interval_words(job['started'] - job['submitted'])}"
        yield job["started"], f"{job['job']} was started{on}{more}{waited}"
    else:
        yield job["submitted"], f"{job['job']} came: {job['reason'] or 'it waits'}"
    if job["ended"] is not None and job["state"] in OVER:
        why = f": {job['reason']}" if job["reason"] else ""
        yield job["ended"], f"{job['job']} {job['state']}{why}"


def interval_words(seconds: float) -> str:
    """Return a duration in whole seconds, minutes or hours.

    Examples
    --------
    >>> interval_words(0.2), interval_words(75.0), interval_words(7300.0)
    ('0 s', '75 s', '122 min')
    """
    if seconds < 100:
        return f"{max(0.0, seconds):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6 * 3600 else f"{seconds / 3600:.0f} h"


def start_text(job: Document, now: float) -> str:
    """Return the predicted start of a waiting job, relative to now and as time of day."""
    if not job["start"]:
        return ""
    first, middle, last = (moment(one)[11:16] for one in job["start"])
    return f"{interval_text(job['start'], now)}: {middle} ({first} to {last})"


def cluster_parts(
    document: Document,
    query: ClusterQuery,
    weather: Mapping[str, Document],
    records: Mapping[str, Document | None],
    past: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return the model for the page's template.

    Parameters
    ----------
    document
        As ``apples.queue/1``.
    weather
        Host -> its known share and memory.
    records
        Job -> its record as ``apples.job/1``, with ``predicted_seconds``; None: it is gone.
    past
        Ended job -> the hosts on which it ran.
    """
    now, jobs, hosts = document["time"], document["jobs"], document["hosts"]
    running = [one for one in jobs if one["hosts"] and one["state"] not in OVER]
    waiting = [one for one in jobs if is_waiting(one)]
    shown = matching(running, query.words, SEARCHED)
    return {
        "document": document,
        "query": query,
        "counts": counts_of(hosts),
        "running_count": len(running),
        "waiting_count": len(waiting),
        "over_count": len(jobs) - len(running) - len(waiting),
        "chart": queue_chart(document, past) if hosts else Markup(),
        "map": host_map(hosts) if len(hosts) >= MAPPED else Markup(),
        "running": [_running_row(one, records.get(one["job"]), now) for one in shown[:MAX_RUNNING]],
        "running_found": len(shown),
        "waiting": part_of(matching(waiting, query.words, SEARCHED), query.waiting_page, PER_PAGE),
        "hosts": part_of(matching(hosts, query.words, SEARCHED), query.hosts_page, PER_PAGE),
        "weather": weather,
        "said": said(document),
        "start_text": lambda job: start_text(job, now),
    }  # fmt: skip


def job_parts(job: Document, now: float) -> dict[str, Any]:
    """Return a job with its iteration, its end and the hosts that it asks for in words."""
    return {
        "job": job, "iteration": iteration_text(job), "rest": rest_text(job, now), "asks": asks_text(job),
        "over": job["state"] in OVER,
    }  # fmt: skip


def _running_row(job: Document, record: Document | None, now: float) -> dict[str, Any]:
    """Return a running job with the strips, pace and last resize in its record."""
    row = {**job_parts(job, now), "strips": Markup(), "pace": "", "resize": None}
    if record is not None:
        row["pace"] = pace_text(job, record["predicted_seconds"], now)
        row["resize"] = record["last_resize"]
        if record["rows"]:
            row["strips"] = strip_bar(record["hosts"], record["rows"])
    return row
