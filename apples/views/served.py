"""The pages that ``apples serve`` makes: one function a page, from the documents that the commands print.

They share design, charts and parts with the saved pages; what differs is the frame around them (`Frame`), a style
sheet of its own address in place of a style inside, and forms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any
from urllib.parse import quote, urlencode

import hat
from apples.jobs import JobStatus
from apples.views.cluster import is_waiting
from apples.views.foretold import Supposition, doing, starts
from apples.views.frame import Frame
from apples.views.job import iteration_text
from apples.views.page import render
from apples.views.queue import OVER, asks_text, rest_text, why_text
from apples.views.run_page import run_parts
from apples.views.run_words import reasons
from apples.views.runs import CLEAR, comparison_sentences
from apples.views.series_parts import row_of, series_view
from apples.views.timeline import Events

Document = dict[str, Any]

TEMPLATES = "apples.views"
KINDS: Mapping[str, str] = {"finished": "good", "failed": "bad", "cancelled": "watch"}
"""Of a run's state; of one that goes on there is nothing to say yet."""
MOST_CHOICES = 200
"""Waiting jobs that a form lists."""
STALE_SECONDS = 600.0
"""From this age on a measurement is hatched, and said to be stale."""


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a file.

    Attributes
    ----------
    fields
        In order; empty where there is no form.
    addable
        Tables of which another can be added.
    missing
        Why there is no form.
    """

    fields: Sequence[hat.FormField] = ()
    addable: Sequence[str] = ()
    missing: str = ""


def runs_page(frame: Frame, query: Any, found: Any) -> str:
    """Return the list of runs and jobs.

    Parameters
    ----------
    query, found
        The question and the answer of `apples.web.run_list`.
    """

    def address(changes: Mapping[str, Any]) -> str:
        asked = {"words": query.words, "order": query.order, "descending": query.descending}
        return f"/?{urlencode({**asked, **changes})}"

    return render(
        "runs.html.j2",
        TEMPLATES,
        frame=frame,
        query=query,
        list=found,
        address=address,
        kinds=KINDS,
    )


def job_page(
    frame: Frame,
    job: JobStatus,
    verbs: Sequence[str],
    others: Sequence[str],
    document: Document | None,
    events: Events,
    texts: Mapping[str, str],
    stream: str,
) -> str:
    """Return the page of a run or job: where it is, its verbs, and the parts of its saved page.

    Parameters
    ----------
    verbs
        Those that it may be asked for; they may refuse.
    others
        The names of its host list.
    document
        The run as ``apples.run/1``, of as much as there is; None where nothing was planned.
    texts
        As of `apples.views.job.live_texts`.
    stream
        Address of the events that say what changes.
    """
    parts = run_parts(document, events) if document else {"plan": None}
    return render(
        "served_run.html.j2", TEMPLATES,
        **{**parts, "frame": frame, "over": KINDS, "job": job, "verbs": verbs, "others": others,
           "texts": texts, "stream": stream},
    )  # fmt: skip


def log_page(frame: Frame, identifier: str, text: str, size: int) -> str:
    """Return the page of a log of `size` bytes, of which `text` is the end."""
    shown = len(text.encode("utf-8", "replace"))
    return render(
        "log.html.j2", TEMPLATES, frame=frame, id=identifier, text=text, shown=shown, bytes=size, cut=size > shown
    )  # fmt: skip


def comparison_page(frame: Frame, document: Document) -> str:
    """Return what differs between runs, from ``apples.compare/1``."""
    return render(
        "compare.html.j2",
        TEMPLATES,
        frame=frame,
        document=document,
        answers=list(comparison_sentences(document)),
        words=CLEAR,
    )


def files_page(
    frame: Frame,
    files: Sequence[tuple[str, hat.CheckResult]],
    documents: Mapping[str, str],
    agents: Sequence[str],
) -> str:
    """Return the files of the folder with what is wrong with each, and forms for new ones.

    Parameters
    ----------
    documents, agents
        What a new file, and a new folder, may be.
    """
    return render(
        "files.html.j2", TEMPLATES, frame=frame, files=files, documents=documents, agents=agents
    )


def delete_page(frame: Frame, name: str, text: str, digest: str) -> str:
    """Return the question whether a file of some text is to be deleted."""
    return render(
        "file_delete.html.j2", TEMPLATES, frame=frame, name=name, text=text, digest=digest
    )


def file_page(
    frame: Frame,
    name: str,
    text: str,
    digest: str,
    changed: bool,
    found: hat.CheckResult,
    form: Form,
) -> str:
    """Return one file: what is wrong with it, its fields, and its text beside them.

    Parameters
    ----------
    digest
        Of the file on the disk when it was read, so that it is saved over that only.
    changed
        Whether the text is another than the file's.
    """
    groups = [
        (group, list(those)) for group, those in groupby(form.fields, key=lambda one: one.group)
    ]
    problems: dict[str, list[hat.Problem]] = {}
    for problem in found.problems:
        problems.setdefault(problem.field, []).append(problem)
    return render(
        "file.html.j2", TEMPLATES, frame=frame, name=name, text=text, digest=digest, changed=changed, found=found,
        groups=groups, problems_of=problems, addable=form.addable, without_form=form.missing,
    )  # fmt: skip


def plan_page(
    frame: Frame,
    asked: Mapping[str, str],
    files: Mapping[str, Sequence[str]],
    plan: Document | None,
    refusal: str,
    commands: tuple[str, str, str],
    launchers: Sequence[str],
    schedulers: Sequence[str],
) -> str:
    """Return the form for a plan, and the plan.

    Parameters
    ----------
    asked
        Names of the files, the settings and the weather.
    files
        Those there are to choose from, by kind.
    plan
        As ``apples.plan/1``; None where there is none, for the `refusal` or because nothing was asked.
    commands
        That plans it, that runs it, and that submits it.
    launchers, schedulers
        What may run it, by their names.
    """
    return render(
        "plan.html.j2", TEMPLATES, frame=frame,
        asked=asked, files=files, plan=plan, refusal=refusal, reasons=reasons(plan),
        command=commands[0], run_command=commands[1], submit_command=commands[2], launchers=launchers,
        schedulers=schedulers,
    )  # fmt: skip


def hosts_page(
    frame: Frame, name: str, rows: Sequence[Document], notes: Sequence[str], age: float | None
) -> str:
    """Return the hosts of a list under the weather that is known.

    Parameters
    ----------
    age
        Seconds since they were measured for this page; None: what is remembered is shown.
    """
    return render(
        "hosts.html.j2", TEMPLATES, frame=frame,
        name=name, rows=rows, notes=notes, age=age, measured=age is not None,
        stale_seconds=STALE_SECONDS,
        address=lambda host: f"/hosts/{quote(host, safe='')}?{urlencode({'name': name})}",
    )  # fmt: skip


def host_page(frame: Frame, list_name: str, host: Any, known: Any) -> str:
    """Return one host of a list: every series that is known of it, those of its CPU and memory with their league.

    Parameters
    ----------
    host, known
        The `apples.resources.Host`, and what `apples.web.host_series` found.
    """
    return render(
        "host_weather.html.j2", TEMPLATES, frame=frame, host=host, list=list_name,
        list_address=f"/hosts?{urlencode({'name': list_name})}", series=_series_of(known),
    )  # fmt: skip


def _series_of(known: Any) -> Document | None:
    """Return what is shown of the series of a host; None where its list is not known."""
    if known is None:
        return None
    shown = [
        {
            **series_view(one.kept, one.forecasts, one.league, known.since, known.time, letter),
            "source": one.source,
        }
        for letter, one in zip("abcdefgh", known.shown, strict=False)
    ]
    return {"rows": [row_of(one) for one in known.rows], "shown": shown, "notes": known.notes}


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
        As of `apples.views.cluster.cluster_parts`.
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
        "cluster_host.html.j2", TEMPLATES, frame=frame, base=cluster_address(name), host=host, known=known,
        series=_series_of(series),
    )  # fmt: skip
