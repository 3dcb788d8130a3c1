"""Where on the machine jobs are drawn, and the drawing as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apples.simulator.setting import Schedule

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True)
class Bar:
    """A job on some rows, one after the other, for some time.

    Attributes
    ----------
    job
        Position in the workload.
    begin, end
        Seconds.
    row, rows
        The lowest one, and how many.
    """

    job: int
    begin: float
    end: float
    row: int
    rows: int


def lay_out(schedule: Schedule, rows: int) -> list[Bar]:
    """Return the bars of a recorded schedule, by end, each job on the lowest rows free.

    A simulation decides how many cores a job has; which ones is a matter of the drawing. A job that
    shrinks leaves its highest rows.
    """
    free = list(range(rows))
    held: dict[int, list[int]] = {}
    since: dict[int, float] = {}
    bars: list[Bar] = []
    changes = schedule.changes
    at = 0
    while at < len(changes):
        stop = at
        while stop < len(changes) and changes[stop][0] == changes[at][0]:
            stop += 1
        instant = dict((job, cores) for _, job, cores in changes[at:stop])
        time = changes[at][0]
        # Those that leave rows go first, so that the others find them.
        for job in sorted(instant, key=lambda job: instant[job] - len(held.get(job, []))):
            mine = held.get(job, [])
            if len(mine) == instant[job]:
                continue
            bars += _bars(job, since.get(job, time), time, mine)
            if instant[job] < len(mine):
                free = sorted(free + mine[instant[job] :])
                mine = mine[: instant[job]]
            else:
                more = instant[job] - len(mine)
                mine = sorted(mine + free[:more])
                free = free[more:]
            held[job], since[job] = mine, time
        at = stop
    return sorted(bars, key=lambda bar: (bar.end, bar.row))


def _bars(job: int, begin: float, end: float, rows: Sequence[int]) -> list[Bar]:
    """Return one bar for every run of neighbouring rows."""
    if end == begin:
        return []
    bars = []
    first = 0
    for k in range(1, len(rows) + 1):
        if k == len(rows) or rows[k] != rows[k - 1] + 1:
            bars.append(Bar(job, begin, end, rows[first], k - first))
            first = k
    return bars


def draw(schedule: Schedule, rows: int, seconds: float = 1.0, per_line: int = 1) -> str:
    """Return the machine over time as text: a line is `per_line` cores, a letter `seconds`.

    Examples
    --------
    >>> import numpy as np
    >>> from apples.scheduler.policies import Easy
    >>> from apples.simulator.run import simulate
    >>> from apples.simulator.setting import Setting
    >>> from apples.simulator.workload import rigid
    >>> run = np.array([5.0, 3.0, 2.0])
    >>> jobs = rigid(np.zeros(3), run, np.array([2, 3, 1]), run)
    >>> print(draw(simulate(jobs, Easy(), Setting(3), record=True), 3))
    CC...BBB
    AAAAABBB
    AAAAABBB
    """
    bars = lay_out(schedule, rows)
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
