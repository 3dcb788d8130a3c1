"""A state of the cluster as JSON, and the difference between two states: what crosses to another process.

`to_json` writes a whole state and `from_json` reads it back, exactly. `StateSender` and `StateReceiver` keep the
two ends of a conversation alike with what changed only, for a guarded policy is asked at every event.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from apples.errors import UsageError
from apples.scheduling.jobs import Job, JobKind
from apples.scheduling.policy import (
    AdvanceReservation,
    ClusterState,
    Events,
    NodeLoad,
    NodeOccupancy,
    ReadOnly,
    RunningJob,
)

SCHEMA = "apples.state/1"
MOST_CHARACTERS = 256 << 20
"""Of a state that is read: a million jobs have less."""

JOB_FIELDS = tuple(field.name for field in fields(Job))
KIND = JOB_FIELDS.index("kind")
job_values = operator.attrgetter(*JOB_FIELDS)
#: Fields of a state that are not written as they are.
BY_PARTS = frozenset({"queue", "running", "reservations", "held"})
#: Places in a `RunningJob` without its job.
MATES, NODE_IDS = RunningJob._fields.index("mates") - 1, RunningJob._fields.index("node_ids") - 1
MESSAGES, WORK = RunningJob._fields.index("messages") - 1, RunningJob._fields.index("work") - 1
PARTS = NodeLoad._fields.index("parts")


class StateSender:
    """Says what is different from the state that was said last.

    The states of one run share what did not change: jobs, running jobs and tuples are compared by identity.
    """

    def __init__(self) -> None:
        self._said: ClusterState | None = None
        self._known: dict[int, Job] = {}

    def changes(self, new: ClusterState) -> dict[str, Any]:
        """Return what a `StateReceiver` needs to have this state, as plain values."""
        old = self._said
        message: dict[str, Any] = {}
        if old is None:
            old = ClusterState(-1, cores_per_node=-1, time=math.nan, enforces=())
            message["all"] = True
        message["set"] = {
            name: value
            for name, value, before in zip(new._fields, new, old, strict=True)
            if value is not before and name not in BY_PARTS and value != before
        }
        if "events" in message["set"]:
            message["set"]["events"] = tuple(new.events)
        if new.queue is not old.queue:
            self._queue(old.queue, new.queue, message)
        if new.held is not old.held and new.held != old.held:
            message["held"] = [job.id for job in new.held]
            self._tell(new.held, message)
        before = old.running
        same = set(map(id, before.values()))
        changed = [one for one in new.running.values() if id(one) not in same]
        if changed:
            self._tell((one.job for one in changed), message)
            message["run"] = [running_row(one) for one in changed]
        gone = before.keys() - new.running.keys()
        # A job that was started anew is the last of those that run, not where it was.
        again = [
            one.job.id
            for one in changed
            if one.job.id in before and before[one.job.id].start != one.start
        ]
        if gone or again:
            message["end"] = [*gone, *again]
        if new.reservations is not old.reservations and new.reservations != old.reservations:
            message["promised"] = list(new.reservations.items())
        message["count"] = [len(new.queue), len(new.running)]
        if len(self._known) > 2 * (len(new.queue) + len(new.running)) + 1000:
            kept = {job.id for job in (*new.queue, *new.held)} | new.running.keys()
            self._known = {number: job for number, job in self._known.items() if number in kept}
            message["forget"] = True
        self._said = new
        return message

    def _queue(self, old: Sequence[Job], new: Sequence[Job], message: dict[str, Any]) -> None:
        if new[: len(old)] == old:
            message["come"] = [job.id for job in new[len(old) :]]
            self._tell(new[len(old) :], message)
            return
        kept = set(map(id, new))
        stay = [job for job in old if id(job) in kept]
        if len(stay) <= len(new) and all(map(operator.is_, stay, new)):
            if len(stay) < len(old):
                message["gone"] = [job.id for job in old if id(job) not in kept]
            message["come"] = [job.id for job in new[len(stay) :]]
            self._tell(new[len(stay) :], message)
        else:
            message["queue"] = [job.id for job in new]
            self._tell(new, message)

    def _tell(self, jobs: Iterable[Job], message: dict[str, Any]) -> None:
        """Add those jobs to a message that were not told yet."""
        for job in jobs:
            if self._known.get(job.id) is not job:
                self._known[job.id] = job
                message.setdefault("jobs", []).append(job_row(job))


class StateReceiver:
    """Has the state that a `StateSender` said last."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._queue: list[Job] = []
        self._running: dict[int, RunningJob] = {}
        self._state = ClusterState(0)

    def state(self, message: dict[str, Any]) -> ClusterState:
        """Return the state after a message.

        Raises
        ------
        UsageError
            The two ends are out of step. Permanent: start again from a whole state.
        """
        if "all" in message:
            self._jobs, self._queue, self._running = {}, [], {}
            self._state = ClusterState(0)
        jobs = self._jobs
        for row in message.get("jobs", ()):
            job = job_of(row)
            jobs[job.id] = job
        self._change_queue(message)
        for number in message.get("end", ()):
            del self._running[number]
        for row in message.get("run", ()):
            self._running[row[0]] = running_of(row, jobs[row[0]])
        changed = plain_fields(message["set"])
        if "held" in message:
            changed["held"] = tuple(jobs[number] for number in message["held"])
        if "promised" in message:
            changed["reservations"] = ReadOnly(dict(message["promised"]))
        if list(message["count"]) != [len(self._queue), len(self._running)]:
            raise UsageError(
                "the two ends of a connection have different states", code="snapshot-invalid"
            )
        # Copies: whatever a policy does with what it is shown, the next state is made from ours.
        self._state = self._state._replace(
            queue=tuple(self._queue), running=ReadOnly(self._running), **changed
        )
        if "forget" in message:
            kept = {job.id for job in (*self._queue, *self._state.held)} | self._running.keys()
            self._jobs = {number: job for number, job in jobs.items() if number in kept}
        return self._state

    def _change_queue(self, message: dict[str, Any]) -> None:
        if "gone" in message:
            gone = set(message["gone"])
            self._queue = [job for job in self._queue if job.id not in gone]
        if "queue" in message:
            self._queue = [self._jobs[number] for number in message["queue"]]
        self._queue.extend(self._jobs[number] for number in message.get("come", ()))


def job_row(job: Job) -> list[Any]:
    """Return a job as plain values."""
    row = list(job_values(job))
    row[KIND] = job.kind.value
    return row


def job_of(row: Sequence[Any]) -> Job:
    """Return the job of a row."""
    values = list(row)
    values[KIND] = JobKind(values[KIND])
    return Job(*values)


def running_row(one: RunningJob) -> list[Any]:
    """Return a running job as plain values, its job's number first."""
    row: list[Any] = [one.job.id, *one[1:]]
    row[NODE_IDS + 1] = sorted(one.node_ids)
    return row


def running_of(row: Sequence[Any], job: Job) -> RunningJob:
    """Return the running job of a row."""
    values = list(row[1:])
    values[MATES], values[NODE_IDS] = tuple(values[MATES]), frozenset(values[NODE_IDS])
    values[MESSAGES] = tuple(map(tuple, values[MESSAGES]))
    values[WORK] = tuple(map(tuple, values[WORK]))
    return RunningJob(job, *values)


def plain_fields(values: dict[str, Any]) -> dict[str, Any]:
    """Return fields of a state of the types that a state has."""
    fields_of = dict(values)
    for name, value in values.items():
        if name == "events":
            fields_of[name] = Events(*map(tuple, value))
        elif name == "advance":
            fields_of[name] = tuple(AdvanceReservation(*row) for row in value)
        elif name == "loads":
            fields_of[name] = tuple(
                NodeLoad(*row)._replace(
                    parts=tuple((str(part), free) for part, free in row[PARTS])
                )
                for row in value
            )
        elif name == "usage":
            fields_of[name] = ReadOnly(value)
        elif name == "node_states":
            fields_of[name] = tuple(map(NodeOccupancy, value))
        elif isinstance(value, list):
            fields_of[name] = tuple(value)
    return fields_of


def to_json(state: ClusterState) -> str:
    """Return a state as one JSON object; times that never come are the words `inf` and `-inf`.

    Examples
    --------
    >>> state = ClusterState(4, free=4, queue=(Job(1, 0.0, 3, 9.0, 3, 3),))
    >>> from_json(to_json(state)) == state
    True
    """
    message = StateSender().changes(state)
    message = {"schema": SCHEMA, **_without_infinities(message)}
    return json.dumps(message, allow_nan=False)


def from_json(text: str, longest: int = MOST_CHARACTERS) -> ClusterState:
    """Return the state that `to_json` wrote.

    Raises
    ------
    UsageError
        The text is not a state, or has more than `longest` characters. Permanent.
    """
    if len(text) > longest:
        raise UsageError(
            f"a state of {len(text)} characters: more than {longest}",
            code="message-too-long", value=len(text), bound=longest,
        )  # fmt: skip
    try:
        message = json.loads(text, parse_constant=_no_constant)
        if not isinstance(message, dict) or message.get("schema") != SCHEMA:
            raise UsageError(
                f"a state must have the schema {SCHEMA}",
                code="schema-unknown", field="schema", known=[SCHEMA],
            )  # fmt: skip
        return StateReceiver().state(_with_infinities(message))
    except RecursionError:
        raise UsageError(
            "not a state of a cluster: it is nested too deeply",
            code="snapshot-invalid", kind="RecursionError",
        ) from None  # fmt: skip
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        kind = type(error).__name__
        raise UsageError(
            f"not a state of a cluster: {kind}: {error}",
            code="snapshot-invalid",
            kind=kind,
            reason=str(error),
        ) from error


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no number of JSON")


def _without_infinities(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _without_infinities(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(one) for one in value]
    return value


def _with_infinities(value: Any) -> Any:
    if isinstance(value, str) and value in {"inf", "-inf"}:
        return float(value)
    if isinstance(value, dict):
        return {key: _with_infinities(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_with_infinities(one) for one in value]
    return value
