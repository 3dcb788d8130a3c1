"""Timing spikes: one iteration in a hundred takes 500 times as long, and moves nobody's rows."""

from dataclasses import replace

import numpy as np
import pytest
from worlds import pool

from apples import Coordinator, Host, Link
from apples.agent import (
    PerformanceContract,
    PerformanceMonitor,
    as_measured,
    balanced,
    check,
    recall,
    remember,
)
from apples.launch import HostTimes, Outcome, Progress
from apples.program import Spikes
from blueprints import all_resources

NAMES = ("a", "b", "c")
HOSTS = [Host(name, seconds_per_point=1e-8) for name in NAMES]
LINK = Link(1e-5, 1e9)
REAL = np.array([1.0, 1.6, 0.8])
"""How many times longer than listed each host really takes."""
ITERATIONS, REPORT = 1500, 25
SHARE_ERROR = 0.05


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


class Loop:
    """The iterations of a run, reported as `apples.program` does; the first host may change its speed.

    Parameters
    ----------
    factor, change
        How many times longer the first host takes from which iteration on.
    """

    def __init__(self, rows, seed, *, spiked, factor=1.0, change=ITERATIONS):
        random = np.random.default_rng(seed)
        each = np.array([rows[name] for name in NAMES]) * 1e-5 * REAL
        self.compute = each * random.lognormal(0, 0.05, (ITERATIONS, len(NAMES)))
        self.compute[change:, 0] *= factor
        spikes = random.random(self.compute.shape) < 0.01
        if spiked:
            self.compute = np.where(spikes, 500 * self.compute, self.compute)

    def reports(self):
        """Yield a progress message every `REPORT` iterations."""
        hosts = [Spikes() for _ in NAMES]
        sums, seconds = np.zeros(len(NAMES)), 0.0
        for k, times in enumerate(self.compute, 1):
            for one, spent in zip(hosts, times.tolist(), strict=True):
                one.add(spent, spent)
            sums, seconds = sums + times, seconds + float(times.max())
            if k % REPORT == 0:
                told = tuple(
                    HostTimes(
                        name, total, 0.0, seconds - total, total, total - one.excess,
                        total - one.processor_excess,
                    )
                    for name, total, one in zip(NAMES, sums.tolist(), hosts, strict=True)
                )  # fmt: skip
                yield Progress(
                    k,
                    ITERATIONS,
                    seconds,
                    told,
                    clipped_seconds=seconds - sum(one.excess for one in hosts),
                )

    def outcome(self):
        *_, last = self.reports()
        return Outcome(
            ITERATIONS, last.seconds, 0.1, last.hosts, clipped_seconds=last.clipped_seconds
        )


def information():
    found = pool(HOSTS, default=LINK, iterations=ITERATIONS)
    return replace(found, learned=recall(found.learned_key))


def planned():
    """Return the plan on all hosts, and the pool it was made under."""
    found = information()
    coordinator = Coordinator(found)
    coordinator.execute(all_resources)
    return coordinator.decision_log.chosen, found


def rows_of(schedule):
    return {a.host.name: a.rows for a in schedule.allocations}


def shares_learned(folder, monkeypatch, *, spiked):
    """Return the rows of a plan after three runs, each learned from."""
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    for seed in range(3):
        estimate, found = planned()
        loop = Loop(rows_of(estimate.schedule), seed, spiked=spiked)
        remember(check(estimate, loop.outcome()), found)
    return rows_of(planned()[0].schedule)


def test_spikes_in_runs_that_are_learned_from_move_no_share(tmp_path, monkeypatch):
    quiet = shares_learned(tmp_path / "quiet", monkeypatch, spiked=False)
    spiked = shares_learned(tmp_path / "spiked", monkeypatch, spiked=True)
    for name in NAMES:
        assert spiked[name] == pytest.approx(quiet[name], rel=SHARE_ERROR)


def test_the_shown_times_of_a_run_with_spikes_are_the_whole():
    estimate, _ = planned()
    outcome = Loop(rows_of(estimate.schedule), 1, spiked=True).outcome()
    found = check(estimate, outcome)
    assert found.iteration_seconds == outcome.seconds / ITERATIONS
    assert found.steady.iteration_seconds < 0.5 * found.iteration_seconds
    for one, measured in zip(found.hosts, outcome.hosts, strict=True):
        assert one.measured_compute == measured.compute_seconds / ITERATIONS
    assert found.off == outcome.iteration_seconds / estimate.iteration_seconds - 1


def watched(loop):
    """Return the monitor's rate after each report."""
    now = [0.0]
    monitor = PerformanceMonitor(clock=lambda: now[0])
    for report in loop.reports():
        now[0] = report.seconds
        monitor.observe(report)
        yield report, monitor.rate()


@pytest.mark.parametrize("seed", range(5))
def test_spikes_move_no_share_of_a_running_application(seed):
    rows = dict.fromkeys(NAMES, 1000 / 3)
    found, shares = information(), {}
    for spiked in (False, True):
        *_, (_, rate) = watched(Loop(rows, seed, spiked=spiked))
        measured = as_measured(found, rows, rate.compute_seconds)
        shares[spiked] = rows_of(balanced(tuple(HOSTS), measured))
    for name in NAMES:
        assert shares[True][name] == pytest.approx(shares[False][name], rel=SHARE_ERROR)


@pytest.mark.parametrize("spiked", [False, True])
def test_a_real_change_of_speed_breaks_the_contract_within_the_run(spiked):
    rows = dict.fromkeys(NAMES, 1000 / 3)
    half = ITERATIONS // 2
    loop = Loop(rows, 1, spiked=spiked, factor=2.0, change=half)
    contract, broken = None, None
    for report, rate in watched(loop):
        if report.iteration == half:
            contract = PerformanceContract(rate.iteration_seconds, rate.compute_seconds)
        elif contract is not None and broken is None and "a computes" in contract.violation(rate):
            broken = report.iteration
    assert broken is not None
    assert broken < 0.75 * ITERATIONS


def test_spikes_alone_break_no_contract_by_a_host():
    rows = dict.fromkeys(NAMES, 1000 / 3)
    violations = []
    contract = None
    for report, rate in watched(Loop(rows, 2, spiked=True)):
        if report.iteration == 20 * REPORT:
            contract = PerformanceContract(rate.iteration_seconds, rate.compute_seconds)
        elif contract is not None:
            violations.append(contract.violation(rate))
    assert not any(violations)
