"""Which links are measured before a decision: enough for a plan as good as if all had been, and no others."""

import math
from itertools import pairwise, permutations

import pytest
from drawn import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from apples.weather import LINK_TOLERANCE as TOLERANCE
from apples.weather import (
    MAX_SECONDS,
    MIN_SECONDS,
    UNKNOWN,
    WORTH_SECONDS,
    LinkBounds,
    ProposedPlan,
    holds_for,
    measured_as_needed,
    spread_of,
)
from nws import Forecast, Measurement, SeriesName, Weather

HOSTS = ("a", "b", "c", "d")
PAIRS = tuple((x, y) for x in HOSTS for y in HOSTS if x != y)
BYTES = 16000.0


def told(value):
    return Forecast(value, error=0.0, method="m", samples=5, time=0.0)


def weather_of(links):
    latency = {pair: told(one[0]) for pair, one in links.items()}
    return Weather(latency=latency, bandwidth={pair: told(one[1]) for pair, one in links.items()})


def seconds(chain, points, weather):
    """The paper's T of a chain whose work is balanced: (n + sum C_i / p_i) / sum 1 / p_i."""
    border = [0.0] * len(chain)
    for i, (x, y) in enumerate(pairwise(chain)):
        both = sum(
            weather.latency[p].value + BYTES / weather.bandwidth[p].value for p in ((x, y), (y, x))
        )
        border[i] += both
        border[i + 1] += both
    speeds = [points[host] for host in chain]
    work = 1.0 + sum(c * s for c, s in zip(border, speeds, strict=True))
    return work / sum(speeds)


class World:
    """Hosts with speeds, links with a truth, and a planner that tries every chain."""

    def __init__(self, points, truth, known, bounds):
        self.points, self.truth = points, truth
        self.known, self.bounds = dict(known), dict(bounds)
        self.measured = []
        self.iterations = math.inf

    def propose(self, weather):
        chains = [c for n in range(1, 5) for c in permutations(HOSTS, n)]
        best = min(chains, key=lambda chain: seconds(chain, self.points, weather))
        return ProposedPlan(best, lambda sky: seconds(best, self.points, sky), self.iterations)

    def measure(self, pairs):
        self.measured += pairs
        for pair in pairs:
            self.known[pair] = self.truth[pair]
            del self.bounds[pair]

    def plan(self, rounds):
        measured_as_needed(
            lambda: weather_of(self.known), lambda: self.bounds, self.propose, self.measure, rounds
        )
        return self.propose(weather_of(self.known))


links = st.tuples(st.floats(1e-5, 1e-2), st.floats(1e6, 1e9))


@st.composite
def worlds(draw):
    points = {host: draw(st.floats(10.0, 1000.0)) for host in HOSTS}
    known, bounds, truth = {}, {}, {}
    for pair in PAIRS:
        known[pair] = draw(links)
        spread = draw(st.sampled_from([1.0, 1.3, 3.0, 30.0]))
        by = [spread ** draw(st.floats(-1.0, 1.0)) for _ in range(2)]
        truth[pair] = (known[pair][0] * by[0], known[pair][1] * by[1])
        if spread > 1.0:
            bounds[pair] = LinkBounds(*known[pair], spread)
        else:
            truth[pair] = known[pair]
    return World(points, truth, known, bounds)


@settings(max_examples=examples(30))
@given(worlds())
def test_the_plan_is_as_good_as_if_every_link_had_been_measured(world):
    truth = weather_of(world.truth)
    chosen, ideal = world.plan(rounds=len(PAIRS) + 1), world.propose(truth)
    assert chosen.seconds(truth) <= (1 + TOLERANCE) ** 2 * ideal.seconds(truth) * (1 + 1e-9)


@settings(max_examples=examples(30))
@given(worlds(), st.floats(1.0, 1e6))
def test_a_short_run_loses_no_more_than_measuring_would_take(world, iterations):
    world.iterations = iterations
    truth = weather_of(world.truth)
    chosen, ideal = world.plan(rounds=len(PAIRS) + 1), world.propose(truth)
    allowed = (1 + TOLERANCE) * (ideal.seconds(truth) + WORTH_SECONDS / iterations)
    assert chosen.seconds(truth) <= (1 + TOLERANCE) * (allowed + WORTH_SECONDS / iterations)


def test_a_run_that_is_over_before_its_links_are_measured_measures_none():
    world = World(
        dict.fromkeys(HOSTS, 1000.0), {}, {}, dict.fromkeys(PAIRS, LinkBounds(1e-3, 1e7, 2))
    )
    world.known = world.truth = dict.fromkeys(PAIRS, (1e-3, 1e7))
    world.iterations = 1
    world.plan(rounds=4)
    assert world.measured == []


@settings(max_examples=examples(30))
@given(worlds())
def test_no_link_is_measured_twice_and_none_that_is_certain(world):
    uncertain = set(world.bounds)
    world.plan(rounds=4)
    assert len(world.measured) == len(set(world.measured))
    assert set(world.measured) <= uncertain


@settings(max_examples=examples(30))
@given(worlds())
def test_where_links_cannot_matter_none_is_measured(world):
    world.points = {host: value * 1e-7 for host, value in world.points.items()}
    world.plan(rounds=4)
    assert world.measured == []


def test_a_link_that_cannot_be_measured_is_not_asked_for_again():
    world = World(dict.fromkeys(HOSTS, 1000.0), {}, {}, dict.fromkeys(PAIRS, UNKNOWN))
    world.known = dict.fromkeys(PAIRS, (1e-3, 3e7))
    asked = []
    measured_as_needed(
        lambda: weather_of(world.known), lambda: world.bounds, world.propose, asked.append, 9
    )
    flat = [pair for pairs in asked for pair in pairs]
    assert len(flat) == len(set(flat))


def series(*samples):
    name = SeriesName("bandwidthTcp", "a", "b")
    return [Measurement(name, time, value) for time, value in samples]


@pytest.mark.parametrize(
    ("samples", "held"),
    [
        ([(0.0, 5.0)], MIN_SECONDS),
        ([(0.0, 5.0), (140.0, 5.1)], 140.0),
        ([(0.0, 5.0), (40.0, 5.1), (100.0, 1.0)], MIN_SECONDS),
        ([(0.0, 5.0), (90000.0, 5.1)], MAX_SECONDS),
    ],
)
def test_a_link_is_believed_as_long_as_it_has_been_seen_to_hold(samples, held):
    assert holds_for(series(*samples)) == held


@given(
    value=st.floats(1e3, 1e9),
    error=st.floats(0.0, 1.0),
    samples=st.integers(1, 50),
    ages=st.tuples(st.floats(0.0, 1e5), st.floats(0.0, 1e5)),
)
def test_a_link_is_the_less_certain_the_older_and_the_worse_its_forecasts(
    value, error, samples, ages
):
    def spread(relative, age):
        forecast = Forecast(value, error=relative * value, method="m", samples=samples, time=0.0)
        return spread_of(forecast, age, held=60.0)

    assume(ages[0] <= ages[1])
    assert 1.0 < spread(error, ages[0]) <= spread(error, ages[1])
    assert spread(error, ages[0]) <= spread(1.0, ages[0])
