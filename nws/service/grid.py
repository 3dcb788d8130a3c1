"""Measurements on a regular grid: mean, low and high of each slot; gaps stay gaps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low
from typing import Final

from nws.errors import InputError
from nws.memory.slots import Slot

MAX_PLACES: Final = 100_000
EDGE_SLOTS: Final = 16
"""Slots at an end of a grid from which the usual spacing there is taken."""
LATE: Final = 1.5
"""Usual spacings without a measurement after which one is missing."""


@dataclass(frozen=True, slots=True)
class RegularGrid:
    """The measurements in each slot of a grid; a gap has no mean and a count of 0.

    Attributes
    ----------
    times
        The time of each slot. Of single measurements the middle: a measurement is in the slot of the nearest
        time. With stored slots the beginning, a multiple of the step.
    means, lows, highs, counts
        Of the measurements in each slot.
    partial
        The times of the first and the last slot if measuring began or ended inside: their mean is not that of
        the whole slot.
    """

    times: list[float] = field(default_factory=list)
    means: list[float | None] = field(default_factory=list)
    lows: list[float | None] = field(default_factory=list)
    highs: list[float | None] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    partial: list[float] = field(default_factory=list)


def on_grid(slots: Sequence[Slot], step: float) -> RegularGrid:
    """Return the measurements on a grid of `step` seconds from the first slot to the last.

    A gap has no value.

    Parameters
    ----------
    slots
        In the order of time; a measurement is a slot of 0 s.
    step
        Seconds from place to place, > 0.

    Raises
    ------
    ValueError
        A step that is not positive, or more than 100,000 places.

    Examples
    --------
    >>> measured = [Slot(at, 0.0, 1, at, at, at) for at in (0.0, 10.4, 30.0)]
    >>> grid = on_grid(measured, step=10.0)
    >>> grid.times, grid.means
    ([0.0, 10.0, 20.0, 30.0], [0.0, 10.4, None, 30.0])
    >>> minutes = [Slot(60.0 * n, 60.0, 6, 0.5, 0.1, 0.9) for n in range(7, 62)]
    >>> hours = on_grid(minutes, step=3600.0)
    >>> hours.times, hours.counts, hours.partial
    ([0.0, 3600.0], [318, 12], [0.0, 3600.0])
    """
    if not (step > 0 and math.isfinite(step)):
        raise InputError(
            f"must be a positive number of seconds (is {step})",
            code="value-range",
            field="step",
            value=step,
        )
    if not slots:
        return RegularGrid()
    summed = any(slot.step for slot in slots)
    first = slots[0].start
    begin = math.floor(first / step) * step if summed else first - step / 2

    def place_of(slot: Slot) -> int:
        return math.floor((slot.start + slot.step / 2 - begin) / step)

    count = place_of(slots[-1]) + 1
    if count > MAX_PLACES:
        raise InputError(
            f"gives {count} places, more than {MAX_PLACES}; use a longer step",
            code="value-range",
            field="step",
            value=count,
            bound=MAX_PLACES,
        )
    found: dict[int, list[Slot]] = {}
    for slot in slots:
        found.setdefault(place_of(slot), []).append(slot)
    grid = RegularGrid()
    for place in range(count):
        held = found.get(place, [])
        mean, low, high = _band(held)
        grid.times.append(begin + place * step + (0.0 if summed else step / 2))
        grid.means.append(mean)
        grid.lows.append(low)
        grid.highs.append(high)
        grid.counts.append(sum(slot.count for slot in held))
    # Of the slots beside an end: its own may hold less.
    early = min(_spacing(slots[1:EDGE_SLOTS]), _spacing(slots[:EDGE_SLOTS]))
    late = min(_spacing(slots[-EDGE_SLOTS:-1]), _spacing(slots[-EDGE_SLOTS:]))
    edges = set()
    if _start(slots[0], early) - begin > LATE * early:
        edges.add(grid.times[0])
    if begin + count * step - _stop(slots[-1], late) > LATE * late:
        edges.add(grid.times[-1])
    grid.partial.extend(sorted(edges))
    return grid


def _band(slots: list[Slot]) -> tuple[float | None, float | None, float | None]:
    """Return mean, low and high of slots together."""
    if not slots:
        return None, None, None
    total = sum(slot.count for slot in slots)
    mean = math.fsum(slot.mean * (slot.count / total) for slot in slots)
    low, high = min(slot.low for slot in slots), max(slot.high for slot in slots)
    return min(max(mean, low), high), low, high


def _spacing(slots: Sequence[Slot]) -> float:
    """Return the usual seconds from one measurement to the next; infinity if unknown."""
    found = [slot.step / slot.count for slot in slots if slot.step]
    found += [b.start - a.start for a, b in pairwise(slots) if not (a.step or b.step)]
    return median_low(found) if found else math.inf


def _start(slot: Slot, spacing: float) -> float:
    """Return the time at which measuring began in the first slot, with measurements at its end."""
    return slot.start + max(0.0, slot.step - slot.count * spacing) if slot.step else slot.start


def _stop(slot: Slot, spacing: float) -> float:
    """Return the time at which measuring ended in the last slot, with measurements at its beginning."""
    return slot.start + min(slot.step, slot.count * spacing) if slot.step else slot.start
