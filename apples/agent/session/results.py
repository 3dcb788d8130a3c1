"""`PlanResult` and `RunResult`: the results of a session, and their JSON documents.

``apples.plan/1`` and ``apples.run/1`` contain every number in a text or a page about a plan or a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from apples.agent.arrangement import Arrangement
from apples.agent.coordinator import DecisionLog
from apples.agent.describe_corrections import described
from apples.agent.explanation import (
    SLOWEST,
    left_out,
    memory_bindings,
)
from apples.agent.information import InformationPool, speed_source
from apples.agent.models.conformal import LEVEL, MIN_RUNS
from apples.agent.partitioning import partition_cost
from apples.agent.session.spec import PlanSpec
from apples.errors import VerificationError
from apples.resources import Host
from apples.resources.schedule import Estimate, HostEstimate, NoFeasiblePlanError, Rejection
from apples.ui.units import counted, duration, in_one_line, some
from apples.weather.conditions import error_of

if TYPE_CHECKING:  # a plan verifies, learns and moves nothing
    from apples.agent.documents import (
        AgentRunDocument,
        ArrangementInfo,
        Basis,
        Binding,
        BorderRun,
        ChangeInfo,
        Chosen,
        Coverage,
        ExecutionInfo,
        HostRun,
        LinkBasis,
        NextBest,
        ObjectiveInfo,
        PlanDocument,
        Probed,
        RectangleInfo,
        Rejected,
        SpeedSource,
        StripInfo,
    )
    from apples.agent.learning import HostCheck, PredictionCheck
    from apples.agent.rescheduling import ReschedulingDecision
    from apples.agent.slow_hosts import SlowHost
    from apples.agent.verification import Verification
    from apples.launch.events import BorderTimes, Outcome
    from apples.launch.hydra import LaunchCommand
    from apples.topology.message_matrix import MessageMatrix

PLAN_SCHEMA: Literal["apples.plan/1"] = "apples.plan/1"
RUN_SCHEMA: Literal["apples.run/1"] = "apples.run/1"
MAX_REJECTED = 100
MAX_SETS = 40
MAX_ASSUMED = 100


@dataclass(frozen=True, slots=True)
class Explanation:
    """The full explanation of a plan.

    Attributes
    ----------
    thresholds
        Values of a CPU share, a speed, a latency or a memory at which another set of hosts becomes better.
    equal_strips
        Estimate of equal strips on the chosen hosts; None with more hosts than rows.
    asked, possible
        Number of questions for `thresholds` that were asked, and of all possible questions.
    """

    thresholds: tuple[ChangeInfo, ...]
    equal_strips: Estimate | None
    asked: int = 0
    possible: int = 0


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The decision of a blueprint.

    Attributes
    ----------
    blueprint
        Name of the blueprint.
    decisions
        All considered candidates, with the chosen `Estimate`.
    information
        The pool of the decision: hosts, weather, models.
    refusal
        Reason why no plan is feasible; None with a plan.
    explanation
        Full explanation, if requested; else None.
    binding
        The user's limits without which the plan would be better, if an explanation was requested.
    spec
        Specification of the plan, if known.
    """

    blueprint: str
    decisions: DecisionLog
    information: InformationPool
    refusal: NoFeasiblePlanError | None = None
    explanation: Explanation | None = None
    binding: tuple[Binding, ...] = ()
    spec: PlanSpec | None = None

    def __repr__(self) -> str:
        """Return the application, the hosts with their rows, and the predicted seconds."""
        name, chosen = self.information.template.name, self.decisions.chosen
        return in_one_line(self, f"{name} on {chosen.summary}" if chosen else f"{name}: no plan")

    def __str__(self) -> str:
        """Return the text of ``apples plan``; with an explanation, the text of ``apples plan --explain``."""
        from apples.agent.text.plan import explained_text, plan_text  # noqa: PLC0415 - the command has it already

        text = plan_text if self.explanation is None else explained_text
        return text(self.document(), self.command)

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the first lines, a row per host, and the shares to scale."""
        from apples.agent.pages.notebook import plan_html  # noqa: PLC0415 - charts, for a notebook only

        return plan_html(self.document())

    def to_frame(self) -> Any:
        """Return a `pandas.DataFrame` with a row per host, in strip order; seconds are of one iteration.

        Raises
        ------
        UsageError
            pandas is not installed. Permanent.
        NoFeasiblePlanError
            No plan is feasible.
        """
        from apples.agent.session.frames import frame_of  # noqa: PLC0415 - for frames only

        _ = self.estimate
        chosen = self.document()["chosen"]
        return frame_of([_flat(strip) for strip in chosen["strips"]] if chosen else [], "host")

    @property
    def command(self) -> str:
        """The command that runs the plan; ``apples.run(spec)`` if the specification has a user's functions."""
        return self.spec.command if self.spec else "apples run"

    @property
    def estimate(self) -> Estimate:
        """Return the chosen schedule with its predicted performance.

        Raises
        ------
        NoFeasiblePlanError
            No plan is feasible.
        """
        if self.decisions.chosen is None:
            raise self.refusal or NoFeasiblePlanError(tuple(self.decisions.rejections))
        return self.decisions.chosen

    @property
    def rows(self) -> dict[str, int]:
        """Return the rows of each chosen host, in strip order; for a rectangle its height."""
        return {a.host.name: int(a.height) for a in self.estimate.schedule.allocations}

    def document(self) -> PlanDocument:
        """Return the plan as ``apples.plan/1``; ``chosen`` is null without a feasible plan."""
        document = plan_document(self.blueprint, self.decisions, self.information)
        document["binding"] += list(self.binding)
        if self.refusal is not None:
            document["remedy"] = self.refusal.remedy
        if self.explanation is not None:
            argument = self.explanation
            document = explained(
                document,
                self.decisions,
                argument.thresholds,
                argument.equal_strips,
                (argument.asked, argument.possible),
            )
        return document

    def refused_document(self) -> AgentRunDocument:
        """Return the ``apples.run/1`` document of a run that did not start because no plan is feasible."""
        plan = self.document()
        return refused_document(plan, plan["rejected"][0]["reason"] if plan["rejected"] else "")


def _flat(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a host with the numbers of its rectangle on the same level."""
    tile = host.get("rectangle", {})
    return {key: value for key, value in host.items() if key != "rectangle"} | {
        key: tile[key] for key in tile if key != "rows"
    }


class VerificationInterrupt(KeyboardInterrupt):
    """The verification of a run was interrupted; the run itself is complete.

    Attributes
    ----------
    result
        Result of the run, without a verification.
    """

    def __init__(self, result: RunResult) -> None:
        super().__init__()
        self.result = result


def _not_verified() -> Verification:
    from apples.agent.verification import Verification  # noqa: PLC0415 - see the top

    return Verification()


@dataclass(frozen=True, slots=True)
class RunResult:
    """The measured run and its prediction.

    Attributes
    ----------
    plan
        The decision, frozen before the launch.
    outcome
        Report of the program: iterations, seconds, the times of each host, the digest of its result.
    check
        Comparison with the prediction, in all and by host.
    verification
        Whether the result is right, and the method of the check.
    moved, rescheduling
        Whether the run moved to other hosts or rows, and every evaluated move.
    phases
        Seconds of the command by consecutive phases.
    queue_seconds
        Wait in the queue; None without a queue, or if the queue does not report it.
    messages
        Bytes between each two ranks, counted or reported by the program's arrays; None without either.
    slow_hosts
        Hosts that were at least about twice as slow as planned, with cause and cost.
    record
        Id of its record; None without a record.
    """

    plan: PlanResult
    outcome: Outcome
    check: PredictionCheck
    verification: Verification = field(default_factory=_not_verified)
    moved: bool = False
    rescheduling: tuple[ReschedulingDecision, ...] = ()
    phases: Mapping[str, float] = field(default_factory=dict)
    queue_seconds: float | None = None
    messages: MessageMatrix | None = None
    slow_hosts: tuple[SlowHost, ...] = ()
    record: str | None = None

    def __repr__(self) -> str:
        """Return the application, the measured and the predicted seconds, and the result of the verification."""
        outcome, iterations = self.outcome, counted(self.outcome.iterations, "iteration")
        seconds = f"{duration(outcome.seconds)}, predicted {duration(self.predicted_seconds)}"
        verdict = {True: "verified", False: "WRONG RESULT", None: "not verified"}[self.verified]
        hosts = some(list(self.plan.rows))
        name = self.plan.information.template.name
        return in_one_line(self, f"{name} on {hosts}: {iterations} in {seconds}; {verdict}")

    def __str__(self) -> str:
        """Return the text of ``apples run``."""
        from apples.agent.text.run import run_text  # noqa: PLC0415 - the command has it already

        return run_text(self.document(), self.plan.command)

    def _repr_html_(self) -> str:
        """Return the HTML for a notebook: the first lines, a row per host, and a chart of the time."""
        from apples.agent.pages.notebook import run_html  # noqa: PLC0415 - charts, for a notebook only

        return run_html(self.document())

    def to_frame(self) -> Any:
        """Return a `pandas.DataFrame` with a row per host: planned and measured, as in ``execution.hosts``.

        Raises
        ------
        UsageError
            pandas is not installed. Permanent.
        """
        from apples.agent.session.frames import frame_of  # noqa: PLC0415 - for frames only

        execution = execution_document(self.plan.estimate, self.outcome, self.check)
        return frame_of([_flat(host) for host in execution["hosts"]], "host")

    @property
    def verified(self) -> bool | None:
        """Return whether the compared result equals that of the reference run; None if nothing was compared."""
        return self.verification.verified

    @property
    def rows(self) -> dict[str, int]:
        """Return the planned rows of each host, in strip order."""
        return self.plan.rows

    @property
    def predicted_seconds(self) -> float:
        """Return the predicted seconds of the iteration loop, frozen before the launch."""
        return self.plan.estimate.execution_seconds

    @property
    def measured_seconds(self) -> float:
        """Return the measured seconds of the iteration loop, first barrier to last."""
        return self.outcome.seconds

    @property
    def result_sha256(self) -> str:
        """Return the digest of the result; empty if the program reports none."""
        return self.outcome.sha256

    def _declared(self) -> MessageMatrix | None:
        """Return the messages declared by template and schedule; None without strips, or with too many ranks."""
        from apples.topology.message_matrix import MAX_RANKS_SHOWN, MessageMatrix  # noqa: PLC0415 - see the top

        schedule, decided = self.plan.estimate.schedule, self.plan.decisions.information
        if self.moved or schedule.rectangles or decided is None:
            return None
        ranks = [(one.host.name, one.ranks) for one in schedule.allocations]
        if sum(count for _, count in ranks) > MAX_RANKS_SHOWN:
            return None
        application, sweeps = decided.application, decided.active_set.sweeps
        iterations = self.outcome.iterations
        return MessageMatrix.declared(
            ranks,
            iterations * application.border_bytes,
            iterations * application.messages / sweeps,
        )

    def document(self) -> AgentRunDocument:
        """Return the run as ``apples.run/1``."""
        plan = self.plan
        document = run_document(
            plan.document(), plan.estimate, self.outcome, self.check, self.verification
        )
        messages = self.messages or self._declared()
        document["execution"] = {
            **execution_document(plan.estimate, self.outcome, self.check),
            "queue_seconds": self.queue_seconds,
            "moved": self.moved,
            "messages": messages.document() if messages else None,
            "redistributions": [one.document() for one in self.rescheduling],
            "slow_hosts": [one.document() for one in self.slow_hosts],
        }
        document["phases"], document["seconds"] = dict(self.phases), sum(self.phases.values())
        document["record"] = self.record
        return document


def plan_document(
    blueprint: str, record: DecisionLog, information: InformationPool
) -> PlanDocument:
    """Return the document of a decision; ``chosen`` is null without a feasible plan."""
    decided = record.information or information
    application = information.application
    # Hosts emulated on this machine have no weather of their own: this machine's weather limits their CPU.
    conditions = decided.conditions
    measured = conditions.weather if conditions.weather.cpu else conditions.here
    document: PlanDocument = {
        "schema": PLAN_SCHEMA,
        "blueprint": blueprint,
        "application": {
            "name": application.name,
            "version": information.template.version,
            "parameters": dict(application.parameters),
            "rows": application.rows,
            "columns": application.columns,
            "iterations": application.iterations,
        },
        "chosen": _chosen(record.chosen, decided) if record.chosen else None,
        "speeds": _speeds(record.chosen, decided) if record.chosen else {},
        "next_best": _next_best(record),
        "hosts": len(record.usable),
        "considered": record.considered,
        "feasible": len(record.estimates),
        "left_out": list(left_out(record)),
        "binding": list(memory_bindings(record.chosen, decided) if record.chosen else ()),
        "rejected": [_rejected(r) for r in record.rejections[:MAX_REJECTED]],
        "rejected_total": record.rejected,
        "assumed": [*decided.assumed_speeds, *decided.conditions.assumptions(record.usable)][
            :MAX_ASSUMED
        ],
        "weather": {
            "kind": "measured" if measured.cpu else "static",
            "time": measured.time,
            "over": decided.conditions.over,
            "source": decided.conditions.source,
            "looked": cast("Probed | None", dict(decided.looked) or None),
        },
        "risk": information.specifications.preferences.risk,
        "coverage": decided.learned.coverage,
    }
    if record.arrangement:
        document["arrangement"] = _arrangement(record.arrangement)
    if record.chosen and (cost := partition_cost(record.chosen.schedule, decided)):
        document["partitions"] = cost
    return document


def _speeds(chosen: Estimate, decided: InformationPool) -> dict[str, SpeedSource]:
    """Return the source of each host's speed, for the hosts of a plan."""
    pool = decided.pool_of(chosen.schedule)
    return {host.name: speed_source(pool, host) for host in chosen.schedule.resources}


def _arrangement(found: Arrangement) -> ArrangementInfo:
    return {
        "source": found.source,
        "ranks": found.ranks,
        "bytes_times_distance": found.after,
        "bytes_times_distance_before": found.before,
    }


def explained(
    document: PlanDocument,
    record: DecisionLog,
    changes: Iterable[ChangeInfo],
    equal: Estimate | None,
    questions: tuple[int, int] = (0, 0),
) -> PlanDocument:
    """Return the document with the full explanation: compared sets, values at which the answer changes, its basis.

    Parameters
    ----------
    questions
        Number of questions asked for `changes`, and of all possible questions.
    """
    chosen = record.chosen
    if chosen is None or record.information is None:
        return document
    now = chosen.iteration_seconds
    ranked = sorted(record.estimates, key=lambda e: (e.value, len(e.hosts)))
    return {
        **document,
        "sets": [
            {
                "hosts": list(e.names),
                "iteration_seconds": e.iteration_seconds,
                "ratio": e.iteration_seconds / now,
                "turnaround_seconds": e.turnaround_seconds,
                "objective": _objective(e, record.information)["value"],
            }
            for e in ranked[:MAX_SETS]
        ],
        "changes": list(changes),
        "changes_within": SLOWEST,
        "changes_asked": questions[0],
        "changes_possible": questions[1],
        "equal_strips": {
            "iteration_seconds": equal.iteration_seconds,
            "ratio": equal.iteration_seconds / now,
        }
        if equal
        else None,
        "rests_on": _rests_on(chosen, record.information, record.usable),
    }


def _chosen(estimate: Estimate, information: InformationPool) -> Chosen:
    low, high = estimate.interval or (estimate.execution_seconds, estimate.execution_seconds)
    return {
        "hosts": list(estimate.names),
        "rows": [int(one.height) for one in estimate.schedule.allocations],
        "iteration_seconds": estimate.iteration_seconds,
        "straggler_factor": _straggler_factor(estimate, information),
        "execution_seconds": estimate.execution_seconds,
        "wait_seconds": estimate.wait_seconds,
        "start_seconds": estimate.start_seconds,
        "turnaround_seconds": estimate.turnaround_seconds,
        "objective": _objective(estimate, information),
        "interval": [low, high],
        "iteration_interval": [low / estimate.iterations, high / estimate.iterations],
        "coverage": _coverage(estimate),
        "cost": estimate.cost,
        "speedup": estimate.speedup,
        "planner": estimate.schedule.planner,
        "strips": [_strip(host, information) for host in estimate.hosts],
    }


def _straggler_factor(estimate: Estimate, information: InformationPool) -> float:
    """Return the iteration time over the longest time of a host, with a learned factor; else 1."""
    schedule = estimate.schedule
    factor_of = information.learned.straggler_factor_of
    if factor_of(schedule.resources, threads=bool(schedule.threads)) == 1.0:
        return 1.0
    longest = max(host.compute_seconds + host.communicate_seconds for host in estimate.hosts)
    return estimate.iteration_seconds / longest


def _objective(estimate: Estimate, information: InformationPool) -> ObjectiveInfo:
    """Return the measure by which the plan was chosen, its better direction, and its value."""
    objective = information.specifications.objective
    better, value = objective.better or "lower", estimate.value
    if objective.better == "higher":
        value = -value
    elif objective.measure == "speedup" and estimate.speedup:
        better, value = "higher", 1.0 / value
    return {"measure": objective.measure, "better": better, "value": value}


def _coverage(estimate: Estimate) -> Coverage | None:
    """Return the runs behind the interval and the coverage of such intervals; None if no plan was chosen."""
    basis = estimate.basis
    if basis is None:
        return None
    return {
        "class": cast("Literal['alone', 'site', 'sites']", basis.set_class),
        "level": LEVEL,
        "runs": basis.runs,
        "needed": MIN_RUNS,
        "inside": basis.inside,
        "of": basis.of,
    }


def _strip(estimate: HostEstimate, information: InformationPool) -> StripInfo:
    cpu, rectangle = information.conditions.cpu(estimate.host), estimate.rectangle
    strip: StripInfo = {
        "host": estimate.host.name,
        "site": estimate.host.site,
        "rows": int(rectangle.rows if rectangle else estimate.rows),
        "implementation": estimate.implementation,
        "compute_seconds": estimate.compute_seconds,
        "communicate_seconds": estimate.communicate_seconds,
        "seconds": estimate.seconds,
        "cpu": cpu.value,
        "cpu_error": error_of(cpu),
        "cpu_method": cpu.method,
        "cpu_samples": cpu.samples,
        "memory": estimate.memory,
        "free_memory": estimate.free_memory,
    }
    if rectangle:
        strip["rectangle"] = cast("RectangleInfo", asdict(rectangle))
    if estimate.threads:
        strip["threads"] = estimate.threads
    return strip


def _next_best(record: DecisionLog) -> NextBest | None:
    chosen = record.chosen
    if chosen is None:
        return None
    others = [e for e in record.estimates if set(e.names) != set(chosen.names)]
    if not others:
        return None
    best = min(others, key=lambda e: e.value)
    return {
        "hosts": list(best.names),
        "iteration_seconds": best.iteration_seconds,
        "ratio": best.iteration_seconds / chosen.iteration_seconds,
    }


def _rejected(rejection: Rejection) -> Rejected:
    return {
        "hosts": list(rejection.hosts[:MAX_REJECTED]),
        "reason": rejection.reason,
        "filter": rejection.filter,
        "figures": list(rejection.figures),
    }


def _rests_on(chosen: Estimate, information: InformationPool, usable: Sequence[Host]) -> Basis:
    hosts = chosen.schedule.resources
    links: list[LinkBasis] = []
    model = information.model_of(chosen.schedule)
    for (a, b), seconds in zip(model.touching(hosts), chosen.border_seconds, strict=True):
        link, measured = information.conditions.link(a, b), information.learned.links.of(a, b)
        links.append(
            {
                "between": [a.name, b.name],
                "latency": link.link.latency,
                "bandwidth": link.link.bandwidth,
                "method": link.method,
                "assumed": link.link.assumed,
                "seconds": seconds,
                "measured_runs": measured.evidence.runs if measured else 0,
            }
        )
    learned, threads = information.learned, bool(chosen.schedule.threads)
    return {
        "links": links,
        "corrections": described(information, usable),
        "drag": learned.straggler_factor_of(hosts, threads=threads),
        "company": information.learned.co_run_slowdown_of(hosts) if len(hosts) > 1 else {},
        "share_bias": {
            name: factor
            for name, factor in learned.share_bias_of(
                information.conditions, threads=threads
            ).items()
            if name in chosen.names
        },
    }


def run_document(
    plan: PlanDocument,
    estimate: Estimate,
    outcome: Outcome,
    result: PredictionCheck,
    verification: Verification,
) -> AgentRunDocument:
    """Return the document of a finished run."""
    return {
        "schema": RUN_SCHEMA,
        "plan": plan,
        "execution": execution_document(estimate, outcome, result),
        "verified": verification.verified,
        "verification": verification.document(),
        "result_sha256": outcome.sha256,
    }


def execution_document(
    estimate: Estimate, outcome: Outcome, result: PredictionCheck
) -> ExecutionInfo:
    """Return the measured part of a run."""
    low, high = estimate.interval or (estimate.execution_seconds, estimate.execution_seconds)
    return {
        "iterations": outcome.iterations,
        "predicted_seconds": estimate.execution_seconds,
        "interval": [low, high],
        "measured_seconds": outcome.seconds,
        "iteration_seconds": outcome.iteration_seconds,
        "predicted_iteration_seconds": estimate.iteration_seconds,
        "off": result.off,
        "inside": result.inside,
        "coverage": _coverage(estimate),
        "startup_seconds": outcome.startup_seconds,
        "residual": outcome.residual,
        "files": list(outcome.files),
        "hosts": [_host(one, outcome) for one in result.hosts],
        "borders": [_border(one, estimate) for one in result.borders],
    }


def verification_error(document: Mapping[str, Any]) -> VerificationError | None:
    """Return the error of a run with a wrong result, or without a requested verification; else None.

    A missing verification is an error only if the user requested ``full`` or ``sample``.
    """
    how = document.get("verification")
    if document["verified"] is False:
        checked = how and how.get("expected_result")
        if checked and (cell := checked["differs_at"]):
            return VerificationError(
                f"the result differs from {checked['function']}: cell {cell['index']} is {cell['value']}, "
                f"expected {cell['expected']} (tolerance {checked['tolerance']:g})",
                code="result-differs",
                function=checked["function"],
                **cell,
            )
        row = how and how["differs_at"]
        where = (
            f": first in row {row['row']}, which rank {row['rank']} on {row['host']} had"
            if row
            else ""
        )
        found = {"row": row["row"], "rank": row["rank"], "host": row["host"]} if row else {}
        compared = how and how.get("compared")
        other = (
            f"that of a run on {compared['reference_ranks']} ranks"
            if compared and compared["reference_ranks"] > 1
            else "the sequential run's"
        )
        return VerificationError(
            f"the result differs from {other}{where}", code="result-differs", **found
        )
    if how and how["asked"] in ("full", "sample") and document["verified"] is None:
        return VerificationError(
            f"the result could not be verified: {how['reason']}",
            code="result-unverified",
            reason=how["reason"],
        )
    return None


def _host(one: HostCheck, outcome: Outcome) -> HostRun:
    """Return one host's figures: totals over the loop, then measured and predicted times of one iteration.

    Compute, communicate, wait and other add up to the iteration.
    """
    iterations = outcome.iterations
    told = one.measured_compute + one.measured_communicate + (one.wait or 0.0)
    processor = None if one.processor is None else one.processor * iterations
    busy = processor is not None and one.measured_compute > 0
    planned = one.predicted_compute
    host: HostRun = {
        "host": one.host,
        "rows": int(one.rectangle.rows if one.rectangle else one.rows),
        "compute_seconds": one.measured_compute * iterations,
        "communicate_seconds": one.measured_communicate * iterations,
        "wait_seconds": None if one.wait is None else one.wait * iterations,
        "processor_seconds": processor,
        "cpu_got": min(1.0, one.processor / one.measured_compute)
        if busy and one.processor
        else None,
        "off": one.measured_compute / planned - 1.0 if planned > 0 else None,
        "predicted_compute_per_iteration": planned,
        "compute_per_iteration": one.measured_compute,
        "predicted_communicate_per_iteration": one.predicted_communicate,
        "communicate_per_iteration": one.measured_communicate,
        "wait_per_iteration": one.wait,
        "other_per_iteration": max(0.0, outcome.iteration_seconds - told),
    }
    if one.rectangle:
        host["rectangle"] = cast("RectangleInfo", asdict(one.rectangle))
    return host


def _border(one: BorderTimes, estimate: Estimate) -> BorderRun:
    """Return measured and predicted seconds of one transfer at a border; null if the plan had no such border."""
    predicted = dict(zip(estimate.borders, estimate.border_seconds, strict=False))
    return {
        "hosts": list(one.hosts),
        "bytes": one.bytes,
        "seconds": one.seconds,
        "latency_seconds": one.latency_seconds,
        "predicted_seconds": predicted.get(one.hosts),
    }


def refused_document(plan: PlanDocument, reason: str) -> AgentRunDocument:
    """Return the document of a run without a feasible plan."""
    return {
        "schema": RUN_SCHEMA,
        "plan": plan,
        "execution": None,
        "rejection": reason,
        "verified": None,
        "result_sha256": None,
    }


def dry_document(plan: PlanDocument, command: LaunchCommand) -> AgentRunDocument:
    """Return the document of a dry run: the command that would start."""
    return {
        "schema": RUN_SCHEMA,
        "plan": plan,
        "execution": None,
        "command": {
            "argv": list(command.argv),
            "environment": dict(command.environment),
            "files": dict(command.files),
        },
        "verified": None,
        "result_sha256": None,
    }
