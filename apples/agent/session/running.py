"""`prepare` and `run`: from a `RunSpec` to a run that is started, followed, verified and learned from.

`prepare` decides for the actuator that is going to start the run; what it returns is executed once. One
coordinator makes the decision, starts the run, and moves it where its blueprint does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from apples.agent.calibration import probe_hosts
from apples.agent.coordinator import Coordinator
from apples.agent.estimator import with_queue
from apples.agent.information import InformationPool, measure_briefly
from apples.agent.launching import host_survey, launch_plan
from apples.agent.learning import PredictionCheck, check, remember, remember_start
from apples.agent.rescheduling import AdaptiveExecution
from apples.agent.session.actuation import malleable_of
from apples.agent.session.phases import PhaseTimes
from apples.agent.session.planning import (
    blueprint_of,
    coordinator_of,
    decide,
    load,
)
from apples.agent.session.results import PlanResult, RunResult, VerificationInterrupt
from apples.agent.session.spec import JobFiles, RunSpec, asked_for
from apples.agent.verification import FinishedRun, Reference, Verification, verify
from apples.errors import ApplicationError
from apples.launch.actuator import Actuator, Execution
from apples.launch.actuators import actuator_class
from apples.launch.actuators.choice import actuator_name, actuator_of
from apples.launch.actuators.local import LocalActuator
from apples.launch.actuators.recording import RecordingActuator
from apples.launch.events import Outcome, Progress, Talk, unheard
from apples.launch.hydra import LaunchCommand
from apples.launch.message_counts.counter import MessageCounts
from apples.launch.processes import job_name
from apples.launch.remote.connection import HostConnections
from apples.weather.sensing import SensingContext

NOT_COUNTED = (
    "warning: no rank counted its messages: MPI is linked into the program, or the disk was full"
)
MESSAGES = "messages"
"""In a job's folder: what its ranks count, while it runs."""
Follow = Callable[[Execution, Iterable[Progress]], None]
"""Is handed what runs and its progress, and must take the progress in to its end."""


def unwatched(_: Execution, progress: Iterable[Progress]) -> None:
    """Take in the progress of a run that nobody watches."""
    for _one in progress:
        pass


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run that is decided and not started.

    Attributes
    ----------
    plan
        The decision; without a plan there is a `refusal`, and nothing can be executed.
    coordinator
        It made the decision, starts the run and may move it.
    verify, learn
        As `RunSpec` says.
    phases
        Where its seconds go.
    counts
        Where its ranks count their messages; None where nobody asked.
    sampler
        Returns an actuator that starts the same hosts once more, for a check of the first iterations; None where
        they would have to be waited for.
    connections
        To the hosts that were looked at; the run is started through them.
    """

    plan: PlanResult
    coordinator: Coordinator
    verify: str | bool = "auto"
    learn: bool = True
    phases: PhaseTimes = field(default_factory=PhaseTimes, compare=False)
    connections: HostConnections = field(default_factory=HostConnections, compare=False)
    counts: MessageCounts | None = None
    sampler: Callable[[], Actuator] | None = LocalActuator

    def command(self) -> LaunchCommand:
        """Return what `execute` would start."""
        coordinator, schedule = self.coordinator, self.plan.estimate.schedule
        plan = launch_plan(schedule, coordinator.information, coordinator.messages)
        return coordinator.actuator.command(plan)

    def close(self) -> None:
        """Hang up where nobody is going to start the run; `execute` does so by itself."""
        self.connections.close()
        if self.counts is not None:
            self.counts.discard()

    def execute(
        self,
        *,
        talk: Talk = unheard,
        follow: Follow = unwatched,
        reference: Reference | None = None,
    ) -> RunResult:
        """Start the run, wait for its end, verify its result, and learn from it.

        Parameters
        ----------
        follow
            Sees the execution and its progress; whatever it raises ends the run.
        reference
            What the sequential run gave, where that is known already.

        Raises
        ------
        NoFeasiblePlanError
            There is no plan.
        LaunchError, ApplicationError, DeadlineError
            As `Actuator.actuate` and `Execution.monitor` say; nothing of the run is left then.
        VerificationInterrupt
            A `KeyboardInterrupt` while the result was verified; carries what is known of the run.
        """
        try:
            return self._execute(talk, follow, reference)
        finally:
            self.close()

    def _execute(self, talk: Talk, follow: Follow, reference: Reference | None) -> RunResult:
        coordinator, phases = self.coordinator, self.phases
        phases("launch")
        coordinator.on_slow_host = lambda one: talk(one.text)
        try:
            chosen = self.plan.estimate
            execution = coordinator.actuate(chosen, self.plan.decisions.policy)
        finally:
            self.connections.close()
        if isinstance(execution, AdaptiveExecution):
            execution.on_decision = lambda decision: talk(decision.explanation)
        phases("end")
        outcome = _followed(execution, coordinator.monitor(execution), follow)
        phases.split("loop", outcome.seconds)
        messages = self.counts.read(list(self.plan.rows)) if self.counts else None
        if messages is not None and not messages.ranks:
            talk(NOT_COUNTED)
            messages = None
        if messages is None:
            messages = execution.array_messages.matrix(list(self.plan.rows))
        asked, interrupt = asked_for(self.verify), None
        found_right = Verification(asked, reason="nobody asked")
        if asked != "none":
            finished = self._finished(execution, outcome)
            phases("verify")
            try:
                found_right = verify(asked, finished, coordinator.information, reference, talk)
            except KeyboardInterrupt as stop:
                found_right, interrupt = Verification(asked, reason="interrupted"), stop
        phases("learn")
        result = check(chosen, outcome)
        if self.learn and not execution.moved:  # a moved run did not happen as it was planned
            self._learn_from(result, outcome, talk)
        decisions = tuple(execution.decisions) if isinstance(execution, AdaptiveExecution) else ()
        slow = coordinator.slow_hosts
        found = RunResult(
            self.plan, outcome, result, found_right, execution.moved, decisions, phases.seconds(),
            execution.queue_seconds, messages,
            slow_hosts=slow.ended(outcome.iterations) if slow else (),
        )  # fmt: skip
        if interrupt is not None:
            raise VerificationInterrupt(found) from interrupt
        return found

    def _finished(self, execution: Execution, outcome: Outcome) -> FinishedRun:
        """Return what a check must know of a run that has just ended."""
        seconds = self.phases.seconds()
        end, queue = seconds.get("end", 0.0), execution.queue_seconds or 0.0
        own = seconds.get("launch", 0.0) + outcome.seconds + end - queue
        return FinishedRun(
            self.plan.estimate.schedule,
            outcome,
            execution.row_digests,
            own,
            end,
            sum(seconds.values()) - own - queue,
            self.sampler,
        )

    def _learn_from(self, result: PredictionCheck, outcome: Outcome, talk: Talk) -> None:
        """Let the next decision learn, unless the plan was from static values: it used no model of ours.

        Nothing is learned where partitions are not as equal as the rows that were planned: who computes what
        changes while such a run goes on.
        """
        decided, coordinator = self.plan.decisions.information, self.coordinator
        if decided is None or decided.learned is not coordinator.information.learned:
            return
        if not decided.model_of(self.plan.estimate.schedule).follows_rows:
            return
        try:
            remember(result, decided)
            if not coordinator.actuator.queues:
                remember_start(self.plan.estimate, outcome, decided)
        except OSError as error:
            talk(f"warning: {error.filename}: {error.strerror}; nothing was learned from this run")


def _followed(execution: Execution, progress: Iterable[Progress], follow: Follow) -> Outcome:
    """Return what an execution measured; where it is not waited for to its end, it is ended."""
    try:
        follow(execution, progress)
        outcome = execution.outcome()
    except BaseException:
        execution.cancel()
        raise
    if outcome is None:
        raise ApplicationError("the actuator started nothing", code="nothing-started")
    return outcome


def prepare(
    spec: RunSpec,
    information: InformationPool | None = None,
    *,
    actuator: Actuator | None = None,
    job: JobFiles | None = None,
    look: bool = True,
    talk: Talk = unheard,
    phases: PhaseTimes | None = None,
) -> PreparedRun:
    """Decide under the eyes of the actuator that is going to start the run; nothing is started.

    Parameters
    ----------
    information
        The loaded pool, in place of the specification's files, settings, weather and model.
    actuator
        Starts the run, in place of the one that the specification names.
    job
        The files of a supervised job: a malleable application is then started so that it can be resized.
    look
        Whether the actuator looks at the hosts.
    phases
        Where the seconds have gone by now; default: this is where the run begins.

    Raises
    ------
    UsageError
        An unknown name, or an actuator that these hosts, this template or this blueprint cannot use.
    """
    phases = phases or PhaseTimes(first="read")
    phases("read")
    connections = HostConnections(job.id if job else job_name(), shares=job is not None)
    counts: MessageCounts | None = None
    try:
        if spec.count_messages:
            counts = MessageCounts.into(job.folder / MESSAGES if job else None)
        return _prepared(spec, information, actuator, job, look, talk, phases, connections, counts)
    except BaseException:
        connections.close()
        if counts is not None:
            counts.discard()
        raise


def _prepared(
    spec: RunSpec,
    information: InformationPool | None,
    actuator: Actuator | None,
    job: JobFiles | None,
    look: bool,
    talk: Talk,
    phases: PhaseTimes,
    connections: HostConnections,
    counts: MessageCounts | None,
) -> PreparedRun:
    """Decide, as `prepare` says, looking at hosts through these connections."""
    name = "" if actuator else actuator_name(spec.actuator, spec.hosts)
    kind = type(actuator) if actuator else actuator_class(name)
    weather = kind.weather(spec.weather)
    if information is None:
        sensing = SensingContext(
            others=kind.sensed_hosts, connections=connections, log=talk, phase=phases
        )
        launcher = kind.name or kind.__qualname__
        information = load(spec, sensing, weather=weather, launcher=launcher, links_as_needed=True)
    phases("plan")
    title, blueprint = blueprint_of(spec, information)
    rigid = actuator or actuator_of(name, spec.output, spec.slurm)
    rigid.use(connections)
    if counts is not None:
        rigid.count_messages(counts)
    starter = rigid
    if job is not None and information.template.malleable and not rigid.queues:
        starter = _malleable(
            rigid, spec, information, "--detach", talk=talk,
            folder=job.folder, job=job.id, commits=job.commits, attempt=job.attempt, epoch=job.epoch,
            scheduled=job.scheduled, topologyd=job.topologyd,
        )  # fmt: skip
    if look:
        information = with_queue(information, starter)
    refresh = (
        partial(measure_briefly, others=kind.sensed_hosts) if weather == "live" else _unchanged
    )
    while True:
        rehearsal = RecordingActuator(starter if look else None)
        probe = partial(probe_hosts, others=kind.sensed_hosts) if weather == "live" else None
        coordinator = coordinator_of(spec, information, rehearsal, refresh, probe)
        decided = decide(title, blueprint, coordinator)
        if spec.on:
            decided.decisions.policy = None  # whoever chose its hosts moves it
        moves = decided.refusal is None and decided.decisions.policy is not None
        if not moves or starter.movable:
            break
        # The blueprint moves what it started. The actuator for that may find other hosts unfit, and has ranks in
        # the place of threads: decide again.
        starter = _malleable(rigid, spec, information, f"--blueprint {title}")
        found = starter.look(host_survey(coordinator.information)) if look else {}
        if not found and not decided.estimate.schedule.threads:
            break
        information = coordinator.information.with_findings(found)
    coordinator.actuator = starter
    sampler: Callable[[], Actuator] | None = None
    chosen = () if decided.refusal else decided.estimate.schedule.resources
    if not starter.waited_for(chosen):
        sampler = LocalActuator if actuator else partial(actuator_of, name, None, spec.slurm)
    return PreparedRun(
        decided, coordinator, spec.verify, spec.learns, phases, connections, counts, sampler
    )


def _malleable(
    through: Actuator, spec: RunSpec, information: InformationPool, option: str, **job: Any
) -> Actuator:
    return malleable_of(
        through, spec.output, information, option,
        warm=spec.warm, commit_seconds=spec.commit_seconds, engine=spec.engine, **job,
    )  # fmt: skip


def _unchanged(information: InformationPool) -> InformationPool:
    """Return the pool as it is: a plan under a given weather has no other."""
    return information
