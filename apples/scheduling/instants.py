"""When two times are one instant: a time is a whole number of microseconds.

The times of a log are decimals, and decimals have no exact sum in binary: 0.1 + 0.2 and 0.3 are two numbers.
Every sum that is a time (a start and what a job takes or asks for, a promise and what is asked for) is
therefore taken to the microsecond that is next to it. From then on times are compared as they are, in the
engine, in the kernels and in the policies alike: that two are equal depends neither on the order of summing
nor on the second with which the log begins.
"""

from __future__ import annotations

# In doubles 0.1 + 0.2 is after 0.3: ends that are equal in decimals would be two instants, with a
# pass between them. A binary grid does not help, since decimals do not lie on it.
PER_SECOND = 1e6
HALF_INSTANT = 0.5 / PER_SECOND
"""Seconds. A sum that is not taken to its microsecond is after a time if it is so by more than this."""

LATEST = 2.0**31
"""Seconds up to which a sum of two times errs by less than half a microsecond, 68 years (or, of a time
since 1970, until 2038); a later sum stays as it is."""

WHOLE = 2.0**52
"""From here on numbers have no fraction: adding it rounds."""


def instant(seconds: float) -> float:
    """Return the microsecond to which a sum of times belongs; whole seconds stay as they are.

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
