from base64 import b64decode
from importlib.util import find_spec

import numpy as np
import pytest

from nws import (
    Analog,
    Bank,
    EwAr1,
    HorizonScores,
    InputError,
    MultiHorizonForecaster,
    RobustAr,
    SelfTuningSmoothing,
    SeriesFields,
    answer,
    classic_primaries,
    faded,
    in_order,
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


def forms_of_one_series(horizons):
    """The default profile of one series in every form that computes it here."""
    engines = ["numpy", "numba"] if find_spec("numba") else ["numpy"]
    banks = [Bank(1, horizons, engine) for engine in engines]
    return banks + [MultiHorizonForecaster("absolute", horizons, engine) for engine in engines]


def feed(form, value):
    """Give one value to any form; NaN: it is missing."""
    if isinstance(form, Bank):
        form.update([value])
    elif np.isnan(value):
        form.miss()
    else:
        form.update(float(value))


def blocks_of(form):
    """The two blocks of numbers that are the state of one series."""
    state = form.state()
    if isinstance(form, Bank):
        return state["wide"][0], state["narrow"][0]
    return tuple(
        np.frombuffer(b64decode(state[name]), kind)
        for name, kind in (("wide", "<f8"), ("narrow", "<f4"))
    )


@pytest.mark.more
@pytest.mark.parametrize("column", range(5))
@pytest.mark.parametrize(("horizons", "gaps"), KINDS)
def test_every_form_of_one_series_agrees_in_every_bit(horizons, gaps, column):
    first, *others = forms_of_one_series(horizons)
    for tick, value in enumerate(walks(gaps=gaps)[:, column]):
        for form in (first, *others):
            feed(form, value)
        if tick % 60 == 59:
            for form in others:
                assert all(map(np.array_equal, blocks_of(form), blocks_of(first)))


@pytest.mark.parametrize("column", [0, 3])
def test_the_experts_of_a_bank_are_the_reference_forecasters(column):
    """All but the auto-lag regression, which a bank gives new lags at other ticks."""
    bank = Bank(1, (1,), "numpy")
    more = [EwAr1(0.02), EwAr1(0.10), SelfTuningSmoothing(), RobustAr(at.ORDER)]
    reference = [*classic_primaries().values(), *more]
    values = walks(200)[:, column]
    for value in values:
        bank.update([value])
        for forecaster in reference:
            forecaster.update(float(value))
        s = bank.series
        experts = s.base[0] + (s.unit[0] or 1.0) * s.expert[: len(reference), 0]
        expected = [forecaster.forecast() for forecaster in reference]
        assert experts == pytest.approx(expected, abs=1e-6 * np.abs(values).max())


@pytest.mark.more
@pytest.mark.parametrize(("horizons", "gaps"), KINDS)
def test_many_series_compiled_have_the_same_bits_as_vectorised(horizons, gaps):
    pytest.importorskip("numba")
    one, other = Bank(5, horizons, "numpy"), Bank(5, horizons, "numba")
    for values in walks(gaps=gaps):
        one.update(values)
        other.update(values)
    for field in ("wide", "narrow"):
        assert np.array_equal(one.state()[field], other.state()[field])


@pytest.mark.more
@pytest.mark.parametrize(("horizons", "gaps"), KINDS)
def test_one_series_alone_is_forecast_as_in_a_bank(horizons, gaps):
    bank = Bank(1, horizons, "numpy")
    alone = MultiHorizonForecaster(horizons=horizons, engine="numpy")
    for tick, value in enumerate(walks(gaps=gaps)[:, 3]):
        feed(bank, value)
        feed(alone, value)
        if tick > 3:
            assert alone.forecast() == bank.forecast()[0]
            assert alone.outlook(horizons[-1]).value == bank.forecast(horizons[-1])[0]
    assert all(map(np.array_equal, blocks_of(alone), blocks_of(bank)))


def test_the_analogs_of_a_bank_are_the_reference_forecasters():
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
def test_every_form_agrees_once_the_history_is_full():
    values, forms = walks(at.HISTORY + 60, gaps=0.02)[:, 3], forms_of_one_series((1, 12))
    forms = [form for form in forms if isinstance(form, MultiHorizonForecaster)]
    for value in values:
        for form in forms:
            feed(form, value)
    for form in forms:
        assert all(map(np.array_equal, blocks_of(form), blocks_of(forms[0])))


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
    scores = HorizonScores(np.zeros((1, at.MATRICES, 1)), at.STEP)
    apart = np.full(at.E, 5.0)
    apart[3], apart[8] = 1.0, -1.0
    for actual in np.random.default_rng(4).normal(size=400):
        issued = (actual + apart)[None, :, None]
        answer(scores, issued, np.ones(1))
        error = scores.candidate[0, :, 0] - actual
        scores.scored += 1.0
        known = np.full((1, 1), actual)
        score_experts(scores, issued, scores.candidate, known, np.ones(1), None)
        score_answers(scores, scores.candidate, scores.chosen[:, 1], known, None)
    assert abs(error[at.AGGREGATION]) < 0.1
    assert abs(error[0]) == 1.0  # the best expert alone


def test_a_weight_fades_as_e_to_its_power_without_the_library_of_the_machine():
    power = np.linspace(-60.0, 0.0, 601)
    weight = faded(power)
    assert weight[-81:] == pytest.approx(np.exp(power[-81:]), rel=1e-3)
    assert (np.diff(weight) > 0).all()
    assert faded(np.zeros(1)) == 1.0
    assert 0 < faded(np.array([-1e300])) < 1e-25


def test_a_state_of_the_profile_without_analogs_is_refused_by_name():
    state = MultiHorizonForecaster().state() | {"schema": "nws.ladder/1"}
    with pytest.raises(InputError) as raised:
        MultiHorizonForecaster().restore(state)
    assert raised.value.code == "state-invalid"
    assert raised.value.fields == {"value": "nws.ladder/1", "known": ["nws.ladder/2"]}


def test_a_series_in_a_bank_does_not_know_its_neighbours():
    values = walks(200)
    together = Bank(3, engine="numpy")
    apart = Bank(2, engine="numpy")
    for row in values:
        together.update(row[2:5])
        apart.update(row[2:4])
    assert np.array_equal(together.forecast(12)[:2], apart.forecast(12))


def test_the_first_18_experts_are_the_classic_primaries():
    bank, primaries = Bank(1, (1,), "numpy"), classic_primaries()
    assert list(primaries) == list(at.EXPERTS[:18])
    for value in walks(160)[:, 4]:
        bank.update([value])
        for forecaster in primaries.values():
            forecaster.update(float(value))
        s = bank.series
        experts = s.base[0] + s.unit[0] * s.expert[:18, 0]
        expected = [forecaster.forecast() for forecaster in primaries.values()]
        assert experts == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_restored_bank_goes_on_with_the_same_bits():
    values = walks(300, gaps=0.05)
    one, other = Bank(5, engine="numpy"), Bank(5, engine="numpy")
    for row in values[:170]:
        one.update(row)
    other.restore(one.state())
    for row in values[170:]:
        one.update(row)
        other.update(row)
    assert np.array_equal(one.forecast(60), other.forecast(60))


def test_a_state_of_another_shape_is_refused():
    for bank, other in (
        (Bank(2, engine="numpy"), Bank(3, engine="numpy")),
        (Bank(2, (1,), "numpy"), Bank(2, (1, 3), "numpy")),
    ):
        with pytest.raises(InputError) as raised:
            bank.restore(other.state())
        assert (raised.value.code, raised.value.fields["value"]) == ("state-invalid", 2)


def test_a_series_that_starts_later_has_no_forecast_before():
    bank = Bank(2, engine="numpy")
    bank.update([1.0, np.nan])
    assert np.isnan(bank.forecast()[1])
    bank.update([np.nan, 3.0])
    assert bank.forecast().tolist() == [1.0, 3.0]
    assert bank.samples.tolist() == [1, 1]


@pytest.mark.parametrize("nonsense", [[1.0, np.inf], [1e301, 1.0], [1.0], 1.0])
def test_a_tick_that_is_none_is_refused_and_leaves_no_trace(nonsense):
    bank = Bank(2, engine="numpy")
    bank.update([0.5, 0.5])
    before = bank.state()
    with pytest.raises(InputError) as raised:
        bank.update(nonsense)
    assert raised.value.fields["field"] == "values"
    assert raised.value.code == ("value-type" if np.shape(nonsense) != (2,) else "value-invalid")
    after = bank.state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_values_of_any_size_are_safe_and_stay_in_range():
    scales = np.array([1e-300, 1e-9, 1.0, 1e12, 1e299])
    bank, values = Bank(5, engine="numpy"), np.abs(walks(200, seed=8)[:, 3:4]) + 0.1
    for value in values:
        bank.update(value * scales)
        ratio = bank.forecast(12) / scales
        assert np.isfinite(ratio).all()
        assert (ratio >= 0.1 * 0.999).all()
        assert (ratio <= values.max() * 1.001).all()


def test_a_jump_beyond_all_that_was_starts_the_series_anew():
    bank = Bank(1, engine="numpy")
    for value in [1.0, 2.0, 1.0, 1e200, 1e200, 1e200]:
        bank.update([value])
    assert bank.forecast()[0] == pytest.approx(1e200, rel=0.1)


@pytest.mark.more
@pytest.mark.parametrize("away", [2.0**25, 2.0**27, 2.0**40, 2.0**50])
def test_a_first_change_that_is_only_rounding_lets_no_score_overflow(away):
    """A share of .5 that is .5 + 2^-53 once and then moves: its unit was the rounding."""
    values = [0.5, 0.5, 0.5 + 1 / away, 0.5, *(0.5 + 0.1 * (k % 7) for k in range(200))]
    bank, single = Bank(1, engine="numpy"), MultiHorizonForecaster(engine="numpy")
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for value in values:
            bank.update([value])
            single.update(value)
    assert np.isfinite(bank.series.means.power).all()
    assert single.forecast() == bank.forecast()[0]


def test_a_series_takes_less_than_26_kilobytes():
    assert Bank(1, engine="numpy").bytes_per_series <= 26_000


def test_the_fields_are_views_of_the_blocks():
    bank = Bank(3, engine="numpy")
    for views in (bank.series, bank.series.step, bank.series.means):
        for name, view in vars(views).items():
            if name in {*at.WIDE, *at.NARROW, *at.MEAN}:
                blocks = (bank.series.wide, bank.series.narrow)
                assert any(np.shares_memory(view, block) for block in blocks), name


def test_numpy_adds_up_in_order():
    numbers = np.random.default_rng(1).normal(size=(40, 3)) * 10.0 ** np.arange(-20, 20)[:, None]
    total = np.zeros(3)
    for row in numbers:
        total = total + row
    assert np.array_equal(in_order(numbers, 0), total)
    assert np.array_equal(in_order(numbers[:, :1], 0), total[:1])


@pytest.mark.parametrize("horizons", [(), (3,), (1, 4), (1, 6, 3), (1, 1)])
def test_horizons_that_are_none_are_refused(horizons):
    with pytest.raises(InputError) as raised:
        Bank(1, horizons)
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
    assert isinstance(alone.fields, SeriesFields)
    assert 37 in alone.fields.lag[:, 0]


def test_a_gap_is_crossed_on_the_own_forecast():
    beat = [0.0, 0.0, 0.0, 1.0] * 100
    alone = MultiHorizonForecaster(horizons=(1,))
    for value in beat:
        alone.update(value)
    alone.miss()
    alone.miss()
    alone.miss()
    assert alone.forecast() == pytest.approx(1.0, abs=0.1)


def test_what_was_missed_is_not_scored():
    bank = Bank(1, engine="numpy")
    for value in walks(150)[:, 3]:
        bank.update([value])
    scored = bank.scores(1).scored.copy()
    bank.update([np.nan])
    assert np.array_equal(bank.scores(1).scored, scored)
    assert bank.scores(1).error[0, 0, 0] > 0


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
    bank = Bank(4, (1, 12))
    held = np.zeros(4)
    for tick, row in enumerate(values):
        if tick >= 500:
            lower, upper, _ = bank.interval(1, 0.9)
            held += (row >= lower) & (row <= upper)
        bank.update(row)
    assert (abs(held / 1000 - 0.9) < 0.03).all()
    assert (abs(bank.interval(1, 0.9)[2] - 0.9) < 0.03).all()
    assert (abs(bank.interval(12, 0.9)[2] - 0.9) < 0.06).all()
