"""Whether what is known of a series is still so."""

from dataclasses import dataclass
from typing import Final

CURRENT: Final = "current"
STALE: Final = "stale"
UNKNOWN: Final = "unknown"
PERIODS: Final = 3.0
"""Periods of silence after which a series is stale (NWS 2.x: the time-out of a measurement)."""
FIRST_PERIOD: Final = 60.0
"""The period assumed until a series has shown its own."""


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old the last measurement is and what that means.

    Attributes
    ----------
    state
        ``current``, ``stale`` or ``unknown`` (nothing was ever measured).
    age
        Seconds since the last measurement; None if unknown.
    period
        The usual seconds between two; None until that is known.
    """

    state: str
    age: float | None
    period: float | None


def freshness(newest: float | None, period: float | None, now: float) -> Freshness:
    """Judge a series by the time of its newest measurement.

    Examples
    --------
    >>> freshness(100.0, 10.0, 125.0).state, freshness(100.0, 10.0, 131.0).state
    ('current', 'stale')
    >>> freshness(None, None, 0.0)
    Freshness(state='unknown', age=None, period=None)
    """
    if newest is None:
        return Freshness(UNKNOWN, None, period)
    age = max(0.0, now - newest)
    limit = PERIODS * (FIRST_PERIOD if period is None else period)
    return Freshness(CURRENT if age <= limit else STALE, age, period)
