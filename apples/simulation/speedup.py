"""Speed-up of a job on more processors.

A speed-up S is a function of the number of processors with S(1) = 1. A job's rate on `n` processors is S(n) /
S(processors asked for), so its run time on the processors that it asked for is that of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import partial

from apples.errors import UsageError

Speedup = Callable[[float], float]


def linear(processors: float) -> float:
    """Return S(n) = n.

    Examples
    --------
    >>> linear(8)
    8.0
    """
    return float(processors)


def amdahl(processors: float, serial: float) -> float:
    """Return S(n) = 1 / (f + (1 - f) / n) with the serial fraction f of the work (Amdahl 1967).

    Examples
    --------
    >>> amdahl(64, serial=0.02)
    28.318584
    """
    return 1.0 / (serial + (1.0 - serial) / processors)


def downey(processors: float, parallelism: float, sigma: float) -> float:
    """Return Downey's speed-up for average parallelism A and its variation sigma.

    Examples
    --------
    >>> downey(10, parallelism=16, sigma=0.0)
    10.0
    >>> downey(64, parallelism=16.0, sigma=0.5)
    16.0

    References
    ----------
    Downey 1997, "A model for speedup of parallel programs", equations 1 and 2.
    """
    n, a, s = float(processors), parallelism, sigma
    if s <= 1:
        if n <= a:
            return a * n / (a + s * (n - 1) / 2)
        if n <= 2 * a - 1:
            return a * n / (s * (a - 0.5) + n * (1 - s / 2))
        return a
    if n <= a + a * s - s:
        return n * a * (s + 1) / (s * (n + a - 1) + a)
    return a


def table(processors: float, points: tuple[tuple[float, float], ...]) -> float:
    """Return a measured speed-up, linear between the points and constant after the last.

    Examples
    --------
    >>> table(3, points=((1, 1.0), (2, 1.9), (4, 3.5)))
    2.7
    """
    k = bisect_right(points, (float(processors), float("inf")))
    if k == 0:
        return points[0][1] * processors / points[0][0]
    if k == len(points):
        return points[-1][1]
    (x0, y0), (x1, y1) = points[k - 1], points[k]
    return y0 + (y1 - y0) * (processors - x0) / (x1 - x0)


def parse_speedup(text: str) -> Speedup:
    """Return the speed-up of a command-line argument.

    `linear`, `amdahl:SERIAL`, `downey:A,SIGMA`, `table:1=1,2=1.9,4=3.5`.

    Raises
    ------
    UsageError
        The text has another form. Permanent.
    """
    name, _, rest = text.partition(":")
    try:
        if name == "linear" and not rest:
            return linear
        if name == "amdahl" and 0 <= float(rest) <= 1:
            return partial(amdahl, serial=float(rest))
        if name == "downey":
            parallelism, sigma = (float(word) for word in rest.split(","))
            if parallelism >= 1 and sigma >= 0:
                return partial(downey, parallelism=parallelism, sigma=sigma)
        if name == "table":
            pairs = (word.split("=") for word in rest.split(","))
            points = tuple(sorted((float(n), float(s)) for n, s in pairs))
            if points[0][0] > 0 and all(s > 0 for _, s in points):
                return partial(table, points=points)
    except ValueError:
        pass
    raise UsageError(
        f"speedup {text!r}: linear, amdahl:SERIAL (0..1), downey:A,SIGMA or table:N=S,N=S,...",
        code="value-invalid",
        option="speedup",
        value=text,
    )
