"""Properties that hold for whatever hypothesis thinks of; the strategies come first."""

import json
import math
import statistics
from collections import deque
from dataclasses import replace

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nws import (
    AdaptiveMedian,
    Forecast,
    LastValue,
    LowestError,
    Measurement,
    RefusedError,
    RingMemory,
    Runnable,
    RunningMean,
    SchedulingGroup,
    ScoredForecaster,
    SeriesName,
    SlidingMean,
    SlidingMedian,
    Smoothing,
    SortedWindow,
    TrimmedMean,
    Weather,
    available_share,
    classic,
    classic_primaries,
    competitors_for,
    current_share,
    fair_shares,
    parse_thread,
)

SOME = settings(max_examples=examples(25), deadline=None)
MANY = settings(max_examples=examples(60), deadline=None)

measurable = st.floats(min_value=-1e300, max_value=1e300)
shares = st.floats(min_value=0.0, max_value=1.0)
series_of_values = st.lists(measurable, min_size=1, max_size=80)
small_series = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0]), min_size=1, max_size=120)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
series_names = st.builds(SeriesName, names, names, st.none() | names)
cpu_counts = st.integers(min_value=1, max_value=64)
cpu_sets = st.frozensets(st.integers(0, 5), min_size=1)
_slices = [SchedulingGroup("user", 2048.0), SchedulingGroup("system", quota=1.5)]
paths_of_groups = st.sampled_from(
    [
        (),
        (_slices[0],),
        (_slices[0], SchedulingGroup("user/1", 512.0)),
        (_slices[0], SchedulingGroup("user/2", quota=0.5)),
        (_slices[1],),
        (SchedulingGroup("session 7"),),
    ]
)
threads_of_groups = st.lists(
    st.builds(Runnable, cpu_sets, st.sampled_from([110.0, 1024.0, 3121.0]), paths_of_groups),
    max_size=12,
)
amounts = st.floats(min_value=0.0, max_value=1e300)
times = st.floats(min_value=0.0, max_value=1e12)


def forecasts(values):
    return st.builds(
        Forecast, values, st.none() | amounts, st.text(), st.integers(0, 10**9), times
    )


def tables(keys, values):
    return st.dictionaries(keys, forecasts(values), max_size=4)


pairs = st.tuples(names, names)
weathers = st.builds(
    Weather,
    time=times,
    cpu=tables(names, shares),
    current_cpu=tables(names, shares),
    competitors=tables(names, amounts),
    free_memory=tables(names, amounts),
    latency=tables(pairs, amounts),
    bandwidth=tables(pairs, amounts),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


def fed(forecaster, values):
    for value in values:
        forecaster.update(value)
    return forecaster


@SOME
@given(series_of_values)
@pytest.mark.parametrize("name", classic_primaries())
def test_a_forecast_lies_among_the_values_it_was_made_of(name, values):
    forecast = fed(classic_primaries()[name], values).forecast()
    assert min(values) <= forecast <= max(values)


@SOME
@given(values=small_series)
def test_the_choice_is_always_a_member_whose_cumulative_error_is_least(values):
    make = {"last": LastValue, "mean": RunningMean, "median": lambda: SlidingMedian(5)}
    for criterion, power in (("absolute", 1), ("squared", 2)):
        chooser = fed(LowestError({name: make[name]() for name in make}, criterion), values)
        errors = dict.fromkeys(make, 0.0)
        alone = {name: fed(make[name](), values[:1]) for name in make}
        for value in values[1:]:
            for name, member in alone.items():
                errors[name] += abs(member.forecast() - value) ** power
                member.update(value)
        assert errors[chooser.method] == pytest.approx(min(errors.values()))
        assert chooser.forecast() == alone[chooser.method].forecast()


@SOME
@given(values=small_series)
def test_the_reported_error_is_the_mean_of_what_each_forecast_got_wrong(values):
    scored, reference = ScoredForecaster(classic()), classic()
    errors = []
    for time, value in enumerate(values):
        if time:
            errors.append(abs(reference.forecast() - value))
        reference.update(value)
        scored.update(Measurement(SeriesName("availableCpu", "ada"), float(time), value))
    error = scored.forecast().error
    assert error == (pytest.approx(statistics.fmean(errors)) if errors else None)


@MANY
@given(st.integers(1, 9), series_of_values)
def test_a_window_is_the_sorted_latest_values(size, values):
    window = SortedWindow(size)
    latest = deque(maxlen=size)
    for value in values:
        window.push(value)
        latest.append(value)
        assert window.ordered == sorted(latest)
    assert window.median() == statistics.median(latest)


@MANY
@given(st.integers(1, 9), small_series)
def test_windowed_forecasters_agree_with_their_definitions(size, values):
    latest = sorted(values[-size:])
    trim = math.floor(0.3 * len(latest))
    middle = latest[trim : len(latest) - trim]
    assert fed(SlidingMean(size), values).forecast() == pytest.approx(statistics.fmean(latest))
    assert fed(SlidingMedian(size), values).forecast() == statistics.median(latest)
    assert fed(TrimmedMean(size), values).forecast() == pytest.approx(statistics.fmean(middle))


@MANY
@given(small_series, st.sampled_from([0.05, 0.3, 1.0]))
def test_smoothing_weighs_by_the_power_of_age(values, gain):
    weights = [gain * (1 - gain) ** age for age in range(len(values) - 1)]
    first = (1 - gain) ** (len(values) - 1)
    expected = sum(w * v for w, v in zip(weights, reversed(values[1:]), strict=True))
    smooth = fed(Smoothing(gain), values).forecast()
    assert smooth == pytest.approx(expected + first * values[0])


@MANY
@given(small_series, st.sampled_from([(10, 5, 21, 1), (30, 21, 51, 5), (2, 1, 5, 3)]))
def test_an_adaptive_window_follows_the_nearest_of_three_medians(values, parameters):
    start, minimum, maximum, offset = parameters
    width, seen = start, []
    for value in values:
        if seen:
            candidates = [width, max(minimum, width - offset), min(maximum, width + offset)]
            medians = [statistics.median(seen[-candidate:]) for candidate in candidates]
            width = min(zip(candidates, medians, strict=True), key=lambda c: abs(c[1] - value))[0]
        seen.append(value)
    forecaster = fed(AdaptiveMedian(*parameters), values)
    assert forecaster.width == width
    assert forecaster.forecast() == statistics.median(seen[-width:])


@MANY
@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0.25, 0.5])), max_size=30),
)
def test_a_ring_holds_the_latest_first_values(capacity, stores):
    memory, model = RingMemory(capacity), {}
    ada = SeriesName("availableCpu", "ada")
    for time, value in stores:
        too_old = len(model) == capacity and time < min(model)
        try:
            assert memory.store(Measurement(ada, float(time), value)) == (time not in model)
            assert not too_old
        except RefusedError:
            assert too_old
            continue
        model.setdefault(time, value)
        if len(model) > capacity:
            del model[min(model)]
    assert [(kept.time, kept.value) for kept in memory.fetch(ada)] == sorted(model.items())


@MANY
@given(series_names)
def test_a_name_is_its_text(series):
    assert SeriesName.parse(str(series)) == series


@MANY
@given(st.floats(0, 1e6), cpu_counts)
def test_a_running_process_gets_no_less_than_a_new_one(competitors, cpus):
    available, current = available_share(competitors, cpus), current_share(competitors, cpus)
    assert 0 < available <= current <= 1


@MANY
@given(st.floats(0.0009765625, 1.0), cpu_counts)
def test_competitors_explain_the_share_they_were_derived_from(share, cpus):
    competitors = competitors_for(share, cpus)
    assert competitors >= 0
    if cpus == 1 or share <= cpus / (cpus + 1):
        assert available_share(competitors, cpus) == pytest.approx(share)
    else:
        assert competitors <= cpus + 1e-9
        assert available_share(competitors, cpus) >= share - 1e-9


@MANY
@given(threads_of_groups)
def test_cpus_are_given_away_whole_and_none_twice(threads):
    online = frozenset(range(6))
    shares = fair_shares(threads, online)
    assert all(-1e-9 <= share <= 1 + 1e-9 for share in shares)
    everywhere = [
        replace(one, groups=tuple(replace(g, quota=None) for g in one.groups)) for one in threads
    ]
    given = fair_shares(everywhere, online)
    used = set().union(*(one.allowed for one in threads)) if threads else set()
    assert sum(given) <= len(used) + 1e-6
    if all(len(one.allowed) == 1 for one in threads):
        assert sum(given) == pytest.approx(len(used))
    for one in threads:
        for group in one.groups:
            members = [
                s for s, other in zip(shares, threads, strict=True) if group in other.groups
            ]
            assert group.quota is None or sum(members) <= group.quota + 1e-9


@MANY
@given(threads_of_groups, st.floats(0.1, 10.0))
def test_only_the_ratios_of_weights_below_one_group_matter(threads, factor):
    heavier = [
        replace(
            one,
            weight=one.weight * factor if not one.groups else one.weight,
            groups=tuple(
                replace(group, weight=group.weight * factor) if not depth else group
                for depth, group in enumerate(one.groups)
            ),
        )
        for one in threads
    ]
    online = frozenset(range(6))
    assert fair_shares(heavier, online) == pytest.approx(fair_shares(threads, online), abs=1e-6)


@MANY
@given(st.text(st.characters(exclude_characters="\n\x00"), max_size=15), st.integers(-20, 19))
def test_no_name_of_a_thread_misleads_the_parser(name, nice):
    stat = f"7 ({name}) R 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 {20 + nice} {nice} 1 0"
    thread = parse_thread(stat)
    assert (thread.state, thread.nice) == ("R", nice)


@SOME
@given(weathers)
def test_any_weather_reads_back_as_it_was_written(sky):
    assert Weather.from_json(sky.to_json()) == sky


@MANY
@given(json_values, st.sampled_from(["time", "cpu", "latency", "cpu.ada", "cpu.ada.value"]))
def test_whatever_a_file_holds_is_a_weather_or_a_value_error(value, path):
    document = {"schema": "nws.weather/1", "time": 0, "cpu": {"ada": {"value": 0.5}}}
    entry = document
    *parents, last = path.split(".")
    for parent in parents:
        entry = entry[parent]
    entry[last] = value
    try:
        sky = Weather.from_json(json.dumps(document))
    except ValueError:
        return
    assert Weather.from_json(sky.to_json()) == sky
