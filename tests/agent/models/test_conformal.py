"""Intervals by what happened: they keep their word whatever the errors are like, and say when nobody knows."""

import math

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import pool

from apples import Allocation, Host, Link, PerformanceEstimator, Schedule
from apples.agent import (
    ALONE,
    HIGHEST_LEVEL,
    LEVEL,
    LOWEST_LEVEL,
    ONE_SITE,
    SEVERAL_SITES,
    Learned,
    PastRun,
    asked_level,
    caution,
    half_width,
    set_class,
)
from nws import Forecast, Weather

RUNS = 48
EARLY = 4
"""Runs at the start that may miss: nothing, or next to nothing, is known then."""


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


def promised(errors):
    """Return the runs that these errors make, each promised what those before it ask for."""
    runs = []
    for error in errors:
        width = half_width(runs) if runs else 0.05
        ends = (math.exp(-width), math.exp(width))
        runs.append(PastRun(ONE_SITE, 1.0, 0.05, ends, math.exp(error)))
    return runs


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.__name__)
def test_seven_to_nine_of_ten_runs_end_inside_whatever_the_errors_are_like(process):
    shares = [
        np.mean([run.inside for run in promised(process(np.random.default_rng(seed)))[EARLY:]])
        for seed in range(12)
    ]
    assert 0.72 <= np.mean(shares) <= 0.88
    assert all(0.65 <= share <= 0.96 for share in shares)  # of 44 runs: two or three off the bar


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_first_few_runs_already_promise_what_eight_of_ten_keep(count):
    generator = np.random.default_rng(count)
    inside = 0
    for _ in range(2000):
        *known, last = 0.1 * generator.standard_normal(count + 1)
        runs = [PastRun(ALONE, 1.0, 0.0, None, math.exp(error)) for error in known]
        inside += abs(last) <= half_width(runs)
    assert 0.77 <= inside / 2000 <= 0.83


def test_a_machine_that_changed_is_noticed_within_a_few_runs():
    runs = promised([0.02, -0.02] * 15 + [0.2] * 6)
    assert not any(run.inside for run in runs[30:32])
    assert runs[-1].inside
    calm = promised([0.2, -0.2] * 15 + [0.01] * 40)
    assert half_width(calm) < 0.05


@given(st.lists(st.booleans(), max_size=60))
def test_the_level_asked_for_rises_with_misses_and_stays_where_a_quantile_means_something(held):
    runs = [PastRun(ALONE, 1.0, 0.1, (0.9, 1.1), 1.0 if one else 2.0) for one in held]
    level = asked_level(runs)
    assert LOWEST_LEVEL <= level <= HIGHEST_LEVEL
    missed = asked_level([*runs, PastRun(ALONE, 1.0, 0.1, (0.9, 1.1), 2.0)])
    assert missed >= level
    unpromised = PastRun(ALONE, 1.0, 0.1, None, 2.0)
    assert asked_level([*runs, unpromised]) == level
    assert asked_level([]) == LEVEL


def test_a_set_is_of_one_of_three_classes():
    near, other, far = Host("a"), Host("b"), Host("c", site="far")
    assert set_class((near,)) == ALONE
    assert set_class((near, other)) == ONE_SITE
    assert set_class((near, far)) == SEVERAL_SITES


# ------------------------------------------------------------------ the estimate's interval
HOSTS = (Host("a", seconds_per_point=1e-9), Host("b", seconds_per_point=1e-9, site="far"))
LINKS = {("local", "far"): Link(1e-4, 1e9)}


def estimated(runs=(), risk=0.0, error=0.05, hosts=HOSTS):
    """Return the promised estimate of equal strips."""
    sky = Weather(cpu={h.name: Forecast(0.6, error, "mean", 40, 0.0) for h in hosts})
    user = f"[preferences]\nrisk = {risk}\n"
    information = pool(hosts, LINKS, weather=sky, learned=Learned(runs=tuple(runs)), user=user)
    rows = 1000 // len(hosts)
    schedule = Schedule(tuple(Allocation(h, rows, "") for h in hosts))
    estimator = PerformanceEstimator()
    estimate = estimator.estimate(schedule, information)
    return estimator.promised(estimate, information), estimator.interval(schedule, information)


def past(kind, *errors):
    return [PastRun(kind, 1.0, 0.02, (0.98, 1.02), math.exp(error)) for error in errors]


def test_before_the_first_run_of_its_class_the_interval_is_the_models_own_and_unchecked():
    estimate, (low, high) = estimated(past(ONE_SITE, 0.5, -0.5))
    assert estimate.basis.runs == 0
    assert estimate.interval == (min(low, estimate.execution_seconds), high)
    assert estimate.basis.set_class == SEVERAL_SITES


def test_from_then_on_it_is_what_past_runs_of_its_class_ask_for():
    errors = (0.3, -0.25, 0.28, -0.3, 0.27, 0.3)
    estimate, _ = estimated(past(SEVERAL_SITES, *errors) + past(ONE_SITE, 0.01))
    low, high = estimate.interval
    width = math.log(high / estimate.execution_seconds)
    assert width == pytest.approx(math.log(estimate.execution_seconds / low))
    assert 0.3 <= width <= 0.4
    assert (estimate.basis.runs, estimate.basis.inside, estimate.basis.of) == (6, 0, 6)


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


def test_risk_takes_the_errors_that_runs_had_and_not_only_those_of_the_forecasts():
    few, _ = estimated(risk=1.0)
    many, _ = estimated(past(SEVERAL_SITES, *[0.4, -0.4] * 5), risk=1.0)
    assert many.execution_seconds > 1.2 * few.execution_seconds
    assert max(h.seconds for h in many.hosts) == pytest.approx(many.iteration_seconds)
    mean, _ = estimated(past(SEVERAL_SITES, *[0.4, -0.4] * 5))
    assert mean.execution_seconds == estimated()[0].execution_seconds
    assert caution(past(ALONE, 0.4), 0.0) == caution([], 2.0) == 1.0


@pytest.mark.parametrize("kind", [None, 1, [], {}, "planet"])
def test_a_remembered_run_of_no_class_is_left_out(kind):
    stored = PastRun("site", 1.0, 0.1, (0.9, 1.1), 1.2).stored()
    assert PastRun.recalled(stored) is not None
    assert PastRun.recalled({**stored, "class": kind}) is None
