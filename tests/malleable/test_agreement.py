"""At how many safe points somebody asks, and that what is asked is heard soon."""

import pytest
from mpi4py import MPI

from apples.malleable import COMMIT, MAX_SKIPPED, MESSAGE, PERIOD_SECONDS, Agreement


class Loop:
    """A program of one rank: iterations of some seconds, a safe point each, reductions if it likes."""

    def __init__(self, reduces=None):
        self.now, self.bits, self.looks, self.reduces = 0.0, 0, 0, reduces
        self.agreement = Agreement(MPI.COMM_SELF, self.look, lambda: self.now)
        self.agreement.begin()

    def look(self):
        self.looks += 1
        return self.bits

    def iterate(self, seconds):
        """Return what the safe point before an iteration says."""
        self.now += seconds
        if self.reduces is not None:
            assert self.agreement.reduce(-2.5, self.reduces) == -2.5
        return 0 if self.agreement.skip() else self.agreement.take()

    def until_heard(self, seconds):
        """Return after how many iterations a message that is there now is heard of."""
        self.bits = MESSAGE
        for count in range(1, 100):
            if found := self.iterate(seconds):
                self.bits = 0
                self.agreement.begin()
                assert found == MESSAGE
                return count
        raise AssertionError("deaf")


@pytest.mark.parametrize("reduces", [None, MPI.MIN, MPI.MAX, MPI.SUM])
@pytest.mark.parametrize(
    ("seconds", "apart"), [(1e-6, 16), (1e-3, 16), (0.0026, 15), (0.013, 3), (0.039, 1), (0.2, 1)]
)
def test_asked_as_often_as_fits_the_period_and_at_every_sixteenth_safe_point_at_least(
    reduces, seconds, apart
):
    assert apart in {1 + MAX_SKIPPED, int(PERIOD_SECONDS / seconds), 1}
    loop = Loop(reduces)
    for _ in range(64):
        assert loop.iterate(seconds) == 0
    before = loop.looks
    for _ in range(240 * apart):
        assert loop.iterate(seconds) == 0
    assert loop.looks - before == pytest.approx(240, abs=1)
    for _ in range(apart):
        loop.iterate(seconds)
        assert loop.until_heard(seconds) <= apart + 1


@pytest.mark.parametrize("reduces", [None, MPI.MIN, MPI.MAX, MPI.SUM])
def test_iterations_that_grow_a_millionfold_are_not_deaf_for_long(reduces):
    loop = Loop(reduces)
    for _ in range(100):
        loop.iterate(1e-6)
    assert loop.until_heard(1.0) <= MAX_SKIPPED + 2
    assert loop.until_heard(1.0) <= 2


def test_both_bits_arrive_and_what_was_heard_is_not_heard_again():
    loop = Loop()
    loop.bits = MESSAGE | COMMIT
    loop.agreement.end()
    loop.agreement.begin()
    loop.bits = 0
    assert loop.agreement.take() == MESSAGE | COMMIT
    loop.agreement.begin()
    assert [loop.iterate(0.01) for _ in range(50)] == [0] * 50


def test_nothing_else_than_a_sum_a_maximum_or_a_minimum_carries():
    with pytest.raises(ValueError, match="MAX"):
        Loop().agreement.reduce(1.0, MPI.PROD)
