import math

import pytest

from nws import (
    AdaptiveMedian,
    LastValue,
    LowestError,
    RunningMean,
    SlidingMean,
    SlidingMedian,
    Smoothing,
    SortedWindow,
    TrimmedMean,
    classic,
    classic_primaries,
)


def fed(forecaster, values):
    for value in values:
        forecaster.update(value)
    return forecaster


def test_the_classic_battery_is_that_of_the_nws():
    assert list(classic_primaries()) == [
        "last_value",
        "running_mean",
        *[
            f"smoothing_{gain}"
            for gain in ["0.05", "0.10", "0.15", "0.20", "0.30", "0.40", "0.50", "0.75"]
        ],
        "sliding_median_31",
        "sliding_median_5",
        "sliding_mean_31",
        "sliding_mean_5",
        "trimmed_mean_31",
        "trimmed_mean_51",
        "adaptive_median_5_21",
        "adaptive_median_21_51",
    ]


def test_every_battery_is_fresh():
    fed(classic(), [0.25])
    with pytest.raises(LookupError):
        classic().forecast()


def test_smoothing_starts_at_the_first_value_not_at_zero():
    assert fed(Smoothing(0.05), [0.8]).forecast() == 0.8


def test_a_sliding_mean_forgets_a_huge_value_without_a_trace():
    assert fed(SlidingMean(3), [1e300, 0.1, 0.2, 0.3]).forecast() == pytest.approx(0.2)


def test_a_sliding_mean_of_nothing_but_tenths_is_a_tenth():
    assert fed(SlidingMean(31), [0.1] * 40).forecast() == 0.1


def test_a_median_ignores_an_outlier_and_halves_an_even_window():
    assert fed(SlidingMedian(3), [1.0, 1.0, 50.0]).forecast() == 1.0
    assert fed(SlidingMedian(4), [1.0, 2.0, 4.0, 50.0]).forecast() == 3.0


#   ten values, alpha .30:   0 0 0 | 4 5 6 7 | 90 90 90
#                            three of each end are left out
def test_a_trimmed_mean_leaves_out_alpha_at_each_end():
    values = [90.0, 0.0, 4.0, 90.0, 5.0, 0.0, 6.0, 90.0, 7.0, 0.0]
    assert fed(TrimmedMean(10, alpha=0.30), values).forecast() == 5.5


def test_a_trimmed_mean_of_few_values_is_their_mean():
    assert fed(TrimmedMean(31, alpha=0.30), [1.0, 2.0, 6.0]).forecast() == 3.0


#   value            1 1 1 1 1 1 1 1 1   9 9 9 9
#   median of 5                          1 1 1 9
#   median of 3                          1 1 9 9
#   median of 1                              . 9    (a neighbour of 3 only)
#   width from then  5                   5 5 3 3    the present one wins a tie
def test_an_adaptive_window_shortens_after_a_step():
    forecaster = fed(AdaptiveMedian(start=5, minimum=1, maximum=9, offset=2), [1.0] * 9)
    assert forecaster.width == 5
    widths = []
    for _ in range(4):
        forecaster.update(9.0)
        widths.append(forecaster.width)
    assert widths == [5, 5, 3, 3]
    assert forecaster.forecast() == 9.0


def test_an_adaptive_window_lengthens_in_noise_about_a_level():
    noise = [5.0, 0.0, 10.0, 5.0, 10.0, 0.0, 5.0, 0.0, 5.0, 10.0, 5.0] * 6
    forecaster = fed(AdaptiveMedian(start=1, minimum=1, maximum=9, offset=2), noise)
    assert forecaster.width > 1


def test_an_adaptive_window_never_leaves_its_bounds():
    forecaster = AdaptiveMedian(start=6, minimum=5, maximum=8, offset=2)
    for step in range(200):
        forecaster.update(math.sin(step * step))
        assert 5 <= forecaster.width <= 8


@pytest.mark.parametrize(
    "make",
    [
        lambda: Smoothing(0.0),
        lambda: Smoothing(1.5),
        lambda: SlidingMean(0),
        lambda: SlidingMedian(0),
        lambda: TrimmedMean(5, alpha=0.5),
        lambda: TrimmedMean(0),
        lambda: AdaptiveMedian(start=4, minimum=5, maximum=21, offset=1),
        lambda: AdaptiveMedian(start=5, minimum=5, maximum=21, offset=0),
        lambda: LowestError({}),
        lambda: SortedWindow(0),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make):
    with pytest.raises(ValueError, match=r"gain|size|window|alpha|forecasters"):
        make()


def test_the_choice_is_the_member_that_was_wrong_least():
    alternating = [0.0, 1.0] * 10
    chooser = fed(LowestError({"last": LastValue(), "mean": RunningMean()}), alternating)
    assert chooser.method == "mean"
    assert chooser.errors["last"] == 19.0
    assert chooser.errors["mean"] < 19.0


def test_the_first_member_wins_a_tie_and_answers_before_there_are_errors():
    chooser = LowestError({"mean": RunningMean(), "last": LastValue()})
    chooser.update(0.5)
    assert chooser.method == "mean"
    chooser.update(0.5)
    assert chooser.method == "mean"


def test_squared_errors_choose_the_member_without_a_large_one():
    class Always(LastValue):
        def __init__(self, constant):
            super().__init__()
            self.constant = constant

        def forecast(self):
            super().forecast()
            return self.constant

    values = [0.0] + [0.0, 0.0, 0.0, 10.0] * 5
    #                    errors of 0: 0 0 0 10 ...    of 4: 4 4 4 6 ...

    def chosen(criterion):
        members = {"always 0": Always(0.0), "always 4": Always(4.0)}
        return fed(LowestError(members, criterion), values).method

    assert chosen("absolute") == "always 0"  # 10 < 18
    assert chosen("squared") == "always 4"  # 100 > 84


def test_a_member_that_answers_nan_or_infinity_is_out_for_good():
    class Lost(LastValue):
        def __init__(self, answer):
            super().__init__()
            self.answer = answer

        def forecast(self):
            return self.answer

    members = {"nan": Lost(math.nan), "infinite": Lost(math.inf), "last": LastValue()}
    chooser = fed(LowestError(members), [1.0, 2.0, 3.0])
    assert (chooser.method, chooser.forecast()) == ("last", 3.0)


def test_choosers_can_choose_among_choosers():
    inner = LowestError({"mean": RunningMean(), "median": SlidingMedian(3)})
    outer = fed(LowestError({"last": LastValue(), "inner": inner}), [0.0, 1.0] * 8)
    assert outer.method == "inner"
