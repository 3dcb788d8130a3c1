"""`prepare` and `PreparedRun`: start, follow and verify the run of a `RunSpec`, and learn from it.

`prepare` reads the files, measures the weather and chooses the actuator. `PreparedRun.execute` executes the
blueprint: its `actuate` starts the application, and its `monitor` and `resize` are of the application that runs.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from apples.agent.calibration import measure_first, probe_hosts
from apples.agent.coordinator import PASSES, Blueprint, Coordinator, StartHooks
from apples.agent.estimator import with_queue
from apples.agent.explanation import advice
from apples.agent.information import InformationPool, measure_briefly
from apples.agent.launching import launch_plan
from apples.agent.learning import PredictionCheck, check, remember, remember_start
from apples.agent.rescheduling import AdaptiveExecution
from apples.agent.session.phases import PhaseTimes
from apples.agent.session.planning import (
    blueprint_of,
    coordinator_of,
    decide,
    load,
    schedule_under,
)
from apples.agent.session.results import PlanResult, RunResult, VerificationInterrupt
from apples.agent.session.spec import JobFiles, RunSpec, asked_for
from apples.agent.verification import FinishedRun, Reference, Verification, verify
from apples.errors import ApplicationError, UsageError, repr_of
from apples.io.log import Log, discard
from apples.launch.actuator import Actuator, Execution
from apples.launch.actuators import actuator_class
from apples.launch.actuators.choice import actuator_name, actuator_of
from apples.launch.actuators.local import LocalActuator
from apples.launch.actuators.recording import RecordingActuator
from apples.launch.events import Outcome, Progress
from apples.launch.hydra import LaunchCommand
from apples.launch.message_counts.counter import MessageCounts
from apples.launch.plan import LaunchPlan
from apples.launch.processes import job_name
from apples.launch.remote.connection import HostConnections
from apples.resources.schedule import Estimate, NoFeasiblePlanError
from apples.weather.sensing import SensingContext

NOT_COUNTED = (
    "warning: no rank counted its messages: MPI is linked into the program, or the disk was full"
)
MESSAGES = "messages"
"""File name in a job's folder: the message counts of its ranks, while it runs."""
Follow = Callable[[PlanResult, Execution], AbstractContextManager[Callable[[Progress], object]]]
"""Watches a run: returns a context, entered when the application has started and left at its end or with the
exception that ends it. The context's value is called with each progress message as soon as the blueprint or the
session receives it. While neither reads messages, another thread calls it within a second. An exception of the
call ends the run."""
Decided = Callable[[PlanResult, LaunchPlan | None], object]
"""Called with the decision just before its start; the launch plan is None if no plan is feasible."""


def unwatched(
    plan: PlanResult, execution: Execution
) -> AbstractContextManager[Callable[[Progress], object]]:
    """Follow a run without watching it."""
    del plan, execution
    return nullcontext(discard)


def _unannounced(plan: PlanResult, launch: LaunchPlan | None) -> None:
    """Ignore a decision."""
    del plan, launch


class _RunStart(StartHooks):
    """Starts the run of a `PreparedRun`: announces its decision, and opens the contexts that watch the run.

    Attributes
    ----------
    plan
        The decision as it was at the start; None before.
    run
        The started run; None before.
    """

    def __init__(
        self,
        prepared: PreparedRun,
        log: Log,
        program_log: Log | None,
        decided: Decided,
        follow: Follow,
    ) -> None:
        super().__init__(passes=PASSES, moves=prepared.moves, movable=prepared.movable)
        self._prepared, self._log, self._program_log = prepared, log, program_log
        self._decided, self._follow = decided, follow
        self.plan: PlanResult | None = None
        self.run: AdaptiveExecution | None = None

    def announce(self, plan: PlanResult, launch: LaunchPlan | None) -> None:
        """Announce a decision, or its refusal."""
        self.plan = plan
        self._decided(plan, launch)

    def decided(self, coordinator: Coordinator, plan: LaunchPlan) -> None:
        """Announce the decision; refuse a second start."""
        prepared = self._prepared
        if self.run is not None:
            raise UsageError(
                f"blueprint '{prepared.title}' starts a second application: one runs, and resize moves it",
                code="blueprint-starts-twice",
                value=prepared.title,
            )
        option = "" if prepared.spec is None else _option_of_moves(prepared.spec)
        if option and not coordinator.actuator.movable:
            raise UsageError(
                f"{option} does not apply: this run cannot be resized; use --detach or a blueprint that moves it",
                code="option-not-applicable",
                option=option,
            )
        self.announce(prepared.result(), plan)
        if self._program_log is not None:
            coordinator.actuator.talk = self._program_log
        prepared.phases("launch")

    def started(
        self, coordinator: Coordinator, execution: Execution, estimate: Estimate
    ) -> Execution:
        """Wrap the execution, and open the contexts that watch the run."""
        assert self.plan is not None  # noqa: S101 - for the type checker: `decided` came before
        run = self.run = AdaptiveExecution.of(execution, coordinator, estimate)
        super().started(coordinator, run, estimate)
        self._prepared.connections.close()
        self._prepared.phases("end")
        run.fixed = not self.moves
        run.on_decision = lambda decision: self._log(decision.explanation)
        run.on_slow_host = lambda slow: self._log(slow.text)
        run.started_by = f"blueprint {self._prepared.title}"
        run.on_unattended_end = lambda line: self._log(f"warning: {line}")
        run.on_progress = self.until_end.enter_context(self._follow(self.plan, run))
        self.until_end.enter_context(run.attended())
        return run

    def ended_before(self, error: BaseException) -> Execution | None:
        """Return the run, with a warning, if a move came after the end of its application."""
        if self.run is None or getattr(error, "code", "") != "job-ended":
            return None
        self._log(f"warning: {self._prepared.title}: a move came too late: {error}")
        return self.run


@dataclass
class PreparedRun:
    """A run before its decision, with all input of its blueprint.

    Attributes
    ----------
    blueprint, title
        The function that decides, starts and perhaps moves the run, and its name.
    coordinator
        Coordinator of the blueprint; its actuator starts the run.
    verify, learn
        As in `RunSpec`.
    phases
        Seconds of the run by phase.
    counts
        Message counts of its ranks; None if not requested.
    sampler
        Returns an actuator for another start on the same hosts, for a check of the first iterations.
    connections
        Connections to the checked hosts; the run starts through them.
    movable
        Returns an actuator for jobs that can move while they run, in place of the given actuator.
    moves
        Whether the policy of a blueprint may move the run.
    spec
        Specification of the run.
    """

    blueprint: Blueprint
    coordinator: Coordinator
    title: str = ""
    verify: str | bool = "auto"
    learn: bool = True
    phases: PhaseTimes = field(default_factory=PhaseTimes, compare=False)
    connections: HostConnections = field(default_factory=HostConnections, compare=False)
    counts: MessageCounts | None = None
    sampler: Callable[[], Actuator] = LocalActuator
    movable: Callable[[Actuator], Actuator] | None = None
    moves: bool = True
    spec: RunSpec | None = None

    def plan(self) -> PlanResult:
        """Return the blueprint's decision without checking hosts, asking queues or starting anything."""
        coordinator, starters = self.coordinator, [self.coordinator.actuator]

        def movable(_: Actuator) -> Actuator:
            if self.movable is not None:
                starters.append(self.movable(starters[0]))
            return RecordingActuator(starters[-1], asks=False)

        coordinator.actuator = RecordingActuator(starters[0], asks=False)
        start = StartHooks(passes=PASSES, decides_only=True, moves=self.moves, movable=movable)
        try:
            decision = decide(self.title, self.blueprint, coordinator, start=start)
            return replace(decision, spec=self.spec)
        finally:
            coordinator.actuator = starters[-1]

    def command(self, plan: PlanResult) -> LaunchCommand:
        """Return the command that `execute` would start."""
        coordinator, schedule = self.coordinator, plan.estimate.schedule
        launch = launch_plan(schedule, coordinator.information, coordinator.messages)
        return coordinator.actuator.command(launch)

    def close(self) -> None:
        """Close the connections of a run that is not executed; `execute` closes them itself."""
        self.connections.close()
        if self.counts is not None:
            self.counts.discard()

    def result(self) -> PlanResult:
        """Return a copy of the present decision; later decisions of the blueprint do not change it."""
        log = self.coordinator.decision_log
        kept = replace(log, estimates=list(log.estimates), rejections=list(log.rejections))
        return PlanResult(self.title, kept, self.coordinator.information, spec=self.spec)

    def execute(
        self,
        *,
        talk: Log = discard,
        program_log: Log | None = None,
        decided: Decided = _unannounced,
        follow: Follow = unwatched,
        reference: Reference | None = None,
        verifying: Callable[[float], object] = discard,
    ) -> RunResult:
        """Execute the blueprint, wait for the end of its run, verify the result, and learn from the run.

        If the blueprint returns while the application runs, the session follows the run to its end. If the
        blueprint fails, the application is cancelled.

        Parameters
        ----------
        program_log
            Receives the program's output; default: as set in the actuator.
        decided
            Receives the decision just before the start.
        follow
            Watches the run.
        reference
            Result of the sequential run, if it is already known.
        verifying
            Called with the estimated seconds left when the verification begins, and each second while it runs.

        Raises
        ------
        NoFeasiblePlanError
            No plan is feasible.
        LaunchError, ApplicationError, DeadlineError
            As in `Actuator.actuate` and `Execution.monitor`; no process of the run remains then.
        VerificationInterrupt
            A `KeyboardInterrupt` during the verification; carries the result of the run.
        """
        start = _RunStart(self, talk, program_log, decided, follow)
        try:
            run, outcome = self._run(start, talk)
            return self._finish(start, run, outcome, talk, reference, verifying)
        finally:
            self.close()

    def _run(self, start: _RunStart, talk: Log) -> tuple[AdaptiveExecution, Outcome]:
        """Execute the blueprint; return the started execution and its measured outcome."""
        try:
            execution: object = self.coordinator.execute(self.blueprint, start)
        except NoFeasiblePlanError as error:
            if start.run is not None:
                raise
            refusal = NoFeasiblePlanError(
                error.rejections, advice(self.coordinator, self.blueprint)
            )
            start.announce(replace(self.result(), refusal=refusal), None)
            raise refusal from None
        run = start.run
        if run is None:
            raise UsageError(
                f"blueprint '{self.title}' ended without starting anything: call coordinator.actuate(estimate)",
                code="blueprint-no-choice",
                value=self.title,
            )
        if not isinstance(execution, Execution | None):
            talk(
                f"warning: blueprint '{self.title}' returned {repr_of(execution)}, not an execution: "
                "apples monitors the run that it started to its end"
            )
        with start.until_end:
            for _ in (execution if isinstance(execution, Execution) else run).monitor():
                pass
            outcome = run.outcome()
            if outcome is None:
                raise ApplicationError("the actuator started nothing", code="nothing-started")
        return run, outcome

    def _finish(
        self,
        start: _RunStart,
        run: AdaptiveExecution,
        outcome: Outcome,
        talk: Log,
        reference: Reference | None,
        verifying: Callable[[float], object],
    ) -> RunResult:
        """Verify a run, learn from it, and return its result."""
        assert start.plan is not None  # noqa: S101 - for the type checker: it has run
        plan, phases = start.plan, self.phases
        phases.split("loop", outcome.seconds)
        if run.costs:
            phases.split("moves", sum(run.costs))
        messages = self.counts.read(list(plan.rows)) if self.counts else None
        if messages is not None and not messages.ranks:
            talk(NOT_COUNTED)
            messages = None
        if messages is None:
            messages = run.array_messages.matrix(list(plan.rows))
        asked, interrupt = asked_for(self.verify), None
        found_right = Verification(asked, reason="verification off")
        if asked != "none":
            finished = self._finished(plan, run, outcome)
            phases("verify")
            try:
                found_right = verify(
                    asked, finished, self.coordinator.information, reference, talk, verifying
                )
            except KeyboardInterrupt as stop:
                found_right, interrupt = Verification(asked, reason="interrupted"), stop
        phases("learn")
        result = check(plan.estimate, outcome)
        if self.learn and not run.moved:  # a moved run did not follow its plan
            self._learn_from(plan, result, outcome, talk)
        found = RunResult(
            plan, outcome, result, found_right, run.moved, tuple(run.decisions), phases.seconds(),
            run.queue_seconds, messages,
            slow_hosts=run.slow_hosts.ended(outcome.iterations),
        )  # fmt: skip
        if interrupt is not None:
            raise VerificationInterrupt(found) from interrupt
        return found

    def _finished(self, plan: PlanResult, execution: Execution, outcome: Outcome) -> FinishedRun:
        """Return the facts about a run that its check needs, just after its end."""
        seconds = self.phases.seconds()
        end, queue = seconds.get("end", 0.0), execution.queue_seconds or 0.0
        own = seconds.get("launch", 0.0) + outcome.seconds + end - queue
        waited_for = self.coordinator.actuator.waited_for(plan.estimate.schedule.resources)
        return FinishedRun(
            plan.estimate.schedule,
            outcome,
            execution.row_digests,
            own,
            end,
            sum(seconds.values()) - own - queue,
            None if waited_for else self.sampler,
        )

    def _learn_from(
        self, plan: PlanResult, result: PredictionCheck, outcome: Outcome, talk: Log
    ) -> None:
        """Store corrections for the next decision, unless the plan did not use the learned state.

        Nothing is learned from a run with whole partitions: the work of its hosts differs from the planned rows
        and changes during the run.
        """
        decided, coordinator = plan.decisions.information, self.coordinator
        if decided is None or decided.learned is not coordinator.information.learned:
            return
        if not decided.model_of(plan.estimate.schedule).follows_rows:
            return
        try:
            remember(result, decided)
            if not coordinator.actuator.queues:
                remember_start(plan.estimate, outcome, decided)
        except OSError as error:
            talk(f"warning: {error.filename}: {error.strerror}; nothing was learned from this run")


def prepare(
    spec: RunSpec,
    information: InformationPool | None = None,
    *,
    actuator: Actuator | None = None,
    job: JobFiles | None = None,
    look: bool = True,
    talk: Log = discard,
    phases: PhaseTimes | None = None,
) -> PreparedRun:
    """Read, measure and choose the actuator, without deciding or starting anything.

    Parameters
    ----------
    information
        A loaded pool that replaces the specification's files, settings, weather and model.
    actuator
        Starts the run, in place of the specification's actuator.
    job
        The files of a supervised job; a malleable application then starts so that it can be resized.
    look
        Whether to ask a queue about hosts, and to measure hosts first.
    phases
        Phases of the command so far; default: the command begins here.

    Raises
    ------
    UsageError
        Unknown name, or an actuator that does not work with these hosts or this template.
    """
    phases = phases or PhaseTimes(first="read")
    phases("read")
    name = "" if actuator else actuator_name(spec.actuator, spec.hosts)
    kind = type(actuator) if actuator else actuator_class(name)
    weather = kind.weather(spec.weather)
    connections = HostConnections(job.id if job else job_name(), shares=job is not None)
    counts: MessageCounts | None = None
    try:
        if spec.count_messages:
            counts = MessageCounts.into(job.folder / MESSAGES if job else None)
        if information is None:
            sensing = SensingContext(
                others=kind.sensed_hosts, connections=connections, log=talk, phase=phases
            )
            launcher = kind.name or kind.__qualname__
            information = load(
                spec, sensing, weather=weather, launcher=launcher, links_as_needed=True
            )
            if look and weather == "live":
                information = _measured_first(spec, information, job, talk, phases)
        phases("plan")
        _check_malleable(_option_of_moves(spec), information)
        title, blueprint = blueprint_of(spec, information)
        starter = actuator or actuator_of(name, spec.output, spec.slurm)
        starter.use(connections)
        if counts is not None:
            starter.count_messages(counts)
        movable = partial(_movable, spec, information, f"--blueprint {title}")
        if job is not None and information.template.malleable and not starter.queues:
            starter = _movable(
                spec, information, "--detach", starter, talk=talk,
                folder=job.folder, job=job.id, commits=job.commits, attempt=job.attempt,
                epoch=job.epoch, scheduled=job.scheduled, topologyd=job.topologyd,
            )  # fmt: skip
        if look:
            information = with_queue(information, starter)
        coordinator = coordinator_of(spec, information, starter)
        if weather == "live":
            coordinator.refresh = partial(measure_briefly, others=kind.sensed_hosts)
            coordinator.probe = partial(probe_hosts, others=kind.sensed_hosts)
    except BaseException:
        connections.close()
        if counts is not None:
            counts.discard()
        raise
    return PreparedRun(
        blueprint, coordinator, title, spec.verify, spec.learns, phases, connections, counts,
        LocalActuator if actuator else partial(actuator_of, name, None, spec.slurm),
        movable, not spec.on, spec,
    )  # fmt: skip


def _measured_first(
    spec: RunSpec,
    information: InformationPool,
    job: JobFiles | None,
    talk: Log,
    phases: PhaseTimes,
) -> InformationPool:
    """Return the pool after `measure_first`; the phase ``calibrate`` begins with the first measurement.

    A restarted job continues at once without measurements, and so does a scheduler's job, because the scheduler
    promised its start.
    """
    if not spec.calibrate or (job is not None and (job.scheduled or job.attempt > 1)):
        return information

    def announce(line: str) -> None:
        phases("calibrate")
        talk(line)

    return measure_first(information, partial(schedule_under, spec), announce)


def _option_of_moves(spec: RunSpec) -> str:
    """Return an option of the specification that only resizable runs support; empty without such an option."""
    return "--warm" if spec.warm else "--commit" if spec.commit_seconds is not None else ""


def _check_malleable(option: str, information: InformationPool) -> None:
    """Raise `UsageError` if an option needs a malleable program and the program is not malleable."""
    template = information.template
    if option and not template.malleable:
        raise UsageError(
            f"{option}: the template of {template.name} lacks 'malleable = true', so the run cannot be resized",
            code="program-not-malleable",
            option=option,
            template=template.name,
        )


def _movable(
    spec: RunSpec, information: InformationPool, option: str, through: Actuator, **job: Any
) -> Actuator:
    """Return an actuator for a job that can move while it runs, on the hosts that another actuator reaches.

    Parameters
    ----------
    option
        Option that requires the moves, for messages.
    job
        Further arguments of `MalleableActuator`.

    Raises
    ------
    UsageError
        The template's program is not malleable, or that actuator cannot move a job.
    """
    _check_malleable(option, information)
    from apples.malleable.actuator import MalleableActuator  # noqa: PLC0415 - for such jobs only

    job |= {"warm": spec.warm, "commit_seconds": spec.commit_seconds}
    return MalleableActuator(spec.output, save=spec.output is not None, through=through, **job)
