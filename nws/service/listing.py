"""A page of the series: searched, in an order, one part shown; thousands cost no more than slices of the loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nws.memory.column import SeriesColumn
from nws.service.metrics import in_slices

PER_PAGE: Final = 100
LISTING_ORDERS: Final = ("series", "value", "age")


@dataclass(frozen=True, slots=True)
class ListingQuery:
    """What is asked of the list of series.

    Attributes
    ----------
    words
        All of them must be in a name.
    order
        One of `LISTING_ORDERS`.
    descending
        Whether the last, the largest, the oldest come first.
    page
        From 1; one that is not there is the nearest that is.
    """

    words: str = ""
    order: str = "series"
    descending: bool = False
    page: int = 1


@dataclass(frozen=True, slots=True)
class SeriesListing:
    """A page of the list.

    Attributes
    ----------
    columns
        At most `PER_PAGE`.
    found, total
        How many series the words are in, and how many there are.
    page, pages
        Which page it is, of how many; there is one at least.
    """

    columns: Sequence[SeriesColumn]
    found: int
    total: int
    page: int
    pages: int


async def listed(
    columns: Sequence[SeriesColumn], query: ListingQuery, now: float
) -> SeriesListing:
    """Return the part of the series, given in the order of their names, that is asked for."""
    words = query.words.lower().split()
    found = list(columns)
    if words:
        names = await in_slices(columns, lambda column: column.text.lower())
        fits = await in_slices(names, lambda name: all(word in name for word in words))
        found = [column for column, fit in zip(columns, fits, strict=True) if fit]
    if query.order == "series":
        found = found[::-1] if query.descending else found
    else:
        keys = np.array(
            await in_slices(
                found,
                (lambda column: column.latest)
                if query.order == "value"
                else (lambda column: now - column.seen(now)),
            ),
            dtype=float,
        )
        order = np.argsort(-keys if query.descending else keys, kind="stable")
        found = [found[place] for place in order.tolist()]
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(1, query.page), pages)
    shown = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    return SeriesListing(shown, len(found), len(columns), page, pages)
