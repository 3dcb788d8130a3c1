"""Integer parts of a total: apportionment by largest remainder (Hamilton's method), and equal parts.

Rows of a grid, ranks of a host and CPUs of a machine are integers. Only this module rounds them, so that two
sides of a protocol that compute the same partition get the same result. It needs the standard library only,
because the ranks of a running job use it too.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def apportion(total: int, weights: Sequence[float], least: Sequence[int]) -> list[int]:
    """Return integer parts of `total` in proportion to `weights`, at least `least` each.

    Raises
    ------
    ValueError
        The sum of `least` exceeds `total`.

    Examples
    --------
    >>> apportion(10, [1, 1, 2], [1, 1, 1]), apportion(7, [1, 1000], [2, 1])
    ([3, 2, 5], [2, 5])
    """
    if total < sum(least):
        raise ValueError(f"{total} rows for {sum(least)} ranks")
    whole = sum(weights)
    return largest_remainder([total * weight / whole for weight in weights], total, least)


def largest_remainder(
    quotas: Sequence[float], total: int, least: Sequence[int] | None = None
) -> list[int]:
    """Return quotas as integer parts that add up to `total`.

    Each quota is rounded down, or raised to its least. Missing units then go, one at a time, to the part furthest
    below its quota; excess units are taken from the part furthest above. Ties go to the first part.

    Parameters
    ----------
    quotas
        The exact size of each part, at least 0.
    least
        Least size of each part; None: 0. Their sum is at most `total`.

    Examples
    --------
    >>> largest_remainder([3.5, 2.25, 4.25], 10)
    [4, 2, 4]
    """
    least = least or [0] * len(quotas)
    parts = [max(low, int(quota)) for low, quota in zip(least, quotas, strict=True)]
    missing = total - sum(parts)
    step = 1 if missing > 0 else -1
    queue = [
        (-step * (quota - part), index)
        for index, (quota, part) in enumerate(zip(quotas, parts, strict=True))
        if step > 0 or part > least[index]
    ]
    heapq.heapify(queue)
    for _ in range(abs(missing)):
        index = heapq.heappop(queue)[1]
        parts[index] += step
        if step > 0 or parts[index] > least[index]:
            heapq.heappush(queue, (-step * (quotas[index] - parts[index]), index))
    return parts


def equal_parts(total: int, count: int) -> list[int]:
    """Return `total` in `count` integer parts as equal as possible, the larger parts first.

    Examples
    --------
    >>> equal_parts(7, 3)
    [3, 2, 2]
    """
    each, over = divmod(total, count)
    return [each + 1] * over + [each] * (count - over)
