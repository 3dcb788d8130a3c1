"""A state of the cluster as JSON: `to_json` writes a whole state and `from_json` reads it back, exactly."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Mapping, Sequence
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

SCHEMA = "apples.state/2"
MAX_CHARACTERS = 256 << 20
"""Maximum length of a state for `from_json`; a million jobs need less."""

JOB_FIELDS = tuple(field.name for field in fields(Job))
KIND = JOB_FIELDS.index("kind")
job_values = operator.attrgetter(*JOB_FIELDS)
#: Positions in a `RunningJob` without its job.
MATES, NODE_IDS = RunningJob._fields.index("mates") - 1, RunningJob._fields.index("node_ids") - 1
MESSAGES, WORK = RunningJob._fields.index("messages") - 1, RunningJob._fields.index("work") - 1
PARTS = NodeLoad._fields.index("parts")


def job_row(job: Job) -> list[Any]:
    """Return a job as values that JSON can hold."""
    row = list(job_values(job))
    row[KIND] = job.kind.value
    return row


def job_of(row: Sequence[Any]) -> Job:
    """Return the job of a row."""
    values = list(row)
    values[KIND] = JobKind(values[KIND])
    return Job(*values)


def running_row(running: RunningJob) -> list[Any]:
    """Return a running job as values that JSON can hold, the row of its job first."""
    row: list[Any] = [job_row(running.job), *running[1:]]
    row[NODE_IDS + 1] = sorted(running.node_ids)
    return row


def running_of(row: Sequence[Any], job: Job) -> RunningJob:
    """Return the running job of a row without the row of its job."""
    values = list(row)
    values[MATES], values[NODE_IDS] = tuple(values[MATES]), frozenset(values[NODE_IDS])
    values[MESSAGES] = tuple(map(tuple, values[MESSAGES]))
    values[WORK] = tuple(map(tuple, values[WORK]))
    return RunningJob(job, *values)


def load_of(row: Sequence[Any]) -> NodeLoad:
    """Return the node load of a row."""
    return NodeLoad(*row)._replace(parts=tuple((str(part), free) for part, free in row[PARTS]))


READERS: Mapping[str, Callable[[Any], Any]] = {
    "queue": lambda rows: tuple(map(job_of, rows)),
    "held": lambda rows: tuple(map(job_of, rows)),
    "running": lambda rows: ReadOnly(
        {row[0][0]: running_of(row[1:], job_of(row[0])) for row in rows}
    ),
    "reservations": lambda rows: ReadOnly(dict(map(tuple, rows))),
    "events": lambda rows: Events(*map(tuple, rows)),
    "advance": lambda rows: tuple(AdvanceReservation(*row) for row in rows),
    "loads": lambda rows: tuple(map(load_of, rows)),
    "usage": ReadOnly,
    "node_states": lambda values: tuple(map(NodeOccupancy, values)),
}
"""Field of a state -> its reader, for fields that are neither a number nor a list of numbers."""


def field_of(name: str, value: Any) -> Any:
    """Return the value of a field in the type that `ClusterState` has."""
    if name in READERS:
        return READERS[name](value)
    return tuple(value) if isinstance(value, list) else value


def to_json(state: ClusterState) -> str:
    """Return a state as one JSON object; infinite times become the strings `inf` and `-inf`.

    Examples
    --------
    >>> state = ClusterState(4, free=4, queue=(Job(1, 0.0, 3, 9.0, 3, 3),))
    >>> from_json(to_json(state)) == state
    True
    """
    document = {
        **state._asdict(),
        "queue": list(map(job_row, state.queue)),
        "held": list(map(job_row, state.held)),
        "running": list(map(running_row, state.running.values())),
        "reservations": list(state.reservations.items()),
    }
    return json.dumps({"schema": SCHEMA, **_without_infinities(document)}, allow_nan=False)


def from_json(text: str, longest: int = MAX_CHARACTERS) -> ClusterState:
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
        document = json.loads(text, parse_constant=_no_constant)
        if not isinstance(document, dict) or document.pop("schema", None) != SCHEMA:
            raise UsageError(
                f"a state must have the schema {SCHEMA}",
                code="schema-unknown", field="schema", known=[SCHEMA],
            )  # fmt: skip
        values = _with_infinities(document)
        return ClusterState(**{name: field_of(name, value) for name, value in values.items()})
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
    raise ValueError(f"{word} is not a number of JSON")


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
