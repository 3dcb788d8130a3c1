"""`Task`: a program's side of the application protocol. Standard library and mpi4py, and this one file.

    with Task() as task:
        u = np.zeros((len(task.strip) + 2, task.parameters["grid"]))
        for _ in task.iterations():
            task.exchange(u)
            ...  # a sweep over u
        task.result(u[1:-1])

The same lines run in five ways: under an agent, which gives every host its rows; by hand (``python program.py
--set grid=50``, ``mpiexec -n 3 python program.py``), where every rank gets the same number of rows; as the
sequential reference; for calibration; and, if `Task.array` or a similar method declares the arrays, on hosts that
change.

A host without apples needs a copy of this file beside the program, as ``apples/program.py``. Python ignores the
copy where apples is installed. Declared data needs apples on every host, because `Task` delegates it to
`apples.malleable.MalleableJob`.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
import tomllib
import traceback
import weakref
import zlib
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

if TYPE_CHECKING:  # a host with only this file has only mpi4py of these
    import numpy as np
    from mpi4py import MPI
    from numpy.typing import DTypeLike, NDArray

    from apples.malleable import (
        Arrays,
        Blocks,
        CsrMatrix,
        Fill,
        HostChange,
        HostRows,
        LoadBalancer,
        MalleableJob,
        MatrixFill,
        Replicated,
        Rollback,
        RowArray,
        State,
        TileArray,
        TileFill,
    )

    S = TypeVar("S", bound=np.generic)
    Doubles = array[float]

T = TypeVar("T")

INTERFACE = 2
"""Version of the interface of this module. A program that needs more than version 1 compares it, because a host
may have an older apples; version 1 lacks this name."""
TASK = "APPLES_TASK"
"""Environment variable with the path of the task's file; without it a program was started by hand."""
MALLEABLE = "APPLES_MALLEABLE"
"""Environment variable of a malleable rank: the socket of its node's supervisor."""
HOST = "APPLES_HOST"
"""Environment variable of a malleable rank: the name of its host."""
BY_HAND = "here"
"""Name of the one host of a program that was started by hand."""
SCHEMA = "apples.task/1"
Value = int | float | str

STANDARD_OUTPUT = 1
MAX_MESSAGE = 2000
ABORT_DELAY_SECONDS = 1.0
"""Delay between an error event and the abort: hydra drops the output of a rank just before an abort."""
MAX_GROWTH = 16
"""Maximum growth of the number of iterations between two reports."""
BLOCK_BYTES, ROWS_AT_ONCE = 2 << 20, 4096
"""Bytes of the result that are sent to the first rank at a time; and rows of a digest event, which has 64 KiB and
eight letters a row."""
HALO_TAG, RESULT_TAG, STAMP_TAG = 32_766, 32_765, 32_764
"""Message tags. MPI guarantees tags up to 32767, which declared arrays use. Programs must not use these."""
MAX_STAMPS = 1024
"""Maximum number of exchanges with time stamps between two reports. Later exchanges count as their median."""
MAX_PLANS = 8
"""Maximum number of cached exchange plans, one for each combination of arrays and halo."""
MAX_EXCHANGED = 64
"""Maximum number of exchanges without a cached plan that are remembered, by weak references to their arrays."""
CLOCK_ROUNDS = 6
"""Number of round trips by which two ranks compare their clocks."""
COMPARING_SHARE = 0.005
"""Clocks are compared again when that takes at most this share of the time since."""
SPIKE_FACTOR = 1.5
"""An iteration is a timing spike if it takes this many times the usual long iteration (97 of 100 are shorter)."""
USUAL_RISE = 1.5
USUAL_FALL = USUAL_RISE ** (-0.03 / 0.97)
"""Factors of the usual long iteration after a longer and after a shorter iteration; if 3 of 100 are longer, it
stays the same."""
FIRST_ITERATIONS = 7
"""Their median is the initial usual long iteration: cold caches and compilation count as a spike."""
TICK_SECONDS = 1e-6
MAX_DETAILED_HOSTS = 128
"""Maximum number of hosts with kernel counters in a report, because an event has 64 KiB."""
SAMPLE_SECONDS, SIZE_SECONDS = 2e-3, 0.15
MIN_SAMPLES, MAX_SAMPLES = 7, 101
LAUNCHERS = ("PMI_", "PMIX_", "HYDRA_", "HYDI_", "MPI_LOCAL", "OMPI_")
"""Prefixes of the variables that make a process a rank of its parent's world."""
REDUCTIONS = ("max", "min", "sum")
KINDS = {
    "d": "f",
    "f": "f",
    "e": "f",
    **dict.fromkeys("bhilq", "i"),
    **dict.fromkeys("BHILQ", "u"),
}
"""Formats of the standard library -> numpy's kinds; a result can be saved in these formats."""


class TaskError(ValueError):
    """The task cannot be carried out; the message is one line for the user. Permanent.

    Parameters
    ----------
    code
        The error's stable name in kebab case, such as ``parameter-range``; it goes to the agent with the message.
    fields
        Values that the message contains, as plain JSON.

    Examples
    --------
    >>> error = TaskError("grid is 0: must be at least 1", code="parameter-range", field="grid", value=0)
    >>> error.code, error.fields["field"]
    ('parameter-range', 'grid')
    """

    def __init__(self, message: str, *, code: str = "task-invalid", **fields: Any) -> None:
        super().__init__(message)
        self.code, self.fields = code, fields


class Piece(NamedTuple):
    """The strip or rectangle of one host in the task: `ranks` share the rows from `first_row` on.

    A rectangle also has `columns` from `first_column` on; 0 stands for all columns.
    """

    host: str
    ranks: int
    first_row: int
    rows: int
    first_column: int = 0
    columns: int = 0


STRIP = Piece._fields[:4]
"""Fields of a strip; a rectangle has all."""


class Contact(NamedTuple):
    """A border with another rank: the part of an array that is sent to it, and the part that is received."""

    rank: int
    edge: slice | tuple[slice, slice]
    halo: slice | tuple[slice, slice]


@dataclass(frozen=True)
class TaskDocument:
    """The task that an agent gives a program, checked (docs/reference/protocol.md).

    Attributes
    ----------
    pieces
        The strips in rank order; empty if `mode` is ``calibrate``, which has `sizes`.
    implementations
        Host -> name of the template's implementation to run there.
    distances
        Host -> other host -> cost of a byte between them, relative to the nearest hosts; empty: all equal.
    threads
        Number of threads of an implementation that is one process.
    partitions
        Partition of blocks that are declared by a decomposition, in place of theirs; empty: as they are declared.
    """

    mode: str
    parameters: Mapping[str, Value]
    pieces: tuple[Piece, ...] = ()
    implementations: Mapping[str, str] | None = None
    output: str | None = None
    save: bool = False
    progress_seconds: float = 0.25
    sizes: tuple[int, ...] = ()
    distances: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    threads: int = 1
    partitions: str = ""

    @property
    def layout(self) -> list[tuple[str, range]]:
        """Host and rows of each rank: the ranks of a host share its rows, the first ranks get the larger parts."""
        found: list[tuple[str, range]] = []
        for piece in self.pieces:
            first = piece.first_row
            for rank in range(piece.ranks):
                stop = first + len(range(rank, piece.rows, piece.ranks))
                found.append((piece.host, range(first, stop)))
                first = stop
        return found

    @property
    def of_rectangles(self) -> bool:
        """Whether hosts have rectangles, not strips of whole rows."""
        return any(piece.columns for piece in self.pieces)

    def across(self, columns: int) -> list[range]:
        """Return the columns of each rank, of this number of columns."""
        each = (
            (range(p.first_column, p.first_column + (p.columns or columns)), p.ranks)
            for p in self.pieces
        )
        return [one for one, ranks in each for _ in range(ranks)]


def read_task(text: str | bytes, *, rectangles: bool = False) -> TaskDocument:
    """Return the task of a JSON text.

    Parameters
    ----------
    rectangles
        Whether the program accepts rectangles.

    Raises
    ------
    TaskError
        The text is not a task of this program. Permanent.

    Examples
    --------
    >>> read_task('{"schema": "apples.task/1", "mode": "dream", "parameters": {}}')
    Traceback (most recent call last):
    apples.program.TaskError: the task's mode is 'dream'
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise TaskError(
            f"the task is not JSON: {error}", code="task-not-json", reason=str(error)
        ) from None
    if not isinstance(raw, dict):
        raise TaskError(f"the task is {raw!r}, not an object", value=raw)
    task: dict[str, Any] = {"implementations": {}, "output": None, "save": False}
    task |= {"progress_seconds": 0.25, "distances": {}, "partitions": "", "partition": []}
    task |= {"sizes": [], "threads": 1, **raw}
    mode, sizes, distances = task.get("mode"), task["sizes"], task["distances"]
    entries, period = task["partition"], task["progress_seconds"]
    if mode == "run" and entries and isinstance(entries, list) and isinstance(entries[0], dict):
        task["threads"] = entries[0].get("threads", 1)
    if mode == "calibrate" and "implementation" in task:
        task["implementations"] = {BY_HAND: task["implementation"]}
    for name, right in (
        ("schema", task.get("schema") == SCHEMA),
        ("mode", mode in ("run", "calibrate")),
        ("parameters", isinstance(task.get("parameters"), dict)),
        ("implementations", isinstance(task["implementations"], dict)),
        ("output", isinstance(task["output"], str | None)),
        ("save", task["save"] in ((False, True) if task["output"] else (False,))),
        ("progress_seconds", isinstance(period, int | float) and period >= 0),
        ("distances", isinstance(distances, dict) and all(map(_are_costs, distances.values()))),
        ("partitions", isinstance(task["partitions"], str)),
        ("partition", mode != "run" or (isinstance(entries, list) and entries)),
        (
            "sizes",
            mode != "calibrate" or (isinstance(sizes, list) and sizes and _are_counts(sizes)),
        ),
        ("threads", _are_counts([task["threads"]])),
    ):
        if not right:
            value = task.get(name)
            raise TaskError(f"the task's {name} is {value!r}", field=name, value=value)
    pieces: tuple[Piece, ...] = ()
    if mode == "run":
        pieces = tuple(_piece(index, entry, rectangles) for index, entry in enumerate(entries))
        _demand_cover(pieces)
    return TaskDocument(
        task["mode"],
        task["parameters"],
        pieces,
        task["implementations"],
        task["output"],
        task["save"],
        float(period),
        tuple(sizes) if mode == "calibrate" else (),
        distances,
        task["threads"],
        task["partitions"],
    )


def _are_counts(values: list[Any]) -> bool:
    return all(type(value) is int and value >= 1 for value in values)


def _are_costs(row: Any) -> bool:
    return isinstance(row, dict) and all(
        type(cost) in {int, float} and 0 < cost < math.inf for cost in row.values()
    )


def _piece(index: int, entry: Any, rectangles: bool) -> Piece:
    """Return the strip or rectangle of an entry of the partition."""
    cut = isinstance(entry, dict) and "columns" in entry
    names = Piece._fields if cut else STRIP
    if cut and not rectangles:
        raise TaskError(
            f"the task's partition[{index}] is a rectangle: this program takes whole rows alone, so"
            " rectangles = true is wrong in its template, or Task(rectangles=True) lacks in the program",
            code="rectangles-undeclared",
            index=index,
        )
    named = isinstance(entry, dict) and all(name in entry for name in names)
    piece = Piece(*(entry[name] for name in names)) if named else Piece("", 0, 0, 0)
    whole = isinstance(piece.host, str) and all(type(number) is int for number in piece[1:])
    if not (whole and 1 <= piece.ranks <= piece.rows and min(piece[2:]) >= 0):
        raise TaskError(
            f"the task's partition[{index}] is {entry!r}: it needs {', '.join(names)}, and a row for each rank",
            code="partition-invalid",
            index=index,
        )
    return piece


def _demand_cover(pieces: Sequence[Piece]) -> None:
    """Raise TaskError unless each point of the grid is in one strip or rectangle."""
    width = max(1, *(piece.first_column + piece.columns for piece in pieces))
    tiles = sorted(
        (p.first_row, p.first_row + p.rows, p.first_column, p.first_column + (p.columns or width))
        for p in pieces
    )
    height = max(bottom for _, bottom, _, _ in tiles)
    points = sum((bottom - top) * (right - left) for top, bottom, left, right in tiles)
    once = points == height * width
    for k, (_, bottom, left, right) in enumerate(tiles):
        for top, _, other_left, other_right in tiles[k + 1 :]:
            if top >= bottom or not once:
                break
            once = other_right <= left or right <= other_left
    if not once:
        raise TaskError(
            f"the task's partition does not give each point of {height} rows to one host",
            code="partition-invalid",
            value=points,
            bound=height * width,
        )


def parameters_by_hand(
    defaults: Mapping[str, Value], arguments: Sequence[str], folder: Path
) -> dict[str, Value]:
    """Return the parameters of a program that was started by hand.

    Parameters
    ----------
    defaults
        Parameters of the program. Those of a ``template.toml`` in `folder` take precedence, and arguments
        ``--set NAME=VALUE`` take precedence over both. Other arguments belong to the program.

    Raises
    ------
    TaskError
        The template or an argument cannot be read, or an argument sets an unknown parameter.

    Examples
    --------
    >>> parameters_by_hand({"grid": 50, "omega": 1.5}, ["--set", "omega=2"], Path("/nowhere"))
    {'grid': 50, 'omega': 2.0}
    """
    values, limits = dict(defaults), {}
    template = folder / "template.toml"
    if template.is_file():
        try:
            limits = tomllib.loads(template.read_text("utf-8")).get("parameters", {})
            values |= {name: one["default"] for name, one in limits.items() if "default" in one}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, AttributeError, TypeError) as error:
            raise TaskError(
                f"{template}: {error}", code="template-invalid", file=str(template)
            ) from None
    for name, text in _settings(arguments):
        if name not in values:
            raise TaskError(
                f"--set {name}={text}: no parameter {name!r}; there are {', '.join(values) or 'none'}",
                code="program-parameter-unknown",
                field=name,
                known=list(values),
            )
        wanted = type(values[name])
        try:
            values[name] = value = wanted(text)
        except ValueError:
            raise TaskError(
                f"--set {name}={text}: not {'a whole ' * (wanted is int)}number",
                code="parameter-type",
                field=name,
                value=text,
            ) from None
        limit = limits.get(name, {})
        if value < limit.get("minimum", value):
            raise TaskError(
                f"--set {name}={text}: must be at least {limit['minimum']:g}",
                code="parameter-range",
                field=name,
                value=value,
                bound=limit["minimum"],
            )
        if value > limit.get("maximum", value):
            raise TaskError(
                f"--set {name}={text}: must be at most {limit['maximum']:g}",
                code="parameter-range",
                field=name,
                value=value,
                bound=limit["maximum"],
            )
    return values


def _settings(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and value of each ``--set``."""
    waiting = iter(arguments)
    for word in waiting:
        given = next(waiting, "") if word == "--set" else word.removeprefix("--set=")
        if word == "--set" or word.startswith("--set="):
            name, equals, text = given.partition("=")
            if not (name and equals):
                raise TaskError(
                    f"--set {given}: not NAME=VALUE", code="parameter-invalid", value=given
                )
            yield name, text


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TaskError(
            f"the task {path} cannot be read: {error.strerror}", code="task-unreadable", file=path
        ) from None


def _shared(comm: Any, text: Callable[[], bytes], rectangles: bool) -> TaskDocument:
    """Return the task that rank 0 has, on every rank. Collective.

    Raises
    ------
    TaskError
        The text is not a task. Rank 0 raises it and must abort the other ranks, which wait.
    """
    found = b""
    if comm.Get_rank() == 0:
        found = text()
        read_task(found, rectangles=rectangles)
    return read_task(comm.bcast(found), rectangles=rectangles)


def hosts_may_change() -> bool:
    """Whether a job manager runs this rank, which may give the job other hosts."""
    return MALLEABLE in os.environ


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a file that the program did not cause."""


def emit(event: str, **fields: object) -> None:
    """Write one event to standard output in one write, which a pipe keeps whole up to its limit.

    An event begins with a newline: a rank may have printed text without one.
    """
    rest = ("\n" + json.dumps({"event": event, **fields}, allow_nan=False) + "\n").encode()
    while rest:
        rest = rest[os.write(STANDARD_OUTPUT, rest) :]


class _Clock:
    """Seconds of this rank since the loop began: computing, processor time in it, communicating, and waiting.

    Communicating and waiting exclude `exchange` until the next report divides it between them.
    """

    def __init__(self, processor_time: Callable[[], float] = time.thread_time) -> None:
        self.compute = self.processor = self.communicate = self.wait = self.exchange = 0.0
        self.begin = self._wall = time.perf_counter()
        self._processor_time = processor_time
        self._processor = processor_time()
        self.spikes, self.unexplained = Spikes(), 0.0
        self._counted = self.compute, self.processor
        self._explained = self.spikes.excess, 0.0

    def lap(self) -> tuple[float, float]:
        """Return wall and processor seconds since the last lap."""
        wall, processor = time.perf_counter(), self._processor_time()
        spent = wall - self._wall, processor - self._processor
        self._wall, self._processor = wall, processor
        return spent

    def computed(self) -> None:
        """Count the time since the last lap as computing."""
        wall, processor = self.lap()
        self.compute += wall
        self.processor += processor

    def divide(self, transfer: float) -> None:
        """Divide the exchanges since the last report: this share of them was transfer, the rest waiting."""
        self.communicate += transfer * self.exchange
        self.wait += (1.0 - transfer) * self.exchange
        self.exchange = 0.0

    def count(self) -> None:
        """Count the iteration that was just computed, and store its spike, if any."""
        compute, processor = self._counted
        self._counted = self.compute, self.processor
        self.spikes.add(self.compute - compute, self.processor - processor)

    def explain(self, stopped: float) -> float:
        """Return the seconds of spikes in computing without a known cause.

        A rank that waits for a CPU, or is stopped by a quota, is slow but has no timing spike.

        Parameters
        ----------
        stopped
            Seconds without a CPU since the first barrier, by the kernel's account.
        """
        excess, before = self._explained
        self.unexplained += max(0.0, self.spikes.excess - excess - (stopped - before))
        self._explained = self.spikes.excess, stopped
        return self.unexplained

    @property
    def elapsed(self) -> float:
        """Seconds since the first barrier."""
        return time.perf_counter() - self.begin


class Spikes:
    """Seconds of iterations beyond `SPIKE_FACTOR` times a usual long one.

    The usual long iteration is a running quantile: a change of speed, or work that is done every tenth iteration,
    is usual within some iterations; one long iteration in a hundred is not.

    Attributes
    ----------
    excess, processor_excess
        Seconds beyond, and processor seconds beyond.

    Examples
    --------
    >>> spikes = Spikes()
    >>> for k in range(200):
    ...     spikes.add(500.0 if k == 100 else 1.0)
    >>> 497 < spikes.excess < 500
    True
    """

    def __init__(self) -> None:
        self.excess = self.processor_excess = 0.0
        self._usual = 0.0
        self._first: list[tuple[float, float]] = []

    def add(self, seconds: float, processor: float = 0.0) -> None:
        """Add an iteration, with its processor time."""
        usual = self._usual
        if not usual:
            self._first.append((seconds, processor))
            if len(self._first) == FIRST_ITERATIONS:
                self._usual = max(TICK_SECONDS, statistics.median(s for s, _ in self._first))
                for one in self._first:
                    self._clip(*one)
        elif seconds > usual:
            self._clip(seconds, processor)
            self._usual = usual * USUAL_RISE
        else:
            self._usual = max(TICK_SECONDS, usual * USUAL_FALL)

    def _clip(self, seconds: float, processor: float) -> None:
        limit = SPIKE_FACTOR * self._usual
        if seconds > limit:
            self.excess += seconds - limit
            self.processor_excess += max(0.0, processor - limit)


class _KernelCounters:
    """Kernel counters of this process that explain slow computing."""

    def __init__(self) -> None:
        self._quota = next((path for path in _quota_files() if _content(path)), "")
        self._begin = self._read()

    def since_begin(self) -> tuple[float, float, float]:
        """Return seconds ready without a CPU (-1: not counted), seconds throttled, and major page faults."""
        now, begin = self._read(), self._begin
        wait = now[0] - begin[0] if now[0] >= 0 else -1.0
        return wait, now[1] - begin[1], now[2] - begin[2]

    def _read(self) -> tuple[float, float, float]:
        counted = _content("/proc/self/schedstat").split()
        wait = 1e-9 * int(counted[1]) if len(counted) > 1 else -1.0
        throttled = 0.0
        for line in _content(self._quota).splitlines():
            name, _, value = line.partition(b" ")
            if name in QUOTA_UNITS:
                throttled = QUOTA_UNITS[name] * int(value)
        return wait, throttled, float(resource.getrusage(resource.RUSAGE_SELF).ru_majflt)


QUOTA_UNITS = {b"throttled_usec": 1e-6, b"throttled_time": 1e-9}
"""Seconds in a unit of the quota counters of cgroups version 2 and 1."""


def _content(path: str) -> bytes:
    """Return the current content of a small kernel file; empty if this kernel lacks the file."""
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.read(4096)
    except OSError:
        return b""


def _quota_files() -> Iterator[str]:
    """Yield the possible paths of this process's CPU quota counters, in order of preference."""
    for line in _content("/proc/self/cgroup").decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            yield f"/sys/fs/cgroup/{controllers}{path}/cpu.stat"


class Neighbour:
    """A rank with which this one exchanges borders.

    Attributes
    ----------
    ahead
        Seconds by which its clock is ahead of this rank's.
    latency
        Seconds of a small message, one way.
    transfer, exchanges
        Seconds of all transfers with it so far, each as long as the median of its report, and their number.
    """

    def __init__(self, rank: int) -> None:
        self.rank, self.exchanges = rank, 0
        self.ahead = self.latency = self.transfer = 0.0

    @property
    def mean(self) -> float:
        """Seconds of one transfer; 0 before the first report."""
        return self.transfer / max(1, self.exchanges)


class Transfers:
    """Time stamps of a rank's exchanges, by which a report divides them into transfer and waiting.

    A transfer lasts from the moment both ranks have begun the exchange until both have the other's border; before
    that the earlier rank waits. Neighbours swap their stamps when they report, so the messages of an exchange
    carry nothing more. Every method but `record` is collective.

    Parameters
    ----------
    comm
        Communicator of the ranks.
    ranks
        The neighbours' ranks, ascending.
    clock
        This rank's time in seconds. Clocks of two hosts may differ by any constant.

    Attributes
    ----------
    bytes
        Of the last exchange, sent to each neighbour.
    comparing, compared
        Seconds that the last comparison of clocks took, and of the loop when it was made; None: not yet.
    """

    def __init__(
        self, comm: Any, ranks: Sequence[int], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.comm, self.clock = comm, clock
        self.neighbours = [Neighbour(rank) for rank in ranks]
        self.bytes = [0] * len(ranks)
        self.comparing = 0.0
        self.compared: float | None = None
        self._clear()

    def _clear(self) -> None:
        self._exchanges = 0
        self._began = array("d")
        self._ended = [array("d") for _ in self.neighbours]

    def record(self, began: float, ended: Sequence[float]) -> None:
        """Store the start of an exchange on this rank, and its end with each neighbour, in their order."""
        self._exchanges += 1
        if len(self._began) < MAX_STAMPS:
            self._began.append(began)
            for stamps, end in zip(self._ended, ended, strict=True):
                stamps.append(end)

    def compare_clocks(self) -> None:
        """Measure latency and difference of clocks with each neighbour.

        Of several round trips the fastest counts. The neighbour is assumed to read its clock in the middle of it
        (Cristian 1989). The lower rank of a pair sends first. All ranks take the pairs in the same order, so that
        no ranks wait for each other in a circle. In a chain of ranks, every second pair compares at the same time.
        """
        begin, rank = self.clock(), self.comm.Get_rank()

        def place(other: Neighbour) -> tuple[int, int, int]:
            low, high = sorted((rank, other.rank))
            return low % 2, low, high

        for other in sorted(self.neighbours, key=place):
            (self._ask if rank < other.rank else self._answer)(other)
        self.comparing = self.clock() - begin

    def _ask(self, other: Neighbour) -> None:
        best, ping, pong = math.inf, array("d", [0.0, 0.0]), array("d", [0.0, 0.0])
        for _ in range(CLOCK_ROUNDS):
            asked = self.clock()
            self._swap(other, ping, pong)
            answered = self.clock()
            received, sent = pong
            on_the_way = (answered - asked) - (sent - received)
            if on_the_way < best:
                best = on_the_way
                other.ahead = ((received - asked) + (sent - answered)) / 2
        other.latency = max(0.0, best / 2)
        self._send(other, array("d", [other.ahead, other.latency]))

    def _answer(self, other: Neighbour) -> None:
        message = array("d", [0.0, 0.0])
        for _ in range(CLOCK_ROUNDS):
            _wait(self.comm.Irecv(message, other.rank, STAMP_TAG).Test)
            received = self.clock()
            self._send(other, array("d", [received, self.clock()]))
        _wait(self.comm.Irecv(message, other.rank, STAMP_TAG).Test)
        other.ahead, other.latency = -message[0], message[1]

    def _send(self, other: Neighbour, message: Doubles) -> None:
        _wait(self.comm.Isend(message, other.rank, STAMP_TAG).Test)

    def _swap(self, other: Neighbour, mine: Doubles, theirs: Doubles) -> None:
        receive = self.comm.Irecv(theirs, other.rank, STAMP_TAG)
        send = self.comm.Isend(mine, other.rank, STAMP_TAG)
        _wait(lambda: receive.Test() and send.Test())

    def settle(self) -> float:
        """Return the transfer share of the exchanges since the last call; add it to the neighbours' totals."""
        began, ended, exchanges = self._began, self._ended, self._exchanges
        self._clear()
        if not (began and self.neighbours):
            return 1.0
        theirs = []
        for other, here in zip(self.neighbours, ended, strict=True):
            stamps = array("d", bytes(16 * len(began)))
            self._swap(other, began + here, stamps)
            on_this_clock = [stamp - other.ahead for stamp in stamps]
            theirs.append((on_this_clock[: len(began)], on_this_clock[len(began) :]))
        usual, share = transfers_of(began, ended, theirs)
        for other, seconds in zip(self.neighbours, usual, strict=True):
            other.transfer += seconds * exchanges
            other.exchanges += exchanges
        return share


def transfers_of(
    began: Sequence[float],
    ended: Sequence[Sequence[float]],
    theirs: Sequence[tuple[Sequence[float], Sequence[float]]],
) -> tuple[list[float], float]:
    """Return the median transfer with each neighbour in seconds, and the share of all exchanges that was transfer.

    Parameters
    ----------
    began
        Start of each exchange on this rank.
    ended
        For each neighbour: the end of each exchange with it on this rank.
    theirs
        For each neighbour: its own starts and ends, by this rank's clock.

    Examples
    --------
    One exchange: the other rank started 3 s later, and each had the other's row 1 s after that.

    >>> transfers_of([5.0], [[9.0]], [([8.0], [9.0])])
    ([1.0], 0.25)
    """
    both_there, usual = list(began), []
    for here, (their_begin, their_end) in zip(ended, theirs, strict=True):
        there = list(map(max, began, their_begin))
        last = map(max, here, their_end)
        # Not the mean: delays of a rank that had no CPU belong to the straggler factor, not to the link.
        usual.append(
            statistics.median(
                max(0.0, end - start) for end, start in zip(last, there, strict=True)
            )
        )
        both_there = list(map(max, both_there, there))
    spent = waited = 0.0
    for begin, there, *ends in zip(began, both_there, *ended, strict=True):
        spent += max(ends) - begin
        waited += min(there, max(ends)) - begin
    return usual, 1.0 - waited / max(spent, 1e-12)


class _ExchangePlan:
    """Persistent requests for the borders of some arrays with this rank's neighbours.

    Attributes
    ----------
    ranks, bytes
        The neighbours, ascending, and the bytes sent to each.
    declared
        Declared arrays of this exchange. Each has its own requests.
    """

    def __init__(self, comm: Any, arrays: Sequence[Any], borders: Sequence[Contact]) -> None:
        self.ranks, self.declared = [border.rank for border in borders], list[Any]()
        self.bytes = [0] * len(borders)
        # Keep the arrays alive: the plan's key has their ids, and Python reuses the id of a freed array.
        self._arrays = arrays
        self._requests: list[list[Any]] = [[] for _ in borders]
        self._sent: list[tuple[Any, Any]] = []
        self._received: list[tuple[Any, Any]] = []
        for k, border in enumerate(borders):
            for one in arrays:
                edge, halo = one[border.edge], one[border.halo]
                if isinstance(
                    border.edge, tuple
                ):  # a column is not contiguous, so it is sent through a buffer
                    self._sent.append((edge.copy(), edge))
                    self._received.append((halo, halo.copy()))
                    edge, halo = self._sent[-1][0], self._received[-1][1]
                self.bytes[k] += edge.nbytes
                self._requests[k].append(comm.Recv_init(halo, border.rank, HALO_TAG))
                self._requests[k].append(comm.Send_init(edge, border.rank, HALO_TAG))

    def carry_out(self, mpi: Any) -> tuple[float, list[float]]:
        """Exchange the borders; return the start of the exchange, and its end with each neighbour."""
        began, ended = time.perf_counter(), [0.0] * len(self.ranks)
        start, test = mpi.Prequest.Startall, mpi.Request.Testall
        for buffer, edge in self._sent:
            buffer[...] = edge
        for requests in self._requests:
            start(requests)

        def done() -> bool:
            for k, requests in enumerate(self._requests):
                if not ended[k] and test(requests):
                    ended[k] = time.perf_counter()
            return all(ended)

        _wait(done)
        for halo, buffer in self._received:
            halo[...] = buffer
        return began, ended

    def free(self) -> None:
        """Free the requests."""
        for requests in self._requests:
            for request in requests:
                request.Free()


class _RankTimes(NamedTuple):
    """Seconds of a rank since the first barrier.

    `spikes` and `processor_spikes` are the parts of computing, and of the processor time in it, that are timing
    spikes; `cpu_wait` (-1: not counted) and `throttled` are without a CPU. `major_faults` are page faults, and
    `comparing` is the duration of the last comparison of clocks.
    """

    compute: float
    processor: float
    communicate: float
    wait: float
    spikes: float
    processor_spikes: float
    cpu_wait: float
    throttled: float
    major_faults: float
    comparing: float
    elapsed: float


class ProgramTask:
    """The task of one rank, and the reports about it. Programs import it as `Task`.

    Every rank makes the same calls in the same order. An exception inside the ``with`` block ends all ranks, and
    the agent reports its message.

    Parameters
    ----------
    rows, columns, iterations
        Names of the parameters with the number of rows, of points in a row (None: the number of rows) and of
        iterations; or the numbers. As in the template.
    rectangles
        Whether the program accepts rectangles (`rectangle`), not only strips of whole rows.
    defaults
        Parameters of a program that has no template beside it, if it is started by hand.
    arguments
        Arguments of the command line; ``--set NAME=VALUE`` is read if the program is started by hand. None: those
        of this process.
    commit_seconds
        Interval of the commits of a malleable program's state; see `apples.malleable.MalleableJob`.
    calibrates
        Whether the program measures its kernel itself: for each of `sizes` it calls `calibrated`, and it ends
        without a result. Else it is run once for each size, in a process of its own.

    Attributes
    ----------
    parameters
        The parameters of the template, as set by the user.
    output, save
        A directory for files, or None; and whether `result` saves the result there.
    residual
        Residual in the next report; None: not set yet.
    changed
        Whether hosts, rows and communicator differ from those of the iteration before; true in the first.
    rectangular
        Whether the ranks have rectangles, not strips of whole rows.
    sizes
        Rows of the strips to measure, if the task is to calibrate; else empty.
    processor_time
        Returns the seconds that the processor worked, for example `time.perf_counter` for a kernel on a GPU.
        Set before the loop. None: the CPU time of this thread, or the mean of the threads of `threads`.
    """

    def __init__(
        self,
        rows: str | int = "grid",
        columns: str | int | None = None,
        iterations: str | int = "iterations",
        *,
        rectangles: bool = False,
        defaults: Mapping[str, Value] | None = None,
        arguments: Sequence[str] | None = None,
        commit_seconds: float | None = None,
        calibrates: bool = False,
    ) -> None:
        self._calibrates = calibrates
        self._named = rows, rows if columns is None else columns, iterations
        self._takes_rectangles = rectangles
        self._defaults = dict(defaults or {})
        self._arguments = sys.argv[1:] if arguments is None else list(arguments)
        self._commit_seconds = commit_seconds
        self.parameters: Mapping[str, Any] = {}
        self.output: str | None = None
        self.save = False
        self.residual: float | None = None
        self.changed = False
        self.sizes: tuple[int, ...] = ()
        self.processor_time: Callable[[], float] | None = None
        self._transfers: Transfers | None = None
        self._plans: dict[tuple[int, ...], _ExchangePlan] = {}
        self._exchanged: dict[tuple[int, ...], list[weakref.ref[Any]]] = {}
        self.rectangular = False
        self._job: MalleableJob | None = None
        self._state: State | None = None
        self._met: HostChange | Rollback | bool = False
        self._done = 0
        self._begun = self._has_result = False
        self._loop: Callable[[], Generator[int, None, None] | None] = lambda: None
        self._clock = _Clock()
        self._samples: list[tuple[float, float]] = []
        self._sample = [0.0, 0.0, 0.0]
        self._due, self._last = 0, (0, 0.0)

    # ------------------------------------------------------------------ the task

    def __enter__(self) -> ProgramTask:
        """Start the task. To calibrate several sizes, run the program once for each, then end."""
        self._world: Any = None
        self._by_hand = not os.environ.get(TASK)
        try:
            self._mpi = import_module("mpi4py.MPI")
            self._world = self._mpi.COMM_WORLD
            path = os.environ.get(TASK)
            text = (lambda: _file(path)) if path else self._own_task
            self._take_up(_shared(self._world, text, self._takes_rectangles))
        except Exception as error:
            self._fail(error)
            raise
        return self

    def _own_task(self) -> bytes:
        """Return the task of a program that was started by hand: the same number of rows for each rank."""
        folder = Path(sys.argv[0]).resolve().parent
        self.parameters = parameters_by_hand(self._defaults, self._arguments, folder)
        rows, size = self._number(0), self._world.Get_size()
        if rows < size:
            raise TaskError(
                f"{size} ranks for {rows} rows: each needs one",
                code="ranks-exceed-rows",
                value=size,
                bound=rows,
            )
        piece = dict(zip(STRIP, Piece(BY_HAND, size, 0, rows), strict=False))
        task = {"schema": SCHEMA, "mode": "run", "parameters": self.parameters}
        return json.dumps({**task, "partition": [piece]}).encode()

    def _take_up(self, document: TaskDocument) -> None:
        self.parameters = dict(document.parameters)
        self.output, self.save = document.output, document.save
        if document.mode == "calibrate":
            self.sizes = document.sizes
            if len(self.sizes) > 1 and not self._calibrates:
                self._calibrate_each(self.sizes)
            piece = Piece(BY_HAND, 1, 0, document.sizes[0])
            document = replace(document, pieces=(piece,))
        self._document, self._layout = document, document.layout
        self.rectangular = document.of_rectangles
        ranks, size = len(self._layout), self._world.Get_size()
        rows = max(strip.stop for _, strip in self._layout)
        if not self.malleable and ranks != size:
            raise TaskError(
                f"the task is for {ranks} ranks; MPI has {size}",
                code="program-ranks-differ",
                value=size,
                bound=ranks,
            )
        named = self._named[0]
        known = named if isinstance(named, int) else self.parameters.get(named, rows)
        if document.mode == "run" and known != rows:
            raise TaskError(
                f"the task's partition has {rows} rows, but {named} is {known}:"
                " name the parameter that counts rows in Task(rows=..)",
                code="program-rows-differ",
                value=rows,
                bound=known,
            )
        if self._takes_rectangles:
            columns = self._number(1)
            across = document.across(columns)
            self._every_rectangle = [
                (rows, wide) for (_, rows), wide in zip(self._layout, across, strict=True)
            ]
            if (found := max(one.stop for one in across)) != columns:
                raise TaskError(
                    f"the task's partition has {found} columns, but {self._named[1]} is {columns}:"
                    " name the parameter that counts columns in Task(columns=..)",
                    code="grid-columns-differ",
                    value=found,
                    bound=columns,
                )
            self._touching = list(self._contacts())
        if self.sizes and self._calibrates:
            self._report_ready()

    def _contacts(self) -> Iterator[Contact]:
        """Yield the borders with the ranks that own neighbouring rectangles."""
        rows, columns = self.rectangle
        for rank, (down, across) in enumerate(self._every_rectangle):
            tall, wide = _within(down, rows), _within(across, columns)
            if wide.start < wide.stop and down.start in (rows.stop, rows.start - len(down)):
                here, there = (-2, -1) if down.start == rows.stop else (1, 0)
                yield Contact(rank, (_line(here), wide), (_line(there), wide))
            elif tall.start < tall.stop and across.start in (
                columns.stop,
                columns.start - len(across),
            ):
                here, there = (-2, -1) if across.start == columns.stop else (1, 0)
                yield Contact(rank, (tall, _line(here)), (tall, _line(there)))

    def _number(self, which: int) -> int:
        """Return rows, columns or iterations."""
        named, what = self._named[which], ("rows", "columns", "iterations")[which]
        value = named if isinstance(named, int) else self.parameters.get(named)
        if type(value) is not int or value < 1:
            raise TaskError(
                f"{what}: the parameter {named!r} must be a whole number of 1 or more (got {value!r});"
                f" Task({what}=..) names another parameter",
                code="parameter-range",
                field=named,
                value=value,
            )
        return value

    @property
    def malleable(self) -> bool:
        """Whether the hosts may change while the program runs."""
        return hosts_may_change()

    @property
    def comm(self) -> MPI.Intracomm:
        """The current communicator."""
        comm: MPI.Intracomm = self._job.comm if self._job else self._world
        return comm

    @property
    def rank(self) -> int:
        """This rank's number."""
        return int(self.comm.Get_rank())

    @property
    def size(self) -> int:
        """Number of ranks."""
        return int(self.comm.Get_size())

    @property
    def layout(self) -> list[tuple[str, range]]:
        """Host and rows of every rank.

        Call it after all declarations: a malleable rank connects to the other ranks here, if it has not done so.
        """
        self._meet()
        if self._job:
            return [(host, range(rows.first, rows.stop)) for host, rows in self._job.layout]
        return self._layout

    @property
    def strip(self) -> range:
        """This rank's rows: ``strip.start`` is the first of ``len(strip)``. Call it after all declarations."""
        return self.layout[self.rank][1]

    @property
    def rectangle(self) -> tuple[range, range]:
        """This rank's rows and columns; of a strip all columns. For a program that takes rectangles."""
        if not self._takes_rectangles:
            raise TaskError(
                "task.rectangle is of a program with Task(rectangles=True)",
                code="rectangles-undeclared",
            )
        return self._every_rectangle[self.rank]

    @property
    def host(self) -> str:
        """Name of this rank's host."""
        if self._job:
            return self._job.host
        if self.malleable:
            return os.environ.get(HOST, BY_HAND)
        return self._layout[self.rank][0]

    @property
    def implementation(self) -> str:
        """Name of the template's implementation to run on this rank's host; empty if it has only one."""
        return (self._document.implementations or {}).get(self.host, "")

    @property
    def threads(self) -> int:
        """Number of threads for computing on this rank: 1, unless its implementation uses threads."""
        return self._document.threads

    @property
    def neighbours(self) -> tuple[int, int]:
        """The ranks above and below; ``MPI.PROC_NULL`` at the ends."""
        rank, none = self.rank, self._mpi.PROC_NULL
        return rank - 1 if rank else none, rank + 1 if rank + 1 < self.size else none

    # ------------------------------------------------------ declarations

    def array(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike = float,
        halo: int = 0,
        fill: Fill | None = None,
        *,
        constant: bool = False,
    ) -> RowArray:
        """Declare an array that is distributed by rows; see `apples.malleable.RowArray`."""
        return self._runtime().array(name, shape, dtype, halo, fill, constant=constant)

    def tiles(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike = float,
        halo: int = 0,
        fill: TileFill | None = None,
        *,
        constant: bool = False,
    ) -> TileArray:
        """Declare an array that is distributed by rows and columns; see `apples.malleable.TileArray`."""
        return self._runtime().tiles(name, shape, dtype, halo, fill, constant=constant)

    def csr(
        self,
        name: str,
        shape: tuple[int, int],
        fill: MatrixFill,
        dtype: DTypeLike = float,
        *,
        constant: bool = False,
    ) -> CsrMatrix:
        """Declare a sparse matrix that is distributed by rows; see `apples.malleable.CsrMatrix`."""
        return self._runtime().csr(name, shape, fill, dtype, constant=constant)

    def replicated(self, name: str, array: NDArray[np.generic]) -> Replicated:
        """Declare an array that is the same on every rank; new ranks get rank 0's contents."""
        return self._runtime().replicated(name, array)

    def blocks(
        self,
        name: str,
        make: Callable[[int], T],
        pack: Callable[[T], Arrays],
        unpack: Callable[[dict[str, NDArray[Any]]], T],
        *,
        count: int = 0,
        decomposition: str = "",
        strategy: str | LoadBalancer = "greedy",
        background: bool = False,
        partners: Callable[[int], Mapping[int, float]] | None = None,
    ) -> Blocks[T]:
        """Declare objects that migrate one by one; see `apples.malleable.Blocks`.

        If the task has a partition of the blocks, it replaces `decomposition`.
        """
        return self._runtime().blocks(
            name,
            make,
            pack,
            unpack,
            count=count,
            decomposition=decomposition,
            strategy=strategy,
            background=background,
            partners=partners,
        )

    def state(self, **values: int | float | str | bool | None) -> State:
        """Declare values that are the same on every rank, once; `iteration` is declared without being named."""
        first = {"iteration": 0, "elapsed_seconds": 0.0, **values}
        self._state = self._runtime().state(**first)
        return self._state

    def may_lose(self, *names: str) -> None:
        """Allow names of the program's loop to differ on new ranks: a timer, a cache."""
        self._runtime().may_lose(*names)

    def _runtime(self) -> MalleableJob:
        """Return this rank's part of the malleable job, to which declarations are delegated."""
        if self._takes_rectangles:
            raise TaskError(
                "declared data is divided into whole rows: remove rectangles=True",
                code="declaration-needs-rows",
            )
        if self._job is None:
            try:
                module = import_module("apples.malleable")
            except ImportError as error:
                raise TaskError(
                    f"declarations need the apples package on every host, not this file alone: {error}",
                    code="apples-missing",
                    reason=str(error),
                ) from None
            if self._met:
                raise TaskError(
                    "declare before the first iteration, and before task.strip or task.layout is read,"
                    " as a rank that joins later does",
                    code="declared-late",
                )
            job: MalleableJob = module.MalleableJob(self._commit_seconds, task=self._document)
            self._job = job
        return self._job

    # ------------------------------------------------------------- hosts that change

    @property
    def members(self) -> tuple[HostRows, ...]:
        """All hosts with their rows, of a program that declares something; from the first iteration on."""
        return self._runtime().members

    def commit(self) -> str:
        """Commit the state, to which the job returns if a host is lost. Collective.

        Return the error of the commit; empty on success. A program that is not malleable commits nothing.
        """
        return self._runtime().commit()

    def request(self, minimum: int, maximum: int) -> None:
        """Ask for other limits, in hosts; the agent may answer with a change of hosts."""
        self._runtime().request(minimum, maximum)

    def _meet(self) -> HostChange | Rollback | bool:
        """Connect to the other ranks, once; return the result of the first safe point."""
        if not self._met:
            if self._job is None and self.malleable:
                raise TaskError(
                    "the template has malleable = true, but the program declares no data that can move to other"
                    " hosts: call task.array, task.blocks, ..",
                    code="nothing-declared",
                )
            if self._job is not None and self._state is None:
                self.state()
            self._met = self._job.join() if self._job is not None else True
        return self._met

    # ------------------------------------------------------------------- the loop

    @property
    def iteration(self) -> int:
        """Number of completed iterations."""
        return int(self._state.iteration) if self._state else self._done

    def iterations(self, *, collect: Callable[[], object] | None = None) -> Iterator[int]:
        """Yield the number of each iteration, from 0 on; between two iterations hosts may change.

        If a program leaves the loop early, for example because it has converged, the current iteration counts as
        done. `collect`: see `apples.malleable.MalleableJob.safepoint`.
        """
        self._leave_loop()
        loop = self._iterate(sys._getframe(1), collect)
        self._loop = weakref.ref(loop)
        return loop

    def _leave_loop(self) -> None:
        """Count the iteration in which the program left the loop, if it still has the iterator."""
        loop = self._loop()
        if loop is not None:
            loop.close()

    def advance(self, iterations: int) -> None:
        """Count iterations in addition to the current one, if a kernel made several at once."""
        if self._state:
            self._state.iteration += iterations
        else:
            self._done += iterations

    def _iterate(
        self, caller: FrameType | None, collect: Callable[[], object] | None
    ) -> Generator[int, None, None]:
        """Yield the number of each iteration; count the current one if the iterator is closed."""
        last = self._number(2)
        while True:
            self._pass(caller, collect=collect)
            caller = None
            if self._enough() if self._document.mode == "calibrate" else self.iteration >= last:
                return
            try:
                yield self.iteration
            except GeneratorExit:
                self.advance(1)
                raise
            self.advance(1)
            if self._document.mode == "run" and self.iteration >= last:
                return
            self.progress()

    def safepoint(
        self,
        before: Callable[[], object] | None = None,
        *,
        collect: Callable[[], object] | None = None,
    ) -> HostChange | Rollback | bool | None:
        """Allow hosts to change now; for programs with their own loop, which count ``state.iteration``.

        Return the change, None without one; True at the first call of a program that declares nothing. The first
        call starts the measured time. `before` and `collect`: see `apples.malleable.MalleableJob.safepoint`.
        """
        return self._pass(sys._getframe(1), before, collect)

    def progress(self) -> None:
        """Report the progress if a report is due; `iterations` does so itself."""
        self._clock.computed()
        self._clock.count()
        if self._document.mode == "calibrate":
            self._take_sample()
        elif 0 < self._due <= self.iteration:
            self._report()
            self._clock.lap()
        if self._state:
            self._state.elapsed_seconds = self._clock.elapsed

    @overload
    def allreduce(self, value: int, operation: str = "max") -> int: ...

    @overload
    def allreduce(self, value: float | np.floating[Any], operation: str = "max") -> float: ...

    @overload
    def allreduce(self, value: np.integer[Any], operation: str = "max") -> int: ...

    @overload
    def allreduce(self, value: NDArray[S], operation: str = "max") -> NDArray[S]: ...

    def allreduce(self, value: Any, operation: str = "max") -> Any:
        """Return the ``max``, ``min`` or ``sum`` of a value over all ranks. Collective.

        Parameters
        ----------
        value
            A number, or an array with the same shape and type on every rank, which is reduced element by element.

        Returns
        -------
        An int of 64 bits or a float for a number of Python or NumPy; for an array a new array of its shape and
        type. The last bits of a sum of floats depend on the number of ranks.

        Raises
        ------
        TaskError
            The operation or the type is not supported. Or the program declares data and calls this before the
            first iteration, so that a rank that joins later would wait in vain. Permanent.
        """
        if operation not in REDUCTIONS:
            raise TaskError(
                f"task.allreduce has no operation {operation!r}; it has {', '.join(REDUCTIONS)}",
                code="operation-unknown",
                value=operation,
                known=list(REDUCTIONS),
            )
        if self._job and not self._begun:
            raise TaskError(
                "task.allreduce of a program that declares data comes inside the loop",
                code="safepoint-missing",
            )
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic):
            value = value.item()
        kind = getattr(self._mpi, operation.upper())
        if numpy is not None and isinstance(value, numpy.ndarray):
            with self.communicating():
                return self._reduced_array(numpy, value, operation, kind)
        self._clock.computed()
        try:
            if isinstance(value, int):
                mine, every = array("q", [value]), array("q", [0])
                _wait(self.comm.Iallreduce(mine, every, kind).Test)
                return every[0]
            if not isinstance(value, float):
                raise _irreducible(type(value).__name__, operation)
            if self._job:
                return self._job.allreduce(value, kind)
            return self._reduced([value], kind)[0]
        finally:  # a number takes no time to send, so this time is a wait for the last rank
            self._clock.wait += self._clock.lap()[0]

    def _reduced_array(self, numpy: Any, values: Any, operation: str, kind: Any) -> Any:
        """Return the reduction of an array over all ranks, element by element."""
        dtype = values.dtype
        # MPI has no floats of 16 bits.
        numbers = dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize > 2)
        if not dtype.isnative or not (numbers or (dtype.kind == "c" and operation == "sum")):
            raise _irreducible(f"array of {dtype}", operation)
        mine = numpy.array(values, order="C")
        every = numpy.empty_like(mine)
        _wait(self.comm.Iallreduce(mine, every, kind).Test)
        return every

    def exchange(self, *arrays: Any, halo: int = 1) -> None:
        """Send the rows at the edges of strips to the neighbours, and receive theirs into the `halo` rows beyond.

        An array has ``halo`` rows, the rank's own rows, and ``halo`` rows again; a declared array (`array`) has
        its own halo. If ranks have rectangles, an array has a halo of one point on all four sides; its corners
        are not exchanged.
        """
        clock = self._clock
        clock.computed()
        key = (halo, *map(id, arrays))
        plan = self._plans.get(key) or self._planned(key, arrays, halo)
        for declared in plan.declared:
            declared.exchange()
        if plan.declared:
            clock.communicate += clock.lap()[0]
        if len(plan.declared) < len(arrays):
            if self._transfers is None:
                self._transfers = Transfers(self.comm, plan.ranks)
            if plan.ranks:
                self._transfers.bytes = plan.bytes
                self._transfers.record(*plan.carry_out(self._mpi))
            clock.exchange += clock.lap()[0]
        if key not in self._plans:
            plan.free()

    def _planned(self, key: tuple[int, ...], arrays: Sequence[Any], halo: int) -> _ExchangePlan:
        """Return the plan of an exchange of these arrays, which is cached if they were exchanged before.

        A plan keeps its arrays alive. A program that makes new arrays in each iteration must not keep the memory
        of earlier arrays.
        """
        own = [one for one in arrays if not hasattr(one, "exchange")]
        if own and self.rectangular:
            self._demand_rectangles(own, halo)
        borders = self._touching if self.rectangular else list(self._above_and_below(halo))
        plan = _ExchangePlan(self.comm, own, borders)
        plan.declared = [one for one in arrays if hasattr(one, "exchange")]
        before = self._exchanged.get(key, [])
        if before and all(it() is array for it, array in zip(before, arrays, strict=True)):
            if len(self._plans) == MAX_PLANS:
                self._plans.pop(next(iter(self._plans))).free()
            self._plans[key] = plan
        else:
            if len(self._exchanged) == MAX_EXCHANGED:
                self._exchanged.clear()
            self._exchanged[key] = [weakref.ref(array) for array in arrays]
        return plan

    def _forget_plans(self) -> None:
        """Free the requests of all plans, before their communicator is freed or MPI ends."""
        for plan in self._plans.values():
            plan.free()
        self._plans.clear()

    def _above_and_below(self, halo: int) -> Iterator[Contact]:
        """Yield the borders of a strip with the ranks above and below, of `halo` rows."""
        rank = self.rank
        if rank:
            yield Contact(rank - 1, slice(halo, 2 * halo), slice(halo))
        if rank + 1 < self.size:
            yield Contact(rank + 1, slice(-2 * halo, -halo), slice(-halo, None))

    def _demand_rectangles(self, arrays: Sequence[Any], halo: int) -> None:
        """Raise TaskError unless arrays have the shape of this rank's rectangle with a halo of one point."""
        rows, columns = self.rectangle
        for one in arrays:
            if halo != 1 or one.shape[:2] != (len(rows) + 2, len(columns) + 2):
                raise TaskError(
                    f"rank {self.rank} exchanges an array of {one.shape[0]} x {one.shape[1]} with a halo of"
                    f" {halo}: of {len(rows)} x {len(columns)} points it has"
                    f" {len(rows) + 2} x {len(columns) + 2} with its halo, which is 1",
                    code="array-shape",
                    rank=self.rank,
                    value=list(one.shape[:2]),
                    bound=[len(rows) + 2, len(columns) + 2],
                )

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """Count the time inside as communicating; the remaining time of an iteration is computing."""
        self._clock.computed()
        yield
        self._clock.communicate += self._clock.lap()[0]

    def _pass(
        self,
        caller: FrameType | None,
        before: Callable[[], object] | None = None,
        collect: Callable[[], object] | None = None,
    ) -> HostChange | Rollback | bool | None:
        """Execute a safe point, if the program runs as a job; return the change."""
        change: HostChange | Rollback | bool | None = None
        if not self._begun:
            if self._job and caller:
                self._job.demand_declared(caller, ProgramTask)
            change = self._meet()
        elif self._job:
            change = self._job.safepoint(lambda: self._leave(before), collect=collect)
        self.changed = bool(change)
        if change:
            self._begin(change)
        return change

    def _leave(self, before: Callable[[], object] | None) -> None:
        """Free the requests on the communicator before a change of hosts replaces it."""
        self._forget_plans()
        if before:
            before()

    def _begin(self, change: Any) -> None:
        """Start the measured time, or continue it on other hosts."""
        was = self._clock.elapsed if self._begun else 0.0
        kind = getattr(change, "kind", "started" if change is True else "rollback")
        if self._state and not self._begun:
            was = float(self._state.elapsed_seconds)
        if kind == "started" and self.rank == 0 and self.save and self.output:
            _demand_writable(Path(self.output))
        self._barrier()
        if kind == "started" and self.rank == 0:
            self._report_ready()
        if not self._begun:
            self._forget_plans()  # plans of exchanges before the ranks of all hosts were connected
            self._startup = _process_age()
            self._clock = _Clock(self.processor_time or self._thread_time())
            self._kernel = _KernelCounters()
        self._begun, self._transfers = True, None
        self._barrier()
        elapsed = self._reduced([was], self._mpi.MAX)[0]
        self._clock.begin = time.perf_counter() - elapsed
        self._clock.lap()
        self._last, self._due = (self.iteration, elapsed), self.iteration + 1

    def _thread_time(self) -> Callable[[], float]:
        """Return the clock of this thread's CPU time, or of the mean of the threads that share the work."""
        threads = self.threads
        return time.thread_time if threads == 1 else lambda: time.process_time() / threads

    def _report_ready(self) -> None:
        self._emit("ready", protocol=1, program=_name(), version="1", ranks=self.size)

    # ------------------------------------------------------------ reports

    def result(
        self,
        rows: Any,
        *,
        files: Iterable[str] = (),
        sink: Callable[[Any], object] | None = None,
    ) -> None:
        """Report the result: this rank's rows without halo and boundary, or declared data.

        Declared data is passed whole: blocks (`blocks`), or an array (`array`, `tiles`) if every element that a
        rank owns belongs to the result.

        The first rank adds the rows to the digest that verifies the run, and to a file if the user wants to keep
        them. It never stores all rows at once.

        Parameters
        ----------
        rows
            None: the result is too large to pass through the first rank. It is not verified then.
        files
            Files that the program has written beside ``result.npy``, or that `sink` writes.
        sink
            Called on the first rank with the bytes of some whole rows at a time, from the first row to the last;
            for example to draw a picture.

        Raises
        ------
        TaskError
            The number of rows differs from the plan's number for this rank.
        """
        if not self._begun:
            raise TaskError(
                "task.result comes after the loop over task.iterations()", code="result-too-early"
            )
        self._leave_loop()
        self._clock.computed()
        self._barrier()
        self._has_result = True
        every = self._gathered()
        borders = self._borders()
        if self._document.mode == "calibrate":
            self._report_calibration()
            return
        digest = "" if rows is None else self._pass_through(rows, sink)
        kept = self.save and self.output and rows is not None
        self._barrier()
        if self.rank == 0:
            self._emit(
                "result",
                iterations=self.iteration,
                seconds=max(row.elapsed for row in every),
                startup_seconds=round(self._startup, 6),
                residual=self._finite_residual(),
                sha256=digest,
                files=[*files, *([str(Path(self.output or "") / "result.npy")] if kept else [])],
                hosts=self._hosts(every),
                **borders,
                **_clipped(every),
            )

    def _pass_through(self, rows: Any, sink: Callable[[Any], object] | None) -> str:
        """Pass the result through the first rank, into its file and the program's sink; return its digest."""
        sha256 = hashlib.sha256()
        rectangles = self._rectangles_of(rows)
        rows = getattr(rows, "own", rows)
        with self._kept(rows, rectangles) as sinks:
            takers = [sha256.update, *sinks, *([sink] if sink else [])]
            for piece in self._in_order(rows, rectangles):
                for take in takers:
                    take(piece)
        return sha256.hexdigest()

    def _finite_residual(self) -> float | None:
        """Return the residual; None if it is not set or not finite, which JSON cannot express."""
        residual = self.residual
        return residual if residual is not None and math.isfinite(residual) else None

    def _rectangles_of(self, rows: Any) -> list[tuple[range, range]]:
        """Return rows and columns of each rank's part of the result; empty if the parts are strips or blocks."""
        if self._document.of_rectangles:
            return self._every_rectangle
        if getattr(rows, "axes", 1) == 1:
            return []
        return [
            (range(one.rows.first, one.rows.stop), range(one.columns.first, one.columns.stop))
            for one in rows.tiles
        ]

    def _in_order(self, rows: Any, rectangles: Sequence[tuple[range, range]]) -> Iterator[Any]:
        """Yield the whole result on rank 0, piece by piece; report a digest of each row of strips. Collective."""
        if rectangles:
            yield from self._whole_rows(rows, rectangles)
            return
        for owner, pieces in self._owners(rows):
            row = 0
            for piece in self._streamed(owner, pieces):
                yield piece
                if not hasattr(rows, "owner"):
                    row += self._report_rows(owner, row, piece, memoryview(rows[:1]).nbytes)

    def _owners(self, rows: Any) -> Iterator[tuple[int, Iterable[Any]]]:
        """Yield the parts of the result in order: the owner of each, and its pieces if this rank is the owner."""
        if hasattr(rows, "owner"):
            for number in range(len(rows)):
                yield rows.owner(number), rows.content(number) if number in rows else ()
            return
        if len(rows) != len(self.strip):
            raise TaskError(
                f"the result has {len(rows)} rows on rank {self.rank}; the plan gives it {len(self.strip)}:"
                " name the parameter that counts rows in Task(rows=..)",
                code="result-shape",
                rank=self.rank,
                value=[len(rows)],
                bound=[len(self.strip)],
            )
        row_bytes = max(1, memoryview(rows[:1]).nbytes)
        step = max(1, min(BLOCK_BYTES // row_bytes, ROWS_AT_ONCE))
        for owner in sorted(range(self.size), key=lambda rank: self.layout[rank][1].start):
            mine = range(0, len(rows), step) if owner == self.rank else ()
            yield owner, (memoryview(rows[k : k + step]).tobytes() for k in mine)

    def _whole_rows(self, own: Any, rectangles: Sequence[tuple[range, range]]) -> Iterator[Any]:
        """Yield on rank 0 some whole rows of the result at a time, put together from rectangles. Collective."""
        mine = rectangles[self.rank]
        if own.shape[:2] != (len(mine[0]), len(mine[1])):
            raise TaskError(
                f"the result has {own.shape[0]} x {own.shape[1]} points on rank {self.rank}; the plan gives it"
                f" {len(mine[0])} x {len(mine[1])}",
                code="result-shape",
                rank=self.rank,
                value=list(own.shape[:2]),
                bound=[len(mine[0]), len(mine[1])],
            )
        point = memoryview(own).itemsize * math.prod(own.shape[2:])
        height = max(rows.stop for rows, _ in rectangles)
        width = point * max(columns.stop for _, columns in rectangles)
        step = max(1, min(BLOCK_BYTES // width, ROWS_AT_ONCE))
        for top in range(0, height, step):
            whole = bytearray(width * min(step, height - top) if self.rank == 0 else 0)
            for owner, (rows, columns) in enumerate(rectangles):
                first, stop = max(top, rows.start), min(top + step, rows.stop)
                if first >= stop or self.rank not in (0, owner):
                    continue
                wide, left = point * len(columns), point * columns.start
                part = bytearray(wide * (stop - first))
                if self.rank == owner:
                    part[:] = memoryview(own[first - rows.start : stop - rows.start]).tobytes()
                if owner:
                    move = self.comm.Irecv if self.rank == 0 else self.comm.Isend
                    other = owner if self.rank == 0 else 0
                    _wait(move([part, self._mpi.BYTE], other, RESULT_TAG).Test)
                for row in range(stop - first) if self.rank == 0 else ():
                    place = (first - top + row) * width + left
                    whole[place : place + wide] = part[row * wide : (row + 1) * wide]
            if self.rank == 0:
                yield whole

    def _report_rows(self, owner: int, row: int, piece: Any, row_bytes: int) -> int:
        """Report a digest of each row of a piece, to show where two results differ; return the number of rows."""
        host, strip = self.layout[owner]
        view = memoryview(piece)
        starts = range(0, len(view), row_bytes)
        self._emit(
            "rows",
            first_row=strip.start + row,
            host=host,
            rank=owner,
            digests="".join(f"{zlib.crc32(view[k : k + row_bytes]):08x}" for k in starts),
        )
        return len(starts)

    def _streamed(self, owner: int, pieces: Iterable[Any]) -> Iterator[Any]:
        """Yield on rank 0 the pieces of a rank's part of the result, one at a time."""
        comm, byte = self.comm, self._mpi.BYTE
        if owner == 0:
            yield from pieces if self.rank == 0 else ()
        elif self.rank == owner:
            for piece in _ended(pieces):
                _wait(comm.Isend([piece, byte], 0, RESULT_TAG).Test)
        elif self.rank == 0:
            while True:
                found: list[Any] = []
                status = self._mpi.Status()
                _wait(lambda: self._arrived(owner, status, found))  # noqa: B023 - called at once
                piece = bytearray(status.Get_count(byte))
                _wait(found[0].Irecv([piece, byte]).Test)
                if not piece:
                    return
                yield piece

    def _arrived(self, owner: int, status: Any, found: list[Any]) -> bool:
        message = self.comm.Improbe(owner, RESULT_TAG, status)
        if message is not None:
            found.append(message)
        return bool(found)

    @contextmanager
    def _kept(
        self, rows: Any, rectangles: Sequence[tuple[range, range]]
    ) -> Iterator[list[Callable[[Any], object]]]:
        """Yield the functions that write the result file, if the user wants one; the file appears complete."""
        if not (self.save and self.output and self.rank == 0):
            yield []
            return
        path = Path(self.output) / "result.npy"
        if rectangles:
            shape = [max(part.stop for part in parts) for parts in zip(*rectangles, strict=True)]
        else:
            shape = [sum(len(strip) for _, strip in self.layout)]
        header = _npy_header(rows, shape)
        part = path.with_name(path.name + ".part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)  # rank 0 may have moved to another host
            with part.open("wb") as stream:
                stream.write(header)
                yield [stream.write]
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from None

    def _report(self) -> None:
        """Report the progress. All ranks compute the iteration of the next report from the gathered times."""
        every, iteration, borders = self._gathered(), self.iteration, self._borders()
        seconds = max(row.elapsed for row in every)
        done, before = iteration - self._last[0], self._last[1]
        period = self._document.progress_seconds
        rate = done / max(seconds - before, 1e-9)
        self._due = iteration + max(1, min(int(period * rate), done * MAX_GROWTH))
        self._last = iteration, seconds
        if self.rank == 0 and not self._by_hand:
            self._emit(
                "progress",
                iteration=iteration,
                iterations=self._number(2),
                seconds=round(seconds, 6),
                residual=self._finite_residual(),
                hosts=self._hosts(every),
                **borders,
                **_clipped(every),
            )
        transfers = self._transfers
        if transfers and transfers.compared is not None:
            comparing = max(row.comparing for row in every)
            if seconds - transfers.compared > comparing / COMPARING_SHARE:
                transfers.compare_clocks()
                transfers.compared = seconds

    def _gathered(self) -> list[_RankTimes]:
        """Return every rank's times. Collective."""
        clock, transfers = self._clock, self._transfers
        if transfers:
            if transfers.compared is None:
                transfers.compare_clocks()
            clock.divide(transfers.settle())
        cpu_wait, throttled, faults = self._kernel.since_begin()
        spikes = clock.explain(max(0.0, cpu_wait) + throttled) if cpu_wait >= 0 else 0.0
        times = _RankTimes(
            clock.compute, clock.processor, clock.communicate, clock.wait, spikes,
            clock.spikes.processor_excess, cpu_wait, throttled, faults,
            transfers.comparing if transfers else 0.0, clock.elapsed,
        )  # fmt: skip
        mine = array("d", times)
        every = array("d", bytes(8 * len(mine) * self.size))
        _wait(self.comm.Iallgather(mine, every).Test)
        gathered = [_RankTimes(*every[len(mine) * k :][: len(mine)]) for k in range(self.size)]
        if transfers and transfers.compared is None:  # from here on the same on all ranks
            transfers.compared = max(row.elapsed for row in gathered)
        return gathered

    def _borders(self) -> dict[str, list[dict[str, object]]]:
        """Return ``borders`` of a report: the transfers between hosts. Collective; empty without an exchange."""
        if self._transfers is None:
            return {}
        later = [
            (other.rank, other.mean, other.latency, size)
            for other, size in zip(self._transfers.neighbours, self._transfers.bytes, strict=True)
            if other.rank > self.rank
        ]
        (most,) = self._reduced([len(later)], self._mpi.MAX)
        width = 4 * int(most)
        mine = array("d", [value for border in later for value in border])
        mine.extend([0.0] * (width - len(mine)))
        every = array("d", bytes(8 * width * self.size))
        _wait(self.comm.Iallgather(mine, every).Test)
        hosts = [host for host, _ in self.layout]
        found: dict[tuple[str, str], dict[str, object]] = {}
        largest: dict[tuple[str, str], float] = {}
        for k in range(0, len(every), 4):
            other, seconds, latency, size = every[k : k + 4]
            pair = hosts[k // width], hosts[int(other)]
            # If several ranks of two hosts share a border, the border with most bytes counts. 0 bytes: no border.
            if pair[0] != pair[1] and size > largest.get(pair, 0.0):
                largest[pair] = size
                found[pair] = {
                    "hosts": list(pair),
                    "bytes": int(size),
                    "seconds": round(seconds, 9),
                    "latency_seconds": round(latency, 9),
                }
        return {"borders": list(found.values())}

    def _hosts(self, every: Sequence[_RankTimes]) -> list[dict[str, object]]:
        """Return each host's times, the mean over its ranks; values that are zero or not counted are left out."""
        of = [host for host, _ in self.layout]
        found: list[dict[str, object]] = []
        names = list(dict.fromkeys(of))
        for name in names:
            rows = [row for host, row in zip(of, every, strict=True) if host == name]
            mean = _RankTimes(*map(statistics.fmean, zip(*rows, strict=True)))
            measured = self._transfers is not None
            times: dict[str, object] = {
                "host": name,
                "compute_seconds": round(mean.compute, 6),
                "processor_seconds": round(mean.processor, 6),
                "communicate_seconds": round(
                    mean.communicate + (0.0 if measured else mean.wait), 6
                ),
            }
            found.append(times)
            if measured:
                times["wait_seconds"] = round(mean.wait, 6)
            if len(names) > MAX_DETAILED_HOSTS:
                continue
            if mean.spikes or mean.processor_spikes:
                times["clipped_compute_seconds"] = round(mean.compute - mean.spikes, 6)
                times["clipped_processor_seconds"] = round(
                    mean.processor - mean.processor_spikes, 6
                )
            if mean.cpu_wait >= 0:
                times["cpu_wait_seconds"] = round(mean.cpu_wait, 6)
            if mean.throttled:
                times["throttled_seconds"] = round(mean.throttled, 6)
            if mean.major_faults:
                times["major_faults"] = round(mean.major_faults * len(rows))
        return found

    def _emit(self, event: str, **fields: Any) -> None:
        """Send an event to the agent; print a line with the result if the program was started by hand."""
        if not self._by_hand:
            emit(event, **fields)
        elif event == "result":
            of = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
            ranks = f"{self.size} rank{'s' * (self.size > 1)}"
            print(  # noqa: T201 - for the user at the terminal
                f"{fields['iterations']} iterations in {fields['seconds']:.3g} s on {ranks}"
                f" ({of}), sha256 {fields['sha256'][:16]}",
                flush=True,
            )

    # ------------------------------------------------------------------ calibrating

    def _calibrate_each(self, sizes: Sequence[int]) -> None:
        """Run the program once for each size, as a process of its own, and end."""
        if self._world.Get_size() != 1:
            raise TaskError(
                f"calibrate runs as one process, not {self._world.Get_size()}",
                code="program-ranks-differ",
                value=self._world.Get_size(),
                bound=1,
            )
        self._report_ready()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
        raw = json.loads(Path(os.environ[TASK]).read_bytes())
        for size in sizes:
            done = subprocess.run(
                [sys.executable, *sys.orig_argv[1:]],
                env={**kept, TASK: "/dev/stdin"},
                input=json.dumps({**raw, "sizes": [size]}).encode(),
                stdout=subprocess.PIPE,
                check=False,
            )
            for line in done.stdout.splitlines(keepends=True):
                if b'"event": "ready"' not in line and b'"event": "done"' not in line:
                    sys.stdout.buffer.write(line)
            sys.stdout.flush()
            if done.returncode:
                raise TaskError(
                    f"calibrating {size} rows ended with code {done.returncode}",
                    code="calibration-failed",
                    rows=size,
                    value=done.returncode,
                )
        emit("done")
        raise SystemExit(0)

    def _take_sample(self) -> None:
        """Count an iteration; several short iterations make one sample."""
        clock, sample = self._clock, self._sample
        sample[0] += 1
        if clock.processor - sample[1] >= SAMPLE_SECONDS:
            count, used, wall = sample
            self._samples.append(
                ((clock.processor - used) / count, (clock.compute - wall) / count)
            )
            self._sample = [0.0, clock.processor, clock.compute]

    def _enough(self) -> bool:
        """Whether there are enough samples, without the first, which had cold caches."""
        count = len(self._samples)
        long = self._clock.processor >= SIZE_SECONDS
        return count > MAX_SAMPLES or (count > MIN_SAMPLES and long)

    def _report_calibration(self) -> None:
        blocks_only = self._job and not self._job.shares_rows
        points = (self._number(0) if blocks_only else len(self.strip)) * self._number(1)
        count = max(1, self.iteration)
        samples = self._samples[1:] or [
            (self._clock.processor / count, self._clock.compute / count)
        ]
        own = points / self.threads  # points of each thread
        rows = self._document.pieces[0].rows
        self.calibrated(rows, [(used / own, wall / own) for used, wall in samples])

    def calibrated(
        self,
        rows: int,
        samples: Sequence[tuple[float, float]],
        *,
        free_memory: float | None = None,
    ) -> None:
        """Report the speed of the kernel over a strip, of a program with ``Task(calibrates=True)``.

        Parameters
        ----------
        rows
            One of `sizes`.
        samples
            Processor seconds and wall seconds per point, for each sample.
        free_memory
            Free bytes where the kernel stores strips, if that is not the host's memory but, for example, a GPU's.
        """
        self._has_result = True
        used = sorted(used for used, _ in samples)
        quarter = len(used) // 4
        emit(
            "calibration",
            rows=rows,
            seconds_per_point=statistics.median(used),
            error=(used[-1 - quarter] - used[quarter]) / 2,
            repeats=len(used),
            wall_seconds_per_point=mean_without_spike([wall for _, wall in samples]),
            **({} if free_memory is None else {"free_memory": int(free_memory)}),
        )

    # ---------------------------------------------------------------------- the end

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Report the end; after an error, end all ranks and report the error."""
        if error is None and not self._has_result:
            error = TaskError(
                "the program ended without task.result(..)", code="program-result-missing"
            )
            kind = TaskError
        if isinstance(error, SystemExit) and error.code in (0, None):
            return  # this rank's host leaves a malleable job
        if error is None:
            self._forget_plans()  # MPICH prints a line for each remaining request
            if self._job:
                self._job.finish()
            self._barrier()
            if self.rank == 0 and not self._by_hand:
                emit("done")
            return
        try:
            if self._job:
                self._job.__exit__(kind, error, trace)  # it handles errors of read-only arrays
        except Exception as explained:  # noqa: BLE001 - the job's own error replaces the first one
            error, trace = explained, None
        if not (self._job and self.malleable):
            self._fail(error)
        if trace is None:
            raise error

    def _fail(self, error: BaseException) -> None:
        """End all ranks after an error; a program of one rank that was started by hand ends by itself."""
        expected = isinstance(error, TaskError)
        code = (
            getattr(error, "code", "") if hasattr(error, "fields") else ""
        )  # an error of a task, or of apples
        if self._by_hand and expected:
            sys.stderr.write(f"{_name()}: {error} [{code}]\n")
        elif not expected and (not self._by_hand or (self._world and self._world.Get_size() > 1)):
            traceback.print_exception(error)
        rank = self._world.Get_rank() if self._world else 0
        if not self._by_hand:
            text = str(error)
            if isinstance(error, OSError) and error.filename and error.strerror:
                text = f"{error.filename}: {error.strerror}"
            message = " ".join(text.split()) or type(error).__name__
            full = isinstance(error, MemoryError) or (
                isinstance(error, OSError) and error.errno in NO_ROOM
            )
            more: dict[str, Any] = {"resources": True} if full else {}
            more |= {"code": code} if code else {}
            emit("error", message=message[:MAX_MESSAGE], rank=rank, **more)
        if self._world and (self._world.Get_size() > 1 or not self._by_hand):
            sys.stderr.flush()
            time.sleep(ABORT_DELAY_SECONDS)
            self._world.Abort(2 if expected else 1)
        if expected:
            raise SystemExit(2)

    def _barrier(self) -> None:
        _wait(self.comm.Ibarrier().Test)

    def _reduced(self, values: Sequence[float], operation: Any) -> list[float]:
        mine = array("d", values)
        every = array("d", bytes(8 * len(mine)))
        _wait(self.comm.Iallreduce(mine, every, operation).Test)
        return list(every)


def _clipped(every: Sequence[_RankTimes]) -> dict[str, float]:
    """Return the seconds of the loop without the timing spikes of its ranks, if there were any.

    A spike of one rank delays all ranks. Spikes of several ranks in one iteration overlap, but no rank computes
    for longer than the loop takes.
    """
    spikes = sum(row.spikes for row in every)
    if not spikes:
        return {}
    longest = max(row.compute - row.spikes for row in every)
    seconds = max(row.elapsed for row in every)
    return {"clipped_seconds": round(max(seconds - spikes, longest), 6)}


def _process_age() -> float:
    """Return the seconds since this process was started, by the kernel's account."""
    ticks = int(_content("/proc/self/stat").rpartition(b")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def _demand_writable(folder: Path) -> None:
    """Make the folder of the output before any work is done; raise TaskError if files cannot be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        reason = "" if os.access(folder, os.W_OK | os.X_OK) else "no permission to write"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise TaskError(
            f"output {folder}: {reason}",
            code="output-unwritable",
            file=str(folder),
            reason=reason,
        )


def mean_without_spike(seconds: Sequence[float]) -> float:
    """Return the mean of some samples; the longest, a possible spike, counts at most 1.5 times the next.

    Examples
    --------
    >>> mean_without_spike([1.0, 1.0, 500.0, 1.0])
    1.125
    """
    *others, longest = sorted(seconds)
    return statistics.fmean(
        [*others, min(longest, SPIKE_FACTOR * others[-1] if others else longest)]
    )


def _irreducible(what: str, operation: str) -> TaskError:
    return TaskError(
        f"task.allreduce cannot take the {operation} of a value of type {what}",
        code="type-unsupported",
        value=what,
    )


# The public name in programs, where `Task` is not ambiguous.
Task = ProgramTask


def _name() -> str:
    """Return the program's name: that of its file, or of its folder if the file has a common name."""
    path = Path(sys.argv[0]).resolve()
    return (path.parent.name if path.stem in {"program", "solver"} else path.stem) or "program"


def _within(one: range, mine: range) -> slice:
    """Return the indices of the intersection of two ranges in an array of `mine` with a halo of one."""
    return slice(
        max(one.start, mine.start) - mine.start + 1, min(one.stop, mine.stop) - mine.start + 1
    )


def _line(place: int) -> slice:
    """Return one row or column; a negative number counts from the end."""
    return slice(place, place + 1 or None)


def _ended(pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield the pieces that are not empty, then an empty piece."""
    yield from filter(len, pieces)
    yield b""


def _npy_header(rows: Any, whole: Sequence[int]) -> bytes:
    """Return the header of a ``.npy`` file with this number of rows, or of rows and columns."""
    view = memoryview(rows[:1])
    kind, inner = KINDS.get(view.format), (view.shape or ())[len(whole) :]
    if kind is None:
        raise TaskError(
            f"a result of format {view.format!r} cannot be saved as .npy",
            code="result-format-invalid",
            value=view.format,
        )
    shape = (*whole, *inner)
    order = "<" if sys.byteorder == "little" else ">"
    text = (
        f"{{'descr': '{order}{kind}{view.itemsize}', 'fortran_order': False, 'shape': {shape}, }}"
    )
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


SPIN_SECONDS, MIN_NAP_SECONDS, MAX_NAP_SECONDS, NAP_SHARE = 80e-6, 50e-6, 1e-3, 0.05


def _wait(done: Callable[[], bool]) -> None:
    """Return when `done()` is true: spin, then sleep a twentieth of the wait so far.

    Spinning detects a neighbour that is on time. A late neighbour may need this rank's CPU; yielding the CPU
    would not help a rank in another scheduling group, for example of another session.
    """
    start = time.perf_counter()
    while not done():
        waited = time.perf_counter() - start
        if waited > SPIN_SECONDS:
            time.sleep(min(max(NAP_SHARE * waited, MIN_NAP_SECONDS), MAX_NAP_SECONDS))
