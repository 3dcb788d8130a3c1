"""The served pages of runs, jobs and plans: one function a page, from the documents that commands print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.parse import urlencode

from apples.agent.text.words import reasons
from apples.jobs import JobStatus, store
from apples.jobs.pages.comparison import comparison_parts
from apples.jobs.pages.run import run_parts
from apples.jobs.text.timeline import Events
from apples.ui.page import render
from apples.ui.web.frame import Frame

Document = dict[str, Any]
TEMPLATES = "apples.jobs"
KINDS: Mapping[str, str] = {"finished": "good", "failed": "bad", "cancelled": "watch"}
"""The colour of each final state. A running run has none."""
Entry = dict[str, Any]
"""An entry of ``apples.runs/1``."""

PER_PAGE = 50
ORDERS = ("started", "application", "state", "predicted_seconds", "measured_seconds")
LATEST_FIRST = "started"


def runs_page(frame: Frame, query: RunQuery, found: RunPage) -> str:
    """Return the list of runs and jobs."""

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
    return render("compare.html.j2", TEMPLATES, frame=frame, **comparison_parts(document))


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


@dataclass(frozen=True, slots=True)
class RunQuery:
    """What is asked of the list.

    Attributes
    ----------
    words
        All of them must be in an entry: in its id, application, blueprint, state, reason or hosts.
    order
        One of `ORDERS`.
    descending
        Whether the largest come first; entries without a value are last either way.
    page
        From 1.
    """

    words: str = ""
    order: str = LATEST_FIRST
    descending: bool = True
    page: int = 1


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of the list.

    Attributes
    ----------
    entries
        At most `PER_PAGE`.
    found, total, going
        How many entries the words are in, how many there are, and how many of those go on.
    page, pages
        Which page it is, of how many; there is one at least.
    """

    entries: Sequence[Entry]
    found: int
    total: int
    going: int
    page: int
    pages: int


def page_of(entries: Sequence[Entry], query: RunQuery) -> RunPage:
    """Return the part of the list that is asked for; a page that is not there is the nearest that is.

    Examples
    --------
    >>> entries = [{"id": f"{k:08x}", "application": "heat", "started": float(k)} for k in range(60)]
    >>> page = page_of(entries, RunQuery(page=2))
    >>> page.pages, len(page.entries), page.entries[0]["started"]
    (2, 10, 9.0)
    """
    words = query.words.casefold().split()
    found = [one for one in entries if _has(one, words)]
    known = [one for one in found if one.get(query.order) is not None]
    known.sort(key=lambda one: one["id"])
    known.sort(key=lambda one: one[query.order], reverse=query.descending)
    found = known + [one for one in found if one.get(query.order) is None]
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(1, query.page), pages)
    shown = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    going = sum(one.get("state") not in store.OVER for one in entries)
    return RunPage(shown, len(found), len(entries), going, page, pages)


def _has(entry: Entry, words: Sequence[str]) -> bool:
    if not words:
        return True
    parts = [entry.get(key) or "" for key in ("id", "application", "blueprint", "state", "reason")]
    text = "\n".join([*parts, *entry.get("hosts", ())]).casefold()
    return all(word in text for word in words)


class RecordedRuns:
    """The entries of all records, the oldest first; what is over is read once, until its record changes."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, tuple[float, Entry]] = {}

    def entries(self) -> list[Entry]:
        """Return them as `apples.jobs.list_runs` does."""
        with self._lock:
            before, self._known = self._known, {}
            return [entry for one in store.records() for entry in self._entry(one, before)]

    def _entry(
        self, one: store.StoredJob, before: Mapping[str, tuple[float, Entry]]
    ) -> Iterator[Entry]:
        """Yield the entry of a record; nothing where it was removed meanwhile."""
        try:
            changed = one.last_change()
            since, entry = before.get(one.id, (None, {}))
            if changed != since:
                entry = one.summary()
            if entry["state"] in store.OVER and one.last_change() == changed:
                self._known[one.id] = changed, entry
        except FileNotFoundError:
            return
        yield entry
