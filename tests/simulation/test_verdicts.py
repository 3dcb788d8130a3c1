"""The words for a change, in every case: better, worse, equal, of one run, not finite, missing."""

from math import inf, nan

import pytest

from apples.simulation import (
    MetricChange,
    change_of,
    change_words,
    overall_word,
    relative_change,
    tally,
    verdict_word,
)


def changed(*ratios):
    return relative_change(change_of(ratios, "seeds"))


def bounded(mean, low, high):
    return relative_change(MetricChange(mean, low, high, 3, "seeds"))


@pytest.mark.parametrize(
    ("change", "word", "words"),
    [
        (changed(0.5, 0.5, 0.5), "better", "-50.0%, -50.0% .. -50.0% over 3 seeds"),
        (changed(2.0, 2.0), "worse", "+100.0%, +100.0% .. +100.0% over 2 seeds"),
        (bounded(0.1, -0.2, 0.4), "no clear difference", "no clear difference, -20.0% .. +40.0% over 3 seeds"),
        (changed(1.0, 1.0), "no clear difference", "no clear difference, +0.0% .. +0.0% over 2 seeds"),
        (bounded(-0.1, -0.2, 0.0), "no clear difference", "no clear difference, -20.0% .. +0.0% over 3 seeds"),
        (bounded(-0.3, -0.5, -1e-9), "better", "-30.0%, -50.0% .. +0.0% over 3 seeds"),
        (changed(0.5), "one run: no verdict", "-50.0%, one run: no verdict"),
        (changed(1.0), "one run: no verdict", "+0.0%, one run: no verdict"),
        (bounded(5.0, 0.5, inf), "worse", "+500.0%, +50.0% .. no limit over 3 seeds"),
        (bounded(5.0, -0.5, inf), "no clear difference", "no clear difference, -50.0% .. no limit over 3 seeds"),
        (bounded(0.1, nan, nan), "not known", "not known"),
        (bounded(nan, nan, nan), "not known", "not known"),
        (bounded(inf, 0.5, inf), "not known", "not known"),
        (relative_change(None), "not known", "not known"),
    ],
)  # fmt: skip
def test_a_change_has_its_verdict_and_its_words(change, word, words):
    assert verdict_word(change) == word
    assert change_words(change) == words


def test_clear_verdicts_that_differ_are_no_overall_verdict():
    better, worse, unclear = changed(0.5, 0.5), changed(2.0, 2.0), changed(1.0, 1.0)
    assert overall_word([better, unclear]) == "better"
    assert overall_word([worse, changed(0.5)]) == "worse"
    assert overall_word([better, worse]) == "no clear difference"
    assert overall_word([unclear]) == "no clear difference"
    assert overall_word([]) == "no clear difference"


def test_a_tally_counts_each_verdict_once():
    words = ["better", "worse", "no clear difference", "one run: no verdict", "not known"]
    assert tally(words) == "1 of 5 better, 1 worse, 3 neither"
    assert tally([]) == "0 of 0 better, 0 worse, 0 neither"
