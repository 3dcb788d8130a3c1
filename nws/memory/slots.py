"""Measurements that are too old to be kept one by one: count, mean, low and high of slots of time.

A measurement is either a row of its own or part of one slot, never both: `fold` moves it in one
transaction. Slots of five minutes become slots of an hour after 60 days; these go after 400 days.
"""

import math
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

DAY: Final = 86400.0
SLOT_BYTES: Final = 48
"""Bytes that a slot takes in the database, about."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A resolution: seconds of a slot, and seconds after which a slot leaves for the next tier."""

    step: float
    age: float


TIERS: Final = (Tier(300.0, 60 * DAY), Tier(3600.0, 400 * DAY))

_MERGE: Final = """
INSERT INTO slots (series, step, start, count, mean, low, high) {source}
ON CONFLICT (series, step, start) DO UPDATE SET
  mean = mean + (excluded.mean - mean) * excluded.count / (count + excluded.count),
  count = count + excluded.count, low = min(low, excluded.low), high = max(high, excluded.high)
"""
_ADD: Final = _MERGE.format(source="VALUES (?, ?, ?, ?, ?, ?, ?)")
_COARSEN: Final = _MERGE.format(
    source="""
SELECT series, :coarse, CAST(start / :coarse AS INTEGER) * :coarse, sum(count),
  sum(mean * count) / sum(count), min(low), max(high)
FROM slots WHERE series = :series AND step = :fine AND start < :before GROUP BY 3
"""
)
_OLD: Final = "FROM slots WHERE series = ? AND step = ? AND start < ?"


@dataclass(frozen=True, slots=True)
class Slot:
    """The `count` values of `step` seconds from `start` on: their mean, low and high."""

    start: float
    step: float
    count: int
    mean: float
    low: float
    high: float


def slots_of(samples: Iterable[tuple[float, float]], step: float) -> list[Slot]:
    """Return the slots of (time, value) samples in the order of time.

    Examples
    --------
    >>> slots_of([(10.0, 1.0), (20.0, 3.0), (310.0, 5.0)], 300.0)[0]
    Slot(start=0.0, step=300.0, count=2, mean=2.0, low=1.0, high=3.0)
    """
    slots = []
    for number, part in groupby(samples, lambda sample: math.floor(sample[0] / step)):
        values = [value for _, value in part]
        low, high = min(values), max(values)
        mean = math.fsum(value / len(values) for value in values)
        slots.append(Slot(number * step, step, len(values), min(max(mean, low), high), low, high))
    return slots


def add_slots(connection: sqlite3.Connection, series: int, slots: Iterable[Slot]) -> None:
    """Add slots to those that a series has, within the caller's transaction."""
    rows = [(series, s.step, s.start, s.count, s.mean, s.low, s.high) for s in slots]
    connection.executemany(_ADD, rows)


def fold(connection: sqlite3.Connection, series: int, before: float) -> int:
    """Move the measurements of a series that are before a time into slots; return how many."""
    samples = connection.execute(
        "SELECT time, value FROM samples WHERE series = ? AND time < ? ORDER BY time",
        (series, before),
    ).fetchall()
    if samples:
        add_slots(connection, series, slots_of(samples, TIERS[0].step))
        connection.execute("DELETE FROM samples WHERE series = ? AND time < ?", (series, before))
        connection.execute("UPDATE series SET folded = ? WHERE id = ?", (before, series))
    return len(samples)


def age_slots(connection: sqlite3.Connection, series: int, now: float) -> None:
    """Make hours of the five-minute slots that are old enough, and delete the oldest hours."""
    fine, coarse = TIERS
    before = math.floor((now - fine.age) / coarse.step) * coarse.step
    old = (series, fine.step, before)
    if connection.execute(f"SELECT 1 {_OLD} LIMIT 1", old).fetchone():
        connection.execute(
            _COARSEN,
            {"series": series, "fine": fine.step, "coarse": coarse.step, "before": before},
        )
        connection.execute(f"DELETE {_OLD}", old)
    connection.execute(f"DELETE {_OLD}", (series, coarse.step, now - coarse.age))


def read_slots(
    connection: sqlite3.Connection, series: str, start: float, stop: float
) -> list[Slot]:
    """Return the slots of a series that begin from `start` to before `stop`, oldest first."""
    rows = connection.execute(
        "SELECT start, step, count, mean, low, high FROM slots "
        "WHERE series = (SELECT id FROM series WHERE name = ?) AND step IN (300.0, 3600.0) "
        "AND start >= ? AND start < ? ORDER BY start",
        (series, start, stop),
    )
    return [Slot(*row) for row in rows]
