"""Shares of a CPU and the competitors that cause them: both directions.

A process can use one CPU at most. On c CPUs that m others want to run on, the scheduler divides
equally, so one more process gets

    availableCpu = min(1, c / (m + 1))

and one that is among the m already gets

    currentCpu = min(1, c / max(m, c)) = c / max(m, c).

With c = 1 and m the load average, the first is the 1 / (load + 1) of Wolski, Spring, Hayes 1999,
"Predicting the CPU availability of time-shared Unix systems on the computational grid". c need
not be whole (a quota of 1.5 CPUs), and neither m (an average, or competitors that weigh less).
"""


def available_share(competitors: float, cpus: float = 1.0, processes: int = 1) -> float:
    """Return the share of one CPU that each of `processes` new processes would get.

    Parameters
    ----------
    competitors
        Runnable processes of others on these CPUs, >= 0.
    cpus
        How many CPUs, > 0.
    processes
        How many new ones are started at once, >= 1: they compete with each other too.

    Examples
    --------
    >>> available_share(1)
    0.5
    >>> available_share(1, cpus=2), available_share(1, cpus=2, processes=3)
    (1.0, 0.5)
    """
    return min(1.0, cpus / (competitors + processes))


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

    Exact for one CPU, and for c CPUs wherever there are at least c competitors: m = c / share - 1.
    Fewer leave a whole CPU whatever their number; measured and forecast shares, being averages,
    are then a little below 1 because there were c competitors for a little of the time. So from
    share c / (c + 1) up to 1 the answer falls from c to 0, as m = c^2 (1 / share - 1). Where the
    series ``competitors`` is measured, use that: it does not lose how idle the CPUs are.

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
        raise ValueError(f"a share lies in (0, 1], not {share}")
    if cpus > 1 and share > cpus / (cpus + 1):
        return cpus * cpus * (1 / share - 1)
    return max(0.0, cpus / share - 1)
