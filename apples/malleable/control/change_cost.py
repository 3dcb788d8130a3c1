"""The cost of a change of hosts: the bytes that move, their rate, and the time limit.

The job manager and the agent use the same functions, so the time limit that the agent prints is the limit that
holds. Standard library only, because the manager loads this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apples.malleable.control.command import HostRows, HostShare
from apples.malleable.control.strips import rows_moved, strips, strips_moving_fewest_rows

CHANGE_SECONDS = 60.0
"""Time limit from the safe point until the new map is in force, in addition to the time to move the data."""
TRANSFER_MARGIN = 3.0
"""Factor from the expected time to move the data to its time limit."""
UNKNOWN_RATE = 1e6
"""Bytes a second if the speed of the links is not known: a slow link between two sites."""
MIN_PREFETCH_BYTES = 1 << 20
"""Constant arrays of at least this size are prefetched, which takes one more safe point."""
MIN_MEASURED_BYTES = 1 << 20
"""A change that moved fewer bytes does not predict the rate of the next."""


@dataclass(frozen=True, slots=True)
class ChangeCost:
    """The data of one change, and the time to move it.

    Attributes
    ----------
    bytes
        Estimated bytes between hosts.
    rate
        Bytes a second over all links together, as last measured; 0: unknown.
    max_bytes
        Upper bound of the bytes between hosts, because a load balancer decides later where blocks go.
    prefetched
        Part of `bytes`: constant arrays, which move while the job computes.

    Examples
    --------
    >>> ChangeCost(3_200_000_000, 110e6).standstill_seconds
    29.09...
    >>> ChangeCost(3_200_000_000, 110e6, prefetched=3_000_000_000).standstill_seconds
    1.81...
    >>> ChangeCost(0, 0.0).limit
    60.0
    """

    bytes: int
    rate: float = 0.0
    max_bytes: int = 0
    prefetched: int = 0

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
        """Return the cost of moving `moved` of `rows` rows, and with them their share of the blocks.

        Parameters
        ----------
        constant_bytes
            Part of `row_bytes`: constant arrays.

        Examples
        --------
        >>> ChangeCost.of(50, 100, 8, block_bytes=1000)
        ChangeCost(bytes=900, rate=0.0, max_bytes=1400, prefetched=0)
        """
        data, share = moved * row_bytes, block_bytes * moved // rows if rows else 0
        constant = moved * constant_bytes
        prefetched = constant if constant >= MIN_PREFETCH_BYTES else 0
        return cls(data + share, rate, data + block_bytes, prefetched)

    @property
    def standstill_seconds(self) -> float | None:
        """Seconds that the job stands still while data moves; None if the rate is not known."""
        return self._seconds(self.bytes - self.prefetched)

    @property
    def prefetch_seconds(self) -> float | None:
        """Seconds of the prefetch of constant arrays before that; None if the rate is not known."""
        return self._seconds(self.prefetched)

    def _seconds(self, size: int) -> float | None:
        if not size:
            return 0.0
        return size / self.rate if self.rate else None

    @property
    def limit(self) -> float:
        """Seconds after the safe point until the change is aborted and the job continues unchanged."""
        return CHANGE_SECONDS + TRANSFER_MARGIN * max(self.bytes, self.max_bytes) / (
            self.rate or UNKNOWN_RATE
        )


def expected_cost(
    position: Mapping[str, Any],
    shares: Sequence[HostShare],
    bandwidth: Callable[[str, str], float],
    *,
    ordered: bool = False,
) -> ChangeCost:
    """Return the cost of a change from the hosts in a job's status to these shares.

    Parameters
    ----------
    position
        The job's status.
    ordered
        Whether the strips must have the order of the shares.

    Examples
    --------
    >>> position = {"hosts": ["a"], "rows": [100], "row_bytes": 8, "rate": 50.0}
    >>> expected_cost(position, [HostShare("a"), HostShare("b")], lambda a, b: 100.0)
    ChangeCost(bytes=400, rate=50.0, max_bytes=400, prefetched=0)
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
    """Return the bytes a second at which the rows of a change move over all links together; 0 if no rows move.

    Each host sends and receives over its own link, one transfer at a time in each direction, both directions at
    once. The host with the longest transfers determines the rate.

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
    """Return the number of rows that move, by old and new host.

    Examples
    --------
    >>> moves([HostRows("a", 0, 6), HostRows("b", 6, 4)], [HostRows("a", 0, 10)])
    {('b', 'a'): 4}
    """
    rows = {}
    for source in old:
        for target in new:
            first = max(source.first_row, target.first_row)
            last = min(source.first_row + source.rows, target.first_row + target.rows)
            if source.host != target.host and last > first:
                rows[source.host, target.host] = last - first
    return rows
