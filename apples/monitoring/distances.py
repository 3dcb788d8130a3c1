"""What a byte between two hosts costs beside one between others: one table for all that places by communication.

`host_distances` makes the table from a host list and its links. Ranks load this file, and no host list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

HostDistances = Mapping[str, Mapping[str, float]]
"""Host -> other host -> what a byte between them costs, where one between the nearest two costs 1."""

NEAR = 0.05
"""What a byte inside a machine costs, where one between the nearest two machines costs 1."""


def tells(distances: HostDistances) -> bool:
    """Whether there is anything to choose by: some hosts are nearer to each other than others."""
    return len({far for row in distances.values() for far in row.values()}) > 1


def between(places: Sequence[str], distances: HostDistances) -> list[list[float]]:
    """Return the distances between places, each on the host of that name: what `PlacementProblem` takes.

    A place is 0 from itself; hosts that nobody knows a distance of are as far as the nearest two are.

    Examples
    --------
    >>> between(["a", "a", "b", "c"], {"a": {"b": 4.0}, "b": {"a": 4.0}})[0]
    [0.0, 0.05, 4.0, 1.0]
    """
    return [
        [
            0.0 if i == j else NEAR if one == other else distances.get(one, {}).get(other, 1.0)
            for j, other in enumerate(places)
        ]
        for i, one in enumerate(places)
    ]
