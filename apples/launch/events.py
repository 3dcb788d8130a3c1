"""The events of a program: lines of its standard output, validated, as frozen values.

The program is unknown to apples, so every field of its events is validated. All other lines are the program's own
output. The protocol is in docs/reference/protocol.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from apples.errors import ApplicationError
from apples.io.log import Log, discard
from apples.launch.host_spec import HOSTS_LIMIT
from apples.launch.hostd import LINE_LIMIT
from apples.ui.units import counted, duration, in_one_line, some

PROTOCOL = 1
SHOWN = 300
"""Maximum length of a foreign text in an error message, in characters."""

Count = Annotated[int, Field(ge=0, le=2**53)]
Size = Annotated[int, Field(ge=1, le=2**53)]
Duration = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Short = Annotated[str, Field(max_length=253)]
ErrorCode = Annotated[str, Field(max_length=60, pattern=r"^([a-z][a-z0-9]*(-[a-z0-9]+)*)?$")]


@dataclass(frozen=True, slots=True)
class HostTimes:
    """The times of one host so far, in seconds, as the mean over its ranks.

    Fields that the program does not report are None.

    Attributes
    ----------
    processor_seconds
        Processor time of computing.
    clipped_compute_seconds, clipped_processor_seconds
        The same sums, but a timing spike counts no more than a usual long iteration. None: the program found no
        spike, or does not look for spikes.
    cpu_wait_seconds
        Time ready to run without a CPU, as the kernel counts it.
    throttled_seconds
        Time stopped by a CPU quota.
    major_faults
        Number of page faults that waited for a disk, of all ranks together.
    """

    host: Short
    compute_seconds: Duration
    communicate_seconds: Duration
    wait_seconds: Duration | None = None
    processor_seconds: Duration | None = None
    clipped_compute_seconds: Duration | None = None
    clipped_processor_seconds: Duration | None = None
    cpu_wait_seconds: Duration | None = None
    throttled_seconds: Duration | None = None
    major_faults: Count | None = None

    def __repr__(self) -> str:
        """Return the host and its times."""
        spent = f"compute {duration(self.compute_seconds)}, communicate {duration(self.communicate_seconds)}"
        wait = "" if self.wait_seconds is None else f", wait {duration(self.wait_seconds)}"
        return in_one_line(self, f"{self.host}: {spent}{wait}")

    @property
    def steady_compute_seconds(self) -> float:
        """Seconds of computing without timing spikes; speeds and shares are derived from them."""
        clipped = self.clipped_compute_seconds
        return self.compute_seconds if clipped is None else clipped

    @property
    def steady_processor_seconds(self) -> float | None:
        """Processor seconds of computing without timing spikes; None if the program reports none."""
        clipped = self.clipped_processor_seconds
        return self.processor_seconds if clipped is None else clipped


@dataclass(frozen=True, slots=True)
class BorderTimes:
    """The duration of one exchange at the border of two neighbouring hosts.

    Attributes
    ----------
    hosts
        Names of the two hosts.
    bytes
        Size of one border, sent in one direction.
    seconds
        Time from the moment at which both hosts are ready until both have the other's border.
    latency_seconds
        One-way latency of a message of a few bytes; None if the program does not report it.
    """

    hosts: tuple[Short, Short]
    bytes: Size
    seconds: Duration
    latency_seconds: Duration | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run: completed iterations and the total times since the first barrier.

    In `clipped_seconds` a timing spike counts no more than a usual long iteration; None if no spike occurred.
    """

    iteration: Count
    iterations: Count
    seconds: Duration
    hosts: tuple[HostTimes, ...] = ()
    residual: Finite | None = None
    borders: tuple[BorderTimes, ...] = ()
    clipped_seconds: Duration | None = None

    def __repr__(self) -> str:
        """Return the iterations done and their seconds."""
        done = f"iteration {self.iteration} of {self.iterations}"
        return in_one_line(self, f"{done}, {duration(self.seconds)}")

    @property
    def iteration_seconds(self) -> float:
        """Mean seconds of the iterations so far."""
        return self.seconds / max(1, self.iteration)

    @property
    def steady_seconds(self) -> float:
        """Seconds of the loop without timing spikes; the pace of a run is derived from them."""
        return self.seconds if self.clipped_seconds is None else self.clipped_seconds


@dataclass(frozen=True, slots=True)
class RowDigests:
    """Short digests of consecutive rows of the result, to compare two results row by row.

    Attributes
    ----------
    first_row
        Number of the first row.
    host, rank
        Host and rank that computed the rows.
    digests
        Eight hexadecimal characters a row, of any digest function; equal rows have equal digests.
    """

    first_row: Count
    host: Short
    rank: Count
    digests: Annotated[str, Field(pattern=r"^([0-9a-f]{8})*$")]

    def by_row(self) -> dict[int, str]:
        """Return the digest of each row.

        Examples
        --------
        >>> RowDigests(7, "ada", 0, "0000000112345678").by_row()
        {7: '00000001', 8: '12345678'}
        """
        size, text = DIGEST_LETTERS, self.digests
        return {
            self.first_row + k: text[size * k : size * (k + 1)] for k in range(len(text) // size)
        }


DIGEST_LETTERS = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """The measurements of a completed run.

    Attributes
    ----------
    seconds
        Time of the iteration loop, from the first barrier to the last.
    startup_seconds
        Time from the launch to the first barrier, measured by the launcher.
    sha256
        Digest of the result's bytes, computed by the program.
    """

    iterations: Count
    seconds: Duration
    startup_seconds: Duration
    hosts: tuple[HostTimes, ...]
    residual: Finite | None = None
    sha256: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    files: tuple[str, ...] = ()
    borders: tuple[BorderTimes, ...] = ()
    clipped_seconds: Duration | None = None

    def __repr__(self) -> str:
        """Return the iterations, their seconds and the hosts."""
        hosts = some([one.host for one in self.hosts])
        measured = f"{counted(self.iterations, 'iteration')} in {duration(self.seconds)}"
        return in_one_line(self, f"{measured} on {hosts}")

    @property
    def iteration_seconds(self) -> float:
        """Measured mean seconds of one iteration."""
        return self.seconds / max(1, self.iterations)


@dataclass(frozen=True, slots=True)
class Ready:
    """Every rank has its data in place."""

    protocol: int
    program: str
    version: str
    ranks: Size


@dataclass(frozen=True, slots=True)
class DoneEvent:
    """The only sign of success."""


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The program's event ``error``: its own description of a failure.

    `resources`: whether a resource failed, for example a full disk, and not the program. `code`: the stable name
    of the error, if the program gives one.
    """

    message: str
    rank: Count | None = None
    resources: bool = False
    code: ErrorCode = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Dedicated processor seconds per point of one process on a strip of `rows` rows.

    Attributes
    ----------
    wall_seconds_per_point
        Wall seconds per point, including time in which other processes had the CPU; None if not reported.
    error
        Spread of the samples, in seconds per point.
    repeats
        Number of samples.
    free_memory
        Bytes for strips in a separate memory such as a GPU's; None if strips are in the host's memory.
    """

    rows: Size
    seconds_per_point: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    error: Duration
    repeats: Size
    wall_seconds_per_point: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    free_memory: Count | None = None


@dataclass(frozen=True, slots=True)
class HostsChanging:
    """A job manager's event: it is changing the program's hosts, or has just done so.

    Attributes
    ----------
    ranks
        Number of ranks after the change.
    """

    ranks: Count


@dataclass(frozen=True, slots=True)
class HostsChanged:
    """A job manager's event: it has changed the program's hosts or rows.

    Attributes
    ----------
    at
        Time of completion, in seconds since 1970 (Unix time).
    epoch
        Number of changes so far, including this one.
    iteration
        The program's iteration at the change.
    members
        Each host and its number of rows, in strip order.
    seconds
        Time from the safe point until the job was complete again.
    phases
        Seconds of each phase of the change.
    """

    at: Finite
    epoch: Count
    iteration: Count
    members: Annotated[tuple[tuple[Short, Count], ...], Field(max_length=HOSTS_LIMIT)]
    seconds: Duration
    phases: Mapping[Short, Duration]


@dataclass(frozen=True, slots=True)
class Resumed:
    """A job manager's event: a restarted job continues from its last commit.

    Attributes
    ----------
    ranks
        Number of ranks.
    iteration
        The iteration of the commit.
    """

    ranks: Count
    iteration: Count


MAX_RANKS = 1 << 16
"""Maximum number of ranks of one job."""


def _of_one_job(hosts: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return the hosts; raise ValueError above `MAX_RANKS` ranks in all, because each rank takes memory."""
    if (ranks := sum(number for _, number in hosts)) > MAX_RANKS:
        raise ValueError(f"has {ranks} ranks in all; the limit is {MAX_RANKS}")
    return hosts


@dataclass(frozen=True, slots=True)
class MessagesSent:
    """Messages between ranks so far, as the program counts them. One event may hold a part of the pairs.

    A *map* is an assignment of ranks to hosts; each change of hosts begins a new map.

    Attributes
    ----------
    hosts
        Each host and its number of ranks, in rank order.
    sent
        Sender, receiver, number of messages, number of bytes, since the beginning of this map. An entry replaces
        earlier entries of the same map and pair.
    epoch, iteration
        Number of the map, and the program's current iteration.
    anew
        Whether all processes began with this map. If False, processes on hosts of the previous map continued.
    together
        Whether all ranks share one ``MPI_COMM_WORLD``. If False, each host has its own.
    """

    hosts: Annotated[
        tuple[tuple[Short, Annotated[int, Field(ge=1, le=MAX_RANKS)]], ...],
        Field(min_length=1, max_length=HOSTS_LIMIT),
        AfterValidator(_of_one_job),
    ]
    sent: tuple[tuple[Count, Count, Count, Count], ...]
    epoch: Count = 0
    iteration: Count = 0
    anew: bool = False
    together: bool = True


Event = (
    HostsChanging
    | HostsChanged
    | Resumed
    | MessagesSent
    | Ready
    | Progress
    | RowDigests
    | Outcome
    | DoneEvent
    | ErrorEvent
    | Calibration
)

_KINDS: Mapping[str, type[Event]] = {
    "changing": HostsChanging,
    "moved": HostsChanged,
    "resumed": Resumed,
    "ready": Ready,
    "progress": Progress,
    "messages": MessagesSent,
    "rows": RowDigests,
    "result": Outcome,
    "done": DoneEvent,
    "error": ErrorEvent,
    "calibration": Calibration,
}


@cache
def _reader(word: str) -> TypeAdapter[Event]:
    """Return the validator for a kind of event, built on first use because building takes milliseconds."""
    return TypeAdapter(_KINDS[word])


def word_of(event: Event) -> str:
    """Return the name of an event in the protocol.

    Examples
    --------
    >>> word_of(DoneEvent())
    'done'
    """
    return next(word for word, kind in _KINDS.items() if isinstance(event, kind))


def parse(line: bytes) -> Event | None:
    """Parse one line of standard output; return the event, or None for other output of the program.

    Unknown fields and events are ignored.

    Raises
    ------
    ApplicationError
        A field of the event is missing or wrong; the message names event and field.

    Examples
    --------
    >>> parse(b'{"event": "error", "message": "no such file", "rank": 2}')
    ErrorEvent(message='no such file', rank=2, resources=False, code='')
    >>> parse(b"computing...") is None
    True
    >>> parse(b'{"event": "progress", "iteration": -1, "iterations": 5, "seconds": 0.1}')
    Traceback (most recent call last):
    apples.errors.ApplicationError: the program's event 'progress': iteration: input should be ...
    """
    if line.lstrip()[:1] != b"{":
        return None
    if len(line) > LINE_LIMIT:
        if b'"event"' in line[:1000]:
            raise ApplicationError(
                f"the program wrote an event of more than {LINE_LIMIT} bytes",
                code="event-too-long",
                bound=LINE_LIMIT,
            )
        return None
    kind = _kind(line)
    if kind not in _KINDS:
        return None
    try:
        return _reader(kind).validate_json(line, strict=True)
    except ValidationError as error:
        field, problem = _first(error)
        raise ApplicationError(
            f"the program's event '{kind}': {field}: {problem}",
            code="event-invalid",
            event=kind,
            field=field,
        ) from None


def _kind(line: bytes) -> str:
    """Return the name of the event; empty if the line is not a JSON object with the key ``event``."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    kind = document.get("event") if isinstance(document, dict) else None
    return kind if isinstance(kind, str) else ""


def _first(error: ValidationError) -> tuple[str, str]:
    """Return the field of the first problem, and the problem, each on one line."""
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = ".".join(str(part) for part in problem["loc"]) or "the line"
    message = problem["msg"]
    return readable(field), readable(message[:1].lower() + message[1:])


def readable(text: str, limit: int = SHOWN) -> str:
    r"""Return foreign text as one printable line of at most `limit` characters.

    Examples
    --------
    >>> readable("two\nlines \x1b[31mred")
    'two lines ?[31mred'
    """
    line = " ".join(text[: 4 * limit].split())
    shown = "".join(c if c.isprintable() else "?" for c in line)
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."


Talk = Log
unheard = discard

LAUNCHER_TALK = (
    *("[mpiexec@", "[proxy", "===", "YOUR APPLICATION TERM"),
    *("This typically", "Please see", "Abort("),
)
"""Beginnings of hydra's lines that are not shown, because the report of the run has better information."""

LAUNCHER_FAULT = "assert (!closed) failed"
"""Hydra's message when it loses its own control connection, once in a few hundred starts (mpich 5.0.2)."""


def to_stderr(line: str) -> None:
    """Write a line of the program's output to standard error; drop it if the write fails (full disk)."""
    text = line.encode(sys.stderr.encoding or "utf-8", "replace").decode(errors="replace")
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
