"""The contract and the monitor: what counts as a violation, and what a measured rate rests on."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apples.agent import IterationRate, PerformanceContract, PerformanceMonitor
from apples.launch import HostTimes, Progress

PROMISE = PerformanceContract(1.0, {"ada": 1.0, "bob": 0.9})


def rate(seconds, **compute):
    return IterationRate(seconds, compute, 10 * seconds, 10)


def progress(iteration, seconds, **compute):
    hosts = tuple(HostTimes(host, spent, 0.0) for host, spent in compute.items())
    return Progress(iteration, 1000, seconds, hosts)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def monitor(clock):
    return PerformanceMonitor(window=2.0, settling=0.5, clock=clock)


def observed(monitor, clock, count, *, each=0.25, ada=0.2, start=0):
    """Have `count` messages arrive, one iteration and `each` seconds apart."""
    for k in range(start, start + count):
        clock.now = k * each
        monitor.observe(progress(k, k * each, ada=k * ada))


# ------------------------------------------------------------------- the contract
@given(st.floats(0.85, 1.15), st.floats(0.85, 1.15))
def test_what_lies_within_the_tolerance_violates_nothing(one, other):
    assert PROMISE.violation(rate(max(one, other), ada=one, bob=0.9 * other)) == ""


def test_the_host_that_is_furthest_off_is_named_in_either_direction():
    slow = PROMISE.violation(rate(3.0, ada=1.3, bob=2.7))
    assert re.findall(r"\b(?:ada|bob)\b|[\d.]+ m?s\b", slow) == ["bob", "2.70 s", "900 ms"]
    fast = PROMISE.violation(rate(1.0, ada=0.5, bob=0.9))
    assert re.findall(r"\b(?:ada|bob)\b|[\d.]+ m?s\b", fast) == ["ada", "500 ms", "1.00 s"]


def test_a_host_that_computes_for_a_short_part_of_an_iteration_violates_nothing():
    contract = PerformanceContract(10.0, {"ada": 10.0, "bob": 0.1})
    assert contract.violation(rate(10.0, ada=10.0, bob=1.0)) == ""


def test_an_iteration_that_is_too_long_is_a_violation_of_no_host_in_particular():
    assert PROMISE.violation(rate(1.5, ada=1.0, bob=0.9)) == (
        "an iteration takes 1.50 s, 1.00 s was promised"
    )
    assert PROMISE.violation(rate(0.5, ada=0.9, bob=0.8)) == ""


# -------------------------------------------------------------------- the monitor
def test_one_message_makes_no_rate(monitor, clock):
    assert monitor.rate() is None
    observed(monitor, clock, 1)
    assert monitor.rate() is None


def test_the_rate_is_the_mean_over_the_window_and_older_messages_fall_out(monitor, clock):
    observed(monitor, clock, 9, ada=0.2)
    for k in range(9, 40):
        clock.now = 2.0 + (k - 8) * 0.5
        monitor.observe(progress(k, clock.now, ada=1.6 + (k - 8) * 0.4))
    found = monitor.rate()
    assert found.iteration_seconds == pytest.approx(0.5)
    assert found.compute_seconds == {"ada": pytest.approx(0.4)}
    assert 2.0 <= found.seconds < 3.0


def test_few_samples_are_as_uncertain_as_they_are_large_and_steady_ones_are_certain(
    monitor, clock
):
    observed(monitor, clock, 3)
    assert monitor.rate().error == 1.0
    observed(monitor, clock, 6, start=3)
    assert monitor.rate().error < 1e-6


@pytest.mark.parametrize("change", [{"bob": 0.1}, {"ada": 0.0}])
def test_other_hosts_or_times_that_begin_anew_begin_a_new_window(monitor, clock, change):
    observed(monitor, clock, 6)
    clock.now = 10.0
    monitor.observe(progress(6, 10.0, **change))
    assert monitor.rate() is None
    assert monitor.dwell == 0.0
    clock.now = 14.0
    assert monitor.dwell == 4.0


def test_messages_are_ignored_for_a_moment_after_a_change(monitor, clock):
    observed(monitor, clock, 6)
    clock.now = 2.0
    monitor.hosts_changed()
    for now in (2.2, 2.4):
        clock.now = now
        monitor.observe(progress(10, now, ada=2.0))
    assert monitor.rate() is None
    for k, now in enumerate((2.6, 3.1, 3.6)):
        clock.now = now
        monitor.observe(progress(11 + k, now, ada=2.2 + k * 0.2))
    assert monitor.rate().iteration_seconds == pytest.approx(0.5)


def test_what_is_discarded_keeps_the_dwell(monitor, clock):
    observed(monitor, clock, 6)
    since = monitor.since
    monitor.discard()
    assert monitor.rate() is None
    assert monitor.since == since


def test_a_new_window_holds_nothing_of_before(monitor, clock):
    observed(monitor, clock, 6, each=0.25)
    monitor.begin_window()
    assert monitor.rate() is None
    clock.now = 2.25
    monitor.observe(progress(6, 2.25, ada=2.0))
    assert monitor.rate().iteration_seconds == pytest.approx(1.0)
