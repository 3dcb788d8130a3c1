"""The rescheduler: what triggers it, what it decides, and what it records; progress and time are played."""

from dataclasses import replace

import pytest
from worlds import ROOMY, pool

from apples import (
    Coordinator,
    Estimate,
    Execution,
    Host,
    LaunchError,
    Link,
    RecordingActuator,
    ReschedulingPolicy,
    Resized,
)
from apples.agent import (
    AdaptiveExecution,
    PerformanceContract,
    PerformanceMonitor,
    Rescheduler,
    balanced,
)
from apples.launch import HostTimes, Progress

LINKS = {("local", "local"): Link(1e-6, 1e9)}
HOSTS = [Host(name, seconds_per_point=1e-8, free_memory=ROOMY) for name in ("ada", "bob")]
INFORMATION = pool(HOSTS, LINKS, iterations=100_000)
ITERATION = 0.01


def fastest(coordinator: Coordinator) -> Estimate:
    plans = [balanced((host,), coordinator.information) for host in HOSTS]
    return coordinator.best([coordinator.estimate(plan) for plan in plans])


POLICY = ReschedulingPolicy(
    replan=fastest,
    minimum_dwell=1.0,
    look_interval=20.0,
    least_improvement=0.1,
    standard_errors=3.0,
    times_the_cost=2.0,
)


class PlayedRun(Execution):
    """One host at a time; each message is a quarter of a second, and `slowness` of it what is computed."""

    movable = True

    def __init__(self, refuses=False):
        self.rows, self.now, self.iteration, self.refuses = {"ada": 1000}, 0.0, 0, refuses
        self.computed, self.slowness = 0.0, {"ada": 1.0, "bob": 1.0}

    def message(self):
        (host,) = self.rows
        seconds = ITERATION * self.slowness[host]
        count = round(0.25 / seconds)
        self.now += 0.25
        self.iteration += count
        self.computed += count * seconds
        return Progress(self.iteration, 100_000, self.now, (HostTimes(host, self.computed, 0.0),))

    def monitor(self):
        while self.now < 300:
            yield self.message()

    def position(self, seconds=10.0):
        del seconds
        return {"hosts": list(self.rows), "rows": list(self.rows.values())}

    def resize(self, schedule, *, ordered=False, bandwidth=None):
        del ordered, bandwidth
        if self.refuses:
            raise LaunchError("busy")
        self.rows = {a.host.name: int(a.rows) for a in schedule.allocations}
        self.computed, self.now = 0.0, self.now + 0.4
        return Resized(1, 0.4, {})

    def outcome(self):
        return None

    def cancel(self):
        pass


@pytest.fixture
def played():
    return PlayedRun()


def adapted(run, policy=POLICY):
    """Return the run under a policy, its rescheduler, and how often the weather was asked for."""
    asked = []

    def refresh(information):
        asked.append(run.now)
        return information

    coordinator = Coordinator(INFORMATION, clock=lambda: run.now, refresh=refresh)
    adaptive = policy(coordinator, run, fastest(coordinator))
    return adaptive, adaptive.decider, asked


def until(adaptive, condition, most=1200):
    for count, _ in enumerate(adaptive.monitor()):
        if condition() or count > most:
            return


def test_a_policy_makes_an_execution_that_is_measured_and_rescheduled(played):
    adaptive, rescheduler, _ = adapted(played)
    assert isinstance(adaptive, AdaptiveExecution)
    assert isinstance(rescheduler, Rescheduler)
    assert adaptive.contract == PerformanceContract(
        pytest.approx(ITERATION), {"ada": pytest.approx(ITERATION)}
    )
    assert adaptive.movable
    assert not adaptive.moved


def test_what_cannot_be_moved_runs_as_it_was_started():
    coordinator = Coordinator(INFORMATION, RecordingActuator())
    execution = coordinator.actuate(fastest(coordinator), POLICY)
    assert not isinstance(execution, AdaptiveExecution)
    assert coordinator.decision_log.policy is POLICY


def test_while_the_contract_is_kept_one_plans_anew_at_the_interval_only(played):
    adaptive, _, asked = adapted(played)
    until(adaptive, lambda: played.now > 100)
    assert 4 <= len(asked) <= 6
    assert adaptive.decisions == []
    assert adaptive.rows() == {"ada": 1000}


def test_a_violation_is_measured_once_more_before_one_plans_anew(played):
    adaptive, _, asked = adapted(played)
    until(adaptive, lambda: played.now > 5)
    asked.clear()
    played.slowness["ada"] = 2.0
    until(adaptive, lambda: adaptive.performance.rate() is None)  # a new window has begun
    assert asked == []
    begun = played.now
    until(adaptive, lambda: bool(asked))
    assert asked[0] - begun >= adaptive.performance.window / 2


def test_a_violation_moves_the_application_and_the_record_says_why(played):
    told = []
    adaptive, _, _ = adapted(played)
    adaptive.on_decision = told.append
    until(adaptive, lambda: played.now > 5)
    played.slowness["ada"] = 3.0
    until(adaptive, lambda: adaptive.moved)
    assert adaptive.rows() == {"bob": 1000}
    (decision,) = adaptive.decisions
    assert told == [decision]
    document = decision.document()
    assert document["moved"]
    assert {"ada", "30.0"} <= {*document["breach"].split()}
    assert document["resize_seconds"] == 0.4
    assert adaptive.costs == [0.4]


def test_after_a_move_the_contract_holds_what_the_model_left_out(played):
    """Everything takes twice as long as the model says: so it will on the other host, and so it is promised."""
    played.slowness.update(ada=2.0, bob=2.0)
    adaptive, _, _ = adapted(played)
    until(adaptive, lambda: played.now > 30)
    played.slowness["ada"] = 8.0
    until(adaptive, lambda: adaptive.moved)
    assert adaptive.rows() == {"bob": 1000}
    assert adaptive.contract.iteration_seconds == pytest.approx(2 * ITERATION, rel=0.1)
    until(adaptive, lambda: played.now > 200)
    assert len(adaptive.costs) == 1


def test_a_refused_move_is_recorded_and_what_is_measured_becomes_the_contract():
    run = PlayedRun(refuses=True)
    adaptive, _, _ = adapted(run)
    until(adaptive, lambda: run.now > 5)
    run.slowness["ada"] = 3.0
    until(adaptive, lambda: bool(adaptive.decisions))
    (decision,) = adaptive.decisions
    assert not decision.moved
    assert "ada" in decision.explanation.split()
    assert decision.explanation.endswith(": busy"), "the reason of the job"
    assert adaptive.violation() == ""


def test_a_move_that_does_not_pay_is_recorded_and_not_made(played):
    dear = replace(POLICY, times_the_cost=1e9)
    adaptive, _, _ = adapted(played, dear)
    until(adaptive, lambda: played.now > 5)
    played.slowness["ada"] = 3.0
    until(adaptive, lambda: bool(adaptive.decisions))
    assert "ada" in adaptive.decisions[0].explanation.split()
    assert not adaptive.moved


def test_nothing_moves_before_the_minimum_dwell(played):
    adaptive, _, asked = adapted(played, replace(POLICY, minimum_dwell=1e6))
    played.slowness["ada"] = 5.0
    until(adaptive, lambda: played.now > 100)
    assert asked == []


def test_the_record_keeps_the_last_hundred_decisions(played):
    adaptive, _, _ = adapted(played)
    until(adaptive, lambda: played.now > 5)
    played.slowness["ada"] = 3.0
    until(adaptive, lambda: bool(adaptive.decisions))
    move = adaptive.decisions[0].move
    for number in range(150):
        adaptive.stay(move, str(number))
    assert len(adaptive.decisions) == 100
    assert adaptive.decisions[-1].explanation.endswith(": 149")


def test_a_job_that_is_between_two_configurations_has_no_rows(played):
    adaptive = AdaptiveExecution(played, None, PerformanceContract(1.0, {}), PerformanceMonitor())
    played.rows = {}
    with pytest.raises(LaunchError) as raised:
        adaptive.rows()
    assert raised.value.code == "job-busy"
