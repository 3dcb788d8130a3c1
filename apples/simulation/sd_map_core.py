"""The map of reservations from which SD-Policy reads how long a job would wait."""

from __future__ import annotations

from apples.simulation.backfill_core import FOREVER
from apples.simulation.compiled import Numbers, inner, open_gap
from apples.simulation.sd_state import FREE, RELEASES, Machine


@inner
def draw_map(m: Machine, now: float, times: Numbers, levels: Numbers) -> int:
    """Write the free nodes over time that the estimated ends give; return the number of steps."""
    k = 0
    while times[k] < FOREVER:
        times[k] = FOREVER
        k += 1
    times[0] = now
    levels[0] = m.tally[FREE]
    count = 1
    for k in range(m.tally[RELEASES]):
        if m.release[k] == times[count - 1]:
            levels[count - 1] += m.width[k]
        else:
            times[count] = m.release[k]
            levels[count] = levels[count - 1] + m.width[k]
            count += 1
    return count


@inner
def reserve(times: Numbers, levels: Numbers, count: int, seconds: float, units: int) -> int:
    """Reserve the earliest time on the map for a job; return the new number of steps."""
    first = -1
    k = 0
    while k < count:
        if levels[k] < units:
            first = -1
        elif first < 0:
            first = k
        if first >= 0 and (k + 1 == count or times[k + 1] >= times[first] + seconds):
            break
        k += 1
    end = times[first] + seconds
    k += 1
    if k == count or times[k] > end:
        open_gap(times, k, count)
        open_gap(levels, k, count)
        times[k] = end
        levels[k] = levels[k - 1]
        count += 1
    for i in range(first, k):
        levels[i] -= units
    return count
