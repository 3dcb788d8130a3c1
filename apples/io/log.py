"""`Log`: receives a line for the user; `discard`: the log of a caller that wants none."""

from __future__ import annotations

from collections.abc import Callable

Log = Callable[[str], None]
"""Receives one line, without its line break."""


def discard(line: str) -> None:
    """Drop a line."""
    del line
