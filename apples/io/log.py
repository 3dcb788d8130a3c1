"""`Log`: receives a line for the user; `discard`: the log of a caller that wants none."""

from __future__ import annotations

from collections.abc import Callable

Log = Callable[[str], None]
"""Receives one line, without its line break."""


def discard(line: object) -> None:
    """Drop a line, or anything else that a caller wants none of."""
    del line
