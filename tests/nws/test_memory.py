from concurrent.futures import ThreadPoolExecutor

import pytest

from nws import Measurement, RefusedError, RingMemory, SeriesName

ADA = SeriesName("availableCpu", "ada")
BOB = SeriesName("availableCpu", "bob")


def at(time, series=ADA):
    return Measurement(series, time, 0.5)


def times(memory, series=ADA):
    return [measurement.time for measurement in memory.fetch(series)]


def test_a_full_ring_lets_the_oldest_go():
    memory = RingMemory(capacity=3)
    for time in (1.0, 2.0, 3.0, 4.0, 5.0):
        assert memory.store(at(time))
    assert times(memory) == [3.0, 4.0, 5.0]


def test_a_late_measurement_takes_its_place_and_the_oldest_goes():
    memory = RingMemory(capacity=3)
    for time in (1.0, 3.0, 4.0, 2.0):
        assert memory.store(at(time))
    assert times(memory) == [2.0, 3.0, 4.0]


def test_older_than_all_of_a_full_ring_is_refused_not_lost():
    memory = RingMemory(capacity=2)
    memory.store(at(2.0))
    memory.store(at(3.0))
    with pytest.raises(RefusedError) as raised:
        memory.store(at(1.0))
    assert raised.value.code == "measurement-too-old"
    assert (raised.value.fields["value"], raised.value.fields["bound"]) == (1.0, 2.0)
    assert times(memory) == [2.0, 3.0]


def test_the_future_is_refused_beyond_the_skew_of_clocks():
    memory = RingMemory(skew=60.0, clock=lambda: 1000.0)
    assert memory.store(at(1060.0))
    with pytest.raises(RefusedError) as raised:
        memory.store(at(1061.0))
    assert raised.value.code == "measurement-in-future"
    assert (raised.value.fields["seconds"], raised.value.fields["bound"]) == (61.0, 60.0)


def test_one_series_too_many_is_refused_and_the_others_live_on():
    memory = RingMemory(most_series=1)
    memory.store(at(1.0, ADA))
    with pytest.raises(RefusedError) as raised:
        memory.store(at(1.0, BOB))
    assert raised.value.code == "too-many-series"
    assert raised.value.fields == {"series": "availableCpu/bob", "bound": 1}
    assert memory.store(at(2.0, ADA))
    assert memory.series() == (ADA,)


def test_a_refusal_of_the_first_measurement_leaves_no_empty_series():
    memory = RingMemory(clock=lambda: 0.0)
    with pytest.raises(RefusedError):
        memory.store(at(1e6))
    assert memory.series() == ()


def test_many_threads_may_store_at_once():
    memory = RingMemory(capacity=4000)
    with ThreadPoolExecutor(8) as pool:
        new = list(pool.map(memory.store, [at(float(time % 500)) for time in range(2000)]))
    assert sum(new) == 500
    assert times(memory) == [float(time) for time in range(500)]
