"""`Coordinator`: the verbs a blueprint is written in; `DecisionLog`: what was decided with them, and why.

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


class BlueprintStopped(BaseException):
    """Ends a blueprint at `actuate`, before anything is started; `Coordinator.execute` handles it.

    No `Exception`: a blueprint that handles errors must not handle this.

    Attributes
    ----------
    information
        The blueprint is executed again under this pool. None: only its decision was asked for.
    actuator
        It starts the application then.
    """

    def __init__(self, information: InformationPool | None, actuator: Actuator) -> None:
        super().__init__()
        self.information, self.actuator = information, actuator


class StartHooks:
    """What the caller of `Coordinator.execute` adds to `actuate`: this one adds nothing.

    Parameters
    ----------
    passes
        How often a decision is repeated under the forecasts of its own run time, before anything is started.
    decides_only
        Whether the blueprint ends at `actuate`: nothing is started.
    moves
        Whether a blueprint's policy may move the application; if not, a policy is ignored.
    movable
        Returns the actuator of an application that is moved while it runs, in place of another.

    Attributes
    ----------
    execution
        What was started; None before.
    until_end
        Contexts that are left when the application ends, or with the exception that ends it. `execute` leaves them
        if the blueprint fails; else its caller does.
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
        """Take in the decision, just before it is started."""

    def started(
        self, coordinator: Coordinator, execution: Execution, estimate: Estimate
    ) -> Execution:
        """Take in what was started; return what the blueprint gets."""
        del coordinator, estimate
        self.execution = execution
        self.until_end.push(partial(_cancel_failed, execution))
        return execution

    def ended_before(self, error: BaseException) -> Execution | None:
        """Return the execution whose end made a blueprint fail, to follow it; None: the blueprint failed."""
        del error
        return None


def _cancel_failed(execution: Execution, kind: object, *_: object) -> None:
    """Cancel an execution that an exception ends."""
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
    limits
        What user and hosts allow, as the sets were selected; None before.
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
        """Return how many sets were planned and refused, and what was chosen."""
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
        self._present = information  # the hosts as they are, whatever the decision assumes of them
        self._alone: tuple[InformationPool, float | None] | None = None

    def execute(self, blueprint: Blueprint, start: StartHooks | None = None) -> Execution:
        """Execute a blueprint and return the execution it started.

        Before anything is started the blueprint may be executed again from its beginning: without a host that
        turned out to be unfit, under the same weather; or under the forecasts of the run's own time. If it fails
        after the start, the application is cancelled.

        Parameters
        ----------
        start
            What is added to `actuate`; default: nothing.

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
                    # Where nothing new was found, planning again would choose the same host.
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
        other.start = self.start
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
        """Return a function: estimates made from now on, none if all sets were refused; None if unknown."""
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

        Of one host it is by threads where `by_threads` finds that faster. What can be moved while it runs has
        ranks, and so has what Slurm starts.

        Raises
        ------
        ModelError
            A user's own planner returned something that is no schedule of these hosts, or lost rows of the grid
            that their memory holds.
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
        if self.messages is None and not chosen.schedule.rectangles:
            log.arrangement = None
            return chosen  # strips are in the selector's order
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

        Where only a decision is asked for, as by ``apples plan``, the blueprint ends here.

        Parameters
        ----------
        policy
            Looks after the application while it runs, where it can be moved at all (`ReschedulingPolicy`).
        movable
            Whether it is started so that `resize` can move it; with a policy it is.

        Raises
        ------
        HostsUnfitError
            A host of it cannot be used as planned; `execute` plans again.
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
        """Have the actuator look at the hosts; refuse an estimate that has an unfit one."""
        from apples.agent.launching import host_survey  # noqa: PLC0415 - a plan loads no launcher

        found = self.actuator.look(host_survey(self._present))
        seen = self._present.with_findings(found) if found else self._present
        for one in estimate.schedule.allocations:
            if reason := refusal(seen, one.host, one.implementation):
                raise HostsUnfitError(one.host.name, reason, seen)
        self._found(seen)

    def _repeat_over_horizon(self, estimate: Estimate) -> None:
        """Stop the blueprint where the decision is to be made again, under the forecasts of its own run time.

        A user who prefers a ``frame`` gets the forecasts of that many seconds.
        """
        if self.start.passes == 0 or self.start.execution is not None:
            return
        frame = self._present.specifications.preferences.frame
        information = self._present.with_horizon(frame or estimate.execution_seconds)
        if information is not self._present:
            self.start.passes -= 1
            raise BlueprintStopped(information, self.actuator)

    def _found(self, seen: InformationPool) -> None:
        """Take over what was found on the hosts that were looked at; the weather of the decision stays."""
        if seen is not self._present:
            self._present = seen
            self.information = self.information.with_findings(seen.findings)

    def monitor(self, execution: Execution) -> Iterator[Progress]:
        """Return the progress of an execution until it ends; what is no execution is refused at once.

        Raises
        ------
        UsageError
            It is none that `actuate` gave.
        """
        if not isinstance(execution, Execution):
            raise UsageError(
                f"monitor: must be what actuate returned (got {repr_of(execution)})",
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
        """Move a running application to the hosts and rows of an estimate; returns when it is there.

        Call it on the coordinator that made the estimate: a move is evaluated under its pool.

        Parameters
        ----------
        reason
            Why; it is recorded with the move.
        worth
            How many times its cost the move must gain in the iterations that are left; if it does not, the
            application stays, and `Resized.seconds` is 0. 0: it is moved in any case.

        Raises
        ------
        UsageError, LaunchError
            It refused, or tried in vain, and goes on as it was.
        """
        if isinstance(execution, EvaluatesMoves):
            return execution.move(self, estimate, reason, worth)
        return execution.resize(estimate.schedule, bandwidth=self.information.conditions.bandwidth)


def _checked(
    schedule: Schedule, planner: Planner, resources: ResourceSet, information: InformationPool
) -> Schedule:
    """Return a planner's schedule with the planner's name, once it is held to the contract of planners."""
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
    except OverflowError:  # a whole number that is larger than any float
        return False


def _strips(schedule: Schedule) -> str:
    return listed(f"{a.host.name} {a.rows:.0f}" for a in schedule.allocations)
