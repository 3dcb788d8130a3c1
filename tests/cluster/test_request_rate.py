"""Nobody asks more often than is allowed, and nobody less for what others ask."""

from hypothesis import given
from hypothesis import strategies as st

from apples.cluster import REQUESTS_A_SECOND, REQUESTS_AT_ONCE, RequestRate

STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.floats(0, 3), st.integers(0, 150)), max_size=20
)


@given(STEPS)
def test_so_many_at_once_and_so_many_a_second_whatever_others_ask(steps):
    now, admitted = 0.0, dict.fromkeys("ab", 0)
    rate = RequestRate(lambda: now)
    for who, pause, count in steps:
        now += pause
        found = [rate.admits(who) for _ in range(count)]
        assert found == sorted(found, reverse=True)  # refused is refused until time goes on
        if found and pause >= REQUESTS_AT_ONCE / REQUESTS_A_SECOND:
            assert sum(found) == min(count, REQUESTS_AT_ONCE)
        admitted[who] += sum(found)
        assert admitted[who] <= REQUESTS_AT_ONCE + REQUESTS_A_SECOND * now + 1e-6


def test_only_so_many_principals_are_remembered():
    rate = RequestRate(lambda: 0.0, most_remembered=3)
    while rate.admits("first"):
        pass
    assert not rate.admits("first")
    for other in ("second", "third", "fourth"):
        assert rate.admits(other)
    assert rate.admits("first")
