"""Whole parts of a whole: apportionment by largest remainder (Hamilton's method), and equal parts.

Rows of a grid, ranks of a host and CPUs of a machine are all given out in whole numbers. It is done here and
nowhere else, so that two sides of a protocol that each work out a partition come to the same. The module needs
the standard library only: the ranks of a running job use it too.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def apportion(total: int, weights: Sequence[float], least: Sequence[int]) -> list[int]:
    """Return whole parts of `total` in proportion to `weights`, at least `least` each.

    Raises
    ------
    ValueError
        The sum of `least` is more than there is.

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
    """Return quotas as whole parts that add up to `total`.

    Each quota is cut to its whole part, or raised to its least; what is missing then goes, one at a time, to the
    part furthest below its quota, and what is too much is taken from the part furthest above. Of equals the first.

    Parameters
    ----------
    quotas
        What each part would be if it need not be whole, at least 0.
    least
        The least of each part, 0 where not given; together at most `total`.

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
    """Return `total` in `count` whole parts as equal as can be, the larger parts first.

    Examples
    --------
    >>> equal_parts(7, 3)
    [3, 2, 2]
    """
    each, over = divmod(total, count)
    return [each + 1] * over + [each] * (count - over)
