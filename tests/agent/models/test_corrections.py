"""What borders cost of what the model says, by their length; and shares of what the sensors say."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.agent import LARGEST_BIAS, SAME_LOAD, SHARE_HALF_LIFE, Overlap, ShareBias

LENGTHS = st.floats(1e-7, 1e3)
FACTORS = st.floats(0.01, 5.0)
RUNS = st.lists(st.tuples(st.floats(0.05, 20.0), LENGTHS), max_size=8)


def after(runs):
    known = Overlap()
    for ratio, longest in runs:
        known = known.taught(ratio, longest)
    return known


def test_nothing_known_is_the_sum_of_sends_and_receives():
    assert (Overlap().factor(0.01), Overlap().cost(0.01), Overlap().up_to) == (1.0, 0.01, None)


@given(RUNS, LENGTHS, LENGTHS)
def test_no_border_costs_less_than_a_shorter_one(runs, one, other):
    known = after(runs)
    assert known.cost(min(one, other)) <= known.cost(max(one, other)) * (1 + 1e-9)


@given(RUNS, LENGTHS)
def test_a_run_as_predicted_changes_nothing_that_is_known(runs, longest):
    known = after(runs)
    again = known.taught(1.0, longest)
    for seconds, factor in known.points:
        assert again.factor(seconds) == pytest.approx(factor)


@given(RUNS, LENGTHS, st.floats(0.1, 10.0))
def test_what_a_run_measured_comes_closer_and_is_believed_where_nothing_is_known(
    runs, longest, ratio
):
    known = after(runs)
    measured = known.factor(longest) * ratio
    now = known.taught(ratio, longest).factor(longest)
    assert abs(math.log(now / measured)) <= abs(math.log(ratio)) * 0.95 + 1e-9
    if not any(0.5 < seconds / longest < 2 for seconds, _ in known.points):
        assert now == pytest.approx(measured)


@given(RUNS, LENGTHS, st.floats(0.05, 0.9))
def test_runs_of_one_length_are_learned_whatever_was_before(runs, longest, factor):
    known = after(runs)
    for _ in range(40):
        known = known.taught(factor / known.factor(longest), longest)
    assert known.factor(longest) == pytest.approx(factor, rel=0.02)


@pytest.mark.parametrize("longest", [0.0051, 0.01, 0.0199])
def test_borders_up_to_twice_as_long_or_short_are_taken_for_alike(longest):
    known = Overlap().taught(0.1, 0.01)
    assert known.factor(longest) == pytest.approx(0.1)
    assert known.taught(1.0, longest) == known


def test_a_model_that_tells_no_lengths_has_one_factor_for_all():
    known = Overlap().taught(0.5, 0.0).taught(0.5, 0.0)
    assert known.points == ((math.inf, pytest.approx(0.5 * 0.5**0.3)),)
    assert known.factor(1e-6) == known.factor(10.0)
    assert known.up_to is None


@given(RUNS, st.booleans())
def test_what_is_stored_is_recalled(runs, any_length):
    known = after([*runs, (0.7, 0.0)] if any_length else runs)
    recalled = Overlap.recalled(json.loads(json.dumps(known.stored())))
    assert recalled.stored() == [(s, pytest.approx(f)) for s, f in known.stored()]


def test_a_document_that_contradicts_itself_is_made_to_agree():
    known = Overlap.recalled([[0.001, 0.8], [0.01, 0.05]])
    assert known.cost(0.01) == pytest.approx(known.cost(0.001))


@pytest.mark.parametrize(
    "stored",
    [None, 0.7, {}, "0.7", [1], [[1]], [[1, 2, 3]], [["a", 1]], [[1, -1]], [[0, 1]], [[True, 1]], [[1e999, 1]]],
)  # fmt: skip
def test_what_makes_no_sense_is_left_out(stored):
    assert Overlap.recalled(stored) == Overlap()


def test_a_long_document_is_cut():
    assert len(Overlap.recalled([[k + 1.0, 0.5] for k in range(10_000)]).points) == 64


# --------------------------------------------------------------------------- share bias
def test_a_share_bias_comes_to_the_truth_in_a_few_runs_and_follows_it():
    bias = ShareBias()
    for truth in (1.8, 0.7):
        for _ in range(10):
            bias = bias.taught(truth / bias.at(0.33), 0.33)
        assert bias.at(0.33) == pytest.approx(truth, rel=0.05)


def test_a_share_bias_is_forgotten_with_time_and_says_nothing_of_another_load():
    bias = ShareBias().taught(1.5, 0.5)
    stored = bias.stored(now=1000.0)
    assert ShareBias.recalled(stored, 1000.0) == bias
    later = ShareBias.recalled(stored, 1000.0 + 10 * SHARE_HALF_LIFE)
    assert later.at(0.5) == pytest.approx(1.0, abs=0.001)
    assert bias.at(0.5 / SAME_LOAD * 0.99) == bias.at(0.5 * SAME_LOAD * 1.01) == 1.0
    assert bias.taught(1.0, 0.9) == ShareBias(1.0, 0.9)


@given(st.lists(st.tuples(st.floats(allow_nan=True), st.floats(1e-3, 1)), max_size=30))
def test_no_run_carries_a_share_bias_away(runs):
    bias = ShareBias()
    for ratio, forecast in runs:
        bias = bias.taught(ratio, forecast)
        assert 1 / LARGEST_BIAS <= bias.factor <= LARGEST_BIAS
