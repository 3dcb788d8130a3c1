"""Runs and jobs as a list of pages: what is searched, in which order, and which part is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from apples.jobs import store

Entry = dict[str, Any]
"""An entry of ``apples.runs/1``."""

PER_PAGE = 50
ORDERS = ("started", "application", "state", "predicted_seconds", "measured_seconds")
LATEST_FIRST = "started"


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
