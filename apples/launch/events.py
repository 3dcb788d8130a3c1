"""What a program says: one line of its standard output, checked, as a frozen value.

The line comes from a program apples knows nothing of, so it is hostile until every field was checked.
A line that is no event is the program's own talk. The protocol is in docs/reference/protocol.md.
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
"""Characters of a foreign text that an error message repeats."""

Count = Annotated[int, Field(ge=0, le=2**53)]
Size = Annotated[int, Field(ge=1, le=2**53)]
Duration = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Short = Annotated[str, Field(max_length=253)]
ErrorCode = Annotated[str, Field(max_length=60, pattern=r"^([a-z][a-z0-9]*(-[a-z0-9]+)*)?$")]


@dataclass(frozen=True, slots=True)
class HostTimes:
    """What one host has spent so far, in seconds, as the mean over its ranks.

    Fields that the program does not report are None.

    Attributes
    ----------
    processor_seconds
        Processor time of computing.
    clipped_compute_seconds, clipped_processor_seconds
        The same sums, in which a timing spike counts no more than a usual long iteration; None: none was there,
        or the program does not look for any.
    cpu_wait_seconds
        Ready to run and without a CPU, by the kernel's account.
    throttled_seconds
        Standing still for a CPU quota.
    major_faults
        Page faults that had to wait for a disk, of all ranks together.
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
        """Return the host and where its seconds went."""
        spent = f"compute {duration(self.compute_seconds)}, communicate {duration(self.communicate_seconds)}"
        wait = "" if self.wait_seconds is None else f", wait {duration(self.wait_seconds)}"
        return in_one_line(self, f"{self.host}: {spent}{wait}")

    @property
    def steady_compute_seconds(self) -> float:
        """Seconds of computing without timing spikes, from which speeds and shares are taken."""
        clipped = self.clipped_compute_seconds
        return self.compute_seconds if clipped is None else clipped

    @property
    def steady_processor_seconds(self) -> float | None:
        """Processor seconds of computing without timing spikes; None where the program reports none."""
        clipped = self.clipped_processor_seconds
        return self.processor_seconds if clipped is None else clipped


@dataclass(frozen=True, slots=True)
class BorderTimes:
    """What one transfer takes at the border of two hosts that are neighbours.

    Attributes
    ----------
    hosts
        The two.
    bytes
        Of one border, one way.
    seconds
        From the moment both are there until both have the other's border.
    latency_seconds
        One way, of a message of a few bytes; None where the program does not say.
    """

    hosts: tuple[Short, Short]
    bytes: Size
    seconds: Duration
    latency_seconds: Duration | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run is: iterations done and the cumulative times since the first barrier.

    `clipped_seconds` are `seconds` in which a timing spike counts no more than a usual long iteration; None where
    there was none.
    """

    iteration: Count
    iterations: Count
    seconds: Duration
    hosts: tuple[HostTimes, ...] = ()
    residual: Finite | None = None
    borders: tuple[BorderTimes, ...] = ()
    clipped_seconds: Duration | None = None

    def __repr__(self) -> str:
        """Return how far the run is."""
        done = f"iteration {self.iteration} of {self.iterations}"
        return in_one_line(self, f"{done}, {duration(self.seconds)}")

    @property
    def iteration_seconds(self) -> float:
        """Mean seconds of the iterations so far."""
        return self.seconds / max(1, self.iteration)

    @property
    def steady_seconds(self) -> float:
        """Seconds of the loop without timing spikes, from which the pace of a run is taken."""
        return self.seconds if self.clipped_seconds is None else self.clipped_seconds


@dataclass(frozen=True, slots=True)
class RowDigests:
    """A short digest of each of some rows of the result, so that two results can be told apart row by row.

    Attributes
    ----------
    first_row
        The first of them.
    host, rank
        Who had them.
    digests
        Eight characters a row, of whatever digest; equal rows have equal ones.
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
    """What a run that said ``done`` measured.

    Attributes
    ----------
    seconds
        The iteration loop, first barrier to last.
    startup_seconds
        From the launch to the first barrier, as the launcher saw it.
    sha256
        Digest of the result's bytes, as the program streamed them.
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
    """The program's own account of what went wrong: its event ``error``.

    `resources`: whether what it runs on failed, as a full disk does, and not the program. `code`: the stable name
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
        Wall time of the same, with whatever else had the CPU meanwhile; None from a program that does not say.
    error
        Spread of the samples, in seconds per point.
    repeats
        How many samples there were.
    free_memory
        Bytes that strips may take where the implementation keeps them in a memory of its own, as a GPU's; None
        where they are in the host's.
    """

    rows: Size
    seconds_per_point: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    error: Duration
    repeats: Size
    wall_seconds_per_point: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    free_memory: Count | None = None


@dataclass(frozen=True, slots=True)
class HostsChanging:
    """A job manager changes the program's hosts, or has just done so; not the program's own word.

    Attributes
    ----------
    ranks
        How many there are when it is done.
    """

    ranks: Count


@dataclass(frozen=True, slots=True)
class HostsChanged:
    """A job manager has changed the program's hosts or rows; not the program's own word.

    Attributes
    ----------
    at
        When that was complete, in seconds since the epoch.
    epoch
        How many changes there were, this one included.
    iteration
        In which the program was.
    members
        Each host and its rows, in strip order.
    seconds, phases
        From the safe point until the job was complete again, and of what that consists.
    """

    at: Finite
    epoch: Count
    iteration: Count
    members: Annotated[tuple[tuple[Short, Count], ...], Field(max_length=HOSTS_LIMIT)]
    seconds: Duration
    phases: Mapping[Short, Duration]


@dataclass(frozen=True, slots=True)
class Resumed:
    """A job that was started again goes on from its last commit; the job manager's word, not the program's.

    Attributes
    ----------
    ranks
        How many there are.
    iteration
        Where it goes on.
    """

    ranks: Count
    iteration: Count


MAX_RANKS = 1 << 16
"""Ranks of one job."""


def _of_one_job(hosts: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Return hosts with their ranks; more than a job has, all together, are refused: each is remembered."""
    if (ranks := sum(number for _, number in hosts)) > MAX_RANKS:
        raise ValueError(f"has {ranks} ranks in all, and {MAX_RANKS} are the most")
    return hosts


@dataclass(frozen=True, slots=True)
class MessagesSent:
    """What ranks have sent each other by now, as the program counts it; one of several events, or all of it.

    Attributes
    ----------
    hosts
        Each host and how many ranks it has, in the order of the ranks.
    sent
        From which rank to which how many messages and bytes, since this map of the hosts began; what an earlier
        event of the map said of the two is out of date.
    epoch, iteration
        Number of the map, and in which iteration the program is.
    anew
        Whether all processes began with this map; else those of hosts that the map before had, too, went on.
    together
        Whether all ranks are of one ``MPI_COMM_WORLD``; else the ranks of each host are.
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
    """Return what reads events of a kind: built for the first of them, as building takes milliseconds."""
    return TypeAdapter(_KINDS[word])


def word_of(event: Event) -> str:
    """Return what the program called an event.

    Examples
    --------
    >>> word_of(DoneEvent())
    'done'
    """
    return next(word for word, kind in _KINDS.items() if isinstance(event, kind))


def parse(line: bytes) -> Event | None:
    """Return the event that one line of standard output is, None for the program's own talk.

    Fields and events this version does not know are passed over.

    Raises
    ------
    ApplicationError
        An event with a field that is missing or wrong; the message names event and field.

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
    """Return the name of the event, empty where the line is no JSON object with such a key."""
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
"""Lines of hydra that say nothing the report does not say better."""

LAUNCHER_FAULT = "assert (!closed) failed"
"""What hydra says when it loses its own control connection: once in some hundred starts (mpich 5.0.2)."""


def to_stderr(line: str) -> None:
    """Pass a line of the program's own talk on to standard error; one that a full disk does not take is lost."""
    text = line.encode(sys.stderr.encoding or "utf-8", "replace").decode(errors="replace")
    with suppress(OSError):
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
