"""Tables for the terminal, in aligned columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def in_columns(rows: Sequence[Sequence[str]], *, numbers: bool = False) -> Iterator[str]:
    """Yield a line a row, two spaces between columns.

    Parameters
    ----------
    numbers
        Whether all columns but the first are numbers, which are aligned on the right.

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


def share_of_grid(host: Mapping[str, Any]) -> str:
    """Return the rows of a host's strip, or the rows and columns of its rectangle.

    Examples
    --------
    >>> share_of_grid({"rows": 7}), share_of_grid({"rows": 7, "rectangle": {"rows": 7, "columns": 9}})
    ('7', '7 x 9')
    """
    mine = host.get("rectangle")
    return f"{mine['rows']} x {mine['columns']}" if mine else str(host["rows"])


def fitted(found: Sequence[str], columns: int, lines: int) -> str:
    """Return lines cut to the size of a terminal, with a mark for each cut.

    Examples
    --------
    >>> print(fitted(["first line", "second", "third"], 8, 3))
    first ..
    and 2 ..
    """
    room = max(1, lines - 1)
    if len(found) > room:
        found = [*found[: room - 1], f"and {len(found) - room + 1} more lines"]
    return "\n".join(
        line if len(line) <= columns else line[: max(0, columns - 2)] + ".." for line in found
    )
