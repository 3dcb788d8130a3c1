"""The layout of a Gantt chart, and its drawing as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from apples.simulation.config import Partition, SimulationResult

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True)
class GanttBar:
    """A job on consecutive rows for an interval of time.

    Attributes
    ----------
    job
        Position in the workload.
    begin, end
        Seconds.
    row, rows
        The lowest row, and the number of rows.
    """

    job: int
    begin: float
    end: float
    row: int
    rows: int


def lay_out(
    result: SimulationResult, rows: int, partitions: Sequence[Partition] = ()
) -> list[GanttBar]:
    """Return the bars of a recorded schedule, by end, each job on the lowest free rows.

    A simulation gives only the number of a job's cores; this function chooses their rows. A job that shrinks
    leaves its highest rows. Each partition has its own rows, one partition above the other.
    """
    sizes = [part.processors for part in partitions] or [rows]
    begins = [0, *accumulate(sizes)]
    free_rows: list[Rows] = [[(low, size)] for low, size in zip(begins, sizes, strict=False)]
    where = result.partition.tolist() if partitions else [0] * len(result.start)
    held: dict[int, Rows] = {}
    since: dict[int, float] = {}
    bars: list[GanttBar] = []
    changes = result.changes
    at = 0
    while at < len(changes):
        stop = at
        while stop < len(changes) and changes[stop][0] == changes[at][0]:
            stop += 1
        instant = {job: cores for _, job, cores in changes[at:stop]}
        time = changes[at][0]
        # Jobs that leave rows go first, so that other jobs can use these rows.
        for job in sorted(instant, key=lambda job: instant[job] - _count(held.get(job, []))):
            mine, free = held.get(job, []), free_rows[where[job]]
            more = instant[job] - _count(mine)
            if more == 0:
                continue
            if mine and since[job] < time:
                bars += [GanttBar(job, since[job], time, row, count) for row, count in mine]
            if more < 0:
                mine, left = _split(mine, instant[job])
                free = _join(free, left)
            else:
                taken, free = _split(free, more)
                mine = _join(mine, taken)
            held[job], since[job], free_rows[where[job]] = mine, time, free
        at = stop
    return sorted(bars, key=lambda bar: (bar.end, bar.row))


Rows = list[tuple[int, int]]  # (lowest, count), ascending, with a gap before the next


def _count(rows: Rows) -> int:
    return sum(count for _, count in rows)


def _split(rows: Rows, wanted: int) -> tuple[Rows, Rows]:
    """Return the lowest `wanted` rows and the rest."""
    low: Rows = []
    for k, (row, count) in enumerate(rows):
        if wanted <= count:
            low += [(row, wanted)] if wanted else []
            rest = [(row + wanted, count - wanted)] if count > wanted else []
            return low, rest + rows[k + 1 :]
        low.append((row, count))
        wanted -= count
    return low, []


def _join(first: Rows, second: Rows) -> Rows:
    joined: Rows = []
    for row, count in sorted(first + second):
        if joined and joined[-1][0] + joined[-1][1] == row:
            joined[-1] = (joined[-1][0], joined[-1][1] + count)
        else:
            joined.append((row, count))
    return joined


def draw(result: SimulationResult, rows: int, seconds: float = 1.0, per_line: int = 1) -> str:
    """Return the machine over time as text: a line stands for `per_line` cores, a letter for `seconds`.

    Examples
    --------
    >>> import numpy as np
    >>> from apples.scheduling.policies import Easy
    >>> from apples.simulation.run import simulate
    >>> from apples.simulation.config import SimulationConfig
    >>> from apples.simulation.workload import rigid
    >>> run = np.array([5.0, 3.0, 2.0])
    >>> jobs = rigid(np.zeros(3), run, np.array([2, 3, 1]), run)
    >>> print(draw(simulate(jobs, Easy(), SimulationConfig(3), record=True), 3))
    AAAAABBB
    AAAAABBB
    CC...BBB
    """
    bars = lay_out(result, rows)
    begin = min(bar.begin for bar in bars)
    columns = round((max(bar.end for bar in bars) - begin) / seconds)
    picture = [["."] * columns for _ in range(rows)]
    for bar in bars:
        for row in range(bar.row, bar.row + bar.rows):
            for column in range(
                round((bar.begin - begin) / seconds), round((bar.end - begin) / seconds)
            ):
                picture[row][column] = LETTERS[bar.job % len(LETTERS)]
    return "\n".join("".join(line) for line in reversed(picture[::per_line]))
