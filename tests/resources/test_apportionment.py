"""Apportionment: parts add up, keep their quota and their least, and are the old ones to the last row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.resources import apportion, equal_parts, largest_remainder

WEIGHTS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=12)


def one_at_a_time(total, weights, least):
    """The plain method: look at all parts for each unit that is missing or too much."""
    exact = [total * weight / sum(weights) for weight in weights]
    found = [max(low, int(value)) for low, value in zip(least, exact, strict=True)]
    while missing := total - sum(found):
        step = 1 if missing > 0 else -1
        ahead = [
            (step * (value - have), -index)
            for index, (value, have) in enumerate(zip(exact, found, strict=True))
            if step > 0 or have > least[index]
        ]
        found[-max(ahead)[1]] += step
    return found


@st.composite
def problems(draw):
    weights = draw(WEIGHTS)
    least = [draw(st.integers(0, 5)) for _ in weights]
    return draw(st.integers(sum(least), 500)), weights, least


@given(problems())
def test_the_parts_are_those_of_looking_at_all_parts_for_each_unit(problem):
    assert apportion(*problem) == one_at_a_time(*problem)


@given(problems())
def test_parts_add_up_and_none_is_below_its_least(problem):
    total, _, least = problem
    parts = apportion(*problem)
    assert sum(parts) == total
    assert all(part >= low for part, low in zip(parts, least, strict=True))


@given(WEIGHTS, st.integers(0, 10_000))
def test_without_a_least_every_part_keeps_its_quota(weights, total):
    """Less than one away from the exact share: the quota rule of Hamilton's method."""
    for part, weight in zip(apportion(total, weights, [0] * len(weights)), weights, strict=True):
        assert abs(part - total * weight / sum(weights)) < 1 + 1e-6


@given(st.lists(st.floats(0.01, 500), min_size=1, max_size=40))
def test_quotas_are_rounded_as_by_sorting_their_remainders(quotas):
    quotas = np.array(quotas) * (round(sum(quotas)) or 1) / sum(quotas)
    total = round(float(quotas.sum()))
    whole = np.floor(quotas)
    missing = total - int(whole.sum())
    if 0 <= missing <= len(quotas):
        whole[np.argsort(-(quotas - whole), kind="stable")[:missing]] += 1
        assert largest_remainder(quotas.tolist(), total) == whole.astype(int).tolist()


@given(st.integers(0, 1000), st.integers(1, 50))
def test_equal_parts_add_up_and_differ_by_one_at_most_the_larger_first(total, count):
    parts = equal_parts(total, count)
    assert sum(parts) == total
    assert parts == sorted(parts, reverse=True)
    assert parts[0] - parts[-1] <= 1
    assert parts == apportion(total, [1.0] * count, [0] * count)


def test_more_at_least_than_there_is_cannot_be_given():
    with pytest.raises(ValueError, match="3 rows for 4 ranks"):
        apportion(3, [1.0, 1.0], [2, 2])
