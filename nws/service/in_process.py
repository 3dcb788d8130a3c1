"""The Network Weather Service in this process: sensors, memory, forecasters, weather."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from threading import Lock

from nws.errors import SeriesUnknownError
from nws.forecast import Forecast
from nws.forecaster import Criterion, Forecaster, LeagueTable
from nws.forecasters.profiles import default_of
from nws.forecasters.scored import ScoredForecaster
from nws.measurement import Measurement, SeriesName, bounds_of
from nws.memory.contract import Memory, RefusedError
from nws.sensor import Sensor, SensorError
from nws.weather import Weather


@dataclass(frozen=True, slots=True)
class SensorFailure:
    """A series that was not measured or not stored, why, when, and whether it may pass."""

    series: SeriesName
    reason: str
    transient: bool
    time: float


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome of running every sensor once."""

    stored: tuple[Measurement, ...]
    failures: tuple[SensorFailure, ...]


class NetworkWeatherService:
    """Measures, remembers and forecasts.

    The memory is the only thing that sensing and forecasting share: whatever is stored in it, by
    `sense` or by others, the next forecast takes in. Each series has its own forecaster, which
    sees its measurements in the order of time; one that comes later than a later one is
    remembered but no longer forecast from.

    Parameters
    ----------
    memory
        Where measurements are kept.
    sensors
        What `sense` runs, in this order.
    profile
        Makes a fresh forecaster for a new series; None: `nws.forecasters.profiles.default_of` its resource.
    clock
        Seconds since the epoch.

    Examples
    --------
    >>> from nws import RingMemory
    >>> from nws import ReplaySensor
    >>> ada = SeriesName("availableCpu", "ada")
    >>> sensor = ReplaySensor(ada, [(0.0, 0.5), (10.0, 0.5), (20.0, 0.5)])
    >>> service = NetworkWeatherService(RingMemory(), [sensor], clock=lambda: 25.0)
    >>> for _ in range(3):
    ...     failures = service.sense().failures
    >>> service.weather().cpu["ada"].value
    0.5
    """

    def __init__(
        self,
        memory: Memory,
        sensors: Iterable[Sensor] = (),
        profile: Callable[[], Forecaster] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.memory = memory
        self.sensors = tuple(sensors)
        self._profile = profile
        self._clock = clock
        self._forecasters: dict[SeriesName, ScoredForecaster] = {}
        self._sensing = Lock()
        self._forecasting = Lock()

    def sense(self) -> Round:
        """Run every sensor once, one after the other, and store what they measure.

        Never two at once, not even when called from several threads: probes would measure each
        other. A sensor that fails costs its own series this round and nothing else.
        """
        stored: list[Measurement] = []
        failures: list[SensorFailure] = []
        with self._sensing:
            for sensor in self.sensors:
                try:
                    measurements = sensor.measure()
                except Exception as error:  # noqa: BLE001 - a user's sensor may fail in any way
                    failures.extend(self._failures(sensor.series, error))
                else:
                    self._store(measurements, stored, failures)
        return Round(tuple(stored), tuple(failures))

    def forecast(
        self,
        series: SeriesName,
        over: float | None = None,
        level: float = 0.9,
        criterion: Criterion | None = None,
    ) -> Forecast:
        """Return what to expect of `series`: next, or in the mean `over` so many seconds.

        The forecast names the horizon that was nearest to `over`, and has an interval of `level`,
        if the profile has such (`nws.forecasters.scored.ScoredForecaster.forecast`). It is good by the error
        of `criterion`, if given: the absolute and the squared error choose differently.

        Raises
        ------
        LookupError
            Transient: nothing was measured yet.
        """
        with self._forecasting:
            return self._up_to_date(series).forecast(over, level, criterion)

    def league(
        self, series: SeriesName, over: float | None = None, criterion: Criterion | None = None
    ) -> LeagueTable | None:
        """Return how wrong the predictors of `series` have been; None where its profile has no choice.

        Parameters
        ----------
        over, criterion
            As of `forecast`, whose horizon it is of.

        Raises
        ------
        LookupError
            Transient: nothing was measured yet.
        """
        with self._forecasting:
            return self._up_to_date(series).league(over, criterion)

    def weather(self, over: float | None = None, level: float = 0.9) -> Weather:
        """Return the forecasts of all series in the memory, now; `over` and `level` as above."""
        now = self._clock()
        with self._forecasting:
            forecasts = {
                series: self._up_to_date(series).forecast(over, level)
                for series in self.memory.series()
            }
        return Weather.of(forecasts, now)

    def _up_to_date(self, series: SeriesName) -> ScoredForecaster:
        """Return the forecaster of `series`, given all that came since it was last asked."""
        forecaster = self._forecasters.get(series)
        since = forecaster.time if forecaster else float("-inf")
        measurements = self.memory.fetch(series, after=since)
        if forecaster is None:
            if not measurements:
                raise SeriesUnknownError(
                    f"nothing was measured of {series} yet", series=str(series)
                )
            forecaster = self._forecasters[series] = ScoredForecaster(
                self._profile() if self._profile else default_of(series.resource),
                bounds_of(series.resource),
            )
        for measurement in measurements:
            forecaster.update(measurement)
        return forecaster

    def _store(
        self,
        measurements: Iterable[Measurement],
        stored: list[Measurement],
        failures: list[SensorFailure],
    ) -> None:
        for measurement in measurements:
            try:
                self.memory.store(measurement)
            except RefusedError as error:
                failures.extend(self._failures([measurement.series], error))
            else:
                stored.append(measurement)

    def _failures(self, series: Iterable[SeriesName], error: Exception) -> list[SensorFailure]:
        known = isinstance(error, SensorError | RefusedError)
        reason = str(error) if known else f"{type(error).__name__}: {error}"
        transient = error.transient if isinstance(error, SensorError) else False
        now = self._clock()
        return [SensorFailure(name, reason, transient, now) for name in series]
