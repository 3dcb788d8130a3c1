"""The state of a run, read from its files: `JobStatus` of a job, `RunRecord` of any run.

`document_so_far` returns the document of a run that has not ended, or that never reported its end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from apples.errors import ApplesError, LaunchError
from apples.jobs import store
from apples.jobs.store import Record
from apples.launch.host_spec import HostSpec
from apples.malleable.control.change_cost import ChangeCost
from apples.malleable.control.client import RESIZE_SECONDS, ControlClient, carried_out
from apples.malleable.control.command import HostShare, ResizeCommand
from apples.malleable.control.commits import whole_manifests
from apples.malleable.control.messages import outcome_of, phases_in_order
from apples.ui.units import in_one_line, some

if TYPE_CHECKING:
    from apples.agent.documents import ExecutionInfo, HostRun, Redistribution, SlowHostEntry
    from apples.jobs.documents import ChangeEstimate, JobDocument, LastChange, LastResize, State
    from apples.topology.documents import Messages

Document = dict[str, Any]
RUN_SCHEMA = "apples.run/1"
OTHER_SCHEMAS = {"apples.parameter-sweep/1", "apples.master-worker/1", "apples.pipeline/1"}
"""Schemas of plans that are not plans of a run."""


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The status of a job: its state, hosts and progress.

    Attributes
    ----------
    state
        ``starting``, ``running``, ``verifying``, ``finished``, ``failed`` or ``cancelled``; a job is ``running``
        during a resize.
    hosts, rows
        Its hosts in the order of their strips, and the rows of each.
    epoch
        Number of resizes.
    last_resize
        Epoch, seconds and seconds by phase of the last resize; None before the first.
    last_change
        Outcome of the last change that the job began, whether requested or not: `answer` (``done``, ``refused`` or
        ``rolled back``), epoch, reason, and the iteration of a rollback; None before the first change.
    reason, exit_code
        Reason and exit code of its end; None while it runs.
    rescheduling
        The last moves that a blueprint evaluated.
    attempt
        Number of starts: 1, and one more for each restart from its last commit.
    slow_hosts
        Its slow hosts with cause and cost, as in ``apples.run/1``.
    verifying_seconds
        While it is ``verifying``: estimated seconds until the verification ends; else None.
    restartable
        Whether it has ended without a result and its user can `restart` it from a commit.
    resizable
        Whether its program can change hosts; not part of the document.
    """

    id: str
    state: State
    hosts: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    epoch: int = 0
    iteration: int = 0
    iterations: int | None = None
    last_resize: LastResize | None = None
    name: str = ""
    reason: str = ""
    exit_code: int | None = None
    rescheduling: tuple[Redistribution, ...] | None = ()
    last_change: LastChange | None = None
    attempt: int = 1
    slow_hosts: tuple[SlowHostEntry, ...] = ()
    verifying_seconds: float | None = None
    restartable: bool = False
    resizable: bool = True

    def __repr__(self) -> str:
        """Return the id, the state, the iteration and the hosts."""
        done = f"{self.state}, iteration {self.iteration} of {self.iterations}"
        return in_one_line(self, f"{self.id} {done} on {some(self.hosts)}")

    @classmethod
    def of(
        cls, job: store.StoredJob, *, ask: bool = True, control: ControlClient | None = None
    ) -> JobStatus:
        """Return the status of a stored job; with `ask`, query a running job, over `control` if given."""
        record = job.record()
        if ask and record["state"] == "running" and job.control_socket.exists():
            with suppress(ApplesError):
                client = nullcontext(control) if control else control_client(job)
                with client as connected:
                    record.update(position_record(connected.status()))
        decisions = record.get("redistributions")
        return cls(
            id=record["id"],
            state=record["state"],
            hosts=tuple(record.get("hosts", ())),
            rows=tuple(record.get("rows", ())),
            epoch=record.get("epoch") or 0,
            iteration=record.get("iteration") or 0,
            iterations=record.get("iterations"),
            last_resize=record.get("last_resize"),
            name=record.get("name") or "",
            reason=record.get("reason") or "",
            exit_code=record.get("exit_code"),
            rescheduling=None if decisions is None else tuple(decisions),
            last_change=record.get("last_change"),
            attempt=store.attempts(record),
            slow_hosts=tuple(record.get("slow_hosts") or ()),
            verifying_seconds=_verifying_seconds(record),
            restartable=_restartable(job, record),
            resizable=record.get("malleable", True),
        )

    def document(self) -> JobDocument:
        """Return the status as ``apples.job/1``."""
        return {
            "schema": "apples.job/1",
            "id": self.id,
            "state": self.state,
            "hosts": list(self.hosts),
            "rows": list(self.rows),
            "epoch": self.epoch,
            "iteration": self.iteration,
            "last_resize": self.last_resize,
            "name": self.name,
            "iterations": self.iterations,
            "reason": self.reason,
            "exit_code": self.exit_code,
            "redistributions": None if self.rescheduling is None else list(self.rescheduling),
            "last_change": self.last_change,
            "attempt": self.attempt,
            "slow_hosts": list(self.slow_hosts),
            "verifying_seconds": self.verifying_seconds,
            "restartable": self.restartable,
        }


def _verifying_seconds(record: Record) -> float | None:
    """Return the estimated seconds until a job's verification ends; None outside a verification."""
    if record["state"] != store.VERIFYING:
        return None
    return max(0.0, float(record.get("verifying_until") or 0.0) - time.time())


def _restartable(job: store.StoredJob, record: Record) -> bool:
    """Return whether the user can restart a job from a commit; a scheduler restarts its jobs itself."""
    if record["state"] not in {"failed", "cancelled"} or job.order().get("scheduled"):
        return False
    return next(whole_manifests(job.commits), None) is not None


@dataclass(frozen=True, slots=True)
class ResizeEstimate:
    """The estimated cost of a resize, before it begins.

    Attributes
    ----------
    bytes, rate
        Bytes that travel between hosts, and their rate in bytes per second; rate 0: unknown.
    seconds
        Estimate from the command to the end, without the wait for the safe point; None if the rate is unknown.
    standstill_seconds
        Part of `seconds` in which the job stands still.
    limit_seconds
        Timeout after the safe point: the resize is then abandoned, and the job continues unchanged.
    rows
        New rows by host.
    """

    bytes: int
    rate: float
    seconds: float | None
    standstill_seconds: float | None
    limit_seconds: float
    rows: Mapping[str, int]

    @classmethod
    def of(cls, cost: ChangeCost, start_seconds: float, rows: Mapping[str, int]) -> ResizeEstimate:
        """Return the estimate of a change with this cost and this time to start processes."""
        still, prefetch = cost.standstill_seconds, cost.prefetch_seconds
        total = None if still is None or prefetch is None else start_seconds + prefetch + still
        return cls(cost.bytes, cost.rate, total, still, cost.limit, dict(rows))

    def document(self) -> ChangeEstimate:
        """Return the estimate as ``change`` of an ``apples.job/1``."""
        return {
            "bytes": self.bytes,
            "rate": self.rate or None,
            "seconds": self.seconds,
            "standstill_seconds": self.standstill_seconds,
            "limit_seconds": self.limit_seconds,
            "rows": dict(self.rows),
        }


@dataclass(frozen=True, slots=True)
class ResizeResult:
    """A resize that was carried out.

    Attributes
    ----------
    status
        Status of the job after the resize.
    seconds, phases
        Seconds from the safe point until the job was complete again; seconds of each phase, with the wait before.
    estimate
        The estimated cost, as in `PlannedMove`.
    """

    status: JobStatus
    seconds: float
    phases: Mapping[str, float]
    estimate: ResizeEstimate | None


@dataclass(frozen=True)
class PlannedMove:
    """A move of a running job that was planned and not yet commanded.

    Attributes
    ----------
    control
        The connection to the job, opened for the plan; `carry_out` and `close` close it.
    position
        The status of the job.
    rows
        New rows by host.
    estimate
        The estimated cost; None for an unmodified program of unknown size.
    places
        Host list entries of hosts that may be new to the job.
    """

    job: store.StoredJob
    control: ControlClient
    position: Mapping[str, Any]
    rows: Mapping[str, int]
    estimate: ResizeEstimate | None
    places: Sequence[HostSpec] = ()

    def carry_out(self) -> ResizeResult:
        """Send the move to the job over the plan's connection; return when the job is on its new hosts."""
        hosts = tuple(HostShare.planned(host, count) for host, count in self.rows.items())
        epoch = int(self.position["epoch"]) + 1
        rate = self.estimate.rate if self.estimate else 0.0
        command = ResizeCommand(epoch, hosts, rate=rate, places=tuple(self.places))
        with self.control:
            done = carried_out(self.control.resize(command, RESIZE_SECONDS))
            status = JobStatus.of(self.job, control=self.control)
        return ResizeResult(status, done.seconds, done.phases, self.estimate)

    def close(self) -> None:
        """Close the connection to the job."""
        self.control.close()


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The record of a run; of a run in progress, the record up to now.

    Attributes
    ----------
    state, reason, exit_code
        State, reason and exit code. A result that differs from the sequential run is ``failed``, exit code 6.
    document
        The ``apples.run/1`` document; None without a result.
    plan
        The ``apples.plan/1`` document; None if nothing was planned.
    events
        The events, the earliest first.
    summary
        The entry of `runs` in ``apples.jobs/1``.
    messages
        ``execution.messages`` of a run in progress, as its arrays report them; None if they do not.
    """

    id: str
    state: str
    reason: str
    exit_code: int
    document: dict[str, Any] | None = field(default=None, repr=False)
    plan: dict[str, Any] | None = field(default=None, repr=False)
    events: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    summary: Mapping[str, Any] = field(default_factory=dict, repr=False)
    messages: Messages | None = field(default=None, repr=False)

    @classmethod
    def of(cls, job: store.StoredJob) -> RunRecord:
        """Return the record of a run."""
        record = job.record()
        state, code = record["state"], record.get("exit_code")
        document = store.document_of(job.result)
        if document is None:  # without a result the run has failed, so its exit code is not 0
            code = 5 if state == "cancelled" else int(code or LaunchError.exit_code)
        return cls(
            job.id, state, record.get("reason") or "", int(code or 0), document,
            store.document_of(job.plan), tuple(store.read_events(job.events)), job.summary(record),
            record.get("messages"),
        )  # fmt: skip

    @property
    def verified(self) -> bool | None:
        """Whether the result equals the sequential run's; None without verification or result."""
        if not self.document:
            return None
        verified: bool | None = self.document.get("verified", self.summary.get("verified"))
        return verified

    @property
    def measured_seconds(self) -> float | None:
        """Seconds of the iteration loop, from the first barrier to the last."""
        seconds: float | None = self._execution("measured_seconds")
        return seconds

    @property
    def predicted_seconds(self) -> float | None:
        """Predicted seconds of the iteration loop."""
        seconds: float | None = self._execution("predicted_seconds")
        return seconds

    @property
    def iterations(self) -> int | None:
        """Number of completed iterations."""
        count: int | None = self._execution("iterations")
        return count

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of the run at its end."""
        hosts = self._execution("hosts") or ()
        return tuple(hosts) if isinstance(hosts, dict) else tuple(host["host"] for host in hosts)

    @property
    def result_sha256(self) -> str | None:
        """SHA-256 digest of the result."""
        return self.document.get("result_sha256") if self.document else None

    def _execution(self, key: str) -> Any:
        execution = self.document["execution"] if self.document else None
        return execution.get(key) if execution else None


def control_client(job: store.StoredJob) -> ControlClient:
    """Return a client of a running job's control server; the caller closes it.

    Raises
    ------
    LaunchError
        The job is over, or cannot be resized.
    """
    record = job.record()
    if record["state"] in store.OVER:
        raise LaunchError(
            f"job {job.id} is {record['state']}",
            code="job-ended",
            job=job.id,
            value=record["state"],
        )
    if record["state"] == store.VERIFYING:
        raise LaunchError(
            f"job {job.id} is verifying: its application has ended, so it cannot be moved; "
            f"wait for the result: apples wait {job.id}",
            code="job-verifying",
            job=job.id,
        )
    if not record.get("malleable", True):
        raise LaunchError(
            f"job {job.id} cannot be resized: its template lacks 'malleable = true'",
            code="run-not-resizable",
            job=job.id,
        )
    return ControlClient(job.id, job.control_socket, over=lambda: not job.supervised())


def change_text(change: LastChange | None) -> str:
    """Return the text of the last change of a job, if it failed.

    Examples
    --------
    >>> change_text({"answer": "rolled back", "epoch": 3, "reason": "eve was lost: killed", "iteration": 40})
    'epoch 3: rolled back to iteration 40: eve was lost: killed'
    >>> change_text({"answer": "done", "epoch": 4, "reason": "", "iteration": None})
    ''
    """
    if change is None or change["answer"] == "done":
        return ""
    to = f" to iteration {change['iteration']}" if change["iteration"] is not None else ""
    return f"epoch {change['epoch']}: {change['answer']}{to}: {change['reason']}"


def position_record(position: Any) -> Record:
    """Return the entries of a record that come from the status of a job."""
    last = position["last_resize"]
    found = {key: position[key] for key in ("hosts", "rows", "epoch")}
    if position.get("iteration"):
        found["iteration"] = position["iteration"]
    if last:
        found["last_resize"] = {
            "epoch": last["epoch"],
            "seconds": last["seconds"],
            "phases": phases_in_order(last["phases"]),
        }
    if latest := position.get("last_change"):
        outcome = outcome_of({**latest, "id": latest["id"] or "0" * 16})
        found["last_change"] = {
            "answer": outcome.answer,
            "epoch": outcome.epoch,
            "reason": outcome.detail,
            "iteration": outcome.iteration if outcome.kind == "rolled_back" else None,
        }
    return found


def document_so_far(record: RunRecord) -> Document:
    """Return the ``apples.run/1`` document of a run: its own document, or its measurements up to now.

    For a sweep, a pipeline or a master with workers: its plan until it has a document.

    The predicted seconds of an unfinished run are those of its completed iterations; it has no prediction
    interval.
    """
    if record.document is not None:
        return record.document
    if record.plan and record.plan.get("schema") in OTHER_SCHEMAS:
        return record.plan
    execution = _execution_so_far(record) if record.plan and record.plan.get("chosen") else None
    return {
        "schema": RUN_SCHEMA,
        "plan": record.plan,
        "execution": execution,
        "verified": None,
        "result_sha256": None,
        "rejection": record.reason,
        "state": record.state,
        "reason": record.reason,
        "record": record.id,
    }


def _execution_so_far(record: RunRecord) -> ExecutionInfo | None:
    """Return the measured part of the loop; None if nothing was measured."""
    told = [one for one in record.events if one["event"] in {"progress", "measured"}]
    if record.plan is None or not told:
        return None
    chosen, first, last = record.plan["chosen"], told[0], told[-1]
    done = int(last.get("iteration", last.get("iterations", 0)))
    predicted = chosen["iteration_seconds"] * done
    launched = next((one["at"] for one in record.events if one["event"] == "planned"), first["at"])
    startup = last.get("startup_seconds", first["at"] - first["seconds"] - launched)
    return {
        "iterations": done,
        "predicted_seconds": predicted,
        "interval": [predicted, predicted],
        "measured_seconds": last["seconds"],
        "iteration_seconds": last["seconds"] / max(1, done),
        "predicted_iteration_seconds": chosen["iteration_seconds"],
        "off": last["seconds"] / predicted - 1.0 if predicted > 0 else 0.0,
        "inside": None,
        "coverage": None,
        "startup_seconds": max(0.0, startup),
        "residual": last.get("residual"),
        "files": [],
        "hosts": _hosts_so_far(record.plan, last["hosts"], max(1, done), last["seconds"]),
        "borders": [],
        "queue_seconds": None,
        "moved": any(one["event"] == "moved" for one in record.events),
        "messages": record.messages,
        "redistributions": [
            cast("Redistribution", _told(one))
            for one in record.events
            if one["event"] == "decision"
        ],
        "slow_hosts": _slow_hosts_so_far(record.events, done),
    }


def _told(event: Mapping[str, Any]) -> Document:
    """Return an event without its time and its kind."""
    return {key: value for key, value in event.items() if key not in {"at", "event"}}


def _slow_hosts_so_far(events: Sequence[Mapping[str, Any]], done: int) -> list[SlowHostEntry]:
    """Return the recorded slow hosts; the cost of a host that is still slow is its cost up to now."""
    latest: dict[tuple[str, int], SlowHostEntry] = {}
    for one in events:
        if one["event"] == "slow-host":
            entry = cast("SlowHostEntry", _told(one))
            latest[one["host"], one["since_iteration"]] = entry
    for entry in latest.values():
        if entry["until_iteration"] is None:
            iterations = max(0, done - entry["since_iteration"])
            entry["costs_seconds"] = entry["iteration_cost_seconds"] * iterations
    return list(latest.values())


def _hosts_so_far(
    plan: Mapping[str, Any], told: Sequence[Mapping[str, Any]], done: int, whole: float
) -> list[HostRun]:
    """Return the figures of each host in the form of a completed run of `whole` seconds."""
    strips = {strip["host"]: strip for strip in plan["chosen"]["strips"]}
    hosts: list[HostRun] = []
    for one in told:
        strip = strips.get(one["host"], {})
        planned, border = strip.get("compute_seconds", 0.0), strip.get("communicate_seconds", 0.0)
        each = one["compute_seconds"] / done
        busy, wait = one["processor_seconds"], one["wait_seconds"]
        hosts.append({
            "host": one["host"],
            "rows": strip.get("rows", 0),
            "compute_seconds": one["compute_seconds"],
            "communicate_seconds": one["communicate_seconds"],
            "wait_seconds": wait,
            "processor_seconds": busy,
            "cpu_got": min(1.0, busy / one["compute_seconds"])
            if busy and one["compute_seconds"] > 0
            else None,
            "off": each / planned - 1.0 if planned > 0 else None,
            "predicted_compute_per_iteration": planned,
            "compute_per_iteration": each,
            "predicted_communicate_per_iteration": border,
            "communicate_per_iteration": one["communicate_seconds"] / done,
            "wait_per_iteration": None if wait is None else wait / done,
            "other_per_iteration": max(
                0.0, (whole - one["compute_seconds"] - one["communicate_seconds"] - (wait or 0.0)) / done
            ),
        })  # fmt: skip
    return hosts
