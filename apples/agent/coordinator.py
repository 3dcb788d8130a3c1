"""`Coordinator`: the verbs of a blueprint. `DecisionLog`: the candidates, the choice and its reasons.

Berman et al. 1996, section 4.2: "it executes a blueprint that dictates the way in which it uses the
various other subsystems to derive a schedule, initiate the application, and monitor its progress".
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from apples.agent.estimator import (
    PerformanceEstimator,
    alone_seconds,
    by_value,
    preferred,
    waiting,
    with_queue_wait,
)
from apples.agent.information import InformationPool, refusal
from apples.agent.planners import time_balancing
from apples.agent.planners.planner import Planner, by_threads
from apples.agent.selector import Limits, ResourceSelector, every_host_used
from apples.errors import LaunchError, ModelError, UsageError, place_of_function, repr_of
from apples.launch.actuator import Actuator, Execution, Resized
from apples.launch.actuators.recording import RecordingActuator, RecordingExecution
from apples.resources import Host, ResourceSet, names
from apples.resources.schedule import (
    Allocation,
    Estimate,
    NoFeasiblePlanError,
    Rectangle,
    Rejection,
    Schedule,
)
from apples.ui.units import counted, in_one_line, listed

if TYPE_CHECKING:
    from apples.agent.arrangement import Arrangement
    from apples.launch.events import Progress
    from apples.launch.plan import LaunchPlan
    from apples.topology.message_matrix import MessageMatrix

PASSES = 2
"""Passes of a decision under the forecasts of its own run time: the first, and at most one repeat."""
KEPT_REJECTIONS = 1000

ResourceSets = Literal["search", "single", "chain", "listed"]
Blueprint = Callable[["Coordinator"], Execution]
ExecutionPolicy = Callable[["Coordinator", Execution, Estimate], Execution]
"""Wraps an execution so that the policy supervises it while it runs."""
Probe = Callable[[InformationPool, Mapping[str, float]], Mapping[str, float]]
"""Returns the slowdown by host for given rows by host; leaves out hosts that it could not measure."""


class HostsUnfitError(LaunchError):
    """A chosen host cannot be used as planned; `information` is the pool with the findings on the hosts."""

    code = "host-unfit"

    def __init__(self, host: str, reason: str, information: InformationPool) -> None:
        super().__init__(f"{host} cannot be used: {reason}", host=host, reason=reason)
        self.information = information


class BlueprintStopped(BaseException):
    """Ends a blueprint at `actuate`, before anything is started; `Coordinator.execute` handles it.

    It is not an `Exception`, so that a blueprint that handles errors does not handle this.

    Attributes
    ----------
    information
        Pool under which the blueprint is executed again. None: the caller wanted only the decision.
    actuator
        Actuator of the next execution.
    """

    def __init__(self, information: InformationPool | None, actuator: Actuator) -> None:
        super().__init__()
        self.information, self.actuator = information, actuator


class StartHooks:
    """Hooks that the caller of `Coordinator.execute` adds to `actuate`; this base class adds nothing.

    Parameters
    ----------
    passes
        Number of times that a decision is repeated under the forecasts of its own run time, before the start.
    decides_only
        Whether the blueprint ends at `actuate` without a start.
    moves
        Whether a blueprint's policy may move the application; if false, the policy is ignored.
    movable
        Returns an actuator that can move running applications, in place of the given actuator.

    Attributes
    ----------
    execution
        The started application; None before.
    until_end
        Contexts that are closed when the application ends, or with the exception that ends it. `execute` closes
        them if the blueprint fails; otherwise its caller does.
    """

    def __init__(
        self,
        *,
        passes: int = 0,
        decides_only: bool = False,
        moves: bool = True,
        movable: Callable[[Actuator], Actuator] | None = None,
    ) -> None:
        self.passes, self.decides_only = passes, decides_only
        self.moves, self.movable = moves, movable
        self.execution: Execution | None = None
        self.until_end = ExitStack()

    def decided(self, coordinator: Coordinator, plan: LaunchPlan) -> None:
        """Receive the decision just before its start."""

    def started(
        self, coordinator: Coordinator, execution: Execution, estimate: Estimate
    ) -> Execution:
        """Receive the started execution; return the execution for the blueprint."""
        del coordinator, estimate
        self.execution = execution
        self.until_end.push(partial(_cancel_failed, execution))
        return execution

    def ended_before(self, error: BaseException) -> Execution | None:
        """Return the execution if its end made the blueprint fail; None if the blueprint itself failed."""
        del error
        return None


def _cancel_failed(execution: Execution, kind: object, *_: object) -> None:
    """Cancel the execution if the block ended with an exception."""
    if kind is not None:
        execution.cancel()


@runtime_checkable
class EvaluatesMoves(Protocol):
    """An execution that evaluates and records its moves."""

    def move(
        self, coordinator: Coordinator, estimate: Estimate, reason: str, worth: float
    ) -> Resized:
        """Move as `Coordinator.resize` does, for the coordinator that made the estimate."""
        ...


@dataclass
class DecisionLog:
    """The candidates of a blueprint and its choice; explanations and reports are made from this record.

    Attributes
    ----------
    usable
        Hosts that passed the host filters.
    considered
        Number of sets with a schedule.
    estimates
        Feasible candidates, in the order they were estimated, all under `information`.
    rejections
        Refusals with their reasons, at most 1000; `rejected` counts them all.
    chosen
        The estimate that `best` returned, with its interval. information The pool that the estimates were made
        under.
    policy
        Policy that supervises the application while it runs, or None.
    arrangement
        Order of the chosen hosts by the messages of their ranks; None if the messages are unknown.
    limits
        Limits set by user and hosts when the sets were selected; None before.
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
    limits: Limits | None = None

    def __repr__(self) -> str:
        """Return the numbers of planned and refused sets, and the chosen estimate."""
        chosen = f"chosen {self.chosen.summary}" if self.chosen else "nothing chosen"
        sets = counted(self.considered, "set")
        return in_one_line(self, f"{sets} planned, {self.rejected} refused, {chosen}")

    def reject(self, rejections: Iterable[Rejection]) -> None:
        """Record refusals."""
        for rejection in rejections:
            self.rejected += 1
            if len(self.rejections) < KEPT_REJECTIONS:
                self.rejections.append(rejection)

    def add(self, estimate: Estimate, information: InformationPool) -> None:
        """Record a candidate; drop candidates estimated under another pool, so that all are comparable."""
        if information is not self.information:
            self.estimates, self.chosen, self.information = [], None, information
        self.estimates.append(estimate)

    def clear(self) -> None:
        """Clear the record: the decision is made again."""
        vars(self).update(vars(DecisionLog()))


class Coordinator:
    """Executes blueprints over one information pool.

    A blueprint uses the verbs in this order: `select_resources`, `plan`, `is_feasible`, `estimate`, `best`,
    `actuate`, then `monitor` and `resize` for a running application. `under` makes a decision under another
    pool; `execute` runs a blueprint.

    Parameters
    ----------
    information
        The data of the decision; all candidates are compared under it.
    actuator
        Starts the chosen schedule; the default records it and starts nothing. The attribute may be changed
        between a decision and its start.
    selector, planner, estimator
        The subsystems; the defaults are chains by communication with local search, time balancing, and the
        strip model's estimate.
    refresh
        Returns the pool under the present weather, for a running application.
    probe
        Measures the application's own kernel, for a running application: takes the planned rows by host and
        returns the slowdown by host, measured over predicted seconds. None: no probe.
    clock
        Monotonic clock in seconds, for a running application.
    messages
        Bytes between each two ranks, from a run with as many ranks; `best` orders the chosen hosts by them.
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
        self.start = StartHooks()
        self.selector = selector or ResourceSelector()
        self.planner = planner
        self.estimator = estimator or PerformanceEstimator()
        self.decision_log = DecisionLog()
        self._present = information  # the real state of the hosts; a decision may assume another
        self._alone: tuple[InformationPool, float | None] | None = None

    def execute(self, blueprint: Blueprint, start: StartHooks | None = None) -> Execution:
        """Execute a blueprint and return the execution it started.

        Before the start, the blueprint may be executed again from its beginning: without a host that turned out
        to be unfit, under the same weather; or under the forecasts of the run's own time. If the blueprint
        fails after the start, the application is cancelled.

        Parameters
        ----------
        start
            Hooks of `actuate`; default: none.

        Raises
        ------
        NoFeasiblePlanError
            No candidate is feasible; carries every refusal.
        """
        before, self.start = self.start, start or StartHooks()
        passes = self.start.passes
        try:
            while True:
                try:
                    return blueprint(self)
                except HostsUnfitError as unfit:
                    # Without new findings, planning again would choose the same host.
                    if unfit.information is self._present or self.start.execution is not None:
                        with self.start.until_end:
                            raise
                    self._found(unfit.information)
                    self.start.passes = passes
                except BlueprintStopped as stopped:
                    if stopped.information is None:
                        return RecordingExecution()
                    self.information = self._present = stopped.information
                    self.actuator = stopped.actuator
                except BaseException as error:
                    if (ended := self.start.ended_before(error)) is not None:
                        return ended
                    with self.start.until_end:
                        raise
                self.decision_log.clear()
        finally:
            self.start = before

    def under(self, information: InformationPool, log: DecisionLog | None = None) -> Coordinator:
        """Return a copy of this coordinator that decides under another pool.

        The copy starts applications through the same actuator, on the hosts in their present state.

        Parameters
        ----------
        log
            Record of its decisions; default: the log of this coordinator.
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
        other.start = self.start
        other._present = self._present
        return other

    # ------------------------------------------------------------------ selecting
    def select_resources(self, sets: ResourceSets = "search") -> Iterator[ResourceSet]:
        """Yield resource sets of usable hosts to plan for.

        Parameters
        ----------
        sets
            Kind of sets. ``search``: promising sets, the best first. ``single``: each host alone. ``chain``:
            all hosts as one chain, in the order that balances best. ``listed``: all hosts in the order of the
            host list.

        Raises
        ------
        UsageError
            Unknown kind of sets. Permanent.
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
        self.decision_log.limits = self.selector.limits(self.information)
        self.decision_log.reject(refused)
        if sets == "search":
            accepted = self._accepted_since(self.decision_log)
            yield from self.selector.resource_sets(hosts, self.information, accepted)
        elif sets == "single":
            yield from ((host,) for host in hosts)
        elif hosts:
            chain = sets == "chain"
            yield self.selector.whole_set(hosts, self.information) if chain else hosts

    def _accepted_since(self, log: DecisionLog) -> Callable[[], Sequence[Estimate] | None]:
        """Return a function for the estimates made from now on: empty if all sets were refused, None: unknown."""
        estimated, considered, rejected = len(log.estimates), log.considered, log.rejected

        def accepted() -> Sequence[Estimate] | None:
            estimates = log.estimates if log.information is self.information else []
            made = estimates[estimated if estimated <= len(estimates) else 0 :]
            planned = log.considered - considered
            return made if made or 0 < planned <= log.rejected - rejected else None

        return accepted

    # ------------------------------------------------------- planning and judging
    def plan(self, resources: ResourceSet, planner: Planner | None = None) -> Schedule:
        """Return the planner's schedule for a set; it may be infeasible.

        A schedule of one host uses threads if `by_threads` finds them faster. An application that can move, or
        that Slurm starts, uses ranks.

        Raises
        ------
        ModelError
            A user's own planner returned an invalid schedule of these hosts, or lost rows of the grid that fit
            into their memory.
        NoFeasiblePlanError
            The set is empty: every host was refused, with the reasons recorded.
        """
        if not resources:
            raise NoFeasiblePlanError(tuple(self.decision_log.rejections))
        self.decision_log.considered += 1
        planner = planner or self.planner
        schedule = _checked(
            planner(resources, self.information), planner, resources, self.information
        )
        takes_threads = self.actuator.takes_threads
        return by_threads(schedule, self.information) if takes_threads else schedule

    def is_feasible(self, schedule: Schedule, using: ResourceSet | None = None) -> bool:
        """Return whether all filters accept the schedule; record a refusal with its reason.

        Parameters
        ----------
        using
            Hosts that must all have work: the schedule is refused if the planner dropped any of them.
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
            The candidates are empty; carries every refusal recorded so far.
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
        """Return the estimate with its hosts ordered by their messages, if that order is better.

        An order by messages that a run counted is taken. An order by the borders of rectangles is taken only if
        the model predicts a gain as well.
        """
        log, information = self.decision_log, self.information
        if self.messages is None and not chosen.schedule.rectangles:
            log.arrangement = None
            return chosen  # strips stay in the selector's order
        from apples.agent.arrangement import arranged  # noqa: PLC0415 - see above

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
    def actuate(
        self, estimate: Estimate, policy: ExecutionPolicy | None = None, *, movable: bool = False
    ) -> Execution:
        """Start the schedule of an estimate through the actuator.

        If the caller wants only a decision, for example ``apples plan``, the blueprint ends here.

        Parameters
        ----------
        policy
            Supervises the application while it runs, if it can move (`ReschedulingPolicy`).
        movable
            Whether to start the application so that `resize` can move it; implied by a policy.

        Raises
        ------
        HostsUnfitError
            A host of the schedule cannot be used as planned; `execute` plans again.
        """
        start, log = self.start, self.decision_log
        if log.chosen is not estimate:
            log.chosen, log.information = estimate, self.information
        log.policy = policy = policy if start.moves else None
        if (movable or policy) and start.movable and not self.actuator.movable:
            self.actuator = start.movable(self.actuator)
            if estimate.schedule.threads and not self.actuator.takes_threads:
                raise BlueprintStopped(self._present, self.actuator)
        if not self.actuator.only_plans:
            self._look(estimate)
        self._repeat_over_horizon(estimate)
        if start.decides_only:
            raise BlueprintStopped(None, self.actuator)
        # A plan loads no launcher.
        from apples.agent.launching import launch_plan  # noqa: PLC0415
        from apples.launch.plan import refuse_assumed_weeks  # noqa: PLC0415

        if not self.actuator.only_plans:
            unmeasured = self._present.unmeasured
            used = [host.name for host in estimate.schedule.resources if host.name in unmeasured]
            refuse_assumed_weeks(used, estimate.execution_seconds)
        plan = launch_plan(estimate.schedule, self._present, self.messages)
        start.decided(self, plan)
        execution = start.started(self, self.actuator.actuate(plan), estimate)
        return policy(self, execution, estimate) if policy and execution.movable else execution

    def _look(self, estimate: Estimate) -> None:
        """Check the hosts with the actuator; raise if the estimate has an unfit host."""
        from apples.agent.launching import host_survey  # noqa: PLC0415 - a plan loads no launcher

        found = self.actuator.look(host_survey(self._present))
        seen = self._present.with_findings(found) if found else self._present
        for one in estimate.schedule.allocations:
            if reason := refusal(seen, one.host, one.implementation):
                raise HostsUnfitError(one.host.name, reason, seen)
        self._found(seen)

    def _repeat_over_horizon(self, estimate: Estimate) -> None:
        """Stop the blueprint if the decision must be repeated under the forecasts of its own run time.

        With the preference ``frame`` the forecasts are for that many seconds instead.
        """
        if self.start.passes == 0 or self.start.execution is not None:
            return
        frame = self._present.specifications.preferences.frame
        information = self._present.with_horizon(frame or estimate.execution_seconds)
        if information is not self._present:
            self.start.passes -= 1
            raise BlueprintStopped(information, self.actuator)

    def _found(self, seen: InformationPool) -> None:
        """Adopt the findings on the checked hosts; keep the weather of the decision."""
        if seen is not self._present:
            self._present = seen
            self.information = self.information.with_findings(seen.findings)

    def monitor(self, execution: Execution) -> Iterator[Progress]:
        """Return the progress of an execution until it ends; check the argument at once.

        Raises
        ------
        UsageError
            The argument is not an execution that `actuate` returned.
        """
        if not isinstance(execution, Execution):
            raise UsageError(
                f"monitor: expected the execution that actuate returned (got {repr_of(execution)})",
                code="value-type",
                field="execution",
                value=type(execution).__name__,
            )
        return execution.monitor()

    def resize(
        self,
        execution: Execution,
        estimate: Estimate,
        reason: str = "",
        *,
        worth: float = 0.0,
    ) -> Resized:
        """Move a running application to the hosts and rows of an estimate; return when the move is done.

        Call it on the coordinator that made the estimate: a move is evaluated under its pool.

        Parameters
        ----------
        reason
            Reason, recorded with the move.
        worth
            Factor on the cost that the move must gain in the remaining iterations. If the gain is smaller, the
            application stays and `Resized.seconds` is 0. With 0 it always moves.

        Raises
        ------
        UsageError, LaunchError
            The application refused the move, or the move failed; the application continues unchanged.
        """
        if isinstance(execution, EvaluatesMoves):
            return execution.move(self, estimate, reason, worth)
        return execution.resize(estimate.schedule, bandwidth=self.information.conditions.bandwidth)


def _checked(
    schedule: Schedule, planner: Planner, resources: ResourceSet, information: InformationPool
) -> Schedule:
    """Check a schedule against the contract of planners; return it with the planner's name."""
    name = getattr(planner, "__name__", type(planner).__name__)

    def invalid(problem: str, code: str = "schedule-invalid", **fields: object) -> ModelError:
        place = place_of_function(planner)
        who = f"{place['file']}:{place['line']}: planner {name}" if place else f"planner {name}"
        return ModelError(f"{who} {problem}", code=code, planner=name, **place, **fields)

    if not isinstance(schedule, Schedule):
        raise invalid(
            f"must return a Schedule (got {type(schedule).__name__})",
            value=type(schedule).__name__,
        )
    strips = schedule.allocations
    if not isinstance(strips, Sequence) or not all(map(_is_allocation, strips)):
        raise invalid(
            f"must give a sequence with an Allocation for each host (got {repr_of(strips)})",
            field="allocations",
            value=repr_of(strips),
        )
    used = schedule.resources
    if not set(used) <= set(resources) or len(set(used)) < len(used):
        raise invalid(
            f"was given {', '.join(names(resources))} and planned for {', '.join(names(used))}",
            field="hosts",
            value=list(names(used)),
            known=list(names(resources)),
        )
    if not all(map(_is_finite, schedule.rows)):
        shown = repr_of(schedule.rows)
        raise invalid(f"must give finite rows (got {shown})", field="rows", value=shown)
    rows = np.array(schedule.rows, dtype=float)
    known = {"", *(one.name for one in information.template.implementations)}
    for allocation in schedule.allocations:
        if allocation.implementation not in known:
            raise invalid(
                f"has {allocation.host.name} run {allocation.implementation!r}: the template has "
                f"{', '.join(sorted(known - {''})) or 'no implementations'}",
                field="implementation",
                host=allocation.host.name,
                value=allocation.implementation,
                known=sorted(known - {""}),
            )
    total, held = information.application.rows, float(rows.sum())
    whole = not schedule.rectangles and len(rows) and np.all((rows >= 1) & (rows % 1 == 0))
    if whole and held != total:
        bounds = information.model_of(schedule).caps(used, total) if held < total else 1.0
        if np.any(rows < bounds) if held < total else np.any(rows > bounds):
            what = f"loses {total - held:.0f}" if held < total else f"adds {held - total:.0f}"
            raise invalid(
                f"{what} rows: its strips ({_strips(schedule)}) have {held:.0f} of the {total} rows of the grid",
                code="rows-missing" if held < total else "rows-extra",
                value=held,
                bound=total,
            )
    return schedule if schedule.planner else replace(schedule, planner=name)


def _is_allocation(share: object) -> bool:
    return (
        isinstance(share, Allocation)
        and isinstance(share.host, Host)
        and isinstance(share.rectangle, Rectangle | None)
    )


def _is_finite(rows: object) -> bool:
    try:
        return isinstance(rows, Real) and math.isfinite(rows)
    except OverflowError:  # an integer larger than any float
        return False


def _strips(schedule: Schedule) -> str:
    return listed(f"{a.host.name} {a.rows:.0f}" for a in schedule.allocations)
