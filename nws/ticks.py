"""Measurements on a regular grid of times, where a gap is seen as one."""

import math
from collections.abc import Sequence
from typing import Final

MOST_SLOTS: Final = 100_000


def on_grid(
    samples: Sequence[tuple[float, float]], step: float, start: float, stop: float
) -> list[tuple[float, float | None]]:
    """Return a value, or None for a gap, at `start`, `start` + `step`, .. up to `stop`.

    A slot takes the mean of the measurements that are nearer to it than to any other; no value
    is ever carried over a gap.

    Parameters
    ----------
    samples
        (time, value) pairs in the order of time.
    step
        Seconds from slot to slot, > 0.

    Raises
    ------
    ValueError
        A step that is not positive, or more than 100,000 slots.

    Examples
    --------
    >>> on_grid([(0.0, 1.0), (10.4, 2.0), (30.0, 4.0)], step=10.0, start=0.0, stop=30.0)
    [(0.0, 1.0), (10.0, 2.0), (20.0, None), (30.0, 4.0)]
    """
    if not (step > 0 and math.isfinite(step) and math.isfinite(stop - start)):
        raise ValueError(f"a grid from {start} to {stop} by {step}")
    slots = math.floor((stop - start) / step) + 1 if stop >= start else 0
    if slots > MOST_SLOTS:
        raise ValueError(f"a grid of {slots} slots is more than {MOST_SLOTS}")
    found: dict[int, list[float]] = {}
    for time, value in samples:
        slot = round((time - start) / step)
        if 0 <= slot < slots:
            found.setdefault(slot, []).append(value)
    return [(start + slot * step, _mean(found.get(slot))) for slot in range(slots)]


def _mean(values: list[float] | None) -> float | None:
    return math.fsum(value / len(values) for value in values) if values else None
