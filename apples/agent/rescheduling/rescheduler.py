"""`Rescheduler`: supervise a running application, and move it to other hosts or rows if that pays.

After each progress message the rescheduler checks for a trigger: a violation of the performance contract, or a
time without an evaluation. Then it plans again, with measured times for the hosts in use and forecasts for
others, evaluates the candidate, and moves or stays. Each decision is recorded with its reason.

If the application never ran at the model's speed, the model is wrong, for this host or for all. Then the
rescheduler assumes the model's speed for other hosts, and measures the application's own kernel on the hosts of
a candidate before it moves there (`Coordinator.probe`). The assumption finds hosts worth measuring; the
measurement decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from apples.agent.coordinator import Coordinator, DecisionLog
from apples.agent.information import InformationPool
from apples.agent.rescheduling.contract import TOLERANCE, PerformanceContract
from apples.agent.rescheduling.evaluation import Move, apart_from, as_measured
from apples.agent.rescheduling.execution import AdaptiveExecution
from apples.errors import InfeasibleError, LaunchError, UsageError
from apples.launch.actuator import Execution, Resized
from apples.resources.schedule import Estimate

MAX_PROBES = 3
"""Rounds of measuring hosts and choosing again in one decision; after them, unmeasured hosts count as slow."""
PROBE_HOLDS_SECONDS = 60.0
"""Seconds for which a probe of a host is valid."""


@dataclass(frozen=True)
class ReschedulingPolicy:
    """Rules for planning a running application again, and for the gain that a move needs.

    Pass the policy to a `Coordinator` together with the estimate: ``coordinator.actuate(estimate, policy)``.

    Attributes
    ----------
    replan
        Returns the best candidate of a coordinator; usually the function that chose the first plan.
    minimum_dwell
        Least seconds on the same hosts and rows before a move.
    look_interval
        Seconds between periodic evaluations without a violation: other hosts may have become free.
    least_improvement
        Least relative reduction of the iteration time: less is within the errors of the forecasts.
    standard_errors
        Number of standard errors of the measurement that the improvement must exceed as well.
    times_the_cost
        Factor on the cost that a move must gain in the remaining iterations.
    """

    replan: Callable[[Coordinator], Estimate]
    minimum_dwell: float
    look_interval: float
    least_improvement: float
    standard_errors: float
    times_the_cost: float

    def __call__(
        self, coordinator: Coordinator, execution: Execution, estimate: Estimate
    ) -> AdaptiveExecution:
        """Return the execution of an estimate, rescheduled by this policy while it runs."""
        run = AdaptiveExecution.of(execution, coordinator, estimate)
        run.decider = Rescheduler(coordinator, self)
        return run


class Rescheduler:
    """Applies a policy to one running application after each of its progress messages.

    A move needs two agreeing measurements. A violated contract is measured again in a new window before a new
    plan. A move that pays by a periodic evaluation is evaluated again before it is made.

    Attributes
    ----------
    slowdown
        Measured over modelled computing, by host that the application used.
    bias
        The least slowdown so far: effects that the model leaves out on every host, with or without load.
    probes
        Slowdown by a probe (None if it failed) and its time, by host.
    """

    def __init__(self, coordinator: Coordinator, policy: ReschedulingPolicy) -> None:
        self.coordinator = coordinator
        self.policy = policy
        self.slowdown: dict[str, float] = {}
        self.bias = 1.0
        self.probes: dict[str, tuple[float | None, float]] = {}
        self._proposed = False
        self._confirming = False
        self._evaluated = float("-inf")

    def __call__(self, run: AdaptiveExecution) -> None:
        """Evaluate a move if there is a trigger; make it if it pays.

        Measuring the weather uses the CPUs, so the rate begins a new window after it.
        """
        before = self._evaluated
        try:
            self._reschedule(run)
        except (LaunchError, InfeasibleError):  # the run may have ended; no host may be fit
            self._accept(run)
        if self._evaluated != before:
            # Probes take CPU time from the job's hosts. A window that includes them would break the contract
            # again, without end.
            run.performance.discard()
            self._evaluated = run.performance.clock()

    def _reschedule(self, run: AdaptiveExecution) -> None:
        policy = self.policy
        if run.performance.dwell < policy.minimum_dwell or not self.reschedule_trigger(run):
            return
        move = self._evaluate(run)
        if move is None:
            self._accept(run)
        elif not self._pays(move):
            self._accept(run)
            run.stay(move)
        elif self._confirming or self._proposed:
            self._move(run, move)
        else:
            self._proposed = True

    def reschedule_trigger(self, run: AdaptiveExecution) -> str:
        """Return the reason for a new plan now, in words; empty without a reason.

        The first window that violates the contract is not a reason: it may begin before a change of load, or
        contain a short disturbance. It begins a new window; a violation in that window is a reason.
        """
        performance = run.performance
        rate = performance.rate()
        if rate is None or rate.seconds < performance.window / 2:
            return ""
        violation = run.violation()
        if violation and not self._confirming:
            self._confirming = True
            performance.begin_window()
            return ""
        self._confirming = bool(violation)
        patience = performance.window if self._proposed else self.policy.look_interval
        waited = performance.clock() - self._evaluated
        return violation or ("a periodic evaluation" if waited >= patience else "")

    def _evaluate(self, run: AdaptiveExecution) -> Move | None:
        """Return the best move under the present weather; None if the application already has the best plan."""
        performance = run.performance
        self._evaluated = performance.clock()
        rate, rows = performance.rate(), run.rows()
        measured = {} if rate is None else rate.compute_seconds
        weather = self.coordinator.refresh(self.coordinator.information)
        self._learn(as_measured(weather, rows, measured), rows)
        seen = partial(as_measured, weather, rows, measured)
        probe = self.coordinator.probe
        # While the model is right, a move needs no probe, which would cost another second under the new load.
        if probe is None or 1 / (1 + TOLERANCE) <= self.bias <= 1 + TOLERANCE:
            return self._best(run, seen(self.slowdown, self.bias))
        # The model is wrong, here or everywhere. It still applies to a host that can be measured, until the
        # measurement.
        apart = apart_from(weather, rows)
        beside = {host.name: self.bias for host in weather.hosts if host.name not in apart}
        for _ in range(MAX_PROBES):
            known = beside | self._probed() | self.slowdown
            information = seen(known, min(1.0, self.bias))
            move = self._best(run, information)
            if move is None or not self._pays(move):
                return move
            strips = {a.host.name: a.rows for a in move.estimate.schedule.allocations}
            doubtful = {n: count for n, count in strips.items() if n not in {*rows, *known}}
            if not doubtful:
                return move
            found, now = probe(information, doubtful), performance.clock()
            self.probes.update({name: (found.get(name), now) for name in doubtful})
        return self._best(run, seen(beside | self._probed() | self.slowdown, self.bias))

    def _best(self, run: AdaptiveExecution, information: InformationPool) -> Move | None:
        """Return the best move in a pool; None if the application already has the best plan."""
        candidate = self.policy.replan(self.coordinator.under(information, DecisionLog()))
        return run.evaluate(
            candidate,
            run.violation(),
            information=information,
            probed={name: factor for name, (factor, _) in self.probes.items() if factor},
        )

    def _pays(self, move: Move) -> bool:
        policy = self.policy
        return move.pays(policy.least_improvement, policy.standard_errors, policy.times_the_cost)

    def _probed(self) -> dict[str, float]:
        """Return the slowdown by host of valid probes; after a failed probe, the slowdown of the present hosts."""
        oldest = self.coordinator.clock() - PROBE_HOLDS_SECONDS
        standing = {name: factor for name, (factor, when) in self.probes.items() if when >= oldest}
        return {name: factor or self.bias for name, factor in standing.items()}

    def _learn(self, measured: InformationPool, rows: Mapping[str, int]) -> None:
        """Update the slowdowns from the measured times on the present hosts."""
        seen = {name: measured.slowdown[name] for name in rows if name in measured.slowdown}
        known = bool(self.slowdown)
        self.slowdown.update(seen)
        if seen:
            # The least slowdown is the nearest to the model's own error, without load. Without this bias, a
            # model that is too fast everywhere would move the job to any host that it never used.
            self.bias = min([*([self.bias] if known else []), *seen.values()])

    def _move(self, run: AdaptiveExecution, move: Move) -> None:
        """Make a move; stay if the application refuses it."""
        try:
            run.make(move)
        except (UsageError, LaunchError):
            self._accept(run)
        else:
            self._proposed = self._confirming = False

    def _accept(self, run: AdaptiveExecution) -> None:
        """Stay: the measured rate becomes the contract, and no move is pending."""
        self._proposed = self._confirming = False
        rate = run.performance.rate()
        if rate is not None:
            run.contract = PerformanceContract(rate.iteration_seconds, rate.compute_seconds)


def move_to_size(
    coordinator: Coordinator,
    execution: Execution,
    rows: Mapping[str, int],
    seconds: Mapping[str, float],
    min_hosts: int,
    max_hosts: int,
    reason: str,
) -> Resized:
    """Move a running application to the best set of another number of hosts, under the present weather.

    Parameters
    ----------
    rows, seconds
        Present rows, and measured seconds of computing in an iteration, by host.
    min_hosts, max_hosts
        Number of hosts; they replace the limits of the user specifications.
    reason
        Recorded with the move.

    Raises
    ------
    NoFeasiblePlanError
        The host list has no feasible set of that size; carries every refusal.
    UsageError, LaunchError
        The application refused the move, or the move failed; it continues as before.
    """
    measured = as_measured(coordinator.refresh(coordinator.information), rows, seconds)
    limits = {"minimum_hosts": min_hosts, "maximum_hosts": max_hosts}
    constraints = measured.specifications.constraints.model_copy(update=limits)
    specifications = measured.specifications.model_copy(update={"constraints": constraints})
    sized = coordinator.under(replace(measured, specifications=specifications), DecisionLog())
    candidates = []
    for resources in sized.select_resources():
        schedule = sized.plan(resources)
        if sized.is_feasible(schedule):
            candidates.append(sized.estimate(schedule))
    return sized.resize(execution, sized.best(candidates), reason)
