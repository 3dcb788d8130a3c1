"""The served pages of live schedulers: one function a page, from the documents that commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from apples.cluster.pages.queue import is_waiting
from apples.cluster.pages.what_if import Supposition, doing, starts
from apples.cluster.text import asks_text, rest_text, why_text
from apples.jobs.scheduler_client import OVER
from apples.jobs.text.job import iteration_text
from apples.ui.page import render
from apples.ui.web.frame import Frame
from apples.weather.pages.served import STALE_SECONDS, series_of

Document = dict[str, Any]
TEMPLATES = "apples.cluster"
WEATHER = "apples.weather"
"""The page of a host includes templates of the weather's."""
MOST_CHOICES = 200
"""Waiting jobs that a form lists."""


def clusters_page(frame: Frame, rows: Sequence[Document]) -> str:
    """Return the schedulers there are: name, document or None, and why it does not answer."""
    return render("clusters.html.j2", TEMPLATES, frame=frame, rows=rows)


def cluster_address(name: str) -> str:
    """Return the address of a scheduler's page.

    Examples
    --------
    >>> cluster_address("lab 2")
    '/cluster/lab%202'
    """
    return f"/cluster/{quote(name, safe='')}"


def cluster_page(frame: Frame, name: str, parts: Document, stream: str) -> str:
    """Return the page of a scheduler.

    Parameters
    ----------
    name
        In its address.
    parts
        As of `apples.cluster.pages.queue.cluster_parts`.
    stream
        Address of the events that say what changes.
    """
    base, query = cluster_address(name), parts["query"]

    def address(changes: Mapping[str, Any]) -> str:
        asked = {
            "words": query.words, "waiting_page": query.waiting_page, "hosts_page": query.hosts_page,
        }  # fmt: skip
        return f"{base}?{urlencode({**asked, **changes})}"

    return render(
        "cluster.html.j2", TEMPLATES, frame=frame, base=base, address=address, stale_seconds=STALE_SECONDS,
        stream=stream, **parts,
    )  # fmt: skip


def what_if_page(
    frame: Frame,
    name: str,
    policies: Sequence[str],
    document: Document,
    asked: Supposition,
    found: Document | None,
    refusal: str,
) -> str:
    """Return the form for what would be, and the answer.

    Parameters
    ----------
    policies
        Those there are to choose from.
    document
        As ``apples.queue/1``.
    found
        As ``apples.what-if/1``; None where there is none, for the `refusal`.
    """
    waiting = [one for one in document["jobs"] if is_waiting(one)]
    return render(
        "cluster_what_if.html.j2", TEMPLATES, frame=frame,
        base=cluster_address(name), name=name, policies=policies,
        most_hosts=max(1, len(document["hosts"])), waiting=waiting[:MOST_CHOICES], asked=asked, found=found,
        refusal=refusal, command=asked.command(), doing=doing(asked, document),
        starts=[] if found is None else starts(found, document["time"]),
    )  # fmt: skip


def cluster_job_page(
    frame: Frame, name: str, job: Document, why: Document, now: float, stream: str
) -> str:
    """Return the page of a scheduler's job.

    Parameters
    ----------
    job
        As ``apples.scheduled/1``.
    why
        As ``apples.waiting/1``.
    now
        The time at which it is made.
    stream
        Address of the events that say what changes.
    """
    return render(
        "cluster_job.html.j2", TEMPLATES, frame=frame, base=cluster_address(name), job=job, why=why_text(why),
        iteration=iteration_text(job), over=job["state"] in OVER, number=job["job"].rpartition(".")[2],
        rest=rest_text(job, now), asks=asks_text(job), stream=stream,
    )  # fmt: skip


def cluster_host_page(
    frame: Frame, name: str, host: Document, known: Document | None, series: Any
) -> str:
    """Return the page of a scheduler's host.

    Parameters
    ----------
    host
        As in ``apples.queue/1``.
    known
        What is known of its share and memory; None: nothing.
    series
        Of them, as of `host_page`; None: its list is not known.
    """
    return render(
        "cluster_host.html.j2", TEMPLATES, WEATHER, frame=frame, base=cluster_address(name), host=host,
        known=known, series=series_of(series),
    )  # fmt: skip
