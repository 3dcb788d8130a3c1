"""Every check of `nws.checks` on every implementation there is."""

import pytest

import nws.forecasters
import nws.memory
from nws import (
    BandwidthSensor,
    ConnectTimeSensor,
    CpuSensor,
    Endpoint,
    FreeDiskSensor,
    FreeMemorySensor,
    LatencySensor,
    Memory,
    ReplaySensor,
    RingMemory,
    RunQueueSample,
    SeriesName,
    SqliteMemory,
    checks,
    classic,
    classic_primaries,
    default,
)
from nws.forecasters import (
    AdaptiveMedian,
    LastValue,
    LowestError,
    RunningMean,
    SlidingMean,
    SlidingMedian,
    Smoothing,
    TrimmedMean,
    TwoLevel,
)

FORECASTERS = {
    "adaptive_median": lambda: AdaptiveMedian(start=10, minimum=5, maximum=21, offset=1),
    "last_value": LastValue,
    "lowest_error": lambda: LowestError({"last": LastValue(), "mean": RunningMean()}),
    "lowest_squared_error": lambda: LowestError(
        {"last": LastValue(), "mean": RunningMean()}, criterion="squared"
    ),
    "running_mean": RunningMean,
    "sliding_mean": lambda: SlidingMean(5),
    "sliding_median": lambda: SlidingMedian(4),
    "smoothing": lambda: Smoothing(0.75),
    "trimmed_mean": lambda: TrimmedMean(7),
    "classic": classic,
    "classic_squared": lambda: classic("squared"),
    "two_level": lambda: TwoLevel({"last": LastValue(), "mean": RunningMean()}),
    "default": default,
    "default_one_step": lambda: default("squared", horizons=(1,)),
    **{name: lambda name=name: classic_primaries()[name] for name in classic_primaries()},
}
SECRET = "known to both sides"  # noqa: S105 - it guards nothing
ADA = SeriesName("availableCpu", "ada")


def named(check):
    return check.__name__.removeprefix("check_")


FRAMES = {
    "default": default,
    "squared": lambda: default("squared"),
}


@pytest.mark.more
@pytest.mark.parametrize("check", checks.STATE_CHECKS, ids=named)
@pytest.mark.parametrize("make", FORECASTERS.values(), ids=FORECASTERS.keys())
def test_forecasters_can_be_saved_and_restored(make, check):
    check(make)


@pytest.mark.more
@pytest.mark.parametrize("check", checks.FRAME_CHECKS, ids=named)
@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES.keys())
def test_forecasters_over_a_frame_keep_their_contract(make, check):
    check(make)


@pytest.mark.parametrize("check", checks.FORECASTER_CHECKS + checks.AVERAGING_CHECKS, ids=named)
@pytest.mark.parametrize("make", FORECASTERS.values(), ids=FORECASTERS.keys())
def test_forecasters_keep_their_contract(make, check):
    check(make)


def test_no_forecaster_is_left_out():
    made = {type(make()).__name__ for make in FORECASTERS.values()}
    assert made == {*nws.forecasters.__all__, "MultiHorizonForecaster"}


@pytest.fixture
def stored(tmp_path):
    """Return a function that makes a fresh memory with a database; all are closed afterwards."""
    made = []

    def make():
        made.append(SqliteMemory(tmp_path / str(len(made))))
        return made[-1]

    yield make
    for memory in made:
        memory.close()


@pytest.mark.parametrize("check", checks.MEMORY_CHECKS, ids=named)
def test_the_memory_in_a_ring_keeps_its_contract(check):
    check(RingMemory)


@pytest.mark.parametrize("check", checks.MEMORY_CHECKS, ids=named)
def test_the_memory_with_a_database_keeps_its_contract(check, stored):
    check(stored)


def test_no_memory_is_left_out():
    ours = {kind for kind in Memory.__subclasses__() if kind.__module__.startswith("nws.")}
    assert ours == {RingMemory, SqliteMemory}


def replay():
    return ReplaySensor(ADA, [(0.0, 0.5), (0.0, 0.25)])


def cpu_without_hardware():
    return CpuSensor("ada", probe=lambda _: 0.4, look=RunQueueSample, sleep=lambda _: None)


@pytest.mark.parametrize("check", checks.SENSOR_CHECKS, ids=named)
@pytest.mark.parametrize("make", [replay, cpu_without_hardware])
def test_sensors_that_read_nothing_keep_their_contract(make, check):
    check(make)


@pytest.mark.more
@pytest.mark.parametrize("check", checks.SENSOR_CHECKS, ids=named)
@pytest.mark.parametrize("make", [CpuSensor, FreeMemorySensor, FreeDiskSensor])
def test_sensors_of_this_machine_keep_their_contract(make, check):
    check(lambda: make("ada"))


@pytest.mark.more
@pytest.mark.parametrize("check", checks.SENSOR_CHECKS, ids=named)
@pytest.mark.parametrize("kind", [LatencySensor, BandwidthSensor])
def test_sensors_of_a_link_keep_their_contract(kind, check):
    with Endpoint(SECRET) as endpoint:
        check(lambda: kind("ada", "bob", endpoint.address, SECRET))


@pytest.mark.parametrize("check", checks.SENSOR_CHECKS, ids=named)
def test_the_sensor_of_connections_keeps_its_contract(check):
    with Endpoint(SECRET) as endpoint:
        check(lambda: ConnectTimeSensor("ada", "bob", endpoint.address))


def test_no_sensor_is_left_out():
    tested = {CpuSensor, FreeMemorySensor, LatencySensor, BandwidthSensor, ReplaySensor}
    tested |= {FreeDiskSensor, ConnectTimeSensor}
    ours = [getattr(nws, name) for name in nws.__all__ if name.endswith("Sensor")]
    assert tested == {kind for kind in ours if kind is not nws.Sensor}
