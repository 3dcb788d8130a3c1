"""The part of a list that a page shows: the entries with all words of a search, and one page of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListPart:
    """One page of a list.

    Attributes
    ----------
    entries
        Entries on this page.
    found
        Entries on all pages.
    page, pages
        Number of this page, from 1, and of all pages, at least 1.
    """

    entries: Sequence[Entry]
    found: int
    page: int
    pages: int


def part_of(entries: Sequence[Entry], page: int, size: int) -> ListPart:
    """Return a page of a list; the nearest page if the number is out of range.

    Examples
    --------
    >>> part_of([{}] * 250, 9, 100).page, len(part_of([{}] * 250, 3, 100).entries)
    (3, 50)
    """
    pages = max(1, -(-len(entries) // size))
    page = min(max(1, page), pages)
    return ListPart(entries[(page - 1) * size : page * size], len(entries), page, pages)


def matching(entries: Sequence[Entry], words: str, keys: Sequence[str]) -> list[Entry]:
    """Return the entries with all words in the values of some keys, or in the names of their ``hosts``.

    Examples
    --------
    >>> matching([{"id": "1", "hosts": ["ada"]}, {"id": "2", "hosts": ["bob"]}], "BOB", ["id"])
    [{'id': '2', 'hosts': ['bob']}]
    """
    wanted = words.casefold().split()
    return [entry for entry in entries if all(word in _text(entry, keys) for word in wanted)]


def _text(entry: Entry, keys: Sequence[str]) -> str:
    values = [*(str(entry.get(key) or "") for key in keys), *entry.get("hosts", ())]
    return "\n".join(values).casefold()
