"""The task: what the agent asks for, checked before anything is started.

Every rank reads the same bytes, so that every rank comes to the same strips or rectangles without a word.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

SCHEMA = "apples.task/1"


class TaskError(ValueError):
    """The task cannot be done as it stands; the message is one line for the user, `code` its stable name."""

    def __init__(self, message: str, *, code: str = "task-invalid", **fields: Any) -> None:
        super().__init__(message)
        self.code, self.fields = code, fields


@dataclass(frozen=True)
class Parameters:
    """The parameters of the template; field names are the parameters' names.

    A value over a side or the grid is a number, or the path of a ``.npy`` file of real numbers
    that every host can read: `grid` of them for a side, from left to right or top to bottom, and
    grid x grid for `source` and `initial`, of which each rank reads its own rows.

    Parameters
    ----------
    grid
        Unknowns along each direction; the boundary lies outside.
    iterations
        At most so many sweeps.
    tolerance
        Stop when no point changed by more than this in a sweep; 0 never stops early.
    residual_every
        Look at that change every so many sweeps (and at the last); 0 at the last only.
    top, bottom, left, right
        The fixed values along the sides.
    source
        `f` in ``-laplace(u) = f`` on the unit square; empty for none, which is quicker.
    initial
        The unknowns before the first sweep.
    stall_seconds
        Give up when another rank is not heard of for so long.
    digest
        1: the grid is streamed to the first rank for its SHA-256; 0: it is not, unless it is saved.
    """

    grid: int
    iterations: int = 100
    tolerance: float = 0.0
    residual_every: int = 50
    top: float | str = 1.0
    bottom: float | str = 0.0
    left: float | str = 0.0
    right: float | str = 0.0
    source: float | str = ""
    initial: float | str = 0.0
    stall_seconds: float = 600.0
    digest: int = 1


@dataclass(frozen=True)
class RankStrip:
    """The rows one rank owns: `rows` of them from `first_row` on, on the host with this index.

    Of a rectangle also `columns` from `first_column` on; 0 columns are all there are.
    """

    host: int
    first_row: int
    rows: int
    first_column: int = 0
    columns: int = 0

    def across(self, grid: int) -> range:
        """Return its columns."""
        return range(self.first_column, self.first_column + (self.columns or grid))

    @property
    def down(self) -> range:
        """Its rows."""
        return range(self.first_row, self.first_row + self.rows)


class Contact(NamedTuple):
    """Where a rank's rectangle touches that of another along a part of a side, in rows and columns of the grid.

    Attributes
    ----------
    rank
        The other.
    edge, halo
        The points of this rank's that the other gets, and those of the other's that this rank gets.
    """

    rank: int
    edge: tuple[range, range]
    halo: tuple[range, range]

    @property
    def points(self) -> int:
        """How many go each way."""
        return len(self.edge[0]) * len(self.edge[1])


def contact(one: RankStrip, other: RankStrip, rank: int, grid: int) -> Contact | None:
    """Return where `one` touches `other`, which is of this rank; None where no part of a side is common."""
    rows = _common(one.down, other.down)
    columns = _common(one.across(grid), other.across(grid))
    for mine, theirs, shared, upright in (
        (one.down, other.down, columns, False),
        (one.across(grid), other.across(grid), rows, True),
    ):
        sides = ((mine[-1], theirs[0]), (mine[0], theirs[-1]))
        for here, there in sides:
            if abs(here - there) == 1 and not _common(mine, theirs) and shared:
                line, beyond = range(here, here + 1), range(there, there + 1)
                edge, halo = (line, shared), (beyond, shared)
                return Contact(rank, *((edge[::-1], halo[::-1]) if upright else (edge, halo)))
    return None


def _common(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))


@dataclass(frozen=True)
class Task:
    """One run or calibration, as every rank sees it."""

    mode: str
    parameters: Parameters
    hosts: tuple[str, ...]
    strips: tuple[RankStrip, ...]
    implementations: Mapping[str, str]
    output: str | None
    save: bool
    progress_seconds: float
    implementation: str
    sizes: tuple[int, ...]
    threads: int = 1

    @property
    def of_rectangles(self) -> bool:
        """Whether ranks have rectangles and not strips."""
        return any(strip.columns for strip in self.strips)

    def contacts(self, rank: int) -> list[Contact]:
        """Return where a rank's rectangle touches those of others, in the order of their ranks."""
        mine, grid = self.strips[rank], self.parameters.grid
        found = (contact(mine, one, k, grid) for k, one in enumerate(self.strips) if k != rank)
        return [each for each in found if each]

    def kernel_of(self, rank: int) -> str:
        """Return the implementation to run on the rank's host."""
        return self.implementations.get(self.hosts[self.strips[rank].host], "numpy")


def read_task(text: bytes) -> Task:
    """Return the task of a JSON text.

    Raises
    ------
    TaskError
        Permanent: the text does not say what it should.
    """
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise TaskError(f"the task is not JSON: {error}", code="task-not-json") from None
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        raise TaskError(f"the task's schema is not {SCHEMA}", field="schema")
    mode = raw.get("mode")
    if mode not in ("run", "calibrate"):
        raise TaskError(f"mode {mode!r} is neither run nor calibrate", field="mode")
    parameters = read_parameters(_mapping(raw, "parameters"))
    hosts, strips = _read_partition(raw, parameters.grid) if mode == "run" else ((), ())
    output = raw.get("output")
    save = raw.get("save", False)
    if not isinstance(save, bool) or not (output is None or isinstance(output, str)):
        raise TaskError("save is true or false, output a directory or null", field="save")
    if save and output is None:
        raise TaskError("save is asked for, but there is no output directory", field="output")
    return Task(
        mode=mode,
        parameters=parameters,
        hosts=hosts,
        strips=strips,
        implementations=_implementations(raw),
        output=output,
        save=save,
        progress_seconds=_number("progress_seconds", raw.get("progress_seconds", 0.25)),
        implementation=str(raw.get("implementation", "numpy")),
        sizes=_read_sizes(raw) if mode == "calibrate" else (),
        threads=_read_threads(raw if mode == "calibrate" else raw["partition"][0]),
    )


def _read_threads(entry: Mapping[str, Any]) -> int:
    """Return of how many threads the one process is, 1 where there may be several."""
    threads = _integer("threads", entry.get("threads", 1))
    if threads < 1 or entry.get("ranks", 1) > 1 < threads:
        raise TaskError(f"{threads} threads of {entry.get('ranks', 1)} ranks", field="threads")
    return threads


def read_parameters(raw: Mapping[str, Any]) -> Parameters:
    """Return the checked parameters; a name that is not known is an error, not a wish."""
    known = {field.name: field.type for field in fields(Parameters)}
    unknown = sorted(set(raw) - set(known))
    if unknown:
        text = f"unknown parameter {unknown[0]!r}; known: {', '.join(known)}"
        raise TaskError(text, code="program-parameter-unknown", field=unknown[0])
    if "grid" not in raw:
        raise TaskError(
            "the parameter grid is missing", code="program-parameter-missing", field="grid"
        )
    read = {int: _integer, float: _number, float | str: _number_or_path}
    values: dict[str, Any] = {name: read[known[name]](name, value) for name, value in raw.items()}  # type: ignore[index]  # the three types of the class above
    parameters = Parameters(**values)
    for name, least in (("grid", 1), ("iterations", 1), ("tolerance", 0), ("residual_every", 0)):
        if getattr(parameters, name) < least:
            value = getattr(parameters, name)
            text = f"{name} is {value}, less than {least}"
            raise TaskError(text, code="parameter-range", field=name, value=value, bound=least)
    if parameters.tolerance > 0 and parameters.residual_every == 0:
        text = "a tolerance needs residual_every of 1 or more"
        raise TaskError(text, code="parameter-range", field="residual_every", value=0, bound=1)
    if parameters.stall_seconds <= 0:
        text = f"stall_seconds is {parameters.stall_seconds}, not positive"
        raise TaskError(text, code="parameter-range", field="stall_seconds")
    return parameters


def share_rows(rows: int, ranks: int) -> list[int]:
    """Return whole rows for each rank, as equal as can be, the larger pieces first.

    >>> share_rows(7, 3)
    [3, 2, 2]
    """
    least, more = divmod(rows, ranks)
    return [least + 1] * more + [least] * (ranks - more)


def _read_partition(
    raw: Mapping[str, Any], grid: int
) -> tuple[tuple[str, ...], tuple[RankStrip, ...]]:
    entries = raw.get("partition")
    if not isinstance(entries, list) or not entries:
        raise TaskError("the partition is not a list of one entry or more", field="partition")
    hosts: list[str] = []
    strips: list[RankStrip] = []
    row = 0
    if any(isinstance(entry, dict) and "columns" in entry for entry in entries):
        return _read_rectangles(entries, grid)
    for index, entry in enumerate(entries):
        _demand_host(index, entry)
        ranks, first, rows = (
            _integer(f"partition entry {index}: {key}", entry.get(key))
            for key in ("ranks", "first_row", "rows")
        )
        if first != row:
            text = f"partition entry {index} starts at row {first}, not at {row}"
            raise TaskError(text, code="partition-invalid", index=index, value=first, bound=row)
        if not 1 <= ranks <= rows:
            raise _too_many_ranks(index, ranks, rows)
        hosts.append(entry["host"])
        for share in share_rows(rows, ranks):
            strips.append(RankStrip(index, row, share))
            row += share
    if row != grid:
        text = f"the partition has {row} rows, the grid {grid}"
        raise TaskError(text, code="program-rows-differ", value=row, bound=grid)
    return tuple(hosts), tuple(strips)


def _read_rectangles(
    entries: list[Any], grid: int
) -> tuple[tuple[str, ...], tuple[RankStrip, ...]]:
    """Return hosts and rectangles of a partition in which every point has one host; ranks share the rows."""
    hosts: list[str] = []
    strips: list[RankStrip] = []
    for index, entry in enumerate(entries):
        _demand_host(index, entry)
        ranks, first, rows, left, columns = (
            _integer(f"partition entry {index}: {key}", entry.get(key))
            for key in ("ranks", "first_row", "rows", "first_column", "columns")
        )
        if not (0 <= first <= grid - rows and 0 <= left <= grid - columns and columns >= 1):
            text = f"partition entry {index} is no rectangle of a grid of {grid}"
            raise TaskError(text, code="rectangle-invalid", index=index)
        if not 1 <= ranks <= rows:
            raise _too_many_ranks(index, ranks, rows)
        hosts.append(entry["host"])
        for share in share_rows(rows, ranks):
            strips.append(RankStrip(index, first, share, left, columns))
            first += share
    _demand_whole(strips, grid)
    return tuple(hosts), tuple(strips)


def _demand_host(index: int, entry: Any) -> None:
    if not isinstance(entry, dict) or not isinstance(entry.get("host"), str):
        text = f"partition entry {index} names no host"
        raise TaskError(text, code="partition-invalid", index=index)


def _too_many_ranks(index: int, ranks: int, rows: int) -> TaskError:
    text = f"partition entry {index} has {ranks} ranks for {rows} rows"
    return TaskError(text, code="ranks-exceed-rows", index=index, value=ranks, bound=rows)


def _demand_whole(strips: list[RankStrip], grid: int) -> None:
    """Raise TaskError unless rectangles inside the grid cover it, and no two of them overlap."""
    points = sum(one.rows * one.columns for one in strips)
    if points != grid * grid:
        text = f"the partition has {points} points, the grid {grid * grid}"
        raise TaskError(text, code="rectangles-incomplete", value=points, bound=grid * grid)
    top, rows, left, columns = np.array(
        [(one.first_row, one.rows, one.first_column, one.columns) for one in strips]
    ).T
    for k in range(1, len(strips)):
        beside = (top[:k] < top[k] + rows[k]) & (top[k] < top[:k] + rows[:k])
        beside &= (left[:k] < left[k] + columns[k]) & (left[k] < left[:k] + columns[:k])
        if beside.any():
            text = f"two rectangles of the partition overlap at row {top[k]}"
            raise TaskError(text, code="rectangles-overlap", row=int(top[k]))


def _implementations(raw: Mapping[str, Any]) -> dict[str, str]:
    names = _mapping(raw, "implementations") if "implementations" in raw else {}
    for host, name in names.items():
        if not isinstance(name, str):
            raise TaskError(f"the implementation of {host} is not a name", host=host)
    return dict(names)


def _read_sizes(raw: Mapping[str, Any]) -> tuple[int, ...]:
    sizes = raw.get("sizes")
    if not isinstance(sizes, list) or not sizes:
        raise TaskError("sizes is not a list of one number of rows or more", field="sizes")
    rows = tuple(_integer("sizes", size) for size in sizes)
    if min(rows) < 1:
        raise TaskError(f"sizes has {min(rows)} rows, less than 1", field="sizes", value=min(rows))
    return rows


def _mapping(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = raw.get(name)
    if not isinstance(value, dict):
        raise TaskError(f"{name} is not an object", field=name)
    return value


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        text = f"{name} is {value!r}, not a whole number"
        raise TaskError(text, code="parameter-type", field=name, value=value)
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        text = f"{name} is {value!r}, not a finite number"
        raise TaskError(text, code="parameter-type", field=name)
    return float(value)


def _number_or_path(name: str, value: object) -> float | str:
    """Return a number, also of one in quotes as a command line gives it, or else a path."""
    if not isinstance(value, str):
        return _number(name, value)
    try:
        return _number(name, float(value))
    except TaskError:
        raise
    except ValueError:
        return value
