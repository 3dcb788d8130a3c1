"""`Rescheduler`: looks after a running application, and moves it to other hosts or rows where that pays.

After each progress message the rescheduler asks for a trigger: the performance contract is violated, or nothing
was evaluated for a while. Then it plans anew, the hosts in use by their measured times and the others by the
forecasts, evaluates the candidate, and moves or stays. Each decision is recorded with its reason.

If the application never ran at the model's speed, the model is wrong, for this host or for all. Then the
rescheduler assumes the model's speed of a candidate's other hosts, and measures the application's own kernel on
them before it moves there (`Coordinator.probe`): the assumption finds the host worth measuring, the measurement
decides.
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
"""Rounds of measuring hosts and choosing again in one decision; after them, unmeasured hosts are not trusted."""
PROBE_HOLDS_SECONDS = 60.0
"""A probe of a host is valid for this time."""


@dataclass(frozen=True)
class ReschedulingPolicy:
    """When a running application is planned anew, and what a move must bring to be made.

    A `Coordinator` is handed the policy with the estimate it starts: ``coordinator.actuate(estimate, policy)``.

    Attributes
    ----------
    replan
        Returns the best candidate of a coordinator; usually the function that chose the first.
    minimum_dwell
        Seconds the application stays where it is, whatever happens.
    look_interval
        Seconds after which one plans anew though the contract is kept: other hosts may have become free.
    least_improvement
        The part by which an iteration must become shorter: less is within the errors of the forecasts.
    standard_errors
        The improvement must exceed so many standard errors of the measurement, too.
    times_the_cost
        How many times its cost a move must bring in the iterations that are left.
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
    """Applies a policy to one running application; called after each of its progress messages.

    A move needs two agreeing measurements. A violated contract is measured once more in a window of its own
    before one plans anew; a move that a periodic evaluation found to pay is evaluated again before it is made.

    Attributes
    ----------
    slowdown
        By host the application was on: how many times longer it computed there than the model says.
    bias
        The least slowdown seen so far: what the model leaves out on every host, load or no load.
    probes
        By host: the slowdown that a probe found, None where it failed, and when.
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

        Measuring the weather takes its part of the CPUs, so the rate begins a new window after it.
        """
        before = self._evaluated
        try:
            self._reschedule(run)
        except (LaunchError, InfeasibleError):  # the run may have ended; no host may be fit
            self._accept(run)
        if self._evaluated != before:
            # Probes take CPU time from the job's hosts. A window that includes them breaks the
            # contract again, and one would evaluate for ever.
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
        """Return why to plan anew now, in words; empty where there is no reason.

        The first window that violates the contract is no reason: it may reach back before a change of load, or
        hold a short disturbance. It begins a new window, whose violation is one.
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
        """Return the best move under this moment's weather; None where the application has the best already."""
        performance = run.performance
        self._evaluated = performance.clock()
        rate, rows = performance.rate(), run.rows()
        measured = {} if rate is None else rate.compute_seconds
        weather = self.coordinator.refresh(self.coordinator.information)
        self._learn(as_measured(weather, rows, measured), rows)
        seen = partial(as_measured, weather, rows, measured)
        probe = self.coordinator.probe
        # While the model holds, a move needs no probe: another second beside the new load would be
        # lost.
        if probe is None or 1 / (1 + TOLERANCE) <= self.bias <= 1 + TOLERANCE:
            return self._best(run, seen(self.slowdown, self.bias))
        # The model is wrong, here or everywhere. It is believed of a host that can be measured until that is done.
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
        """Return the best move in a pool; None where the application has the best already."""
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
        """Return by host what probes found that still stand; where one failed, the model is as wrong as here."""
        oldest = self.coordinator.clock() - PROBE_HOLDS_SECONDS
        standing = {name: factor for name, (factor, when) in self.probes.items() if when >= oldest}
        return {name: factor or self.bias for name, factor in standing.items()}

    def _learn(self, measured: InformationPool, rows: Mapping[str, int]) -> None:
        """Take in how far the model is off on the hosts the application is on."""
        seen = {name: measured.slowdown[name] for name in rows if name in measured.slowdown}
        known = bool(self.slowdown)
        self.slowdown.update(seen)
        if seen:
            # The least slowdown: with any larger one a model that is too fast everywhere sends the
            # job to the one host that it was never on.
            self.bias = min([*([self.bias] if known else []), *seen.values()])

    def _move(self, run: AdaptiveExecution, move: Move) -> None:
        """Make a move; where the application refuses it, stay."""
        try:
            run.make(move)
        except (UsageError, LaunchError):
            self._accept(run)
        else:
            self._proposed = self._confirming = False

    def _accept(self, run: AdaptiveExecution) -> None:
        """Stay: from now on the contract is the measured rate, and no move is under consideration."""
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
    """Move a running application to the best hosts of another number, under the weather of this moment.

    Parameters
    ----------
    rows, seconds
        By host: its rows now, and its measured seconds of computing in an iteration.
    min_hosts, max_hosts
        Number of hosts; they replace the limits of the user specifications.
    reason
        Recorded with the move.

    Raises
    ------
    NoFeasiblePlanError
        The host list has no feasible set of that size; carries every refusal.
    UsageError, LaunchError
        The application refused the move, or tried in vain; it continues as before.
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
