"""The division of processors between the jobs that share a machine or a node."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from apples.errors import UsageError


def distribute(total: int, minimums: Sequence[int], maximums: Sequence[int]) -> list[int]:
    """Return each job's processors: its minimum, and an equal part of the remaining processors.

    Parameters
    ----------
    total
        Processors to divide.
    minimums, maximums
        Limits of each job, in the order of claims. Processors that cannot be divided equally go to the first jobs,
        one each.

    Raises
    ------
    UsageError
        The minimums do not fit, or a maximum lies under its minimum. Permanent.

    Examples
    --------
    >>> distribute(100, [40, 32], [64, 64])
    [54, 46]
    >>> distribute(10, [1, 1, 1], [2, 9, 9])
    [2, 4, 4]

    References
    ----------
    Kale, Kumar and DeSouza 2002, "Adaptive job scheduler": "all jobs are allocated their minimum
    number of processors; leftover processors are shared equally, subject to each job's maximum".
    D'Amico et al. 2019, Listing 3 (`distribute_cpu`): the same inside a node, where the minimum of
    a mate is the part that the sharing factor leaves to it.
    """
    if sum(minimums) > total:
        raise UsageError(
            f"minimums of {sum(minimums)} processors do not fit into {total}",
            code="minimums-too-large",
            value=sum(minimums),
            bound=total,
        )
    for least, most in zip(minimums, maximums, strict=True):
        if most < least or least < 0:
            raise UsageError(
                f"a job cannot have between {least} and {most} processors",
                code="value-range",
                field="minimum" if least < 0 else "maximum",
                value=min(least, most),
                bound=max(least, 0),
            )
    shares = [0] * len(minimums)
    divide(total, list(minimums), list(maximums), len(shares), shares)
    return shares


def divide(
    total: int,
    minimums: Sequence[int],
    maximums: Sequence[int],
    count: int,
    shares: MutableSequence[int],
) -> None:
    """Write the result of `distribute` for the first `count` jobs into `shares`, without checks.

    Plain loops over indices, so that the simulator can compile this function.
    """
    left = total
    open_jobs = 0
    for i in range(count):
        shares[i] = minimums[i]
        left -= minimums[i]
        if maximums[i] > minimums[i]:
            open_jobs += 1
    while left > 0 and open_jobs > 0:
        each = left // open_jobs
        if each == 0:
            for i in range(count):
                if left > 0 and shares[i] < maximums[i]:
                    shares[i] += 1
                    left -= 1
            return
        open_jobs = 0
        for i in range(count):
            more = min(each, maximums[i] - shares[i])
            shares[i] += more
            left -= more
            if shares[i] < maximums[i]:
                open_jobs += 1
