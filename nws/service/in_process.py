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

    Sensing and forecasting share only the memory: the next forecast takes in all measurements stored in it,
    by `sense` or by others. Each series has its own forecaster, which
    takes in the measurements in the order of time; a late measurement is
    stored but not forecast from.

    Parameters
    ----------
    memory
        The memory of the measurements.
    sensors
        The sensors that `sense` runs, in this order.
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
        """Run every sensor once, one after the other, and store the measurements.

        Two sensors never run at once, even if several threads call: probes would measure each
        other. A failed sensor costs its own series this round and nothing else.
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
        """Return the forecast of the next value of `series`, or of the mean of the next `over` seconds.

        It has the horizon nearest to `over`, and an interval of `level` if the profile makes intervals
        (`nws.forecasters.scored.ScoredForecaster.forecast`). It minimises the error of `criterion`, if given.

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
        """Return the errors of the predictors of `series`; None if its profile does not choose between predictors.

        Parameters
        ----------
        over, criterion
            As of `forecast`.

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
