"""What a schedule will take, and how sure that is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import pool

from apples import Allocation, Host, Link, PerformanceEstimator, Schedule
from apples.agent import PROVEN, Learned, LearnedLink, LearnedLinks, SpeedFunction, percentiles
from nws import Forecast, Weather

TO_SD = np.sqrt(np.pi / 2)
NEAR = {("local", "local"): Link(1e-6, 1e10)}
ROWS = (300, 300, 400)
HOSTS = tuple(
    Host(n, seconds_per_point=s, cost_per_second=1.0 + k)
    for k, (n, s) in enumerate(zip("abc", (1e-9, 2e-9, 3e-9), strict=True))
)


def sky(errors, cpu=0.6):
    return Weather(
        cpu={h.name: Forecast(cpu, e, "mean", 9, 0.0) for h, e in zip(HOSTS, errors, strict=True)}
    )


def case(errors=(0.02, 0.05, 0.1), iterations=10, rows=ROWS, **more):
    information = pool(HOSTS, NEAR, weather=sky(errors), iterations=iterations, **more)
    schedule = Schedule(
        tuple(Allocation(h, r, "default") for h, r in zip(HOSTS, rows, strict=True))
    )
    return schedule, information


def border(count=3):
    each = 2 * (1e-6 + 8000 / 1e10)
    return np.array([each, 2 * each, each])[:count]


def test_the_nominal_time_is_that_of_the_slowest_host():
    schedule, information = case()
    estimate = PerformanceEstimator().estimate(schedule, information)
    work = np.array(ROWS) * 1000 * np.array([1e-9, 2e-9, 3e-9]) / 0.6
    assert estimate.iteration_seconds == pytest.approx((work + border()).max())
    assert estimate.execution_seconds == 10 * estimate.iteration_seconds
    assert estimate.cost == pytest.approx(6.0 * estimate.execution_seconds)
    assert [h.seconds for h in estimate.hosts] == pytest.approx(work + border())


def test_the_interval_is_10_to_90_percent_of_an_independent_monte_carlo():
    errors = (0.02, 0.05, 0.1)
    schedule, information = case(errors, rows=(600, 250, 150))
    low, high = PerformanceEstimator().interval(schedule, information)
    generator = np.random.default_rng(99)
    shares = 0.6 + TO_SD * np.array(errors) * generator.standard_normal((200_000, 3))
    work = np.array((600, 250, 150)) * 1000 * np.array([1e-9, 2e-9, 3e-9])
    longest = (work / np.clip(shares, 0.01, 1.0) + border()).max(axis=1) * 10
    assert [low, high] == pytest.approx(np.percentile(longest, [10, 90]), rel=0.01)


def test_the_promise_of_the_slowest_of_several_is_later_than_the_slowest_promise():
    """  all equal: the nominal time is reached by about one draw in eight."""  # fmt: skip
    hosts = tuple(Host(n, seconds_per_point=1e-9) for n in "abc")
    information = pool(hosts, NEAR, weather=sky((0.05,) * 3))
    schedule = Schedule(
        tuple(Allocation(h, r, "") for h, r in zip(hosts, (333, 333, 334), strict=True))
    )
    estimate = PerformanceEstimator().estimate(schedule, information)
    low, high = PerformanceEstimator().interval(schedule, information)
    assert estimate.execution_seconds < (low + high) / 2


def test_without_errors_the_interval_is_a_point():
    schedule, information = case((0.0, 0.0, 0.0))
    estimate = PerformanceEstimator().estimate(schedule, information)
    assert PerformanceEstimator().interval(schedule, information) == pytest.approx(
        (estimate.execution_seconds,) * 2
    )


def test_the_interval_is_drawn_for_the_forecasts_whatever_risk_was_planned_for():
    schedule, calm = case()
    _, wary = case(user="[preferences]\nrisk = 2.0\n")
    estimator = PerformanceEstimator()
    assert estimator.interval(schedule, calm) == estimator.interval(schedule, wary)
    assert (
        estimator.estimate(schedule, wary).iteration_seconds
        > estimator.estimate(schedule, calm).iteration_seconds
    )


def test_the_same_question_has_the_same_answer():
    schedule, information = case()
    assert PerformanceEstimator().interval(
        schedule, information
    ) == PerformanceEstimator().interval(schedule, information)


@pytest.mark.more
def test_eight_of_ten_runs_end_inside_the_interval():
    """400 runs, each under shares drawn from the errors of its own forecasts; links likewise."""
    generator = np.random.default_rng(4)
    inside = 0
    for _ in range(400):
        errors = generator.uniform(0.005, 0.06, 3)
        rows = generator.multinomial(997, [0.5, 0.3, 0.2]) + 1
        schedule, information = case(tuple(errors), rows=tuple(int(r) for r in rows))
        low, high = PerformanceEstimator().interval(schedule, information)
        shares = np.clip(0.6 + TO_SD * errors * generator.standard_normal(3), 0.01, 1.0)
        work = rows * 1000 * np.array([1e-9, 2e-9, 3e-9]) / shares
        inside += low <= 10 * (work + border()).max() <= high
    assert 0.75 <= inside / 400 <= 0.85


def test_errors_of_links_and_of_learned_speeds_widen_the_interval():
    def width(**more):
        hosts = HOSTS[:2]
        information = pool(hosts, {("local", "local"): Link(1e-3, 1e7)}, **more)
        schedule = Schedule(tuple(Allocation(h, 500, "") for h in hosts))
        low, high = PerformanceEstimator().interval(schedule, information)
        return high - low

    latency = {("a", "b"): Forecast(1e-3, 2e-4, "mean", 9, 0.0)}
    assert width() == 0
    assert width(weather=Weather(latency=latency)) > 0
    measured = SpeedFunction.constant(2e-9, error=0.1)
    assert width(learned=Learned(speeds={"b": {"default": measured}})) > 0
    pair = ("a", "b")
    link = LearnedLink(pair, 1e-3, 1e7, 1e-3, 1e7, spread=0.2, evidence=PROVEN)
    assert width(learned=Learned(links=LearnedLinks({pair: link}))) > 0


@given(st.lists(st.floats(1e-9, 1e9), min_size=2, max_size=60))
def test_percentiles_are_those_of_numpy_to_the_bit(values):
    found = percentiles(np.array(values), 10, 90)
    assert found == [float(one) for one in np.percentile(values, [10, 90])]


@pytest.mark.parametrize(
    ("user", "offered"),
    [
        ("", 9e6),
        ("[constraints]\nmemory = 5_000_000\n", 5e6),
        ("[preferences]\nrisk = 2.0\n", 7e6),
        ("[constraints]\nmemory = 8_000_000\n[preferences]\nrisk = 0.5\n", 8e6),
    ],
)
def test_the_memory_that_is_shown_is_what_a_strip_may_take(user, offered):
    """The forecast is 9 MB, its error 1 MB; less the user's risk, at most what the user allows on a host."""
    host = Host("a", seconds_per_point=1e-9)
    weather = Weather(free_memory={"a": Forecast(9e6, 1e6, "mean", 9, 0.0)})
    information = pool((host,), weather=weather, grid=500, user=user)
    schedule = Schedule((Allocation(host, 500, "default"),))
    (shown,) = PerformanceEstimator().estimate(schedule, information).hosts
    assert shown.free_memory == pytest.approx(offered)
    assert information.memory_offered(host) == pytest.approx(offered)
