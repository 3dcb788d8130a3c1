"""What competitors leave of the CPUs: who wants to run, and the share that one more process gets.

A process can use one CPU at most. On c CPUs that m others want to run on, the scheduler divides
equally, so one more process gets

    availableCpu = min(1, c / (m + 1))

and one that is among the m already gets

    currentCpu = min(1, c / max(m, c)) = c / max(m, c).

With c = 1 and m the load average, the first is the 1 / (load + 1) of Wolski, Spring, Hayes 1999,
"Predicting the CPU availability of time-shared Unix systems on the computational grid". c need
not be whole (a quota of 1.5 CPUs), and neither m (an average, or competitors that weigh less).
The competitors m are counted from the threads that want to run at this moment.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nws.sensors.linux import ROOT, parse_allowed_cpus, parse_cpu_list, parse_running, parse_thread


@dataclass(frozen=True, slots=True)
class Runnable:
    """A thread that wants to run: on which CPUs it may, and how much it counts.

    A thread of niceness 0 has weight 1; each step of niceness divides by 1.25 (sched(7)).
    """

    allowed: frozenset[int]
    weight: float = 1.0


def count_competitors(
    threads: Iterable[Runnable], cpus: frozenset[int], online: frozenset[int]
) -> float:
    """Return how many of `threads` a new process confined to `cpus` would compete with.

    Threads confined to `cpus` all count, threads confined elsewhere do not. The free ones, which
    may run on both sides, do not stay where they are when the new process comes: the kernel
    moves them until the queues are equally long. So they are spread over both sides like water,
    the new process counted, and those that end on our side are counted: a spinning but free
    process does not compete while another CPU idles.

    Measured on 2 CPUs, share got on CPU 1 by a pinned 2 s spin (predicted 1/(m + 1)): one free
    spinner .99 (1), two .57 (.67), three .50 (.5), two free and one pinned to CPU 0 .49 (.5).
    """
    confined = outside = free = 0.0
    for thread in threads:
        if thread.allowed <= cpus:
            confined += thread.weight
        elif thread.allowed.isdisjoint(cpus):
            outside += thread.weight
        else:
            free += thread.weight
    level = (confined + 1 + outside + free) / len(online)
    ours = len(cpus) * level - confined - 1
    return confined + min(max(ours, 0.0), free)


def competitors(cpus: frozenset[int], root: Path = ROOT) -> float:
    """Return how many runnable threads would share `cpus` with a new process now.

    For all CPUs of the machine this is the kernel's own count less this thread; for a part of
    them the runnable threads of all other processes are looked up with their affinities. Either
    is one reading of a number that changes within milliseconds: average several.

    Raises
    ------
    OSError, ValueError
        /proc is not there, or not as proc(5) says.
    """
    online = online_cpus(root)
    if cpus >= online:
        return max(0, parse_running((root / "proc/loadavg").read_text()) - 1)
    return count_competitors(runnable_threads(root), cpus, online)


def mean_weight(root: Path = ROOT) -> float:
    """Return what a runnable thread of the others counts on average; 1 if there is none.

    The kernel's own count does not know that a background job is niced. Looking at every thread
    costs milliseconds, so this is for now and then.
    """
    weights = [thread.weight for thread in runnable_threads(root)]
    return sum(weights) / len(weights) if weights else 1.0


def online_cpus(root: Path = ROOT) -> frozenset[int]:
    """Return the CPUs of this machine that are on."""
    return parse_cpu_list((root / "sys/devices/system/cpu/online").read_text())


def runnable_threads(root: Path = ROOT, own: int | None = None) -> Iterator[Runnable]:
    """Yield the threads of all processes but `own` (this one, unless said) that want to run."""
    own = os.getpid() if own is None else own
    with os.scandir(root / "proc") as processes:
        for process in processes:
            if process.name.isdigit() and int(process.name) != own:
                yield from _runnable_threads_of(Path(process.path))


def _runnable_threads_of(process: Path) -> Iterator[Runnable]:
    try:
        with os.scandir(process / "task") as tasks:
            for task in tasks:
                thread = parse_thread(Path(task.path, "stat").read_text(errors="replace"))
                if thread.is_runnable:
                    status = Path(task.path, "status").read_text(errors="replace")
                    # The kernel's own run for moments, and at a niceness of -20 (weight 87): they count as
                    # one, or a single glance at one would bend a minute of readings.
                    weight = 1.0 if thread.kernel else 1.25**-thread.nice
                    yield Runnable(parse_allowed_cpus(status), weight)
    except (FileNotFoundError, ProcessLookupError):
        return  # it ended while we read: it does not want to run any more


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
