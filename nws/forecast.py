"""What is forecast: a number with its error."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Forecast:
    """A value to expect next, how wrong such values have been, and where it comes from.

    Attributes
    ----------
    value
        The forecast, in the unit of its series.
    error
        Mean absolute error, same unit, of all forecasts made for this series so far: the error of
        the one who chooses, not of the predictor that happens to be best. ``None`` until a
        forecast has met the value it was made for (so never a zero that means "unknown").
    method
        The name of the predictor the value comes from.
    samples
        How many measurements it is made of.
    time
        When the last of them was taken, in seconds since the epoch.
    """

    value: float
    error: float | None
    method: str
    samples: int
    time: float

    def age(self, now: float) -> float:
        """Return the seconds from the last measurement to `now`; never negative."""
        return max(0.0, now - self.time)
