"""What a change of hosts costs: the bytes that move, the rate at which they do, and when it is given up.

The job manager and whoever commands it reckon alike, so that the limit that was said beforehand is the one that
holds. Standard library only, since the manager loads this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apples.malleable.control.command import HostRows, HostShare
from apples.malleable.control.strips import rows_moved, strips, strips_moving_fewest_rows

CHANGE_SECONDS = 60.0
"""From the safe point until the new map holds, beside what the data takes to move."""
PATIENCE = 3.0
"""How many times the seconds that the data should take to move are waited for."""
UNKNOWN_RATE = 1e6
"""Bytes a second where nobody knows how fast the links are: a bad one between two sites."""
LEAST_AHEAD = 1 << 20
"""Bytes of constant arrays for which a safe point more is worth it: they go ahead of the change."""
LEAST_MEASURED = 1 << 20
"""Bytes that a change must have moved for its rate to say something of the next."""


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """What the data of one change takes to move.

    Attributes
    ----------
    bytes
        That go from one host to another, about.
    rate
        Bytes a second, all links together, as they were last measured; 0: nobody knows.
    most
        Bytes that may go at most, where that is more: where blocks go is for a load balancer to say.
    ahead
        Of `bytes`, those of constant arrays that go while the job computes.

    Examples
    --------
    >>> ChangeCost(3_200_000_000, 110e6).standstill_seconds
    29.09...
    >>> ChangeCost(3_200_000_000, 110e6, ahead=3_000_000_000).standstill_seconds
    1.81...
    >>> ChangeCost(0, 0.0).limit
    60.0
    """

    bytes: int
    rate: float = 0.0
    most: int = 0
    ahead: int = 0

    @classmethod
    def of(
        cls,
        moved: int,
        rows: int,
        row_bytes: int,
        block_bytes: int = 0,
        rate: float = 0.0,
        constant_bytes: int = 0,
    ) -> ChangeCost:
        """Return the cost of moving so many of so many rows, and with them their share of the blocks.

        Parameters
        ----------
        constant_bytes
            Of a row's, those of constant arrays.

        Examples
        --------
        >>> ChangeCost.of(50, 100, 8, block_bytes=1000)
        ChangeCost(bytes=900, rate=0.0, most=1400, ahead=0)
        """
        data, share = moved * row_bytes, block_bytes * moved // rows if rows else 0
        ahead = moved * constant_bytes
        least = ahead if ahead >= LEAST_AHEAD else 0
        return cls(data + share, rate, data + block_bytes, least)

    @property
    def standstill_seconds(self) -> float | None:
        """How long the job stands still while they move; None where nobody knows the rate."""
        return self._seconds(self.bytes - self.ahead)

    @property
    def ahead_seconds(self) -> float | None:
        """How long constant arrays travel before that; None where nobody knows the rate."""
        return self._seconds(self.ahead)

    def _seconds(self, size: int) -> float | None:
        if not size:
            return 0.0
        return size / self.rate if self.rate else None

    @property
    def limit(self) -> float:
        """How long after the safe point the change is given up, and the job goes on as it was."""
        most = max(self.bytes, self.most)
        return CHANGE_SECONDS + PATIENCE * most / (self.rate or UNKNOWN_RATE)


def expected_cost(
    position: Mapping[str, Any],
    shares: Sequence[HostShare],
    bandwidth: Callable[[str, str], float],
    *,
    ordered: bool = False,
) -> ChangeCost:
    """Return what it costs to take a job from where it says it is to these shares.

    Parameters
    ----------
    position
        The job's status.
    ordered
        Whether the shares' order is to be the strips'.

    Examples
    --------
    >>> position = {"hosts": ["a"], "rows": [100], "row_bytes": 8, "rate": 50.0}
    >>> expected_cost(position, [HostShare("a"), HostShare("b")], lambda a, b: 100.0)
    ChangeCost(bytes=400, rate=50.0, most=400, ahead=0)
    """
    names = ("row_bytes", "block_bytes", "constant_bytes")
    row_bytes, block_bytes, constant_bytes = (int(position.get(name) or 0) for name in names)
    rows, names = sum(position["rows"]), position["hosts"]
    there = [HostShare(h, rows=n) for h, n in zip(names, position["rows"], strict=True)]
    slots = dict.fromkeys([*names, *(share.host for share in shares)], 0)
    old = strips(there, rows, slots)
    new = strips(shares, rows, slots)
    if not ordered:
        new = strips_moving_fewest_rows(old, shares, rows, slots)
    each = row_bytes + block_bytes / rows if rows else 0.0
    links = rate_of(old, new, each, bandwidth)
    known = [rate for rate in (links, float(position.get("rate") or 0.0)) if rate > 0]
    moved = rows_moved(old, new)
    rate = min(known, default=0.0)
    return ChangeCost.of(moved, rows, row_bytes, block_bytes, rate, constant_bytes)


def rate_of(
    old: Sequence[HostRows],
    new: Sequence[HostRows],
    row_bytes: float,
    bandwidth: Callable[[str, str], float],
) -> float:
    """Return bytes a second at which the rows of a change move, all links together; 0 where none move.

    Each host sends and receives over its own link, one transfer after another and both ways at once: the host
    that is busy longest decides.

    Examples
    --------
    >>> two = (HostRows("a", 0, 50), HostRows("b", 50, 50))
    >>> rate_of([HostRows("a", 0, 100)], two, 8, lambda a, b: 100.0)
    100.0
    """
    seconds: dict[tuple[str, str], float] = {}
    total = 0.0
    for pair, rows in moves(old, new).items():
        total += rows * row_bytes
        for host, way in zip(pair, ("out", "in"), strict=True):
            took = rows * row_bytes / max(bandwidth(*pair), 1e-9)
            seconds[host, way] = seconds.get((host, way), 0.0) + took
    longest = max(seconds.values(), default=0.0)
    return total / longest if longest else 0.0


def moves(old: Sequence[HostRows], new: Sequence[HostRows]) -> Mapping[tuple[str, str], int]:
    """Return how many rows go from one host to another.

    Examples
    --------
    >>> moves([HostRows("a", 0, 6), HostRows("b", 6, 4)], [HostRows("a", 0, 10)])
    {('b', 'a'): 4}
    """
    found = {}
    for one in old:
        for other in new:
            first = max(one.first_row, other.first_row)
            last = min(one.first_row + one.rows, other.first_row + other.rows)
            if one.host != other.host and last > first:
                found[one.host, other.host] = last - first
    return found
