"""The share of a CPU that a new process gets beside competitors, and that several new processes get.

A process can use one CPU at most. If m other processes of the same weight want to run on c CPUs
(`nws.sensors.fair_share` computes the weights), each of n new processes gets

    availableCpu = min(1, c / (m + n))

and a process among the m gets

    currentCpu = min(1, c / max(m, c)) = c / max(m, c).

With c = 1 and m the load average, the first is the 1 / (load + 1) of Wolski, Spring, Hayes 1999,
"Predicting the CPU availability of time-shared Unix systems on the computational grid". c need
not be whole (a quota of 1.5 CPUs), and neither m.
"""

from collections.abc import Sequence

from nws.errors import InputError


def available_share(
    competitors: float,
    cpus: float = 1.0,
    processes: float = 1,
    *,
    elsewhere: float = 0.0,
    crowding: float = 0.0,
    spare: float = 0.0,
) -> float:
    """Return the share of one CPU that each of `processes` new processes would get.

    Parameters
    ----------
    competitors
        Number of equal processes that take as much as the others on these CPUs do, >= 0.
    cpus
        How many CPUs, > 0.
    processes
        Number of new processes that start together and compete with each other, >= 1. It is not a whole number
        if some are busy for a part of the time.
    elsewhere
        Number of our processes that are busy on other CPUs of the same machine.
    crowding
        Growth of the competitors with each of our processes beyond one a CPU, here or elsewhere.
    spare
        Number of our processes beyond one a CPU before the competitors grow: they take idle CPUs.

    Examples
    --------
    >>> available_share(1)
    0.5
    >>> available_share(1, cpus=2), available_share(1, cpus=2, processes=3)
    (1.0, 0.5)
    >>> available_share(1, elsewhere=3, crowding=1.0)
    0.2
    >>> [available_share(0, elsewhere=n, crowding=0.5, spare=2) for n in (0, 2, 4)]
    [1.0, 1.0, 0.5]
    """
    more = processes + elsewhere - cpus
    others = max(0.0, competitors + crowding * min(more, max(0.0, more - spare)))
    return min(1.0, cpus / (others + processes))


def most_within(quota: float, wants: Sequence[tuple[float, float]]) -> float:
    """Return the maximum share of a process, so that all together use at most a quota.

    A process that gets less of its CPU, because of competitors or because it waits, leaves the rest of its part
    of the quota to the others.

    Parameters
    ----------
    quota
        CPUs' worth of time for all of them together.
    wants
        Numbers of processes, and the share of each of them without the quota.

    Examples
    --------
    >>> most_within(1.0, [(4, 0.9)]), most_within(1.0, [(1, 0.1), (1, 1.0), (1, 0.8)])
    (0.25, 0.45)
    """
    left, many = quota, sum(count for count, _ in wants)
    for count, share in sorted(wants, key=lambda want: want[1]):
        if share * many > left:
            return left / many
        left -= share * count
        many -= count
    return 1.0


def current_share(competitors: float, cpus: float = 1.0) -> float:
    """Return the share of one CPU that a process gets which is among the `competitors`.

    Examples
    --------
    >>> current_share(2), current_share(2, cpus=2), current_share(0)
    (0.5, 1.0, 1.0)
    """
    return cpus / max(competitors, cpus)


def competitors_for(share: float, cpus: float = 1.0) -> float:
    """Return how many competitors leave a new process `share`: the inverse of `available_share`.

    It is exact for one CPU, and for c CPUs with at least c competitors: m = c / share - 1.
    Fewer competitors leave a whole CPU. Measured and forecast shares are averages, and then a little
    below 1 because c competitors ran for a little of the time. So from share c / (c + 1) up to 1 the
    result falls from c to 0, as m = c^2 (1 / share - 1). Prefer the series ``competitors`` if it is
    measured: it also shows how idle the CPUs are.

    Raises
    ------
    ValueError
        `share` is not in (0, 1].

    Examples
    --------
    >>> competitors_for(0.5), competitors_for(0.5, cpus=2), competitors_for(1.0, cpus=2)
    (1.0, 3.0, 0.0)
    """
    if not 0 < share <= 1:
        raise InputError(
            f"share: must be in (0, 1] (is {share})",
            code="value-range",
            field="share",
            value=share,
        )
    if cpus > 1 and share > cpus / (cpus + 1):
        return cpus * cpus * (1 / share - 1)
    return max(0.0, cpus / share - 1)
