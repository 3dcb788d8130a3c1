"""How a factor moves from run to run: the newest counts three tenths, the tenth last still 4 %."""

from __future__ import annotations

import math
from typing import Any

from apples.resources import LEAST, MOST

FORGETTING = 0.3
"""Weight of the newest run; the tenth last one still counts 4 %."""
LARGEST_CORRECTION = 100.0
"""A single run cannot move a factor further than this either way."""
LARGEST_FACTOR = 1e6
"""No factor is believed to lie further from 1 than this, whatever a document says."""
FIRST_SPREAD = 0.1
"""Relative spread taken after a single run, before anything is known of the next."""


def is_positive(value: Any) -> bool:
    """Say whether what a document or a run says is a number above 0 that makes sense."""
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and LEAST <= value <= MOST
    )


def bounded(value: float) -> float:
    """Return the factor, no further from 1 than is believed."""
    return float(min(max(value, 1 / LARGEST_FACTOR), LARGEST_FACTOR))


def believed(ratio: float) -> float:
    """Return measured over expected, as far as one run is believed."""
    return min(max(ratio, 1 / LARGEST_CORRECTION), LARGEST_CORRECTION)


def blend(known: Any, ratio: float) -> float:
    """Return the factor after a run: the first is believed as it is, later ones by their weight."""
    step = believed(ratio)
    return bounded(known * step**FORGETTING if is_positive(known) else step)


def blend_spread(known: Any, ratio: float, first: bool) -> float:
    """Return the relative spread after a run; the first run tells nothing of it but a tenth."""
    deviation = FIRST_SPREAD if first else min(abs(math.log(ratio)), math.log(LARGEST_CORRECTION))
    before = bounded(known) if is_positive(known) else deviation
    return float(math.sqrt((1 - FORGETTING) * before**2 + FORGETTING * deviation**2))
