"""Names of hosts as Slurm writes lists of them: ``n[01-03,7],login``."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_NAMES = 100_000
"""A list longer than that is a mistake, or meant to fill the memory."""
PART = re.compile(r"((?:\[[^\[\]]*\]|[^\[\],])+)(?:,|$)")


def expand(text: str) -> list[str]:
    """Return the names a list stands for, in its order.

    Raises
    ------
    ValueError
        It is no such list, or stands for too many.

    Examples
    --------
    >>> expand("n[01-03,7],login")
    ['n01', 'n02', 'n03', 'n7', 'login']
    >>> expand("(null)"), expand("")
    ([], [])
    """
    if text in {"", "(null)", "None assigned"}:
        return []
    names: list[str] = []
    position = 0
    while position < len(text):
        part = PART.match(text, position)
        if part is None:
            raise ValueError(f"no list of hosts: {text[:80]!r}")
        position = part.end()
        for name in _names(part[1]):
            names.append(name)
            if len(names) > MOST_NAMES:
                raise ValueError(f"more than {MOST_NAMES} hosts: {text[:80]!r}")
    return names


def _names(part: str) -> Iterator[str]:
    """Yield what one element of a list stands for; it may have several brackets."""
    before, opening, rest = part.partition("[")
    if not opening:
        yield part
        return
    inside, closing, after = rest.partition("]")
    if not closing:
        raise ValueError(f"no list of hosts: {part[:80]!r}")
    for number in _numbers(inside):
        for tail in _names(after):
            yield f"{before}{number}{tail}"


def _numbers(inside: str) -> Iterator[str]:
    for one in inside.split(","):
        first, dash, last = one.partition("-")
        if not dash:
            yield one
            continue
        if not (first.isdecimal() and last.isdecimal() and len(last) < 12):
            raise ValueError(f"no range of hosts: {one[:40]!r}")
        if int(last) - int(first) > MOST_NAMES:
            raise ValueError(f"more than {MOST_NAMES} hosts: {one[:40]!r}")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))
