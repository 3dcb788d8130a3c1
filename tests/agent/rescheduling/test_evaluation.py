"""Evaluation of a move: what it would bring, what it would cost, and when it pays."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import ROOMY, pool

from apples import Coordinator, Host, Link
from apples.agent import STALL_SECONDS, IterationRate, Move, balanced, evaluate_move

LINKS = {("local", "local"): Link(1e-6, 1e8)}
HOSTS = [Host(name, seconds_per_point=1e-8, free_memory=ROOMY) for name in ("ada", "bob")]
ADA, BOB = HOSTS
INFORMATION = pool(HOSTS, LINKS)


def candidate(*hosts):
    coordinator = Coordinator(INFORMATION)
    return coordinator.estimate(balanced(hosts, INFORMATION))


def evaluated(estimate, rows, seconds, *, remaining=1000, costs=(), error=0.0):
    rate = IterationRate(seconds, dict.fromkeys(rows, seconds), 4.0, 40, error)
    coordinator = Coordinator(INFORMATION)
    return evaluate_move(
        estimate, rows, rate, remaining, INFORMATION, coordinator.estimator, costs=costs
    )


def move(iteration_seconds, next_seconds, *, remaining=100, cost=1.0, error=0.0):
    return Move(
        candidate(ADA), INFORMATION, iteration_seconds, next_seconds, remaining, cost, error, ""
    )


def test_a_candidate_that_is_what_runs_is_no_move():
    estimate = candidate(ADA, BOB)
    rows = {a.host.name: int(a.rows) for a in estimate.schedule.allocations}
    assert evaluated(estimate, rows, 1.0) is None


def test_what_the_model_leaves_out_here_it_leaves_out_there_too():
    here = candidate(ADA).iteration_seconds
    there = candidate(ADA, BOB)
    plain = evaluated(there, {"ada": 1000}, here)
    double = evaluated(there, {"ada": 1000}, 2 * here)
    assert plain.next_seconds == pytest.approx(there.iteration_seconds)
    assert double.next_seconds == pytest.approx(2 * there.iteration_seconds)
    quicker = evaluated(there, {"ada": 1000}, here / 2)
    assert quicker.next_seconds == pytest.approx(there.iteration_seconds)


def test_the_cost_is_the_stall_and_the_rows_that_travel_over_the_slowest_link():
    estimate = candidate(BOB)
    application = INFORMATION.application
    row = application.strip_memory(1) - application.strip_memory(0)
    found = evaluated(estimate, {"ada": 1000}, 1.0)
    assert found.cost == pytest.approx(STALL_SECONDS + 1000 * row / 1e8)
    assert evaluated(estimate, {"ada": 1000}, 1.0, costs=[9.0]).cost == 9.0
    assert evaluated(estimate, {"ada": 1000}, 1.0, costs=[9.0, 1.0, 1.0, 1.0]).cost < 9.0


def test_a_move_pays_beyond_the_part_the_error_and_the_cost_it_must_exceed():
    good = move(1.0, 0.8)
    assert good.pays(0.12, 3.0, 2.0)
    assert not good.pays(0.25, 3.0, 2.0)
    assert not replace(good, error=0.1).pays(0.12, 3.0, 2.0)
    assert not replace(good, cost=11.0).pays(0.12, 3.0, 2.0)
    assert not replace(good, remaining=9).pays(0.12, 3.0, 2.0)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.1, 100))
def test_after_its_payback_the_iterations_saved_are_worth_the_cost(now, then, cost):
    one = move(now, then, cost=cost)
    if now <= then:
        assert one.payback == float("inf")
    else:
        saved = one.payback / then * (now - then)
        assert saved == pytest.approx(cost)
    assert one.gain == pytest.approx(one.remaining * now * one.improvement, abs=1e-9)


@pytest.mark.parametrize(
    ("now", "then", "words"),
    [(1.0, 1.25, "100 are left, loses 25.0 s,"), (1.0, 0.75, "100 are left, gain 25.0 s,")],
)
def test_explanation_of_a_slower_plan_says_what_it_loses(now, then, words):
    assert words in move(now, then).explanation()
