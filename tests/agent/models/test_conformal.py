"""Intervals by what happened: they keep their word whatever the errors are like, and say when nobody knows."""

import math

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import pool

from apples import Allocation, Host, Link, PerformanceEstimator, Schedule, SpeedFunction
from apples.agent import (
    ALONE,
    MIN_RUNS,
    ONE_SITE,
    SEVERAL_SITES,
    Learned,
    PastRun,
    caution,
    next_interval,
    set_class,
)
from nws import Forecast, Weather

RUNS = 48
EARLY = 4
"""Runs before the first quantile of their errors."""


def normal(g):
    return 0.05 * g.standard_normal(RUNS)


def always_late(g):
    return 0.1 + 0.03 * g.standard_normal(RUNS)


def heavy_tails(g):
    return 0.04 * g.standard_t(2, RUNS)


def outliers(g):
    return np.where(g.random(RUNS) < 0.08, 0.6, 0.03) * g.standard_normal(RUNS)


def drifting(g):
    return np.linspace(0, 0.3, RUNS) + 0.04 * g.standard_normal(RUNS)


def wandering(g):
    return np.cumsum(0.03 * g.standard_normal(RUNS))


def in_spells(g):
    noise, errors, last = 0.04 * g.standard_normal(RUNS), [], 0.0
    for one in noise:
        last = 0.7 * last + one
        errors.append(last)
    return np.array(errors)


def learned(g):
    return 0.4 * 0.6 ** np.arange(RUNS) + 0.04 * g.standard_normal(RUNS)


def five_times_worse(g):
    return np.where(np.arange(RUNS) < RUNS // 2, 0.03, 0.15) * g.standard_normal(RUNS)


def five_times_better(g):
    return np.where(np.arange(RUNS) < RUNS // 2, 0.15, 0.03) * g.standard_normal(RUNS)


def four_methods(g):
    """Each with a bias of its own, one after the other, in one history."""
    bias = g.normal(0, 0.08, 4)
    return np.tile(bias, RUNS // 4) + 0.03 * g.standard_normal(RUNS)


def four_noises(g):
    return np.tile([0.02, 0.05, 0.1, 0.2], RUNS // 4) * g.standard_normal(RUNS)


PROCESSES = [
    normal, always_late, heavy_tails, outliers, drifting, wandering, in_spells, learned,
    five_times_worse, five_times_better, four_methods, four_noises,
]  # fmt: skip


def history(errors):
    """Return the runs that these errors make."""
    return [PastRun(ONE_SITE, 1.0, 0.05, None, math.exp(error)) for error in errors]


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.__name__)
def test_seven_to_nine_of_ten_runs_end_inside_whatever_the_errors_are_like(process):
    shares = []
    for seed in range(12):
        held = next_interval(history(process(np.random.default_rng(seed)))).held
        shares.append(np.mean(held[MIN_RUNS - EARLY :]))
    assert 0.72 <= np.mean(shares) <= 0.88
    assert all(0.65 <= share <= 0.96 for share in shares)  # of 39 runs: two or three off the bar


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_runs_have_no_interval(count):
    assert next_interval(history([0.1] * count)) is None


def test_the_first_interval_that_is_printed_already_holds_in_eight_of_ten_runs():
    generator = np.random.default_rng(3)
    inside = 0
    for _ in range(2000):
        *known, last = 0.1 * generator.standard_normal(MIN_RUNS + 1)
        inside += abs(last) <= next_interval(history(known)).half_width
    assert 0.77 <= inside / 2000 <= 0.9


def test_a_machine_that_changed_is_noticed_within_a_few_runs():
    held = next_interval(history([0.02, -0.02] * 15 + [0.2] * 6)).held
    assert not any(held[30 - EARLY : 32 - EARLY])
    assert held[-1]
    assert next_interval(history([0.2, -0.2] * 15 + [0.01] * 40)).half_width < 0.05


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=40))
def test_a_miss_never_narrows_the_next_interval(errors):
    width = next_interval(history(errors)).half_width
    assert next_interval(history([*errors, 2 * width + 1])).half_width >= 0.999 * width


def test_a_set_is_of_one_of_three_classes():
    near, other, far = Host("a"), Host("b"), Host("c", site="far")
    assert set_class((near,)) == ALONE
    assert set_class((near, other)) == ONE_SITE
    assert set_class((near, far)) == SEVERAL_SITES


# ------------------------------------------------------------------ the estimate's interval
HOSTS = (Host("a", seconds_per_point=1e-9), Host("b", seconds_per_point=1e-9, site="far"))
LINKS = {("local", "far"): Link(1e-4, 1e9)}


def estimated(runs=(), risk=0.0, error=0.05, hosts=HOSTS, measured=True):
    """Return the promised estimate of equal strips."""
    sky = Weather(cpu={h.name: Forecast(0.6, error, "mean", 40, 0.0) for h in hosts})
    user = f"[preferences]\nrisk = {risk}\n"
    speeds = {h.identity: {"default": SpeedFunction.constant(1e-9)} for h in hosts if measured}
    learned = Learned(speeds, runs=tuple(runs))
    information = pool(hosts, LINKS, weather=sky, learned=learned, user=user)
    rows = 1000 // len(hosts)
    schedule = Schedule(tuple(Allocation(h, rows, "") for h in hosts))
    estimator = PerformanceEstimator()
    estimate = estimator.estimate(schedule, information)
    return estimator.promised(estimate, information), estimator.interval(schedule, information)


def past(kind, *errors):
    return [PastRun(kind, 1.0, 0.02, (0.98, 1.02), math.exp(error)) for error in errors]


ERRORS = (0.3, -0.25, 0.28, -0.3, 0.27, 0.3, -0.28, 0.29, -0.3, 0.3)


@pytest.mark.parametrize("count", range(MIN_RUNS))
def test_before_five_runs_have_measured_the_coverage_a_plan_has_no_interval(count):
    estimate, _ = estimated(past(SEVERAL_SITES, *ERRORS[:count]) + past(ONE_SITE, *ERRORS))
    assert estimate.interval == (estimate.execution_seconds, estimate.execution_seconds)
    assert (estimate.basis.set_class, estimate.basis.runs) == (SEVERAL_SITES, count)
    assert estimate.basis.of < 5


def test_from_then_on_it_is_what_past_runs_of_its_class_ask_for():
    estimate, _ = estimated(past(SEVERAL_SITES, *ERRORS) + past(ONE_SITE, 0.01))
    low, high = estimate.interval
    width = math.log(high / estimate.execution_seconds)
    assert width == pytest.approx(math.log(estimate.execution_seconds / low))
    assert 0.3 <= width <= 0.4
    assert (estimate.basis.runs, estimate.basis.of) == (10, 6)


def test_the_first_interval_rests_on_five_runs_that_measured_its_coverage():
    estimate, _ = estimated(past(SEVERAL_SITES, *ERRORS[:MIN_RUNS]))
    assert estimate.interval[0] < estimate.interval[1]
    assert estimate.basis.of == 5


def test_a_speed_that_was_never_measured_has_no_interval():
    estimate, _ = estimated(past(SEVERAL_SITES, *ERRORS), measured=False)
    assert estimate.interval == (estimate.execution_seconds, estimate.execution_seconds)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.floats(-3, 3), max_size=30),
    st.floats(0, 4),
    st.floats(0, 0.2),
    st.sampled_from([1, 2]),
)
def test_an_interval_never_excludes_its_own_prediction(errors, risk, error, count):
    runs = past(ALONE, *errors) + past(SEVERAL_SITES, *errors)
    estimate, _ = estimated(runs, risk, error, HOSTS[:count])
    low, high = estimate.interval
    assert low <= estimate.execution_seconds <= high


class WithoutDraws(PerformanceEstimator):
    def interval(self, schedule, information):
        raise AssertionError(schedule, information)


def test_a_plan_draws_no_interval_of_the_model_that_it_does_not_print():
    information = pool(HOSTS, LINKS)
    schedule = Schedule(tuple(Allocation(h, 500, "") for h in HOSTS))
    estimator = WithoutDraws()
    estimate = estimator.promised(estimator.estimate(schedule, information), information)
    assert estimate.basis.mean_seconds == estimate.execution_seconds


def test_risk_takes_the_errors_that_runs_had_and_not_only_those_of_the_forecasts():
    few, _ = estimated(risk=1.0)
    many, _ = estimated(past(SEVERAL_SITES, *[0.4, -0.4] * 5), risk=1.0)
    assert many.execution_seconds > 1.2 * few.execution_seconds
    assert max(h.seconds for h in many.hosts) == pytest.approx(many.iteration_seconds)
    mean, _ = estimated(past(SEVERAL_SITES, *[0.4, -0.4] * 5))
    assert mean.execution_seconds == estimated()[0].execution_seconds
    assert caution(past(ALONE, 0.4), 0.0) == caution([], 2.0) == 1.0
