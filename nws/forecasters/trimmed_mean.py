"""The mean of the middle of the latest values."""

from typing import ClassVar

from nws.forecaster import Forecaster, NoValueYetError
from nws.measurement import checked_value
from nws.window import Window


class TrimmedMean(Forecaster):
    """Forecasts the alpha-trimmed mean of the latest `size` values.

    Of the n values in the window the floor(alpha n) smallest and as many of the largest are left
    out and the rest averaged (NWS 2.x forecasters.c, "30% Trimmed Median").

    Parameters
    ----------
    size
        Length of the window, in values.
    alpha
        The fraction left out at each end, in [0, 0.5).

    Examples
    --------
    >>> forecaster = TrimmedMean(size=4, alpha=0.25)
    >>> for value in [1.0, 2.0, 4.0, 99.0]:
    ...     forecaster.update(value)
    >>> forecaster.forecast()
    3.0
    """

    STATEFUL: ClassVar[tuple[str, ...]] = ("_window",)

    def __init__(self, size: int, alpha: float = 0.30) -> None:
        if not 0 <= alpha < 0.5:
            raise ValueError(f"alpha lies in [0, 0.5), not {alpha}")
        self._window = Window(size)
        self._alpha = alpha

    def update(self, value: float) -> None:
        """Add `value`; the oldest leaves."""
        self._window.push(checked_value(value))

    def forecast(self) -> float:
        """Return the mean of the middle."""
        ordered = self._window.ordered
        if not ordered:
            raise NoValueYetError
        trim = int(self._alpha * len(ordered))
        middle = ordered[trim : len(ordered) - trim]
        mean = sum(middle) / len(middle)
        return min(max(mean, middle[0]), middle[-1])  # rounding must not leave the range
