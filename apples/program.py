"""`Task`: a program's side of the application protocol. Standard library and mpi4py, and this one file.

    with Task() as task:
        u = np.zeros((len(task.strip) + 2, task.parameters["grid"]))
        for _ in task.iterations():
            task.exchange(u)
            ...  # a sweep over u
        task.result(u[1:-1])

The same lines run under an agent, which gives every host its rows; by hand (``python program.py --set grid=50``,
``mpiexec -n 3 python program.py``), where every rank gets as many; as the sequential reference; to be calibrated;
and, where the arrays are declared by `Task.array` and its like, on hosts that change meanwhile.

Hosts without apples need a copy of this file beside the program, as ``apples/program.py``; where apples is
installed, the copy is not looked at. What a program declares needs apples (`apples.malleable.Job`).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import tomllib
import traceback
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

TASK = "APPLES_TASK"
"""Environment variable that names the task's file; without it a program was started by hand."""
MALLEABLE = "APPLES_MALLEABLE"
"""Environment variable of a rank whose hosts may change: where its node's supervisor listens."""
BY_HAND = "here"
"""Name of the one host of a program that was started by hand."""
SCHEMA = "apples.task/1"
Value = int | float | str

STARTED = time.perf_counter()
STANDARD_OUTPUT = 1
LONGEST_MESSAGE = 2000
LAST_WORDS_SECONDS = 1.0
"""Between an error event and the abort: hydra drops what a rank said just before it."""
FASTEST_GROWTH = 16
"""Between two reports the number of iterations at most grows by this factor."""
BLOCK_BYTES, ROWS_AT_ONCE = 4 << 20, 4096
"""Of the result, on their way to the first rank at a time; a line has 64 KiB, and eight letters of them a row."""
HALO_TAG, RESULT_TAG = 32_766, 32_765
"""High, so that they are no program's own; 32767 is that of a declared array's halo."""
SPIKE_FACTOR = 1.5
"""A timing spike: an iteration that takes so many times a usual long one (97 of 100 are shorter)."""
USUAL_RISE = 1.5
USUAL_FALL = USUAL_RISE ** (-0.03 / 0.97)
"""By iteration that is longer, or shorter; where 3 of 100 are longer, it stays the same."""
FIRST_ITERATIONS = 7
"""Their median is the first usual long one: cold caches and compilation count as a spike."""
TICK_SECONDS = 1e-6
MOST_DETAILED_HOSTS = 128
"""Hosts of which a report has the kernel's counters, too: an event has 64 KiB."""
SAMPLE_SECONDS, SIZE_SECONDS = 2e-3, 0.15
FEWEST_SAMPLES, MOST_SAMPLES = 7, 101
LAUNCHERS = ("PMI_", "PMIX_", "HYDRA_", "HYDI_", "MPI_LOCAL", "OMPI_")
"""Variables by which a process would take itself for a rank of its parent's world."""
DECLARES = frozenset(
    ("array", "tiles", "csr", "replicated", "blocks", "may_lose", "commit", "request", "members")
)
"""What of `apples.malleable.Job` a task hands out."""
KINDS = {
    "d": "f",
    "f": "f",
    "e": "f",
    **dict.fromkeys("bhilq", "i"),
    **dict.fromkeys("BHILQ", "u"),
}
"""Formats of the standard library -> kinds of numpy's, of what a result may be saved in."""


class TaskError(ValueError):
    """The task cannot be done as it stands; the message is one line for the user. Permanent.

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
    """One host's strip or rectangle, as the task has it: `ranks` share the rows from `first_row` on.

    Of a rectangle also `columns` from `first_column` on; 0 columns are all there are.
    """

    host: str
    ranks: int
    first_row: int
    rows: int
    first_column: int = 0
    columns: int = 0


STRIP = Piece._fields[:4]
"""What a strip says; a rectangle says all."""


class Contact(NamedTuple):
    """Where a rank's rectangle touches that of another: what goes there, and what comes from there.

    Both are places in an array of the rectangle with a halo of one point on all sides.
    """

    rank: int
    edge: tuple[slice, slice]
    halo: tuple[slice, slice]


@dataclass(frozen=True)
class TaskDocument:
    """What an agent asks of a program, checked (docs/reference/protocol.md).

    Attributes
    ----------
    pieces
        The strips in rank order; none where `mode` is ``calibrate``, which has `sizes`.
    implementations
        Host -> name of the template's implementation to run there.
    distances
        Host -> other host -> what a byte between them costs beside one between the nearest; empty: all as much.
    threads
        Of the one process, where its implementation is by threads.
    partitions
        How blocks that are declared by a decomposition are to be cut, in place of it; empty: as they are declared.
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
        """Host and rows of every rank: a host's ranks share its rows, the earlier ones the larger pieces."""
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
        """Whether hosts have rectangles, in place of strips of whole rows."""
        return any(piece.columns for piece in self.pieces)

    def across(self, columns: int) -> list[range]:
        """Return the columns of every rank, of so many."""
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
        Whether the program takes them.

    Raises
    ------
    TaskError
        The text does not say what it should.

    Examples
    --------
    >>> read_task('{"schema": "apples.task/1", "mode": "dream", "parameters": {}}')
    Traceback (most recent call last):
    apples.program.TaskError: the task's mode is 'dream', neither run nor calibrate
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise TaskError(
            f"the task is not JSON: {error}", code="task-not-json", reason=str(error)
        ) from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise TaskError(f"the task's schema is not {SCHEMA}", field="schema")
    mode = raw.get("mode")
    if mode not in ("run", "calibrate"):
        raise TaskError(
            f"the task's mode is {mode!r}, neither run nor calibrate", field="mode", value=mode
        )
    parameters: Any = raw.get("parameters")
    implementations = raw.get("implementations", {})
    output, save = raw.get("output"), raw.get("save", False)
    period = raw.get("progress_seconds", 0.25)
    distances, partitions = raw.get("distances", {}), raw.get("partitions", "")
    for name, right in (
        ("parameters", isinstance(parameters, dict)),
        ("implementations", isinstance(implementations, dict)),
        ("output", output is None or isinstance(output, str)),
        ("save", isinstance(save, bool) and not (save and output is None)),
        ("progress_seconds", isinstance(period, int | float) and period >= 0),
        ("distances", _are_distances(distances)),
        ("partitions", isinstance(partitions, str)),
    ):
        if not right:
            raise TaskError(
                f"the task's {name} is {raw.get(name)!r}", field=name, value=raw.get(name)
            )
    pieces = tuple(_pieces(raw.get("partition"), rectangles)) if mode == "run" else ()
    sizes = tuple(_sizes(raw.get("sizes"))) if mode == "calibrate" else ()
    threads = raw.get("threads", 1) if sizes else raw["partition"][0].get("threads", 1)
    if type(threads) is not int or not threads >= 1:
        raise TaskError(
            f"the task's threads are {threads!r}, not a number of them",
            field="threads",
            value=threads,
        )
    return TaskDocument(
        mode,
        parameters,
        pieces,
        implementations,
        output,
        save,
        float(period),
        sizes,
        distances,
        threads,
        partitions,
    )


def _are_distances(found: Any) -> bool:
    rows = found.values() if isinstance(found, dict) else [None]
    return all(
        isinstance(row, dict)
        and all(type(far) in {int, float} and 0 < far < float("inf") for far in row.values())
        for row in rows
    )


def _pieces(partition: object, rectangles: bool) -> Iterator[Piece]:
    if not isinstance(partition, list) or not partition:
        raise TaskError(
            "the task's partition is not a list of one entry or more", field="partition"
        )
    any_cut = False
    found: list[Piece] = []
    for index, entry in enumerate(partition):
        cut = isinstance(entry, dict) and "columns" in entry
        said = Piece._fields if cut else STRIP
        try:
            piece = Piece(*(entry[name] for name in said))
        except (TypeError, KeyError):
            raise TaskError(
                f"the task's partition[{index}] does not say {', '.join(said)}",
                code="partition-invalid",
                index=index,
                known=list(said),
            ) from None
        if cut and not rectangles:
            raise TaskError(
                f"the task's partition[{index}] is a rectangle: this program takes whole rows alone, so"
                " rectangles = true is wrong in its template, or Task(rectangles=True) lacks in the program",
                code="rectangles-undeclared",
                index=index,
            )
        if not isinstance(piece.host, str) or any(type(number) is not int for number in piece[1:]):
            raise TaskError(
                f"the task's partition[{index}] is {entry!r}",
                code="partition-invalid",
                index=index,
            )
        if not 1 <= piece.ranks <= piece.rows:
            raise _misplaced(index, piece, "")
        any_cut = any_cut or cut
        found.append(piece)
    if any_cut:
        _demand_whole(found)
    else:
        _demand_rows(found)
    yield from found


def _demand_rows(pieces: Sequence[Piece]) -> None:
    """Raise TaskError unless each row is in one strip: of several tasks a host may have one of each."""
    row = 0
    for index, piece in sorted(enumerate(pieces), key=lambda each: each[1].first_row):
        if piece.first_row != row:
            raise _misplaced(index, piece, f"it begins at row {row}, and ")
        row += piece.rows


def _misplaced(index: int, piece: Piece, begins: str) -> TaskError:
    return TaskError(
        f"the task's partition[{index}] has rows {piece.first_row} to {piece.first_row + piece.rows} for"
        f" {piece.ranks} ranks; {begins}each rank has a row",
        code="partition-invalid",
        index=index,
        rows=[piece.first_row, piece.first_row + piece.rows],
        ranks=piece.ranks,
    )


def _demand_whole(pieces: Sequence[Piece]) -> None:
    """Raise TaskError unless rectangles cover a grid and no two of them overlap."""
    height = max(piece.first_row + piece.rows for piece in pieces)
    width = max(piece.first_column + piece.columns for piece in pieces)
    for index, one in enumerate(pieces):
        if min(one.first_row, one.first_column, one.columns - 1) < 0:
            raise TaskError(
                f"the task's partition[{index}] is no rectangle of a grid: {one}",
                code="rectangle-invalid",
                index=index,
            )
        for other in pieces[:index]:
            apart = (
                one.first_row >= other.first_row + other.rows
                or other.first_row >= one.first_row + one.rows
                or one.first_column >= other.first_column + other.columns
                or other.first_column >= one.first_column + one.columns
            )
            if not apart:
                raise TaskError(
                    f"the task's partition[{index}] overlaps that of {other.host}",
                    code="rectangles-overlap",
                    index=index,
                    host=other.host,
                )
    points = sum(piece.rows * piece.columns for piece in pieces)
    if points != height * width:
        raise TaskError(
            f"the task's partition has {points} points of {height} rows of {width}",
            code="rectangles-incomplete",
            value=points,
            bound=height * width,
        )


def _sizes(sizes: object) -> list[int]:
    if not isinstance(sizes, list) or not sizes or any(type(n) is not int or n < 1 for n in sizes):
        raise TaskError(
            f"the task's sizes are {sizes!r}, not numbers of rows", field="sizes", value=sizes
        )
    return sizes


def parameters_by_hand(
    defaults: Mapping[str, Value], arguments: Sequence[str], folder: Path
) -> dict[str, Value]:
    """Return a program's parameters where no agent gives them.

    Parameters
    ----------
    defaults
        The program's own; those of a ``template.toml`` in `folder` come before them, and before both what
        the arguments ``--set NAME=VALUE`` say. Other arguments are the program's own.

    Raises
    ------
    TaskError
        The template or an argument cannot be read, or sets what nobody knows.

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


def task_of_agent(
    comm: Any, *, rectangles: bool = False, everywhere: bool = False
) -> TaskDocument | None:
    """Return the agent's task on every rank, None where there is no agent. Collective.

    One of rectangles is an error for a program that does not take them.

    Raises
    ------
    TaskError
        It cannot be read: on every rank with `everywhere`; else on rank 0, which is to abort the others, who wait.
    """
    path = os.environ.get(TASK)
    return _shared(comm, lambda: _file(path), rectangles, everywhere) if path else None


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise TaskError(
            f"the task {path} cannot be read: {error.strerror}", code="task-unreadable", file=path
        ) from None


def _shared(
    comm: Any, text: Callable[[], bytes], rectangles: bool, everywhere: bool = False
) -> TaskDocument:
    """Return the task that rank 0 has, on every rank; what is wrong is said there, or `everywhere`. Collective."""
    found, wrong, fields = b"", "", {}
    if comm.Get_rank() == 0:
        try:
            found = text()
            read_task(found, rectangles=rectangles)
        except TaskError as error:
            if not everywhere:
                raise
            wrong, fields = str(error), {"code": error.code, **error.fields}
    found, wrong, fields = comm.bcast((found, wrong, fields))
    if wrong:
        raise TaskError(wrong, **fields)
    return read_task(found, rectangles=rectangles)


def hosts_may_change() -> bool:
    """Whether a job manager runs this rank, which may give the job other hosts."""
    return MALLEABLE in os.environ


NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a file that are not the program's."""


def emit(event: str, **fields: object) -> None:
    """Write one event to standard output, in one piece as long as a pipe keeps pieces whole."""
    rest = (json.dumps({"event": event, **fields}, allow_nan=False) + "\n").encode()
    while rest:
        rest = rest[os.write(STANDARD_OUTPUT, rest) :]


class _Clock:
    """Seconds of this rank since the loop began: computing, of that on the processor, and communicating."""

    def __init__(self, threads: int = 1) -> None:
        self.compute = self.processor = self.communicate = 0.0
        self.begin = self._wall = time.perf_counter()
        self._threads = threads
        self._processor = self._processor_time()
        self.spikes, self.unexplained = Spikes(), 0.0
        self._counted = self.compute, self.processor
        self._explained = self.spikes.excess, 0.0

    def lap(self) -> tuple[float, float]:
        """Return wall and processor seconds since the last lap."""
        wall, processor = time.perf_counter(), self._processor_time()
        spent = wall - self._wall, processor - self._processor
        self._wall, self._processor = wall, processor
        return spent

    def _processor_time(self) -> float:
        """Return the processor time of this thread, or the mean of the threads that share the work."""
        return time.process_time() / self._threads if self._threads > 1 else time.thread_time()

    def computed(self) -> None:
        """Count the time since the last lap as computing."""
        wall, processor = self.lap()
        self.compute += wall
        self.processor += processor

    def count(self) -> None:
        """Count an iteration that has just been computed; its spike, if it has one, is remembered."""
        compute, processor = self._counted
        self._counted = self.compute, self.processor
        self.spikes.add(self.compute - compute, self.processor - processor)

    def explain(self, stopped: float) -> float:
        """Return the seconds of spikes in computing that nothing explains.

        Who waits for a CPU, or is stopped by a quota, is slow and has no timing spike.

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
        """Take in an iteration, with the processor time in it."""
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
    """What the kernel counts of this process: why it computes longer than it should."""

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
"""Seconds that a unit of the counter is, of cgroups version 2 and 1."""


def _content(path: str) -> bytes:
    """Return what a small file of the kernel's contains now; nothing where this kernel has no such file."""
    try:
        with Path(path).open("rb", buffering=0) as file:
            return file.read(4096)
    except OSError:
        return b""


def _quota_files() -> Iterator[str]:
    """Yield where the counters of this process's CPU quota may be, in the order of preference."""
    for line in _content("/proc/self/cgroup").decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            yield f"/sys/fs/cgroup/{controllers}{path}/cpu.stat"


class ProgramTask:
    """What one rank of a program is asked to do, and what it says of it. In programs it is called `Task`.

    Every rank calls everything here as often as the others, in the same order. An exception inside the ``with``
    block ends all ranks, and the agent hears its message.

    Parameters
    ----------
    rows, columns, iterations
        Names of the parameters that say how many rows there are to share out, how many points a row has (as many
        as there are rows where None) and how many iterations to do; or the numbers. As in the template.
    rectangles
        Whether the program takes rectangles (`rectangle`), not only strips of whole rows.
    defaults
        Parameters of a program that has no template beside it, where it is started by hand.
    arguments
        Of the command line, of which ``--set NAME=VALUE`` is read where the program is started by hand;
        those of this process when None.

    Attributes
    ----------
    parameters
        The template's parameters as the user has set them.
    output, save
        A directory to write to, or None; whether the result is to be kept there, which `result` does.
    residual
        What the next report says of it; None as long as nobody set it.
    changed
        Whether hosts, rows and communicator are other than in the iteration before; so in the first.
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
    ) -> None:
        self._named = rows, rows if columns is None else columns, iterations
        self._takes_rectangles = rectangles
        self._defaults = dict(defaults or {})
        self._arguments = sys.argv[1:] if arguments is None else list(arguments)
        self.parameters: Mapping[str, Value] = {}
        self.output: str | None = None
        self.save = False
        self.residual: float | None = None
        self.changed = False
        self._job: Any = None
        self._state: Any = None
        self._done = 0
        self._begun = self._told = False
        self._clock = _Clock()
        self._samples: list[tuple[float, float]] = []
        self._sample = [0.0, 0.0, 0.0]
        self._due, self._last = 0, (0, 0.0)

    # ------------------------------------------------------------------ what is asked

    def __enter__(self) -> ProgramTask:
        """Take up the task. Where it is to calibrate several sizes, the program runs once for each, and ends."""
        self._world: Any = None
        self._by_hand = not os.environ.get(TASK)
        try:
            self._mpi = import_module("mpi4py.MPI")
            self._world = self._mpi.COMM_WORLD
            asked = task_of_agent(self._world, rectangles=self._takes_rectangles)
            self._take_up(asked or _shared(self._world, self._own_task, rectangles=False))
        except Exception as error:
            self._fail(error)
            raise
        return self

    def _own_task(self) -> bytes:
        """Return the task of a program that was started by hand: as many rows for each rank."""
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
            if len(document.sizes) > 1:
                self._calibrate_each(document.sizes)
            piece = Piece(BY_HAND, 1, 0, document.sizes[0])
            document = replace(document, pieces=(piece,))
        self._document, self._layout = document, document.layout
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
                f"the task's partition has {rows} rows; {named} is {known}: Task(rows=..) says"
                " which parameter counts them",
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
                    f"the task's partition has {found} columns; {self._named[1]} is {columns}:"
                    " Task(columns=..) says which parameter counts them",
                    code="grid-columns-differ",
                    value=found,
                    bound=columns,
                )
            self._touching = list(self._contacts())

    def _contacts(self) -> Iterator[Contact]:
        """Yield the ranks whose rectangles share a part of a side with this one's."""
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
                f"{what}: the parameter {named!r} is {value!r}, no whole number of 1 or more;"
                f" Task({what}=..) says which parameter it is",
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
    def comm(self) -> Any:
        """The communicator of the moment."""
        return self._job.comm if self._job else self._world

    @property
    def rank(self) -> int:
        """This rank's number."""
        return int(self.comm.Get_rank())

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return int(self.comm.Get_size())

    @property
    def layout(self) -> list[tuple[str, range]]:
        """Host and rows of every rank."""
        if self.malleable and not self._begun:
            raise TaskError(
                "a malleable program has its rows from the first iteration on: declare what is shared out"
                " (task.array, task.blocks, ..), and look at it inside the loop",
                code="rows-not-assigned",
            )
        if self._job and self._begun:
            return [(host, range(rows.first, rows.stop)) for host, rows in self._job.layout]
        return self._layout

    @property
    def strip(self) -> range:
        """This rank's rows: ``strip.start`` is the first of ``len(strip)``."""
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
        return str(self._job.host) if self._job else self.layout[self.rank][0]

    @property
    def implementation(self) -> str:
        """Name of the template's implementation to run on this rank's host; empty where it has only one."""
        return (self._document.implementations or {}).get(self.host, "")

    @property
    def threads(self) -> int:
        """By how many threads this rank is to compute: 1, unless its implementation is by threads."""
        return self._document.threads

    @property
    def neighbours(self) -> tuple[int, int]:
        """The ranks above and below; ``MPI.PROC_NULL`` where there is none."""
        rank, nobody = self.rank, self._mpi.PROC_NULL
        return rank - 1 if rank else nobody, rank + 1 if rank + 1 < self.size else nobody

    # ------------------------------------------------------ what is declared to a job

    def __getattr__(self, name: str) -> Any:
        """Return what `apples.malleable.Job` has of this name: `array`, `tiles`, `csr`, `replicated`, `blocks`."""
        if name in DECLARES:
            return getattr(self._joined(), name)
        raise AttributeError(f"a task has no {name!r}")

    def state(self, **values: Any) -> Any:
        """Declare values that are the same on every rank, besides `iteration`: see `Job.state`."""
        self._state = self._joined().state(**{"iteration": 0, "elapsed_seconds": 0.0, **values})
        return self._state

    def _joined(self) -> Any:
        """Return this rank's malleable job, which is what it declares to."""
        if self._takes_rectangles:
            raise TaskError(
                "what a program declares is shared out in whole rows, not with rectangles=True",
                code="declaration-needs-rows",
            )
        if self._job is None:
            try:
                module = import_module("apples.malleable")
            except ImportError as error:
                raise TaskError(
                    f"what a program declares needs apples on every host, not this file alone: {error}",
                    code="apples-missing",
                    reason=str(error),
                ) from None
            self._job = module.Job(task=self._document)
        return self._job

    # ------------------------------------------------------------------- the loop

    @property
    def iteration(self) -> int:
        """How many iterations are done."""
        return int(self._state.iteration) if self._state else self._done

    def iterations(self) -> Iterator[int]:
        """Yield the number of each iteration to do, from 0 on; between two of them hosts may change.

        Who leaves the loop early, because it has converged, say, has done the iteration in which it does.
        """
        caller: FrameType | None = sys._getframe(1)
        last = self._number(2)
        while True:
            self._pass(caller)
            caller = None
            if self._enough() if self._document.mode == "calibrate" else self.iteration >= last:
                return
            try:
                yield self.iteration
            except GeneratorExit:
                self._count()
                raise
            self._count()
            if self._document.mode == "run" and self.iteration >= last:
                return
            self.progress()

    def safepoint(self, before: Callable[[], object] | None = None) -> Any:
        """Say that hosts may change now; for programs with a loop of their own, which count ``state.iteration``.

        Returns what `apples.malleable.Job.safepoint` does. The first call begins the measured time.
        """
        return self._pass(sys._getframe(1), before)

    def progress(self) -> None:
        """Say how far the run is, if it is time to; `iterations` does that by itself."""
        self._clock.computed()
        self._clock.count()
        if self._document.mode == "calibrate":
            self._take_sample()
        elif 0 < self._due <= self.iteration:
            self._report()
        if self._state:
            self._state.elapsed_seconds = self._clock.elapsed
        self._clock.lap()

    def allreduce(self, value: float, operation: str = "max") -> float:
        """Return the ``max``, ``min`` or ``sum`` of a value over all ranks."""
        with self.communicating():
            kind = getattr(self._mpi, operation.upper())
            if self._job:
                return float(self._job.allreduce(value, kind))
            return self._reduced([value], kind)[0]

    def exchange(self, *arrays: Any, halo: int = 1) -> None:
        """Send the rows at the edges of strips to the neighbours, and take theirs into the `halo` rows beyond.

        An array has ``halo`` rows, the rank's own, and as many again; a declared one (`array`) knows them itself.
        In a program that takes rectangles an array has a halo of one point on all four sides; corners stay.
        """
        with self.communicating():
            if self._takes_rectangles:
                self._exchange_sides(arrays, halo)
                return
            requests = []
            above, below = self.neighbours
            for one in arrays:
                if hasattr(one, "exchange"):
                    one.exchange()
                    continue
                comm = self.comm
                requests += [
                    comm.Irecv(one[:halo], above, HALO_TAG),
                    comm.Irecv(one[-halo:], below, HALO_TAG),
                    comm.Isend(one[halo : 2 * halo], above, HALO_TAG),
                    comm.Isend(one[-2 * halo : -halo], below, HALO_TAG),
                ]
            _wait(lambda: self._mpi.Request.Testall(requests))

    def _exchange_sides(self, arrays: Sequence[Any], halo: int) -> None:
        """Exchange a line of points with each rectangle that touches this one."""
        rows, columns = self.rectangle
        requests, coming = [], []
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
            for rank, edge, beyond in self._touching:
                there = one[beyond].copy()
                coming.append((one, beyond, there))
                requests += [
                    self.comm.Irecv(there, rank, HALO_TAG),
                    self.comm.Isend(one[edge].copy(), rank, HALO_TAG),
                ]
        _wait(lambda: self._mpi.Request.Testall(requests))
        for one, beyond, there in coming:
            one[beyond] = there

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """Count what is done inside as communicating; all else in an iteration is computing."""
        self._clock.computed()
        yield
        self._clock.communicate += self._clock.lap()[0]

    def _count(self) -> None:
        """Count an iteration."""
        if self._state:
            self._state.iteration += 1
        else:
            self._done += 1

    def _pass(self, caller: FrameType | None, before: Callable[[], object] | None = None) -> Any:
        """Come to a safe point, if there is a job; return what changed."""
        if self._job is None and not self._begun and self.malleable:
            raise TaskError(
                "the template says malleable = true; the program declares nothing that could go to other"
                " hosts: task.array, task.blocks, ... do",
                code="nothing-declared",
            )
        if self._job is None:
            change = None if self._begun else True
        elif self._begun:
            change = self._job.safepoint(before)
        else:
            if self._state is None:
                self.state()
            change = self._job.join(caller, ProgramTask)
        self.changed = bool(change)
        if change:
            self._begin(change)
        return change

    def _begin(self, change: Any) -> None:
        """Begin the measured time, or go on with it on other hosts."""
        was = self._clock.elapsed if self._begun else 0.0
        kind = getattr(change, "kind", "started" if change is True else "rollback")
        if self._state and not self._begun:
            was = float(self._state.elapsed_seconds)
        self._barrier()
        if kind == "started" and self.rank == 0:
            self._say("ready", protocol=1, program=_name(), version="1", ranks=self.size)
        if not self._begun:
            self._startup = time.perf_counter() - STARTED
            self._clock = _Clock(self.threads)
            self._kernel = _KernelCounters()
        self._begun = True
        self._barrier()
        elapsed = self._reduced([was], self._mpi.MAX)[0]
        self._clock.begin = time.perf_counter() - elapsed
        self._clock.lap()
        self._last, self._due = (self.iteration, elapsed), self.iteration + 1

    # ------------------------------------------------------------ what is said of it

    def result(self, rows: Any, *, files: Iterable[str] = ()) -> None:
        """Say what came out: this rank's rows of the result, without halo and boundary, or blocks (`blocks`).

        They go through the first rank, which never holds them all, into the digest that verifies the run, and
        into a file where the user wants to keep them.

        Raises
        ------
        TaskError
            The rows are not as many as the plan gives this rank.
        """
        if not self._begun:
            raise TaskError(
                "task.result comes after the loop over task.iterations()", code="result-too-early"
            )
        self._clock.computed()
        self._barrier()
        self._told = True
        every = self._gathered()
        seconds = max(row[-1] for row in every)
        if self._document.mode == "calibrate":
            self._say_calibration()
            return
        sha256, said = hashlib.sha256(), [*files]
        with self._kept(rows) as sinks:
            for piece in self._in_order(rows):
                for take in (sha256.update, *sinks):
                    take(piece)
        if self.save and self.output and self.rank == 0:
            said.append(str(Path(self.output) / "result.npy"))
        self._barrier()
        if self.rank == 0:
            self._say(
                "result",
                iterations=self.iteration,
                seconds=seconds,
                startup_seconds=round(self._startup, 6),
                residual=self.residual,
                sha256=sha256.hexdigest(),
                files=said,
                hosts=self._hosts(every),
                **_clipped(every, seconds),
            )

    def _in_order(self, rows: Any) -> Iterator[Any]:
        """Yield on rank 0 the whole result, a piece at a time; of strips say a digest of each row. Collective."""
        if self._document.of_rectangles:
            yield from self._whole_rows(rows)
            return
        for owner, pieces in self._owners(rows):
            row = 0
            for piece in self._streamed(owner, pieces):
                yield piece
                if not hasattr(rows, "owner"):
                    row += self._say_rows(owner, row, piece, memoryview(rows[:1]).nbytes)

    def _owners(self, rows: Any) -> Iterator[tuple[int, Iterable[Any]]]:
        """Yield what the result consists of, in order: whose it is, and the pieces of what is here."""
        if hasattr(rows, "owner"):
            for number in range(len(rows)):
                yield rows.owner(number), rows.content(number) if number in rows else ()
            return
        if len(rows) != len(self.strip):
            raise TaskError(
                f"the result has {len(rows)} rows on rank {self.rank}; the plan gives it {len(self.strip)}:"
                " Task(rows=..) says which parameter counts them",
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

    def _whole_rows(self, own: Any) -> Iterator[Any]:
        """Yield on rank 0 some whole rows of the result at a time, put together from rectangles. Collective."""
        mine = self.rectangle
        if own.shape[:2] != (len(mine[0]), len(mine[1])):
            raise TaskError(
                f"the result has {own.shape[0]} x {own.shape[1]} points on rank {self.rank}; the plan gives it"
                f" {len(mine[0])} x {len(mine[1])}",
                code="result-shape",
                rank=self.rank,
                value=list(own.shape[:2]),
                bound=[len(mine[0]), len(mine[1])],
            )
        point = max(1, memoryview(own[:1]).nbytes // len(mine[1]))
        height = max(rows.stop for rows, _ in self._every_rectangle)
        width = point * max(columns.stop for _, columns in self._every_rectangle)
        step = max(1, min(BLOCK_BYTES // width, ROWS_AT_ONCE))
        for top in range(0, height, step):
            whole = bytearray(width * min(step, height - top) if self.rank == 0 else 0)
            for owner, (rows, columns) in enumerate(self._every_rectangle):
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

    def _say_rows(self, owner: int, row: int, piece: Any, row_bytes: int) -> int:
        """Say a digest of each row of a piece, by which it is told where results differ; return how many."""
        host, strip = self.layout[owner]
        view = memoryview(piece)
        starts = range(0, len(view), row_bytes)
        self._say(
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
    def _kept(self, rows: Any) -> Iterator[list[Callable[[Any], object]]]:
        """Hand out what writes the result to a file, where the user wants one; it appears when it is whole."""
        if not (self.save and self.output and self.rank == 0):
            yield []
            return
        path = Path(self.output) / "result.npy"
        if self._document.of_rectangles:
            shape = [
                max(part.stop for part in parts)
                for parts in zip(*self._every_rectangle, strict=True)
            ]
        else:
            shape = [sum(len(strip) for _, strip in self.layout)]
        header = _npy_header(rows, shape)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        try:
            with part.open("wb") as stream:
                stream.write(header)
                yield [stream.write]
            part.replace(path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from None

    def _report(self) -> None:
        """Say how far the run is, and agree on when to do so again, from nothing that one rank alone knows."""
        every, iteration = self._gathered(), self.iteration
        seconds = max(row[-1] for row in every)
        done, before = iteration - self._last[0], self._last[1]
        period = self._document.progress_seconds
        rate = done / max(seconds - before, 1e-9)
        self._due = iteration + max(1, min(int(period * rate), done * FASTEST_GROWTH))
        self._last = iteration, seconds
        if self.rank == 0 and not self._by_hand:
            self._say(
                "progress",
                iteration=iteration,
                iterations=self._number(2),
                seconds=round(seconds, 6),
                residual=self.residual,
                hosts=self._hosts(every),
                **_clipped(every, seconds),
            )

    def _gathered(self) -> list[array[float]]:
        """Return every rank's seconds since the first barrier.

        They are: computing, on the processor, communicating; the part of the first two that is a timing spike;
        without a CPU, and throttled; then major page faults, and all seconds.
        """
        clock, size = self._clock, self.size
        wait, throttled, faults = self._kernel.since_begin()
        spikes = clock.explain(max(0.0, wait) + throttled) if wait >= 0 else 0.0
        own = clock.spikes.processor_excess
        mine = array("d", [
            clock.compute, clock.processor, clock.communicate, spikes, own, wait, throttled, faults, clock.elapsed,
        ])  # fmt: skip
        every = array("d", bytes(8 * len(mine) * size))
        _wait(self.comm.Iallgather(mine, every).Test)
        return [every[len(mine) * k :][: len(mine)] for k in range(size)]

    def _hosts(self, every: Sequence[Sequence[float]]) -> list[dict[str, object]]:
        """Return each host's times, the mean over its ranks; what is zero, or not counted, is left out."""
        of = [host for host, _ in self.layout]
        found: list[dict[str, object]] = []
        names = list(dict.fromkeys(of))
        for name in names:
            rows = [row for host, row in zip(of, every, strict=True) if host == name]
            compute, processor, communicate, spikes, own, wait, throttled, faults, _ = (
                statistics.fmean(column) for column in zip(*rows, strict=True)
            )
            one: dict[str, object] = {
                "host": name,
                "compute_seconds": round(compute, 6),
                "processor_seconds": round(processor, 6),
                "communicate_seconds": round(communicate, 6),
            }
            found.append(one)
            if len(names) > MOST_DETAILED_HOSTS:
                continue
            if spikes or own:
                one["clipped_compute_seconds"] = round(compute - spikes, 6)
                one["clipped_processor_seconds"] = round(processor - own, 6)
            if wait >= 0:
                one["cpu_wait_seconds"] = round(wait, 6)
            if throttled:
                one["throttled_seconds"] = round(throttled, 6)
            if faults:
                one["major_faults"] = round(faults * len(rows))
        return found

    def _say(self, event: str, **fields: Any) -> None:
        """Tell the agent, or in one line who started the program by hand."""
        if not self._by_hand:
            emit(event, **fields)
        elif event == "result":
            of = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
            ranks = f"{self.size} rank{'s' * (self.size > 1)}"
            print(  # noqa: T201 - a program speaks on stdout
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
        self._say("ready", protocol=1, program=_name(), version="1", ranks=1)
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
        """Count an iteration; several that are quick make one sample."""
        clock, sample = self._clock, self._sample
        sample[0] += 1
        if clock.processor - sample[1] >= SAMPLE_SECONDS:
            count, used, wall = sample
            self._samples.append(
                ((clock.processor - used) / count, (clock.compute - wall) / count)
            )
            self._sample = [0.0, clock.processor, clock.compute]

    def _enough(self) -> bool:
        """Whether there are samples enough; the first is not among them, for its caches were cold."""
        count = len(self._samples)
        long = self._clock.processor >= SIZE_SECONDS
        return count > MOST_SAMPLES or (count > FEWEST_SAMPLES and long)

    def _say_calibration(self) -> None:
        blocks_only = self._job and not self._job.shares_rows
        points = (self._number(0) if blocks_only else len(self.strip)) * self._number(1)
        count = max(1, self.iteration)
        samples = self._samples[1:] or [
            (self._clock.processor / count, self._clock.compute / count)
        ]
        own = points / self.threads  # those of each thread
        used = sorted(used / own for used, _ in samples)
        quarter = len(used) // 4
        emit(
            "calibration",
            rows=self._document.pieces[0].rows,
            seconds_per_point=statistics.median(used),
            error=(used[-1 - quarter] - used[quarter]) / 2,
            repeats=len(used),
            wall_seconds_per_point=mean_without_spike([wall for _, wall in samples]) / own,
        )

    # ---------------------------------------------------------------------- the end

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Say that all is done; or end all ranks, and say why."""
        if error is None and not self._told:
            error = TaskError(
                "the program ended without task.result(..)", code="program-result-missing"
            )
            kind = TaskError
        if isinstance(error, SystemExit) and error.code in (0, None):
            return  # this rank's host leaves a malleable job
        if error is None:
            if self._job:
                self._job.finish()
            self._barrier()
            if self.rank == 0 and not self._by_hand:
                emit("done")
            return
        try:
            if self._job:
                self._job.__exit__(kind, error, trace)  # which knows what a read-only array is
        except Exception as said:  # noqa: BLE001 - it is what is to be said of the error
            error, trace = said, None
        if not (self._job and self.malleable):
            self._fail(error)
        if trace is None:
            raise error

    def _fail(self, error: BaseException) -> None:
        """End all ranks of a program that cannot go on; one that is alone and by hand ends by itself."""
        expected = isinstance(error, TaskError)
        code = (
            getattr(error, "code", "") if hasattr(error, "fields") else ""
        )  # of a task, or of apples
        if self._by_hand and expected:
            sys.stderr.write(f"{_name()}: {error} [{code}]\n")
        elif not expected and (not self._by_hand or (self._world and self._world.Get_size() > 1)):
            traceback.print_exception(error)
        rank = self._world.Get_rank() if self._world else 0
        if not self._by_hand:
            told = str(error)
            if isinstance(error, OSError) and error.filename and error.strerror:
                told = f"{error.filename}: {error.strerror}"
            message = " ".join(told.split()) or type(error).__name__
            full = isinstance(error, OSError) and error.errno in NO_ROOM
            more: dict[str, Any] = {"resources": True} if full else {}
            more |= {"code": code} if code else {}
            emit("error", message=message[:LONGEST_MESSAGE], rank=rank, **more)
        if self._world and (self._world.Get_size() > 1 or not self._by_hand):
            sys.stderr.flush()
            time.sleep(LAST_WORDS_SECONDS)
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


def _clipped(every: Sequence[Sequence[float]], seconds: float) -> dict[str, float]:
    """Return the seconds of the loop without the timing spikes of its ranks, where there were any.

    A spike of one rank delays all. Spikes of several ranks in one iteration overlap, but no rank computes for
    longer than the loop takes.
    """
    spikes = sum(row[3] for row in every)
    if not spikes:
        return {}
    longest = max(row[0] - row[3] for row in every)
    return {"clipped_seconds": round(max(seconds - spikes, longest), 6)}


def mean_without_spike(seconds: Sequence[float]) -> float:
    """Return the mean of some samples; the longest counts no more than 1.5 times the next: it may be a spike.

    Examples
    --------
    >>> mean_without_spike([1.0, 1.0, 500.0, 1.0])
    1.125
    """
    *others, longest = sorted(seconds)
    return statistics.fmean(
        [*others, min(longest, SPIKE_FACTOR * others[-1] if others else longest)]
    )


# What programs call it: there `Task` can mean nothing else.
Task = ProgramTask


def _name() -> str:
    """Return what the program is called: its folder where its file has everybody's name."""
    path = Path(sys.argv[0]).resolve()
    return (path.parent.name if path.stem == "program" else path.stem) or "program"


def _within(one: range, mine: range) -> slice:
    """Return the places of what two ranges have in common in an array of `mine` with a halo of one."""
    return slice(
        max(one.start, mine.start) - mine.start + 1, min(one.stop, mine.stop) - mine.start + 1
    )


def _line(place: int) -> slice:
    """Return one row or column, counted from the end where negative."""
    return slice(place, place + 1 or None)


def _ended(pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield the pieces, and after them the only one of no length."""
    yield from filter(len, pieces)
    yield b""


def _npy_header(rows: Any, whole: Sequence[int]) -> bytes:
    """Return the head of a ``.npy`` file of so many rows, or rows and columns."""
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


SPIN_SECONDS, YIELD_SECONDS, LONGEST_SECONDS, SHARE = 80e-6, 5e-3, 1e-3, 0.05


def _wait(done: Callable[[], bool]) -> None:
    """Return when `done()` is true: spin, then yield, then sleep a twentieth of the wait so far.

    As `apples.malleable.wait`, which this file does without: a neighbour that is on time is met at once, and one
    that is late may have this rank's CPU.
    """
    start = time.perf_counter()
    while not done():
        waited = time.perf_counter() - start
        if waited > YIELD_SECONDS:
            time.sleep(min(SHARE * waited, LONGEST_SECONDS))
        elif waited > SPIN_SECONDS:
            os.sched_yield()
