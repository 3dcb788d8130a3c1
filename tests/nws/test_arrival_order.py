"""Measurements that arrive late, swapped, or with stamps ahead of the truth."""

import json
import random
import re
from itertools import pairwise

import pytest
import waiting
from hypothesis import given
from hypothesis import strategies as st

from nws import (
    CALM,
    MAX_HELD,
    ArrivalOrder,
    ForecastDatabase,
    InputError,
    Measurement,
    Retention,
    SeriesName,
)

ADA = SeriesName("availableCpu", "ada")
NOW = 10_000.0


def taken(order, stamps):
    """Return the stamps whose turn it was after each arrival, flat."""
    return [turn.time for at in stamps for turn in order.arrive(at, 0.5)]


def swapped(count, period=10.0):
    """Return stamps of which each two neighbours have changed places."""
    return [period * (step + 1 - 2 * (step % 2)) for step in range(count)]


@pytest.fixture
def database(quick_disk):
    with_clock = ForecastDatabase(quick_disk, clock=lambda: NOW)
    yield with_clock
    with_clock.close(save=False)


def store(database, stamps, value=0.5):
    for at in stamps:
        database.submit([(str(ADA), at, value)]).result(timeout=120)


def test_what_comes_in_order_is_taken_at_once():
    order = ArrivalOrder()
    stamps = [10.0 * step for step in range(100)]
    assert taken(order, stamps) == stamps
    assert (order.late, order.ahead, order.held, order.remark) == (0, 0, [], "")


#   1 0 3 2 5 4 ..: 1, then 0 is too late; from then on one waits for its neighbour
def test_of_swapped_neighbours_one_is_left_out_and_all_others_are_taken_in_order():
    order = ArrivalOrder()
    stamps = swapped(300)
    found = taken(order, stamps) + [at for at, _ in order.held]
    assert found == sorted(found)
    assert (len(found), order.late, order.ahead) == (299, 1, 0)
    assert order.remark == "0.0 came after 10.0: too late to be forecast from"


def test_the_buffer_empties_itself_once_arrivals_are_in_order_again():
    order = ArrivalOrder()
    taken(order, swapped(20))
    start = 1000.0
    taken(order, [start + step for step in range(CALM)])
    assert order.held == []


def test_a_stamp_ahead_holds_nothing_up():
    order = ArrivalOrder()
    regular = [10.0 * step for step in range(30)]
    taken(order, regular)
    assert taken(order, [290.0 + 55.0]) == [345.0]
    after = [300.0 + 10.0 * step for step in range(20)]
    assert taken(order, after) == after
    assert (order.late, order.ahead) == (0, 1)
    assert re.findall(r"\d+\.\d", order.remark) == ["345.0", "300.0", "290.0"]


def test_a_stamp_ahead_that_waits_in_the_buffer_is_left_out():
    order = ArrivalOrder()
    taken(order, swapped(40))
    last = 400.0
    found = taken(order, [last + 500.0, last, last + 10.0, last + 20.0, last + 30.0])
    assert last + 500.0 not in found
    assert order.ahead == 1
    assert order.remark.startswith("900.0 ")


@pytest.mark.parametrize("before", [1, 2, 30])
def test_a_clock_that_was_set_back_is_followed_from_the_second_measurement_on(before):
    order = ArrivalOrder()
    taken(order, [10.0 * step for step in range(before)])
    newest = 10.0 * (before - 1)
    after = [newest - 35.0 + 10.0 * step for step in range(6)]
    assert taken(order, after) == after[1:]
    assert (order.late, order.ahead) == (1, 1)


def test_history_that_comes_later_does_not_set_time_back():
    order = ArrivalOrder()
    taken(order, [1000.0 + 10.0 * step for step in range(10)])
    assert taken(order, [10.0 * step for step in range(20)]) == []
    assert order.late == 20


@given(
    st.lists(st.integers(0, MAX_HELD), min_size=60, max_size=120),
    st.sampled_from([1.0, 10.0, 120.0]),
)
def test_a_series_whose_measurements_are_a_few_places_late_loses_few(delays, period):
    places = sorted(range(len(delays)), key=lambda step: (step + delays[step], step))
    order = ArrivalOrder()
    given_out = taken(order, [period * place for place in places])
    assert len(given_out) + len(order.held) + order.late + order.ahead >= len(places)
    assert len(set(given_out)) == len(given_out)
    assert sum(after < before for before, after in pairwise(given_out)) <= order.ahead
    assert len(order.held) <= MAX_HELD


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1)), max_size=80), st.integers(0, 80))
def test_an_order_goes_on_from_its_state_as_it_would_have(arrivals, stop):
    one, other = ArrivalOrder(), ArrivalOrder()
    for arrival in arrivals[:stop]:
        one.arrive(*arrival)
    other.restore(json.loads(json.dumps(one.state())))
    for arrival in arrivals[stop:]:
        assert one.arrive(*arrival) == other.arrive(*arrival)
    assert one.state() == other.state()


@pytest.mark.parametrize("change", [{"held": 7}, {"taken": ["x"]}, {"depth": None}, {"more": 1}])
def test_a_state_that_is_none_is_refused(change):
    with pytest.raises(InputError) as raised:
        ArrivalOrder().restore(ArrivalOrder().state() | change)
    assert raised.value.code == "state-invalid"


def test_a_stamp_55_s_ahead_silences_no_series(database):
    store(database, [NOW - 400 + 10.0 * step for step in range(30)], value=0.25)
    store(database, [NOW - 100 + 55.0], value=1.0)
    store(database, [NOW - 100 + 10.0 * step for step in range(10)], value=0.5)
    forecast, fresh = database.forecast(str(ADA))
    assert forecast.time == NOW - 10.0
    assert forecast.samples == 41
    assert abs(forecast.value - 0.5) < 0.05
    assert fresh.state == "current"


def test_a_series_is_as_old_as_its_last_arrival_when_a_stamp_lies_in_the_future(quick_disk):
    now = [1000.0]
    database = ForecastDatabase(quick_disk, clock=lambda: now[0])
    store(database, [900.0 + 10.0 * step for step in range(10)])
    store(database, [1050.0, 1000.0])
    assert database.freshness(str(ADA)).age == 0.0
    now[0] = 1035.0
    assert database.freshness(str(ADA)).state == "stale"
    database.close(save=False)


def test_all_but_one_of_300_swapped_measurements_are_forecast_from(database):
    store(database, [NOW - 3100 + at for at in swapped(300)])
    forecast, _ = database.forecast(str(ADA))
    assert forecast.samples == 299
    assert forecast.time == NOW - 3100 + 2990.0


def test_a_late_measurement_stored_during_a_read_is_forecast_from(database, monkeypatch):
    stamps = [NOW - 3100 + at for at in swapped(41)]
    store(database, stamps[:38])
    assert database.forecast(str(ADA))[0].samples == 37
    arrivals = database.memory.arrivals

    def stored_meanwhile(*question):
        monkeypatch.undo()
        store(database, stamps[39:])
        return arrivals(*question)

    monkeypatch.setattr(database.memory, "arrivals", stored_meanwhile)
    store(database, stamps[38:39])
    waiting.until(lambda: database.forecast(str(ADA))[0].time == max(stamps))
    assert database.forecast(str(ADA))[0].samples == 40


@pytest.mark.parametrize("saved", [False, True])
def test_disorder_is_made_the_same_of_after_a_restart(quick_disk, saved):
    chance = random.Random(7)
    stamps = [NOW - 3000 + 10.0 * step + chance.choice([0, 0, 0, 25, 55]) for step in range(200)]
    late = stamps[100:]
    chance.shuffle(late)
    stamps[100:] = late
    database = ForecastDatabase(quick_disk, clock=lambda: NOW)
    store(database, stamps[:120], value=0.5)
    if saved:
        database.forecast(str(ADA))
        database.save(after=1)
    store(database, stamps[120:], value=0.75)
    before = database.forecast(str(ADA), over=60.0)[0]
    told = database.forecasting.order(str(ADA)).state()
    database.close(save=False)
    again = ForecastDatabase(quick_disk, clock=lambda: NOW)
    assert again.forecast(str(ADA), over=60.0)[0] == before
    assert again.forecasting.order(str(ADA)).state() == told
    again.close(save=False)


@pytest.mark.parametrize(
    ("series", "value"), [("availableCpu", 7.0), ("availableCpu", -0.1), ("freeMemory", -1.0)]
)
def test_a_value_that_its_kind_cannot_have_is_refused(tmp_path, series, value):
    database = ForecastDatabase(tmp_path, Retention(), clock=lambda: NOW)
    (refused,) = database.submit([(f"{series}/ada", NOW, value)]).result(timeout=120).refused
    (place, error) = refused
    assert (place, error.code) == (0, "value-range")
    assert (error.fields["series"], error.fields["value"]) == (f"{series}/ada", value)
    assert database.series() == ()
    database.store(Measurement(SeriesName("degrees", "ada"), NOW, -7.0))  # a kind of your own
    database.close()
