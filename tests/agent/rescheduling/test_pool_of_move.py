"""A move is evaluated, made and watched under one pool: the one that its estimate was made under."""

import pytest
from worlds import ROOMY, pool

from apples import Coordinator, Host, Link, Resized
from apples.agent import (
    AdaptiveExecution,
    PerformanceContract,
    SlowHostDetector,
    balanced,
    move_to_size,
)
from apples.launch import Execution, HostTimes, Progress
from nws import Forecast, Weather

SECONDS = {"ada": 1.0, "bob": 1.0, "cleo": 1.0}
HOSTS = [Host(name, seconds_per_point=1e-6, free_memory=ROOMY) for name in SECONDS]
ADA, BOB, _ = HOSTS
START_LINKS = {("local", "local"): Link(1e-6, 1e6)}
LINKS = {("local", "local"): Link(1e-6, 1e9)}


class Scripted(Execution):
    """A malleable job on one host after another; its host is 2.2 times as slow as planned from report 20 on."""

    movable = True

    def __init__(self, **rows):
        self.rows, self.bandwidths, self.epoch = rows, [], 0

    def monitor(self):
        seconds = processor = 0.0
        (host,) = self.rows
        for k in range(1, 61):
            factor = 2.2 if k > 20 else 1.0
            seconds, processor = seconds + factor, processor + 1.0
            times = HostTimes(host, seconds, 0.0, processor_seconds=processor)
            yield Progress(k, 1000, seconds, (times,))

    def position(self, seconds=0.0):
        rows = self.rows
        return {"hosts": list(rows), "rows": list(rows.values()), "epoch": self.epoch}

    def resize(self, schedule, *, ordered=False, bandwidth=None):
        self.rows = {a.host.name: int(a.rows) for a in schedule.allocations}
        self.bandwidths.append(bandwidth("ada", "bob"))
        self.epoch += 1
        return Resized(self.epoch, 0.5, {})

    def outcome(self):
        return None

    def cancel(self):
        pass


def running(execution, coordinator, seconds=1.0):
    contract = PerformanceContract(seconds, dict.fromkeys(execution.rows, seconds))
    return AdaptiveExecution(
        execution, coordinator, contract, slow_hosts=SlowHostDetector({}), costs=[]
    )


def test_a_move_under_new_weather_takes_the_bandwidth_and_the_shares_of_that_weather():
    start = pool(
        HOSTS, START_LINKS, weather=Weather(cpu={"bob": Forecast(0.5, None, "m", 9, 0.0)})
    )
    now = pool(HOSTS, LINKS)
    run = running(Scripted(ada=1000), Coordinator(start))
    estimate = Coordinator(now).estimate(balanced([BOB], now))
    run.make(run.evaluate(estimate, "a test", information=now))
    assert run.execution.bandwidths == [1e9]
    first = next(report.iteration for report in run.monitor() if run.slow_hosts.slow_now)
    assert first == 25


def test_a_job_that_asks_for_more_hosts_is_moved_by_what_its_host_was_measured_to_take():
    coordinator = Coordinator(pool(HOSTS, LINKS, iterations=1000))
    execution = Scripted(ada=1000)
    run = running(execution, coordinator, seconds=4.0)
    move_to_size(coordinator, run, {"ada": 1000}, {"ada": 4.0}, 2, 2, "it asked for 2 hosts")
    (decision,) = run.decisions
    assert set(execution.rows) == {"bob", "cleo"}
    assert decision.moved
    assert decision.move.iteration_seconds == 4.0
    assert decision.move.next_seconds == pytest.approx(0.5, rel=0.01)
