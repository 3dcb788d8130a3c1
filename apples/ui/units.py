"""Seconds, bytes and shares with three significant digits and a unit; lists of names."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
MAX_LINE, IN_REPR = 200, 3
"""Characters of a `repr`, and number of names in it."""
SHOWN = 12
"""Number of names in a list; the others are counted."""


def digits(value: float, count: int = 3) -> str:
    """Return a number with `count` significant digits, without an exponent if possible.

    Examples
    --------
    >>> digits(18.5732), digits(0.00123), digits(1234567.0)
    ('18.6', '0.00123', '1234567')
    >>> digits(9.999), digits(0.9996)
    ('10.0', '1.00')
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:.0f}" if value == 0 else str(value)
    exponent = int(f"{value:.{count - 1}e}".rpartition("e")[2])  # rounding first: 9.999 is 10.0
    if exponent < -4:
        return f"{value:.{count - 1}e}"
    return f"{value:.{max(0, count - 1 - exponent)}f}"


def duration(seconds: float) -> str:
    """Return seconds in the unit that suits them.

    Examples
    --------
    >>> duration(0.0186), duration(20.9), duration(0.0)
    ('18.6 ms', '20.9 s', '0 s')
    """
    for unit, name in _TIMES:
        if abs(seconds) >= unit * 0.9995:
            return f"{digits(seconds / unit)} {name}"
    return f"{digits(seconds / 1e-9)} ns" if seconds else "0 s"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is 1.

    Examples
    --------
    >>> counted(1, "row"), counted(0, "row"), counted(200, "row")
    ('1 row', '0 rows', '200 rows')
    """
    return f"{count} {noun}{'' if count == 1 else 's'}"


def amount(size: float) -> str:
    """Return bytes in the unit that suits them (powers of ten).

    Examples
    --------
    >>> amount(31e6), amount(0)
    ('31.0 MB', '0 B')
    """
    for unit, name in _SIZES:
        if abs(size) >= unit * 0.9995:
            return f"{digits(size / unit)} {name}"
    return f"{digits(size)} B"


def in_one_line(value: object, words: str) -> str:
    """Return a short `repr` of a value with many fields: its class and some words, on one line.

    Examples
    --------
    >>> in_one_line(1.5, "three halves"), len(in_one_line(1.5, "x" * 1000))
    ('<float three halves>', 200)
    """
    line = f"<{type(value).__name__} {' '.join(words.split())}>"
    return line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..>"


def some(names: Sequence[str]) -> str:
    """Return the first names and the number of the others, for a `repr`.

    Examples
    --------
    >>> some(["ada", "bob", "eve", "far"]), some([])
    ('ada, bob, eve and 1 more', 'none')
    """
    more = f" and {len(names) - IN_REPR} more" if len(names) > IN_REPR else ""
    return f"{', '.join(names[:IN_REPR])}{more}" if names else "none"


def listed(names: Iterable[str]) -> str:
    """Return names joined by commas; beyond `SHOWN`, the others are counted.

    Examples
    --------
    >>> listed(["ada", "bob"])
    'ada, bob'
    """
    some = list(names)
    if len(some) <= SHOWN:
        return ", ".join(some)
    return f"{', '.join(some[:SHOWN])} and {len(some) - SHOWN} more"
