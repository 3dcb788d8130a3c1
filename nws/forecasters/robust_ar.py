"""A robust autoregression."""

from typing import ClassVar

from nws.regression import Regression


class RobustAr(Regression):
    """Forecasts by a regression on the latest values, which outliers cannot carry away.

    Recursive least squares on values in deviations from an exponentially weighted mean, regressors,
    target and forecast within 6 of them; the forecast stays within the range of the values
    (Dinda, O'Hallaron 1999 recommend AR(16) for host load; the clipping is what makes it safe). A
    value that is missing is taken to be as forecast, and teaches nothing.

    Parameters
    ----------
    order
        How many values it looks back.

    Examples
    --------
    >>> forecaster = RobustAr(order=4)
    >>> for value in [0.0, 0.0, 1.0] * 60:
    ...     forecaster.update(value)
    >>> round(forecaster.forecast(), 1)
    0.0
    """

    STATEFUL: ClassVar[tuple[str, ...]] = (
        "_past",
        "_x",
        "_fit",
        "_standard",
        "_least",
        "_greatest",
    )

    def __init__(self, order: int = 16) -> None:
        if order < 1:
            raise ValueError(f"an autoregression of order {order} looks at nothing: no window")
        super().__init__(order, order)

    def _look_back_from(self, value: float) -> None:
        self._past.appendleft(value)
        known = [self._standard.of(each) for each in self._past]
        self._x = known + [0.0] * (len(self._x) - len(known))
