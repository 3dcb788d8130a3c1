"""What borders cost of what the model says, by their length."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.overlap import BOTH_WAYS, Overlap

LENGTHS = st.floats(1e-7, 1e3)
FACTORS = st.floats(0.01, 5.0)
LEARNED = st.dictionaries(LENGTHS, FACTORS, max_size=6).map(
    lambda d: Overlap(tuple(sorted(d.items())))
)


def test_nothing_known_is_the_sum_of_sends_and_receives():
    assert (Overlap().factor(0.01), Overlap().cost(0.01), Overlap().up_to) == (1.0, 0.01, None)


@given(LEARNED, LENGTHS)
def test_the_factor_lies_between_those_of_the_nearest_known_lengths(known, seconds):
    factors = [factor for _, factor in known.points] or [1.0]
    assert min(factors) <= known.factor(seconds) * (1 + 1e-9)
    assert known.factor(seconds) <= max(*factors, BOTH_WAYS) * (1 + 1e-9)


@given(LEARNED, LENGTHS, st.floats(0.1, 10.0))
def test_what_a_run_teaches_holds_where_it_taught_and_nowhere_far_away(known, longest, ratio):
    after = known.taught(ratio, longest)
    near = any(0.5 < seconds / longest < 2 for seconds, _ in known.points)
    moved = ratio**0.3 if near else ratio
    assert after.factor(longest) == pytest.approx(known.factor(longest) * moved)
    assert after.points == tuple(sorted(after.points))
    for seconds, factor in known.points:
        if not 0.4 < seconds / longest < 2.5:
            assert after.factor(seconds) == pytest.approx(factor)


def test_a_model_that_tells_no_lengths_has_one_factor_for_all():
    known = Overlap().taught(0.5, 0.0).taught(0.5, 0.0)
    assert known.points == ((math.inf, pytest.approx(0.5 * 0.5**0.3)),)
    assert known.factor(1e-6) == known.factor(10.0)
    assert known.up_to is None


@given(LEARNED, st.booleans())
def test_what_is_stored_is_recalled(known, any_length):
    known = known.taught(0.7, 0.0) if any_length else known
    assert Overlap.recalled(json.loads(json.dumps(known.stored()))) == known


@pytest.mark.parametrize(
    "stored",
    [None, 0.7, {}, "0.7", [1], [[1]], [[1, 2, 3]], [["a", 1]], [[1, -1]], [[0, 1]], [[True, 1]], [[1e999, 1]]],
)  # fmt: skip
def test_what_makes_no_sense_is_left_out(stored):
    assert Overlap.recalled(stored) == Overlap()


def test_a_long_document_is_cut():
    assert len(Overlap.recalled([[k + 1.0, 0.5] for k in range(10_000)]).points) == 64
