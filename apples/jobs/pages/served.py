"""The served pages of runs, jobs and plans: one function a page, from the documents that commands print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from apples.jobs import JobStatus
from apples.jobs.pages.run import run_parts
from apples.jobs.text.runs import CLEAR, comparison_sentences
from apples.jobs.text.timeline import Events
from apples.jobs.text.words import reasons
from apples.ui.page import render
from apples.ui.web.frame import Frame

Document = dict[str, Any]
TEMPLATES = "apples.jobs"
KINDS: Mapping[str, str] = {"finished": "good", "failed": "bad", "cancelled": "watch"}
"""Of a run's state; of one that goes on there is nothing to say yet."""


def runs_page(frame: Frame, query: Any, found: Any) -> str:
    """Return the list of runs and jobs.

    Parameters
    ----------
    query, found
        The question and the answer of `apples.jobs.pages.run_list`.
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
        As of `apples.jobs.text.job.live_texts`.
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
