"""A correction is used while it predicts better than its absence, shrunk by its evidence, within its bound."""

import math
from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from apples.agent import KINDS, SAME_LOAD, SHARE_HALF_LIFE, Correction

FACTORS = [name for name, kind in KINDS.items() if not kind.in_seconds]


def after(*ratios, kind="slowdown"):
    """Return the correction after runs that measured these ratios."""
    known = Correction.first(kind, ("ada",), math.log(ratios[0]), 0.0)
    for k, ratio in enumerate(ratios[1:]):
        known = known.after(math.log(ratio), k + 1.0)
    return known


@pytest.mark.parametrize("ratio", [0.3, 1.2, 3.0, 1e9])
def test_a_correction_that_no_later_run_tested_is_not_used(ratio):
    assert after(ratio).factor == 1.0


def test_a_first_test_is_enough_where_it_is_clear():
    assert after(2.0, 2.0).factor == pytest.approx(2.0, rel=0.06)
    assert after(2.0, 1.3).factor == 1.0  # better with it, yet not by half


@pytest.mark.parametrize("ratio", [0.4, 0.7, 1.5, 3.0])
def test_two_later_runs_that_agree_test_it_and_then_it_is_used(ratio):
    known = after(ratio, ratio, ratio)
    assert known.evidence.tested == 2
    assert known.evidence.error_with < known.evidence.error_without
    assert known.factor == pytest.approx(ratio, rel=0.06)


def test_a_run_that_contradicts_keeps_it_out():
    assert after(2.0, 1.0, 1.0).factor == after(2.0, 0.6, 0.6).factor == 1.0


def test_a_correction_that_was_worse_in_the_newest_test_is_not_used():
    known = after(*[2.0] * 4)
    assert known.factor > 1.9
    known = known.after(0.0, 9.0)
    assert known.evidence.error_with < known.evidence.error_without
    assert known.factor == 1.0
    assert known.after(math.log(2.0), 10.0).factor > 1.5


def test_errors_are_those_of_runs_it_was_not_fitted_to():
    known = after(2.0, 1.5)
    assert known.evidence.error_without == pytest.approx(math.log(1.5))
    assert known.evidence.error_with == pytest.approx(math.log(2.0 / 1.5), abs=0.02)


@pytest.mark.parametrize("before", [2, 5, 12])
def test_a_spike_of_500_changes_the_factor_little_and_is_soon_gone(before):
    calm = after(*[1.3] * before)
    hit = calm.after(math.log(500), 99.0)
    assert hit.factor < 1.3 * calm.factor
    again = hit.after(math.log(1.3), 100.0).after(math.log(1.3), 101.0)
    assert again.factor == pytest.approx(1.3, rel=0.2)


def test_a_change_that_lasts_is_followed_within_some_runs():
    known = after(*[1.0] * 4, *[2.5] * 6)
    assert known.factor == pytest.approx(2.5, rel=0.2)
    assert after(*[2.0] * 6, *[1.0] * 3).factor == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("kind", FACTORS)
@settings(max_examples=examples(50), deadline=None)
@given(ratios=st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=12))
def test_no_run_moves_a_factor_beyond_its_bound(kind, ratios):
    bound = KINDS[kind].bound * (1 + 1e-9)
    assert 1 / bound <= after(*ratios, kind=kind).factor <= bound


def test_each_bound_has_its_reason():
    assert all(kind.bound > 0 and len(kind.reason) > 20 for kind in KINDS.values())


def test_small_corrections_shrink_more_than_large_ones_and_all_grow_with_evidence():
    kept = [math.log(after(*[1.05] * runs).factor) / math.log(1.05) for runs in (3, 4, 6)]
    assert kept == sorted(kept)
    assert kept[0] < 0.8 < kept[-1]
    assert math.log(after(2.0, 2.0, 2.0).factor) / math.log(2.0) > 0.97


@pytest.mark.parametrize("kind", FACTORS)
def test_half_of_an_unused_correction_is_left_after_its_half_life(kind):
    known = Correction.proven(kind, ("ada",), 1.6)
    aged = replace(known, evidence=replace(known.evidence, age=KINDS[kind].half_life))
    assert aged.factor == pytest.approx(math.sqrt(1.6))
    assert KINDS["share_bias"].half_life == SHARE_HALF_LIFE


def test_a_share_bias_belongs_to_the_load_it_was_measured_beside():
    known = Correction.proven("share_bias", ("ada",), 1.2, forecast=0.5)
    assert known.of_load(0.52)
    assert known.of_load(0.5 / SAME_LOAD * 1.001)
    assert not known.of_load(0.9)
    assert not known.of_load(0.0)


WORLDS = {
    "no effect": lambda g: 0.1 * g.standard_normal(6),
    "constant": lambda g: g.normal(0, 0.5) + 0.05 * g.standard_normal(6),
    "noisy": lambda g: g.normal(0, 0.2) + 0.2 * g.standard_normal(6),
    "heavy tails": lambda g: g.normal(0, 0.3) + 0.05 * g.standard_t(2, 6),
    "spikes": lambda g: np.where(g.random(6) < 0.2, 6.0, 0.0) + 0.05 * g.standard_normal(6),
    "drift": lambda g: np.linspace(0, 0.6, 6) + 0.05 * g.standard_normal(6),
    "alternating": lambda g: np.tile([0.4, -0.4], 3) + 0.05 * g.standard_normal(6),
}


@pytest.mark.parametrize("world", WORLDS)
def test_over_sequences_of_six_runs_no_kind_of_effect_is_predicted_worse_than_without(world):
    with_it, without = [], []
    for seed in range(200):
        effects = WORLDS[world](np.random.default_rng(seed))
        known = Correction.first("slowdown", ("ada",), float(effects[0]), 0.0)
        for k, effect in enumerate(effects[1:].tolist()):
            with_it.append(abs(effect - math.log(known.factor)))
            without.append(abs(effect))
            known = known.after(effect, k + 1.0)
    assert np.mean(with_it) <= 1.05 * np.mean(without)
    if world == "constant":
        assert np.mean(with_it) < 0.5 * np.mean(without)
