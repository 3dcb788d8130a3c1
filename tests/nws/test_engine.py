import os
import subprocess
import sys
from base64 import b64decode

import numpy as np
import pytest
from predictors import Analog, EwAr1, RobustAr, SelfTuningSmoothing

from nws import (
    STEP_AT,
    STEP_START,
    InputError,
    MultiHorizonForecaster,
    NoValueYetError,
    answer,
    approx_exp,
    classic_primaries,
    score_answers,
    score_experts,
)
from nws import layout as at

pytestmark = pytest.mark.xdist_group("what loads numba")
KINDS = [((1,), 0.1), ((1, 3, 12), 0.1), (at.HORIZONS, 0.0), (at.HORIZONS, 0.1)]
"""Horizons, and the share of values that are missing."""


def walks(size=300, count=5, gaps=0.0, seed=3):
    """Series with noise, a rhythm, a constant, whole numbers; NaN in a share of `gaps`."""
    random, t = np.random.default_rng(seed), np.arange(size)[:, None]
    values = 0.1 * np.cumsum(random.normal(size=(size, count)), axis=0) + np.sin(t / 3)
    values += 0.3 * random.normal(size=(size, count))
    values[:, 0] = np.round(values[:, 0])
    values[:, 1] = 7.25
    values[:, 2] = (t[:, 0] % 13 == 0) * 1e6
    values[random.random((size, count)) < gaps] = np.nan
    return values


def both_engines(horizons):
    """The default profile run by the interpreter and compiled; without numba they cannot be compared."""
    pytest.importorskip("numba")
    return [MultiHorizonForecaster("absolute", horizons, engine) for engine in ("numpy", "numba")]


def test_numba_without_a_directory_to_write_to_compiles_at_each_start():
    pytest.importorskip("numba")
    done = subprocess.run(
        [sys.executable, "-c", "import nws; nws.MultiHorizonForecaster('absolute', (1,), 'numba')"],
        env={**os.environ, "NUMBA_CACHE_DIR": "", "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "set NUMBA_CACHE_DIR to a directory" in done.stderr


def feed(form, value):
    """Give one value; NaN: it is missing."""
    if np.isnan(value):
        form.skip()
    else:
        form.update(float(value))


def blocks_of(form):
    """The two blocks of numbers that are the state of one series."""
    state = form.state()
    return tuple(
        np.frombuffer(b64decode(state[name]), kind)
        for name, kind in (("wide", "<f8"), ("narrow", "<f4"))
    )


@pytest.mark.more
@pytest.mark.parametrize("column", range(5))
@pytest.mark.parametrize(("horizons", "gaps"), KINDS)
def test_compiled_and_interpreted_step_agree_in_every_bit(horizons, gaps, column):
    one, other = both_engines(horizons)
    for tick, value in enumerate(walks(gaps=gaps)[:, column]):
        feed(one, value)
        feed(other, value)
        if tick > 3:
            assert one.forecast() == other.forecast()
        if tick % 60 == 59:
            assert one.outlook(horizons[-1]) == other.outlook(horizons[-1])
            assert all(map(np.array_equal, blocks_of(one), blocks_of(other)))


@pytest.mark.parametrize("column", [0, 3])
def test_the_experts_are_the_reference_forecasters(column):
    """All but the auto-lag regression, which the engine gives new lags at other ticks."""
    alone = MultiHorizonForecaster(horizons=(1,))
    more = [EwAr1(0.02), EwAr1(0.10), SelfTuningSmoothing(), RobustAr(at.ORDER)]
    reference = [*classic_primaries().values(), *more]
    values = walks(200)[:, column]
    for value in values.tolist():
        for form in (alone, *reference):
            form.update(value)
        experts = alone.all_outlooks()[4][: len(reference)]
        expected = [forecaster.forecast() for forecaster in reference]
        assert experts == pytest.approx(expected, abs=1e-6 * np.abs(values).max())


def test_the_analogs_are_the_reference_forecasters():
    """To the last bit where no difference is rounded: halves, many of them equally far."""
    values = np.random.default_rng(5).integers(0, 9, size=1100) / 2.0
    alone, reference = (
        MultiHorizonForecaster(horizons=(1,)),
        [Analog(each) for each in at.PATTERNS],
    )
    for value in values.tolist():
        for form in (alone, *reference):
            form.update(value)
        experts = alone.all_outlooks()[4][at.EXPERTS.index("analog_3") :]
        assert experts.tolist() == [each.forecast() for each in reference]


@pytest.mark.more
def test_compiled_and_interpreted_step_agree_with_a_full_history():
    one, other = both_engines((1, 12))
    for value in walks(at.HISTORY + 60, gaps=0.02)[:, 3]:
        feed(one, value)
        feed(other, value)
    assert all(map(np.array_equal, blocks_of(one), blocks_of(other)))


def test_a_shape_that_recurs_at_no_period_is_foreseen():
    """A job's load has a course; when the next job comes nobody knows."""
    random, values = np.random.default_rng(2), [0.0]
    while len(values) < 900:
        values += [0.0] * int(random.integers(3, 40)) + [4.0, 1.0, 3.0, 2.0]
    forecaster = MultiHorizonForecaster(horizons=(1,))
    errors = {"analog_3": 0.0, "robust_ar_16": 0.0, "auto_lag_ar_8": 0.0, "last_value": 0.0}
    for tick, value in enumerate(values):
        if tick > 300 and values[tick - 1]:
            experts = forecaster.all_outlooks()[4]
            for name in errors:
                errors[name] += abs(experts[at.EXPERTS.index(name)] - value)
        forecaster.update(value)
    analog = errors.pop("analog_3")
    assert analog < 0.2 * min(errors.values())


def test_two_experts_that_err_to_either_side_are_aggregated_to_what_is_right():
    scores = np.zeros(at.MATRICES - STEP_START)
    candidates = scores[STEP_AT[list(at.STEP).index("candidate")] :][: at.C]
    apart = np.full(at.E, 5.0)
    apart[3], apart[8] = 1.0, -1.0
    for actual in np.random.default_rng(4).normal(size=400).tolist():
        issued = actual + apart
        answer(scores, STEP_AT, issued, 1.0, False)
        error = candidates - actual
        scores[0] += 1.0
        score_experts(scores, STEP_AT, issued, candidates, actual, 1.0)
        score_answers(scores, STEP_AT, candidates, actual, False)
    assert abs(error[at.AGGREGATION]) < 0.1
    assert abs(error[at.SQUARED]) < 0.1
    assert abs(error[0]) == 1.0  # the best expert alone


def test_a_weight_fades_as_e_to_its_power_without_the_library_of_the_machine():
    powers = np.linspace(-60.0, 0.0, 601)
    weights = np.array([approx_exp(power) for power in powers.tolist()])
    assert weights[-81:] == pytest.approx(np.exp(powers[-81:]), rel=1e-3)
    assert (np.diff(weights) > 0).all()
    assert approx_exp(0.0) == 1.0
    assert 0 < approx_exp(-1e300) < 1e-25


def test_a_state_of_the_profile_without_analogs_is_refused_by_name():
    state = MultiHorizonForecaster().state() | {"schema": "nws.ladder/1"}
    with pytest.raises(InputError) as raised:
        MultiHorizonForecaster().restore(state)
    assert raised.value.code == "state-invalid"
    assert raised.value.fields == {"value": "nws.ladder/1", "known": ["nws.ladder/4"]}


def test_the_first_18_experts_are_the_classic_primaries():
    alone, primaries = MultiHorizonForecaster(horizons=(1,)), classic_primaries()
    assert list(primaries) == list(at.EXPERTS[:18])
    for value in walks(160)[:, 4].tolist():
        for form in (alone, *primaries.values()):
            form.update(value)
        expected = [forecaster.forecast() for forecaster in primaries.values()]
        assert alone.all_outlooks()[4][:18] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("column", range(5))
def test_a_restored_forecaster_goes_on_with_the_same_bits(column):
    values = walks(300, gaps=0.05)[:, column]
    one, other = MultiHorizonForecaster(), MultiHorizonForecaster()
    for value in values[:170]:
        feed(one, value)
    other.restore(one.state())
    for value in values[170:]:
        feed(one, value)
        feed(other, value)
    assert one.outlook(60) == other.outlook(60)
    assert all(map(np.array_equal, blocks_of(one), blocks_of(other)))


def test_a_state_of_other_horizons_is_refused():
    state = MultiHorizonForecaster(horizons=(1, 3)).state()
    with pytest.raises(InputError) as raised:
        MultiHorizonForecaster(horizons=(1,)).restore(state)
    assert (raised.value.code, raised.value.fields["value"]) == ("state-invalid", "nws.ladder/4")


def test_a_series_that_starts_later_has_no_forecast_before():
    alone = MultiHorizonForecaster()
    alone.skip()
    with pytest.raises(NoValueYetError):
        alone.forecast()
    alone.update(3.0)
    assert alone.forecast() == 3.0
    assert alone.state()["values"] == 1


@pytest.mark.parametrize("nonsense", [np.inf, -np.inf, 1e301, np.nan])
def test_a_value_that_is_none_is_refused_and_leaves_no_trace(nonsense):
    alone = MultiHorizonForecaster()
    alone.update(0.5)
    before = alone.state()
    with pytest.raises(InputError) as raised:
        alone.update(nonsense)
    assert raised.value.code == "value-invalid"
    assert alone.state() == before


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e12, 1e299])
def test_values_of_any_size_are_safe_and_stay_in_range(scale):
    alone, values = MultiHorizonForecaster(), np.abs(walks(200, seed=8)[:, 3]) + 0.1
    for value in values.tolist():
        alone.update(value * scale)
        ratio = alone.outlook(12).value / scale
        assert 0.1 * 0.999 <= ratio <= values.max() * 1.001


def test_a_jump_beyond_all_that_was_starts_the_series_anew():
    alone = MultiHorizonForecaster()
    for value in [1.0, 2.0, 1.0, 1e200, 1e200, 1e200]:
        alone.update(value)
    assert alone.forecast() == pytest.approx(1e200, rel=0.1)


@pytest.mark.more
@pytest.mark.parametrize("away", [2.0**25, 2.0**27, 2.0**40, 2.0**50])
def test_a_first_change_that_is_only_rounding_lets_no_score_overflow(away):
    """A share of .5 that is .5 + 2^-53 once and then moves: its unit was the rounding."""
    values = [0.5, 0.5, 0.5 + 1 / away, 0.5, *(0.5 + 0.1 * (k % 7) for k in range(200))]
    alone = MultiHorizonForecaster()
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for value in values:
            alone.update(value)
    assert all(np.isfinite(block).all() for block in blocks_of(alone))


def test_a_series_takes_less_than_27_kilobytes():
    assert sum(block.nbytes for block in blocks_of(MultiHorizonForecaster())) <= 27_000


@pytest.mark.parametrize("horizons", [(), (3,), (1, 4), (1, 6, 3), (1, 1)])
def test_horizons_that_are_none_are_refused(horizons):
    with pytest.raises(InputError) as raised:
        MultiHorizonForecaster(horizons=horizons)
    assert (raised.value.code, raised.value.fields["field"]) == ("value-range", "horizons")


def test_a_rhythm_is_found_and_used():
    beat = ([0.0] * 36 + [10.0]) * 30
    alone = MultiHorizonForecaster(horizons=(1,))
    errors = []
    for value in beat:
        if errors or value:
            errors.append(abs(alone.forecast() - value))
        alone.update(value)
    assert np.mean(errors[-370:]) < 0.2 * 2 * 10 / 37  # a last value is wrong twice a beat
    assert 37 in alone.lags


def test_a_gap_is_crossed_on_the_own_forecast():
    beat = [0.0, 0.0, 0.0, 1.0] * 100
    alone = MultiHorizonForecaster(horizons=(1,))
    for value in beat:
        alone.update(value)
    alone.skip()
    alone.skip()
    alone.skip()
    assert alone.forecast() == pytest.approx(1.0, abs=0.1)


def test_what_was_missed_is_not_scored():
    alone = MultiHorizonForecaster()
    for value in walks(150)[:, 3]:
        feed(alone, value)
    before = alone.league()
    alone.skip()
    after = alone.league()
    assert (after.scored, after.candidates) == (before.scored, before.candidates)
    assert alone.outlook().error > 0


@pytest.mark.more
def test_intervals_hold_what_they_promise():
    random = np.random.default_rng(11)
    values = np.stack(
        [
            random.normal(size=1500),
            np.cumsum(random.normal(size=1500)),
            random.exponential(size=1500),
            random.standard_t(2, size=1500),
        ],
        axis=1,
    )
    for column in values.T:
        alone = MultiHorizonForecaster(horizons=(1, 12), engine="auto")
        held = 0
        for tick, value in enumerate(column.tolist()):
            if tick >= 500:
                interval = alone.outlook(1, 0.9).interval
                held += interval.lower <= value <= interval.upper
            alone.update(value)
        assert abs(held / 1000 - 0.9) < 0.03
        assert abs(alone.outlook(1, 0.9).interval.coverage - 0.9) < 0.03
        assert abs(alone.outlook(12, 0.9).interval.coverage - 0.9) < 0.06
