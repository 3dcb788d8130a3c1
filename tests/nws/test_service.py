import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from nws import (
    LastValue,
    Measurement,
    NetworkWeatherService,
    ReplaySensor,
    RingMemory,
    Sensor,
    SensorError,
    SensorFailure,
    SeriesName,
    SeriesUnknownError,
    classic,
)

ADA = SeriesName("availableCpu", "ada")
BOB = SeriesName("availableCpu", "bob")
LINK = SeriesName("latencyTcp", "ada", "bob")


class Broken(Sensor):
    def __init__(self, error):
        self.error = error

    @property
    def series(self):
        return (BOB,)

    def measure(self):
        raise self.error


def service(*sensors, **options):
    return NetworkWeatherService(RingMemory(), sensors, clock=lambda: 100.0, **options)


def test_what_is_sensed_is_forecast_and_becomes_weather():
    nws = service(
        ReplaySensor(ADA, [(0.0, 0.5), (10.0, 0.5), (20.0, 0.5)]),
        ReplaySensor(LINK, [(0.0, 1e-4), (10.0, 1e-4), (20.0, 1e-4)]),
    )
    for _ in range(3):
        assert nws.sense().failures == ()
    sky = nws.weather()
    assert sky.time == 100.0
    assert (sky.cpu["ada"].value, sky.cpu["ada"].error, sky.cpu["ada"].samples) == (0.5, 0.0, 3)
    assert sky.latency["ada", "bob"].value == 1e-4
    assert sky.cpu["ada"] == nws.forecast(ADA)


def test_a_weather_before_any_measurement_knows_nothing():
    assert service().weather().cpu == {}
    with pytest.raises(SeriesUnknownError) as raised:
        service().forecast(ADA)
    assert raised.value.code == "series-unknown"
    assert raised.value.fields["series"] == "availableCpu/ada"


@pytest.mark.parametrize(
    ("error", "reason", "transient"),
    [
        (SensorError("nobody answers", transient=True), "nobody answers", True),
        (SensorError("no /proc", transient=False), "no /proc", False),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero", False),
    ],
)
def test_a_sensor_that_fails_is_reported_and_stops_no_other(error, reason, transient):
    nws = service(Broken(error), ReplaySensor(ADA, [(0.0, 0.5)]))
    sensed = nws.sense()
    assert sensed.stored == (Measurement(ADA, 0.0, 0.5),)
    assert sensed.failures == (SensorFailure(BOB, reason, transient, time=100.0),)
    assert list(nws.weather().cpu) == ["ada"]


def test_what_the_memory_refuses_is_reported():
    nws = service(ReplaySensor(ADA, [(0.0, float("nan"))]), ReplaySensor(BOB, [(0.0, 0.5)]))
    sensed = nws.sense()
    assert [str(failure.series) for failure in sensed.failures] == ["availableCpu/ada"]
    assert "nan" in sensed.failures[0].reason
    assert list(nws.weather().cpu) == ["bob"]


def test_what_others_store_in_the_memory_is_forecast_too():
    nws = service()
    nws.memory.store(Measurement(BOB, 5.0, 0.25))
    assert nws.forecast(BOB).value == 0.25
    nws.memory.store(Measurement(BOB, 6.0, 0.75))
    assert nws.forecast(BOB).samples == 2


def test_asking_often_or_once_gives_the_same_forecast():
    values = [0.5, 0.25, 0.75, 0.5, 0.25] * 4
    often, once = service(), service()
    for time, value in enumerate(values):
        for nws in (often, once):
            nws.memory.store(Measurement(ADA, float(time), value))
        often.forecast(ADA)
    assert often.forecast(ADA) == once.forecast(ADA)


def test_a_late_measurement_is_remembered_but_not_forecast_from():
    nws = service(profile=LastValue)
    nws.memory.store(Measurement(ADA, 10.0, 0.5))
    assert nws.forecast(ADA).value == 0.5
    nws.memory.store(Measurement(ADA, 5.0, 0.9))
    assert nws.forecast(ADA).value == 0.5
    assert len(nws.memory.fetch(ADA)) == 2


def test_any_forecaster_may_take_the_place_of_the_battery():
    nws = service(ReplaySensor(ADA, [(0.0, 0.5)]), profile=LastValue)
    nws.sense()
    assert nws.forecast(ADA).method == "LastValue"
    assert NetworkWeatherService(RingMemory(), profile=classic).sensors == ()


def test_no_two_sensors_ever_measure_at_once():
    class Jealous(Sensor):
        alone = threading.Lock()

        def __init__(self, series):
            self._series = series

        @property
        def series(self):
            return (self._series,)

        def measure(self):
            if not self.alone.acquire(blocking=False):
                raise SensorError("another one measures", transient=True)
            try:
                return tuple(Measurement(self._series, 0.0, 0.0 * sum(range(10_000))) for _ in "x")
            finally:
                self.alone.release()

    nws = service(Jealous(ADA), Jealous(BOB))
    with ThreadPoolExecutor(4) as pool:
        rounds = list(pool.map(lambda _: nws.sense(), range(40)))
    assert [failure for done in rounds for failure in done.failures] == []
