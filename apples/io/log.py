"""`Log`: a function that receives a line for the user; `discard`: the log that drops each line."""

from __future__ import annotations

from collections.abc import Callable

Log = Callable[[str], None]
"""Receives one line, without its line break."""


def discard(line: object) -> None:
    """Drop a line, or any other argument of a callback."""
    del line
