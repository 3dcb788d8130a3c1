"""`Coordinator`: the verbs a blueprint is written in, and the record of what was decided and why.

Berman et al. 1996, section 4.2: "it executes a blueprint that dictates the way in which it uses the
various other subsystems to derive a schedule, initiate the application, and monitor its progress".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from apples.agent.deliberation import Deliberation
from apples.agent.estimator import PerformanceEstimator, by_value, preferred
from apples.agent.information import InformationPool
from apples.agent.launching import host_survey, launch_plan
from apples.agent.planner import Planner
from apples.agent.planners import time_balancing
from apples.agent.selector import ResourceSelector
from apples.agent.tending import Tending
from apples.agent.waiting import after_waiting
from apples.errors import LaunchError, ModelError
from apples.launch.actuator import Actuator, Execution, Progress
from apples.launch.actuators.recording import RecordingActuator
from apples.resources import Host, ResourceSet, names
from apples.schedule import Estimate, NoFeasiblePlanError, Rejection, Schedule
from apples.units import duration

PASSES = 2  # over the frame of the run, and at most one repeat

Blueprint = Callable[["Coordinator"], Execution]


class HostsUnfitError(LaunchError):
    """A host that was chosen cannot be used as planned; carries what is known of the hosts by now."""

    def __init__(self, reason: str, information: InformationPool) -> None:
        super().__init__(reason)
        self.information = information


class Coordinator(Tending):
    """Executes blueprints over one information pool.

    Parameters
    ----------
    information
        Everything known at this moment; every candidate of the decision is compared under it.
    actuator
        Starts the chosen schedule; the default records it and starts nothing.
    selector, planner, estimator
        The subsystems; the defaults are those of DESIGN's words: chains by communication with local
        search, time balancing, the strip model's estimate.
    fresh, clock
        For an application that runs: the pool under the weather of the moment it is called, and seconds.
    """

    def __init__(
        self,
        information: InformationPool,
        actuator: Actuator | None = None,
        *,
        selector: ResourceSelector | None = None,
        planner: Planner = time_balancing,
        estimator: PerformanceEstimator | None = None,
        fresh: Callable[[InformationPool], InformationPool] = lambda information: information,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.information = information
        self.fresh, self.clock = fresh, clock
        self.actuator = actuator or RecordingActuator()
        self.selector = selector or ResourceSelector()
        self.planner = planner
        self.estimator = estimator or PerformanceEstimator()
        self.deliberation: Deliberation = Deliberation()
        self._present = information

    def execute(self, blueprint: Blueprint) -> Execution:
        """Run a blueprint and return the execution it started.

        Where a host it chose turns out to be unfit, it is run again without, under the same sky.

        Raises
        ------
        NoFeasiblePlanError
            Nothing it considered is feasible; carries every refusal.
        """
        while True:
            try:
                return blueprint(self)
            except HostsUnfitError as news:
                if news.information is self._present:
                    raise  # it was known: planning again would choose it again
                self._present = news.information
                self.information = self.information.knowing(news.information.looked_at)
                self.deliberation.begin_again()
                vars(self).pop("_alone_seconds", None)

    def deliberate(self, blueprint: Blueprint) -> None:
        """Decide, starting nothing, under the weather of the run to come; raises as `execute` does.

        A first pass on one-step forecasts gives its time T0; then all candidates are compared under one
        weather over T0; where the run then chosen asks for another horizon, once more.
        """
        self.execute(blueprint)
        for _ in range(PASSES):
            chosen = self.deliberation.chosen
            framed = chosen and self.information.over(chosen.execution_seconds)
            if not framed:
                return
            self.information = self._present = framed.knowing(self._present.looked_at)
            self.deliberation.begin_again()
            vars(self).pop("_alone_seconds", None)
            self.execute(blueprint)

    def static(self) -> Coordinator:
        """Return this coordinator deciding from the host list alone: the paper's compile-time view.

        It writes into the same deliberation and starts through the same actuator, on hosts that are
        as they are now.
        """
        other = Coordinator(
            self.information.static(),
            self.actuator,
            selector=self.selector,
            planner=self.planner,
            estimator=self.estimator,
            fresh=self.fresh,
            clock=self.clock,
        )
        other.deliberation = self.deliberation
        other._present = self._present
        return other

    @property
    def present(self) -> InformationPool:
        """What is known of the hosts by now; of a static coordinator too."""
        return self._present

    # ------------------------------------------------------------------ selecting
    def hosts(self) -> ResourceSet:
        """Return every usable host in the order of the host list."""
        self.deliberation.usable, refused = self.selector.usable_hosts(self.information)
        self.deliberation.reject(refused)
        return self.deliberation.usable

    def all_resources(self) -> ResourceSet:
        """Return every usable host, as one chain in the order that balances best."""
        return self.selector.whole_set(self.hosts(), self.information)

    def select_resources(self) -> Iterator[ResourceSet]:
        """Yield the resource sets worth planning for, the most promising first."""
        yield from self.selector.resource_sets(self.hosts(), self.information)

    # ------------------------------------------------------- planning and judging
    def plan(self, resources: ResourceSet, planner: Planner | None = None) -> Schedule:
        """Return the planner's schedule for a set; it may be infeasible.

        Raises
        ------
        ModelError
            A user's own planner returned something that is no schedule of these hosts.
        NoFeasiblePlanError
            The set is empty: every host was refused, with the reasons recorded.
        """
        if not resources:
            raise NoFeasiblePlanError(tuple(self.deliberation.rejections))
        self.deliberation.considered += 1
        return _checked((planner or self.planner)(resources, self.information), resources)

    def is_feasible(self, schedule: Schedule) -> bool:
        """Whether no filter refuses the schedule; a refusal is recorded with its reason."""
        rejection = self.selector.rejection(schedule, self.information)
        if rejection is not None:
            self.deliberation.reject([rejection])
        return rejection is None

    def candidates(self) -> Iterator[Estimate]:
        """Yield the estimates of all feasible schedules, one a resource set worth planning for."""
        for resources in self.select_resources():
            schedule = self.plan(resources)
            if self.is_feasible(schedule):
                yield self.estimate(schedule)

    def uses_all(self, resources: ResourceSet, schedule: Schedule) -> bool:
        """Whether the planner found work for every host of the set; else the refusal is recorded."""
        if not schedule.dropped or not schedule.allocations:
            return True
        host = schedule.dropped[0]
        model, place = self.information.model, resources.index(host)
        row = model.computation(resources, np.ones(len(resources))) + model.communication(
            resources
        )
        longest = self.information.iteration_seconds(schedule)
        self.deliberation.reject(
            [
                Rejection(
                    names(resources),
                    f"{host.name} would get no rows: its border and a single row cost "
                    f"{duration(row[place])}, the others need {duration(longest)} for all of it",
                    (float(row[place]), longest),
                    "negative_strip",
                )
            ]
        )
        return False

    def estimate(self, schedule: Schedule) -> Estimate:
        """Return the predicted performance of a feasible schedule."""
        estimate = self.estimator.estimate(schedule, self.information, self._alone_seconds)
        if not np.isfinite(estimate.value):
            raise ModelError(
                f"the model estimates {estimate.value} for {names(schedule.resources)}"
            )
        self.deliberation.estimates.append(estimate)
        return estimate

    def best(self, candidates: Iterable[Estimate]) -> Estimate:
        """Return the best candidate by the user's objective and preferences, with its interval.

        Raises
        ------
        NoFeasiblePlanError
            There is no candidate; carries every refusal recorded so far.
        """
        ranked = by_value(list(candidates))
        ranked = after_waiting(ranked, self.actuator, self.information, self.deliberation)
        if not ranked:
            raise NoFeasiblePlanError(tuple(self.deliberation.rejections))
        chosen = preferred(ranked, self.information.specifications.preferences)
        interval = self.estimator.interval(chosen.schedule, self.information)
        self.deliberation.chosen = replace(chosen, interval=interval)
        self.deliberation.information = self.information
        return self.deliberation.chosen

    def as_of_now(self, chosen: Estimate) -> Estimate:
        """Return what a choice made under another weather is predicted to take under this one.

        Every candidate on record is judged anew with it, so that all figures of the decision are of
        one sky; the choice stays.
        """
        record = self.deliberation
        before = record.estimates
        record.estimates, record.chosen, record.information = [], None, None
        for candidate in before:
            self.estimate(candidate.schedule)
        return self.best(
            [self.estimator.estimate(chosen.schedule, self.information, self._alone_seconds)]
        )

    @cached_property
    def _alone_seconds(self) -> float | None:
        """The iteration seconds of the user's reference, else of the fastest host that holds the grid."""
        information, reference = (
            self.information,
            self.information.specifications.objective.reference,
        )
        total, model = information.application.rows, information.model
        if reference:
            hosts: Sequence[Host] = (information.hosts[reference],)
        else:
            usable = self.deliberation.usable or tuple(information.hosts)
            caps = model.caps(usable, total)
            hosts = [h for h, cap in zip(usable, caps, strict=True) if cap >= total]
        rows = np.array([float(total)])
        return min((float(model.computation((h,), rows)[0]) for h in hosts), default=None)

    # ------------------------------------------------------------------- starting
    def actuate(self, estimate: Estimate) -> Execution:
        """Start the schedule of an estimate through the actuator.

        Raises
        ------
        HostsUnfitError
            A host of it cannot be used as planned; `execute` plans again.
        """
        found = self.actuator.look(host_survey(self._present))
        seen = self._present.knowing(found) if found else self._present
        for one in estimate.schedule.allocations:
            if reason := seen.refusal(one.host, one.implementation):
                raise HostsUnfitError(f"{one.host.name} cannot be used: {reason}", seen)
        self._present = seen
        return self.actuator.actuate(launch_plan(estimate.schedule, seen))

    def monitor(self, execution: Execution) -> Iterator[Progress]:
        """Yield the progress of an execution until it ends."""
        yield from execution.monitor()


def _checked(schedule: Schedule, resources: ResourceSet) -> Schedule:
    if not isinstance(schedule, Schedule):
        raise ModelError(f"the planner returned no Schedule but {type(schedule).__name__}")
    used = schedule.resources
    if not set(used) <= set(resources) or len(set(used)) < len(used):
        given, planned = ", ".join(names(resources)), ", ".join(names(used))
        raise ModelError(f"the planner was given {given} and planned for {planned}")
    if not np.all(np.isfinite(np.array(schedule.rows, dtype=float))):
        raise ModelError(f"the planner gave rows that are no numbers: {schedule.rows}")
    return schedule
