"""`Coordinator`: the verbs a blueprint is written in; `DecisionLog`: what was decided with them, and why.

Berman et al. 1996, section 4.2: "it executes a blueprint that dictates the way in which it uses the
various other subsystems to derive a schedule, initiate the application, and monitor its progress".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

import hat
from apples.agent.arrangement import Arrangement, arranged
from apples.agent.estimator import (
    PerformanceEstimator,
    alone_seconds,
    by_value,
    preferred,
    waiting,
    with_queue_wait,
)
from apples.agent.information import InformationPool, refusal
from apples.agent.launching import host_survey, launch_plan
from apples.agent.planners import time_balancing
from apples.agent.planners.planner import Planner, by_threads
from apples.agent.selector import ResourceSelector, every_host_used
from apples.errors import LaunchError, ModelError, UsageError
from apples.launch.actuator import Actuator, Execution, Resized
from apples.launch.actuators.recording import RecordingActuator
from apples.launch.events import Progress
from apples.resources import Host, ResourceSet, names
from apples.resources.schedule import Estimate, NoFeasiblePlanError, Rejection, Schedule
from apples.topology.message_matrix import MessageMatrix

if TYPE_CHECKING:
    from apples.agent.slow_hosts import SlowHost, SlowHostDetector

PASSES = 2
"""How often a decision is made over the horizon of its own run: once, and at most one repeat."""
KEPT_REJECTIONS = 1000

ResourceSets = Literal["search", "single", "chain", "listed"]
Blueprint = Callable[["Coordinator"], Execution]
ExecutionPolicy = Callable[["Coordinator", Execution, Estimate], Execution]
"""Wraps the execution of an estimate in one that is looked after while it runs."""
Probe = Callable[[InformationPool, Mapping[str, float]], Mapping[str, float]]
"""Rows by host in, slowdown by host out; hosts that could not be measured are left out."""


class HostsUnfitError(LaunchError):
    """A host that was chosen cannot be used as planned; carries the pool with what was found on the hosts."""

    code = "host-unfit"

    def __init__(self, host: str, reason: str, information: InformationPool) -> None:
        super().__init__(f"{host} cannot be used: {reason}", host=host, reason=reason)
        self.information = information


@dataclass
class DecisionLog:
    """What a blueprint considered: the record that explanations and reports are made from.

    Attributes
    ----------
    usable
        Hosts that passed the host filters.
    considered
        How many sets a schedule was made for.
    estimates
        Feasible candidates, in the order they were estimated, all under `information`.
    rejections
        Refusals with their reasons, at most 1000; `rejected` counts them all.
    chosen
        The estimate that `best` returned, with its interval.
    information
        The pool that the estimates were made under.
    policy
        What looks after the application while it runs, if anything does.
    arrangement
        In which order the chosen hosts were put by the messages of their ranks; None where nothing was known of
        them.
    """

    usable: tuple[Host, ...] = ()
    considered: int = 0
    estimates: list[Estimate] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    rejected: int = 0
    chosen: Estimate | None = None
    information: InformationPool | None = None
    policy: ExecutionPolicy | None = None
    arrangement: Arrangement | None = None

    def reject(self, rejections: Iterable[Rejection]) -> None:
        """Record refusals."""
        for rejection in rejections:
            self.rejected += 1
            if len(self.rejections) < KEPT_REJECTIONS:
                self.rejections.append(rejection)

    def add(self, estimate: Estimate, information: InformationPool) -> None:
        """Record a candidate; those estimated under another pool are dropped, so that all are comparable."""
        if information is not self.information:
            self.estimates, self.chosen, self.information = [], None, information
        self.estimates.append(estimate)

    def clear(self) -> None:
        """Forget everything: the decision is made again."""
        vars(self).update(vars(DecisionLog()))


class Coordinator:
    """Executes blueprints over one information pool.

    The verbs, in the order a blueprint uses them: `select_resources`, `plan`, `is_feasible`, `estimate`, `best`,
    `actuate`, then `monitor` and `resize` for an application that runs; `under` for a decision under another
    pool; and `execute`, which runs a blueprint.

    Parameters
    ----------
    information
        Everything known at this moment; every candidate of the decision is compared under it.
    actuator
        Starts the chosen schedule; the default records it and starts nothing. The attribute may be set anew
        between a decision and its start.
    selector, planner, estimator
        The subsystems; the defaults are chains by communication with local search, time balancing, and the
        strip model's estimate.
    refresh
        Returns the pool under the weather of the moment it is called, for an application that runs.
    probe
        Measures the application's own kernel on hosts that are to have so many rows; returns how many times
        longer it takes there now than the model says, for an application that runs. None: nobody can.
    clock
        Seconds, for an application that runs.
    messages
        Which rank sends which how much, by a run with as many ranks: what `best` chooses is ordered by it.

    Attributes
    ----------
    slow_hosts
        Names the slow hosts of the application that `actuate` started; None before.
    on_slow_host
        Called with each host that turns out to be slow.
    """

    def __init__(
        self,
        information: InformationPool,
        actuator: Actuator | None = None,
        *,
        selector: ResourceSelector | None = None,
        planner: Planner = time_balancing,
        estimator: PerformanceEstimator | None = None,
        refresh: Callable[[InformationPool], InformationPool] = lambda information: information,
        probe: Probe | None = None,
        clock: Callable[[], float] = time.monotonic,
        messages: MessageMatrix | None = None,
    ) -> None:
        self.information = information
        self.refresh, self.probe, self.clock = refresh, probe, clock
        self.messages = messages
        self.actuator = actuator or RecordingActuator()
        self.selector = selector or ResourceSelector()
        self.planner = planner
        self.estimator = estimator or PerformanceEstimator()
        self.decision_log = DecisionLog()
        self.slow_hosts: SlowHostDetector | None = None
        self.on_slow_host: Callable[[SlowHost], object] = lambda _: None
        self._present = information  # the hosts as they are, whatever the decision assumes of them
        self._alone: tuple[InformationPool, float | None] | None = None

    def execute(self, blueprint: Blueprint) -> Execution:
        """Run a blueprint and return the execution it started.

        Where a host it chose turns out to be unfit, it is run again without that host, under the same weather.

        Raises
        ------
        NoFeasiblePlanError
            No candidate is feasible; carries every refusal.
        """
        while True:
            try:
                return blueprint(self)
            except HostsUnfitError as unfit:
                if unfit.information is self._present:
                    raise  # nothing new was found: planning again would choose the same host
                self._found(unfit.information)
                self.decision_log.clear()

    def under(self, information: InformationPool, log: DecisionLog | None = None) -> Coordinator:
        """Return a coordinator like this one that decides under another pool.

        It starts applications through the same actuator, on the hosts as they are now.

        Parameters
        ----------
        log
            Where it records its decision; default: in this one's log.
        """
        other = Coordinator(
            information,
            self.actuator,
            selector=self.selector,
            planner=self.planner,
            estimator=self.estimator,
            refresh=self.refresh,
            probe=self.probe,
            clock=self.clock,
            messages=self.messages,
        )
        other.decision_log = self.decision_log if log is None else log
        other._present = self._present
        return other

    # ------------------------------------------------------------------ selecting
    def select_resources(self, sets: ResourceSets = "search") -> Iterator[ResourceSet]:
        """Yield resource sets of usable hosts to plan for.

        Parameters
        ----------
        sets
            Which ones: ``search``, those worth planning for, the most promising first; ``single``, each host
            alone; ``chain``, all hosts as one chain in the order that balances best; ``listed``, all hosts in
            the order of the host list.

        Raises
        ------
        UsageError
            No such sets. Permanent.
        """
        if sets not in get_args(ResourceSets):
            known = ", ".join(get_args(ResourceSets))
            raise UsageError(
                f"select_resources({sets!r}): known sets are {known}",
                code="value-unknown",
                value=sets,
                known=list(get_args(ResourceSets)),
            )
        hosts, refused = self.selector.usable_hosts(self.information)
        self.decision_log.usable = hosts
        self.decision_log.reject(refused)
        if sets == "search":
            yield from self.selector.resource_sets(hosts, self.information)
        elif sets == "single":
            yield from ((host,) for host in hosts)
        elif hosts:
            chain = sets == "chain"
            yield self.selector.whole_set(hosts, self.information) if chain else hosts

    # ------------------------------------------------------- planning and judging
    def plan(self, resources: ResourceSet, planner: Planner | None = None) -> Schedule:
        """Return the planner's schedule for a set; it may be infeasible.

        Of one host it is by threads where `by_threads` finds that faster. What can be moved while it runs has
        ranks, and so has what Slurm starts.

        Raises
        ------
        ModelError
            A user's own planner returned something that is no schedule of these hosts.
        NoFeasiblePlanError
            The set is empty: every host was refused, with the reasons recorded.
        """
        if not resources:
            raise NoFeasiblePlanError(tuple(self.decision_log.rejections))
        self.decision_log.considered += 1
        schedule = (planner or self.planner)(resources, self.information)
        schedule = _checked(schedule, resources, self.information.template)
        takes_threads = self.actuator.takes_threads
        return by_threads(schedule, self.information) if takes_threads else schedule

    def is_feasible(self, schedule: Schedule, using: ResourceSet | None = None) -> bool:
        """Whether no filter refuses the schedule; a refusal is recorded with its reason.

        Parameters
        ----------
        using
            Hosts that must all have work: a schedule whose planner dropped one of them is refused.
        """
        rejection = using and every_host_used(schedule, using, self.information)
        rejection = rejection or self.selector.rejection(schedule, self.information)
        if rejection:
            self.decision_log.reject([rejection])
        return not rejection

    def estimate(self, schedule: Schedule) -> Estimate:
        """Return the predicted performance of a feasible schedule."""
        estimate = self.estimator.estimate(schedule, self.information, self._alone_seconds())
        if not np.isfinite(estimate.value):
            raise ModelError(
                f"the model estimates {estimate.value} for {names(schedule.resources)}",
                code="estimate-invalid",
                value=str(estimate.value),
                hosts=list(names(schedule.resources)),
            )
        self.decision_log.add(estimate, self.information)
        return estimate

    def best(self, candidates: Iterable[Estimate]) -> Estimate:
        """Return the best candidate by the user's objective and preferences, with its interval.

        Raises
        ------
        NoFeasiblePlanError
            There is no candidate; carries every refusal recorded so far.
        """
        log, information = self.decision_log, self.information
        ranked, refused = with_queue_wait(by_value(candidates), self.actuator, information)
        log.reject(refused)
        if not ranked:
            raise NoFeasiblePlanError(tuple(log.rejections))
        chosen = self._arranged(preferred(ranked, information.specifications.preferences))
        log.chosen, log.information = self.estimator.promised(chosen, information), information
        return log.chosen

    def _arranged(self, chosen: Estimate) -> Estimate:
        """Return an estimate with its hosts in the order of their messages, where that is better.

        What a run has counted is believed; what rectangles declare only where the model sees a gain in it too.
        """
        log, information = self.decision_log, self.information
        found = arranged(chosen.schedule, information, self.messages)
        log.arrangement = found if self.messages else None
        if found is None or found.schedule is chosen.schedule:
            return chosen
        if self.selector.rejection(found.schedule, information):
            log.arrangement = None
            return chosen
        again = self.estimator.estimate(found.schedule, information, self._alone_seconds())
        again = waiting(again, chosen.wait_seconds, information)
        if self.messages is None and again.value >= chosen.value:
            return chosen
        log.arrangement = found
        return again

    def _alone_seconds(self) -> float | None:
        """Return the iteration seconds of the user's reference, else of the fastest host that holds the grid."""
        information = self.information
        if self._alone is not None and self._alone[0] is information:
            return self._alone[1]
        usable = self.decision_log.usable or tuple(information.hosts)
        seconds = alone_seconds(information, usable)
        self._alone = information, seconds
        return seconds

    # ----------------------------------------------------- starting and looking after
    def actuate(self, estimate: Estimate, policy: ExecutionPolicy | None = None) -> Execution:
        """Start the schedule of an estimate through the actuator.

        Parameters
        ----------
        policy
            Looks after the application while it runs, where it can be moved at all (`ReschedulingPolicy`).

        Raises
        ------
        HostsUnfitError
            A host of it cannot be used as planned; `execute` plans again.
        """
        from apples.agent.slow_hosts import SlowHostDetector, planned_hosts  # noqa: PLC0415 - nothing runs in a plan

        found = self.actuator.look(host_survey(self._present))
        seen = self._present.with_findings(found) if found else self._present
        for one in estimate.schedule.allocations:
            if reason := refusal(seen, one.host, one.implementation):
                raise HostsUnfitError(one.host.name, reason, seen)
        self._found(seen)
        execution = self.actuator.actuate(launch_plan(estimate.schedule, seen, self.messages))
        self.slow_hosts = SlowHostDetector(planned_hosts(estimate, seen.conditions))
        if policy is None:
            return execution
        self.decision_log.policy = policy
        return policy(self, execution, estimate) if execution.movable else execution

    def _found(self, seen: InformationPool) -> None:
        """Take over what was found on the hosts that were looked at; the weather of the decision stays."""
        if seen is not self._present:
            self._present = seen
            self.information = self.information.with_findings(seen.findings)

    def monitor(self, execution: Execution) -> Iterator[Progress]:
        """Yield the progress of an execution until it ends; each report is first searched for slow hosts."""
        epoch = 0
        for progress in execution.monitor():
            if self.slow_hosts is not None:
                changes = execution.changes
                if changes and changes[-1].epoch > epoch:
                    epoch = changes[-1].epoch
                    self.slow_hosts.rescale(dict(changes[-1].members))
                for one in self.slow_hosts.observe(progress):
                    self.on_slow_host(one)
            yield progress

    def resize(self, execution: Execution, estimate: Estimate) -> Resized:
        """Move a running application to the hosts and rows of an estimate; returns when it is there.

        Raises
        ------
        UsageError, LaunchError
            It refused, or tried in vain, and goes on as it was.
        """
        conditions = self.information.conditions
        resized = execution.resize(estimate.schedule, bandwidth=conditions.bandwidth)
        if self.slow_hosts is not None:
            from apples.agent.slow_hosts import planned_hosts  # noqa: PLC0415 - nothing runs in a plan

            self.slow_hosts.replan(planned_hosts(estimate, conditions))
        return resized


def decide_over_horizon(coordinator: Coordinator, blueprint: Blueprint) -> None:
    """Have a coordinator whose actuator starts nothing decide under the weather of the run to come.

    A first pass on one-step forecasts gives its time T0; then all candidates are compared under one
    weather over T0; where the run then chosen asks for another horizon, once more. A user who prefers a
    ``frame`` gets the forecasts of that many seconds in place of T0. The decision is in
    ``coordinator.decision_log``.

    Raises
    ------
    NoFeasiblePlanError
        No candidate is feasible; carries every refusal.
    """
    coordinator.execute(blueprint)
    for _ in range(PASSES):
        chosen = coordinator.decision_log.chosen
        if chosen is None:
            return
        frame = coordinator.information.specifications.preferences.frame
        information = coordinator.information.with_horizon(frame or chosen.execution_seconds)
        if information is coordinator.information:
            return
        coordinator.information = coordinator._present = information
        coordinator.decision_log.clear()
        coordinator.execute(blueprint)


def _checked(
    schedule: Schedule, resources: ResourceSet, template: hat.ApplicationTemplate
) -> Schedule:
    if not isinstance(schedule, Schedule):
        raise ModelError(
            f"the planner must return a Schedule (got {type(schedule).__name__})",
            code="schedule-invalid",
            value=type(schedule).__name__,
        )
    used = schedule.resources
    if not set(used) <= set(resources) or len(set(used)) < len(used):
        given, planned = ", ".join(names(resources)), ", ".join(names(used))
        raise ModelError(
            f"the planner was given {given} and planned for {planned}",
            code="schedule-invalid",
            field="hosts",
            value=list(names(used)),
            known=list(names(resources)),
        )
    if not np.all(np.isfinite(np.array(schedule.rows, dtype=float))):
        raise ModelError(
            f"the planner must give finite rows (got {schedule.rows})",
            code="schedule-invalid",
            field="rows",
            value=str(schedule.rows),
        )
    known = {"", *(one.name for one in template.implementations)}
    for one in schedule.allocations:
        if one.implementation not in known:
            raise ModelError(
                f"the planner has {one.host.name} run {one.implementation!r}: the template has "
                f"{', '.join(sorted(known - {''})) or 'no implementations'}",
                code="schedule-invalid",
                field="implementation",
                host=one.host.name,
                value=one.implementation,
                known=sorted(known - {""}),
            )
    return schedule
