"""Round sums of times to whole microseconds, so that equal instants compare as equal.

The times of a log are decimals, and decimals have no exact sum in binary: 0.1 + 0.2 and 0.3 are two numbers.
Therefore every sum of times, for example a start and a run time, is rounded to the nearest microsecond. From then
on the engine, the kernels and the policies compare times exactly. Whether two times are equal depends neither on
the order of summation nor on the first second of the log.
"""

from __future__ import annotations

# In doubles 0.1 + 0.2 is after 0.3: two jobs with equal ends in decimals would end at two instants, with a pass
# between them. A binary grid does not help, since decimals do not lie on it.
PER_SECOND = 1e6
HALF_INSTANT = 0.5 / PER_SECOND
"""Seconds. An unrounded sum is later than a time only if it exceeds it by more than this."""

LATEST = 2.0**31
"""Up to this second, 68 years (or, for a time since 1970, until 2038), a sum of two times errs by less than half a
microsecond. `instant` does not round later sums."""

WHOLE = 2.0**52
"""Doubles from this number on have no fraction: adding it rounds."""


def instant(seconds: float) -> float:
    """Return a sum of times rounded to the nearest microsecond; whole seconds are unchanged.

    Examples
    --------
    >>> 0.1 + 0.2 == 0.3, instant(0.1 + 0.2) == 0.3
    (False, True)
    >>> instant(3600.0), instant(float("inf"))
    (3600.0, inf)
    """
    if 0.0 <= seconds < LATEST:
        return (seconds * PER_SECOND + WHOLE - WHOLE) / PER_SECOND
    return seconds
