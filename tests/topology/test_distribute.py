import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.errors import UsageError
from apples.topology import distribute_tasks as distribute


@st.composite
def claims(draw):
    least = draw(st.lists(st.integers(0, 20), max_size=12))
    most = [a + draw(st.integers(0, 30)) for a in least]
    return sum(least) + draw(st.integers(0, 200)), least, most


@given(claims())
def test_everybody_keeps_to_the_bounds_and_nothing_is_wasted(claim):
    total, least, most = claim
    shares = distribute(total, least, most)
    assert all(a <= s <= b for a, s, b in zip(least, shares, most, strict=True))
    assert sum(shares) == min(total, sum(most))


@given(claims())
def test_nobody_gets_two_more_above_the_minimum_than_one_who_could_take_more(claim):
    total, least, most = claim
    extra = [s - a for s, a in zip(distribute(total, least, most), least, strict=True)]
    hungry = [e for e, a, b in zip(extra, least, most, strict=True) if a + e < b]
    assert not hungry or max(extra) <= min(hungry) + 1


def test_processors_that_cannot_be_divided_go_to_the_first():
    assert distribute(8, [1, 1, 1], [9, 9, 9]) == [3, 3, 2]


def test_a_mate_keeps_what_the_sharing_factor_leaves_it():
    assert distribute(48, [24, 24], [48, 48]) == [24, 24]
    assert distribute(48, [24], [48]) == [48]


@pytest.mark.parametrize(
    ("least", "most", "code", "value"),
    [
        ([3, 3], [5, 5], "minimums-too-large", 6),
        ([4], [2], "value-range", 2),
        ([-1], [-2], "value-range", -2),
        ([-1], [2], "value-range", -1),
    ],
)
def test_claims_that_cannot_be_met_are_refused(least, most, code, value):
    with pytest.raises(UsageError) as raised:
        distribute(5, least, most)
    assert (raised.value.code, raised.value.fields["value"]) == (code, value)
