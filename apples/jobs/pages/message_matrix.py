"""Who sent whom how much, as a table with shades that stays small: beyond some rows neighbours are added up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apples.ui.formats import Formatted, count, size

Document = Mapping[str, Any]

MOST = 24
"""Rows and columns of a table; of more hosts or ranks, neighbours share one."""
MOST_PAIRS = 10
"""Pairs that are named one by one where neighbours share a row."""
# Not equal steps: ranks of one host often send each other a hundred times as much as hosts do.
SHADES = (1 / 2, 1 / 8, 1 / 32, 0.0)
"""Of the most that one sent another, the least of each shade, darkest first."""

Numbers = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Sent:
    """What one sent another: `shade` is 4 for a half and more of the most, 1 for little, 0 for nothing."""

    bytes: Formatted
    messages: Formatted
    shade: int


@dataclass(frozen=True, slots=True)
class MatrixTable:
    """A matrix of messages as a page shows it.

    Attributes
    ----------
    labels
        Of each row, and of the column of the same place: the first and the last who share it.
    rows
        What those of a row sent those of each column.
    together
        How many share a row; 1: everybody has one.
    pairs
        Who sent whom most, by name, where neighbours share a row; nobody to itself.
    """

    labels: Sequence[tuple[Document, Document]]
    rows: Sequence[Sequence[Sent]]
    together: int
    pairs: Sequence[tuple[Document, Document, Sent]]


def matrix_tables(found: Document | None) -> dict[str, MatrixTable | None]:
    """Return the tables of ``execution.messages``: between hosts, and between ranks where that says more."""
    if found is None:
        return {"host_matrix": None, "rank_matrix": None}
    ranks = found["ranks"]
    told = ranks and len(ranks) > len(found["hosts"])
    return {
        "host_matrix": matrix_table(
            [{"host": name} for name in found["hosts"]], found["bytes"], found["messages"]
        ),
        "rank_matrix": matrix_table(ranks, found["rank_bytes"], found["rank_messages"])
        if told
        else None,
    }


def matrix_table(labels: Sequence[Document], sent: Numbers, messages: Numbers) -> MatrixTable:
    """Return a matrix as a table of at most `MOST` rows and columns.

    Examples
    --------
    >>> two = [{"host": "ada"}, {"host": "bob"}]
    >>> table = matrix_table(two, [[0, 800], [100, 0]], [[0, 2], [1, 0]])
    >>> [[one.shade for one in row] for row in table.rows], table.together
    ([[0, 4], [3, 0]], 1)
    """
    together = max(1, math.ceil(len(labels) / MOST))
    starts = range(0, len(labels), together)
    sums, counts = (_added_up(each, starts, together) for each in (sent, messages))
    most = max((one for row in sums for one in row), default=0)
    rows = [
        [_sent(amount, number, most) for amount, number in zip(a, b, strict=True)]
        for a, b in zip(sums, counts, strict=True)
    ]
    pairs: list[tuple[Document, Document, Sent]] = []
    if together > 1:
        apart = [
            (amount, row, column)
            for row, line in enumerate(sent)
            for column, amount in enumerate(line)
            if amount and row != column
        ]
        largest = sorted(apart, key=lambda one: -one[0])[:MOST_PAIRS]
        pairs = [
            (labels[row], labels[column], _sent(amount, messages[row][column], largest[0][0]))
            for amount, row, column in largest
        ]
    ends = [(labels[start], labels[min(start + together, len(labels)) - 1]) for start in starts]
    return MatrixTable(ends, rows, together, pairs)


def _added_up(matrix: Numbers, starts: Sequence[int], together: int) -> list[list[int]]:
    """Return the sums of the blocks of a matrix."""
    return [
        [
            sum(sum(line[column : column + together]) for line in matrix[row : row + together])
            for column in starts
        ]
        for row in starts
    ]


def _sent(amount: int, messages: int, most: int) -> Sent:
    shade = 0
    if amount:
        shade = len(SHADES) - next(k for k, least in enumerate(SHADES) if amount >= least * most)
    return Sent(size(amount), count(messages), shade)
