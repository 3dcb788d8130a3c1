"""Tables for the terminal: the cells of a column under one another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def in_columns(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> Iterator[str]:
    """Yield a line a row, two spaces between columns.

    Parameters
    ----------
    numbers
        Whether all columns but the first are numbers, which end under one another.

    Examples
    --------
    >>> for line in in_columns([["host", "rows"], ["ada", "7"]], numbers=True):
    ...     print(line)
    host  rows
    ada      7
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [
            cell.rjust(width) if numbers and k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()
