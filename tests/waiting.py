"""How tests wait: for a condition, never for a time."""

import time


def until(condition, seconds=300.0):
    """Return what `condition()` returns once it is true; what has not come in so long does not come."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not come true in {seconds:g} s: {found}"
        time.sleep(0.01)  # between two looks
    return found
