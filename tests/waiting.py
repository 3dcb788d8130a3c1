"""How tests wait: for a condition, never for a time; and look at what changes meanwhile."""

import os
import time
from pathlib import Path


def until(condition, seconds=300.0):
    """Return what `condition()` returns once it is true; what has not come in so long does not come."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not come true in {seconds:g} s: {found}"
        time.sleep(0.01)  # between two looks
    return found


def files_below(folder):
    """Return the files below a folder, of which others may remove any meanwhile: `rglob` fails of that."""
    return [Path(place, name) for place, _, names in os.walk(folder) for name in names]
