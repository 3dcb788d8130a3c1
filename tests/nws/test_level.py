"""A load that ends or begins: the weather follows within a few samples, and a spike is no load."""

import random

import pytest

from nws import (
    InputError,
    MultiHorizonForecaster,
    NetworkWeatherService,
    ReplaySensor,
    RingMemory,
    SeriesName,
)

ADA = SeriesName("availableCpu", "ada")
PERIOD = 10.0
FRAMES = [None, 30.0, 300.0, 1200.0]
FOLLOWED_WITHIN = 3
"""Samples of a new level."""


def replayed(values):
    """Return a service that has sensed these values, PERIOD seconds apart."""
    samples = [(PERIOD * number, value) for number, value in enumerate(values)]
    service = NetworkWeatherService(RingMemory(), [ReplaySensor(ADA, samples)])
    for _ in samples:
        service.sense()
    return service


def noisy(level, count, seed=1, sigma=0.01):
    chance = random.Random(seed)
    return [min(1.0, max(0.01, level + chance.gauss(0.0, sigma))) for _ in range(count)]


@pytest.mark.parametrize("over", FRAMES)
@pytest.mark.parametrize("minutes", [2, 3, 30])
@pytest.mark.parametrize(("before", "after"), [(1.0, 0.5), (0.5, 1.0), (0.5, 0.33), (0.2, 0.5)])
def test_a_competitor_that_comes_or_leaves_is_followed_within_three_samples(
    before, after, minutes, over
):
    count = round(60 * minutes / PERIOD)
    service = replayed([*noisy(before, count), *noisy(after, FOLLOWED_WITHIN, seed=2)])
    assert service.forecast(ADA, over=over).value == pytest.approx(after, rel=0.1)


@pytest.mark.parametrize("over", FRAMES)
def test_a_second_change_is_followed_like_the_first(over):
    values = [*noisy(1.0, 60), *noisy(0.5, 18, seed=2), *noisy(1.0, FOLLOWED_WITHIN, seed=3)]
    assert replayed(values).forecast(ADA, over=over).value == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("seed", range(5))
def test_spikes_and_noise_make_the_forecaster_forget_nothing(seed):
    chance = random.Random(seed)
    values = [
        chance.gauss(10.0, 1.0) * (500 if chance.random() < 0.01 else 1) for _ in range(1500)
    ]
    forecaster = MultiHorizonForecaster(follow_shifts=True)
    for value in values:
        forecaster.update(value)
    assert forecaster.state()["level"]["count"] == len(values)


def test_a_change_after_spikes_is_followed_all_the_same():
    chance = random.Random(4)
    values = [chance.gauss(10.0, 0.3) * (500 if number % 97 == 50 else 1) for number in range(400)]
    forecaster = MultiHorizonForecaster(follow_shifts=True)
    for value in [*values, *(chance.gauss(5.0, 0.15) for _ in range(FOLLOWED_WITHIN))]:
        forecaster.update(value)
    assert forecaster.outlook(60).value == pytest.approx(5.0, rel=0.1)


def test_a_series_of_bursts_keeps_what_it_learned_of_them():
    burst = [*[0.9] * 20, *[0.3] * 5]
    forecaster = MultiHorizonForecaster(follow_shifts=True)
    for value in burst * 20:
        forecaster.update(value)
    learned = forecaster.state()["level"]["count"]
    assert learned >= len(burst) * 19


@pytest.mark.parametrize(
    "level",
    [
        None,
        {},
        {"latest": [1.0], "count": 0, "range": [0.0, 0.0, 0.0]},
        {"latest": [], "count": -1, "range": [0.0, 0.0, 0.0]},
        {"latest": [], "count": 0, "range": [0.0, "x", 0.0]},
        {"latest": [], "count": 0, "range": [0.0]},
    ],
)
def test_a_state_whose_level_is_none_is_refused(level):
    state = MultiHorizonForecaster().state() | {"level": level}
    with pytest.raises((InputError, ValueError)):
        MultiHorizonForecaster().restore(state)
