"""At how many safe points somebody asks, and that what is asked is heard soon."""

import pytest
from mpi4py import MPI

from apples.malleable import agreement
from apples.malleable.agreement import COMMIT, MESSAGE, MOST_PASSED, PERIOD_SECONDS, Agreement


class Clock:
    """Time as a program's iterations spend it."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now


class Loop:
    """A program of one rank: iterations of some seconds, a safe point each, reductions if it likes."""

    def __init__(self, monkeypatch, reduces=None):
        self.clock = Clock()
        monkeypatch.setattr(agreement, "time", self.clock)
        self.bits, self.looks, self.reduces = 0, 0, reduces
        self.agreement = Agreement(MPI.COMM_SELF, self.look)
        self.agreement.begin()

    def look(self):
        self.looks += 1
        return self.bits

    def iterate(self, seconds):
        """Return what the safe point before an iteration says."""
        self.clock.now += seconds
        if self.reduces is not None:
            assert self.agreement.reduce(-2.5, self.reduces) == -2.5
        return 0 if self.agreement.passes() else self.agreement.take()

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
@pytest.mark.parametrize("seconds", [1e-6, 1e-3, 0.013, 0.2])
def test_asked_about_every_period_and_at_every_sixteenth_safe_point_at_least(
    monkeypatch, reduces, seconds
):
    loop = Loop(monkeypatch, reduces)
    for _ in range(64):
        assert loop.iterate(seconds) == 0
    before = loop.looks
    for _ in range(960):
        assert loop.iterate(seconds) == 0
    apart = 960 / (loop.looks - before)
    assert apart == pytest.approx(min(1 + MOST_PASSED, max(1, PERIOD_SECONDS / seconds)), rel=0.5)
    assert loop.until_heard(seconds) <= apart + 3


@pytest.mark.parametrize("reduces", [None, MPI.MIN, MPI.MAX, MPI.SUM])
def test_iterations_that_grow_a_millionfold_are_not_deaf_for_long(monkeypatch, reduces):
    loop = Loop(monkeypatch, reduces)
    for _ in range(100):
        loop.iterate(1e-6)
    assert loop.until_heard(1.0) <= MOST_PASSED + 2
    for _ in range(3):
        loop.until_heard(1.0)
    assert loop.until_heard(1.0) <= 3


def test_both_bits_arrive_and_what_was_heard_is_not_heard_again(monkeypatch):
    loop = Loop(monkeypatch)
    loop.bits = MESSAGE | COMMIT
    loop.agreement.end()
    loop.agreement.begin()
    loop.bits = 0
    assert loop.agreement.take() == MESSAGE | COMMIT
    loop.agreement.begin()
    assert [loop.iterate(0.01) for _ in range(50)] == [0] * 50


def test_nothing_else_than_a_sum_a_maximum_or_a_minimum_carries(monkeypatch):
    with pytest.raises(ValueError, match="MAX, MIN and SUM"):
        Loop(monkeypatch).agreement.reduce(1.0, MPI.PROD)
