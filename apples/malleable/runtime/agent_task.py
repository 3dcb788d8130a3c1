"""`AskedTask`: the parts of a task that a rank uses; and the reader for a program that passes no task.

A program that uses `apples.program.Task` passes its task to `MalleableJob`. A program that implements the protocol
itself passes no task: its job reads the file that the agent wrote (docs/reference/protocol.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from mpi4py import MPI

from apples.malleable.runtime.collectives import broadcast_document

TASK = "APPLES_TASK"
"""Environment variable with the path of the agent's task; a program started by hand has none."""
SCHEMA = "apples.task/1"
STANDARD_OUTPUT = 1


class AgentTaskError(ValueError):
    """This job cannot run the agent's task. Permanent.

    As `apples.program.TaskError`: an error of the program, which its own line reports.

    Parameters
    ----------
    code
        The error's stable name in kebab case.
    fields
        Values that the message contains, as plain JSON.
    """

    def __init__(self, message: str, *, code: str = "task-invalid", **fields: Any) -> None:
        super().__init__(message)
        self.code, self.fields = code, fields


class AskedPiece(Protocol):
    """The strip of one host."""

    @property
    def host(self) -> str:
        """Name of the host."""

    @property
    def ranks(self) -> int:
        """Number of ranks that share the rows."""

    @property
    def rows(self) -> int:
        """Number of rows."""


class AskedTask(Protocol):
    """The parts of a task that a job uses, for example of `apples.program.TaskDocument`."""

    @property
    def mode(self) -> str:
        """``run`` or ``calibrate``."""

    @property
    def pieces(self) -> Sequence[AskedPiece]:
        """The strips in rank order."""

    @property
    def distances(self) -> Mapping[str, Mapping[str, float]]:
        """Host -> other host -> cost of a byte between them, relative to the nearest two hosts."""

    @property
    def partitions(self) -> str:
        """Decomposition of the blocks; empty: as the program declares it."""


class HostPiece(NamedTuple):
    """The strip of one host, as the agent's task gives it."""

    host: str
    ranks: int
    first_row: int
    rows: int


@dataclass(frozen=True, slots=True)
class AgentTask:
    """The parts of the agent's task that a job needs. The program reads the other parts."""

    mode: str
    pieces: tuple[HostPiece, ...] = ()
    distances: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    partitions: str = ""


def emit(event: str, **fields: object) -> None:
    """Write one event to standard output; a pipe keeps lines of up to 4096 bytes in one piece.

    An event begins with a newline: a rank may have printed text without one.
    """
    rest = ("\n" + json.dumps({"event": event, **fields}, allow_nan=False) + "\n").encode()
    while rest:
        rest = rest[os.write(STANDARD_OUTPUT, rest) :]


def task_of_agent(comm: MPI.Intracomm) -> AgentTask | None:
    """Return the agent's task on every rank, None if no agent started the program. Collective.

    Raises
    ------
    AgentTaskError
        Rank 0 cannot read the task, or it has rectangles. Every rank raises it. Permanent.
    """
    path = os.environ.get(TASK)
    if not path:
        return None
    answer: dict[str, Any] = {}
    if comm.Get_rank() == 0:
        try:
            text = _text(path)
            read(text)
            answer = {"task": text.decode()}
        except AgentTaskError as error:
            answer = {"wrong": str(error), "fields": {"code": error.code, **error.fields}}
    answer = broadcast_document(comm, answer)
    if "wrong" in answer:
        raise AgentTaskError(answer["wrong"], **answer["fields"])
    return read(answer["task"])


def _text(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise AgentTaskError(
            f"the task {path} cannot be read: {error.strerror}", code="task-unreadable", file=path
        ) from None


def read(text: str | bytes) -> AgentTask:
    """Return the task of a JSON text.

    Raises
    ------
    AgentTaskError
        The text is not a task, or the task has rectangles. Permanent.

    Examples
    --------
    >>> strip = {"host": "ada", "ranks": 2, "first_row": 0, "rows": 9}
    >>> read(json.dumps({"schema": SCHEMA, "mode": "run", "partition": [strip]})).pieces[0].rows
    9
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise AgentTaskError(
            f"the task is not JSON: {error}", code="task-not-json", reason=str(error)
        ) from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise AgentTaskError(f"the task's schema is not {SCHEMA}", field="schema")
    mode, distances = raw.get("mode"), raw.get("distances", {})
    partitions = raw.get("partitions", "")
    if mode not in ("run", "calibrate"):
        raise AgentTaskError(
            f"the task's mode is {mode!r}, neither run nor calibrate",
            field="mode",
            value=mode,
        )
    for name, right in (
        ("distances", _are_distances(distances)),
        ("partitions", isinstance(partitions, str)),
    ):
        if not right:
            raise AgentTaskError(
                f"the task's {name} is {raw.get(name)!r}",
                field=name,
                value=raw.get(name),
            )
    pieces = tuple(_pieces(raw.get("partition"))) if mode == "run" else ()
    return AgentTask(mode, pieces, distances, partitions)


def _are_distances(distances: Any) -> bool:
    rows = distances.values() if isinstance(distances, dict) else [None]
    return all(
        isinstance(row, dict)
        and all(type(far) in {int, float} and 0 < far < float("inf") for far in row.values())
        for row in rows
    )


def _pieces(partition: object) -> Iterator[HostPiece]:
    """Yield the strips; each rank must have a row, and each row be in one strip."""
    if not isinstance(partition, list) or not partition:
        raise AgentTaskError(
            "the task's partition is not a list of one entry or more",
            field="partition",
        )
    pieces = [_piece(index, entry) for index, entry in enumerate(partition)]
    row = 0
    for index, piece in sorted(enumerate(pieces), key=lambda numbered: numbered[1].first_row):
        if piece.first_row != row:
            raise _misplaced(index, piece, f"it begins at row {row}, and ")
        row += piece.rows
    yield from pieces


def _piece(index: int, entry: object) -> HostPiece:
    if isinstance(entry, dict) and "columns" in entry:
        raise AgentTaskError(
            f"the task's partition[{index}] is a rectangle: this program takes whole rows alone, so"
            " rectangles = true is wrong in its template, or Task(rectangles=True) lacks in the program",
            code="rectangles-undeclared",
            index=index,
        )
    try:
        piece = HostPiece(*(entry[name] for name in HostPiece._fields))  # type: ignore[index]
    except (TypeError, KeyError):
        raise AgentTaskError(
            f"the task's partition[{index}] lacks one of {', '.join(HostPiece._fields)}",
            code="partition-invalid",
            index=index,
            known=list(HostPiece._fields),
        ) from None
    if not isinstance(piece.host, str) or any(type(number) is not int for number in piece[1:]):
        raise AgentTaskError(
            f"the task's partition[{index}] is {entry!r}", code="partition-invalid", index=index
        )
    if not 1 <= piece.ranks <= piece.rows:
        raise _misplaced(index, piece, "")
    return piece


def _misplaced(index: int, piece: HostPiece, begins: str) -> AgentTaskError:
    return AgentTaskError(
        f"the task's partition[{index}] has rows {piece.first_row} to {piece.first_row + piece.rows} for"
        f" {piece.ranks} ranks; {begins}each rank has a row",
        code="partition-invalid",
        index=index,
        rows=[piece.first_row, piece.first_row + piece.rows],
        ranks=piece.ranks,
    )
