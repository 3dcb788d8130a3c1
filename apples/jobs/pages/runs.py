"""The list of runs and jobs: a query, a page of the list, and the entries of all records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any
from urllib.parse import urlencode

from apples.jobs import store
from apples.ui.lists import ListPart, matching, part_of

KINDS: Mapping[str, str] = {"finished": "good", "failed": "bad", "cancelled": "watch"}
"""Final state -> its colour. A run in progress has none."""
Entry = Mapping[str, Any]
"""An entry of `runs` in ``apples.jobs/1``."""

PER_PAGE = 50
ORDERS = ("started", "application", "state", "predicted_seconds", "measured_seconds")
LATEST_FIRST = "started"
SEARCHED = ("id", "application", "blueprint", "state", "reason")


@dataclass(frozen=True, slots=True)
class RunQuery:
    """A query of the list.

    Attributes
    ----------
    words
        Each word must occur in an entry: in one of `SEARCHED` or in its hosts.
    order
        One of `ORDERS`.
    descending
        Whether the largest come first; entries without a value are last either way.
    page
        Number of the page, from 1.
    """

    words: str = ""
    order: str = LATEST_FIRST
    descending: bool = True
    page: int = 1

    def address(self, changes: Mapping[str, Any]) -> str:
        """Return the address of the first page of the list with changes."""
        asked = {"words": self.words, "order": self.order, "descending": self.descending}
        return f"/?{urlencode({**asked, **changes})}"


@dataclass(frozen=True, slots=True)
class RunPage(ListPart):
    """A page of the list, with the number of all entries and of the active runs."""

    total: int
    going: int


def page_of(entries: Sequence[Entry], query: RunQuery) -> RunPage:
    """Return the queried page of the list, or the nearest existing page.

    Examples
    --------
    >>> entries = [{"id": f"{k:08x}", "application": "heat", "started": float(k)} for k in range(60)]
    >>> page = page_of(entries, RunQuery(page=2))
    >>> page.pages, len(page.entries), page.entries[0]["started"]
    (2, 10, 9.0)
    """
    found = matching(entries, query.words, SEARCHED)
    known = [entry for entry in found if entry.get(query.order) is not None]
    known.sort(key=lambda entry: entry["id"])
    known.sort(key=lambda entry: entry[query.order], reverse=query.descending)
    rest = [entry for entry in found if entry.get(query.order) is None]
    part = part_of(known + rest, query.page, PER_PAGE)
    going = sum(entry.get("state") not in store.OVER for entry in entries)
    return RunPage(part.entries, part.found, part.page, part.pages, len(entries), going)


class RecordedRuns:
    """The entries of all records, the oldest first; a record is read again only when it has changed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[str, tuple[float, Entry]] = {}

    def entries(self) -> list[Entry]:
        """Return the entries as `apples.jobs.list_runs` does."""
        with self._lock:
            before, self._known = self._known, {}
            return [entry for one in store.records() for entry in self._entry(one, before)]

    def _entry(
        self, one: store.StoredJob, before: Mapping[str, tuple[float, Entry]]
    ) -> Iterator[Entry]:
        """Yield the entry of a record; yield nothing if the record was removed."""
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
