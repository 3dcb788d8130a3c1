"""Initial contents of the arrays: the sides, the source and the initial grid, each a number or ``.npy`` file."""

from pathlib import Path

import numpy as np
from kernels import LEFT, Grid
from numpy.typing import NDArray
from parameters import Parameters

from apples.program import TaskError

# Rows are copied out of a mapped file in pieces of this size, so that a file of another type
# (float32, big-endian) is never converted whole.
PIECE_BYTES = 4 << 20


def fill_first(rows: range, block: Grid, parameters: Parameters, columns: range) -> None:
    """Write the unknowns of some rows before the first sweep, and their sides.

    Rows -1 and `grid` are the sides of the grid above and below; rows beyond them do not change.
    """
    _fill("initial", parameters.initial, rows, block, parameters.grid, columns)
    set_sides(rows, block, parameters, columns)


def fill_forcing(rows: range, block: Grid, parameters: Parameters, columns: range) -> None:
    """Write the forcing of some rows."""
    grid = parameters.grid
    inside = _fill("source", parameters.source, rows, block, grid, columns)
    np.multiply(inside, 0.25 * (1.0 / (grid + 1)) ** 2, inside)


def _fill(
    name: str, value: float | str, rows: range, block: Grid, grid: int, columns: range
) -> Grid:
    """Write a value of the grid to the unknowns of some rows; return these unknowns."""
    unknown = range(max(rows.start, 0), min(rows.stop, grid))
    inside = block[_within(unknown, rows), LEFT : LEFT + len(columns)]
    fill_rows(name, value, inside, unknown.start, grid, columns.start)
    return inside


def set_sides(rows: range, block: Grid, parameters: Parameters, columns: range) -> None:
    """Write the fixed values beside some rows, and above and below them at the sides of the grid."""
    grid, wide = parameters.grid, slice(LEFT, LEFT + len(columns))
    unknown = range(max(rows.start, 0), min(rows.stop, grid))
    beside = _within(unknown, rows)
    for name, value, there, part, here in (
        ("top", parameters.top, rows.start < 0, columns, (-1 - rows.start, wide)),
        ("bottom", parameters.bottom, rows.stop > grid, columns, (grid - rows.start, wide)),
        ("left", parameters.left, columns.start == 0, unknown, (beside, LEFT - 1)),
        ("right", parameters.right, columns.stop == grid, unknown, (beside, wide.stop)),
    ):
        if there:
            side = read_side(name, value, grid)
            block[here] = side if isinstance(side, float) else side[part.start : part.stop]


def _within(part: range, rows: range) -> slice:
    """Return the slice of some rows in a block."""
    return slice(part.start - rows.start, part.stop - rows.start)


def read_side(name: str, value: float | str, grid: int) -> float | NDArray[np.float64]:
    """Return the values along one side: a number, or the `grid` numbers of a file."""
    if not isinstance(value, str):
        return value
    profile = np.array(_open(name, value, (grid,)), dtype=np.float64)
    _demand_finite(name, value, profile)
    return profile


def fill_rows(
    name: str,
    value: float | str,
    into: NDArray[np.float64],
    first_row: int,
    grid: int,
    first_column: int = 0,
) -> None:
    """Fill `into` with its rows (and columns) of a field over the grid, reading no other row of a file."""
    if not isinstance(value, str):
        into[...] = value
        return
    mapped = _open(name, value, (grid, grid))
    step = max(1, PIECE_BYTES // (8 * grid))
    for start in range(0, len(into), step):
        piece = into[start : start + step]
        columns = slice(first_column, first_column + into.shape[1])
        piece[...] = mapped[first_row + start : first_row + start + len(piece), columns]
        _demand_finite(name, value, piece)


def _open(name: str, path: str, shape: tuple[int, ...]) -> NDArray[np.generic]:
    try:
        mapped = np.load(Path(path), mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        text = f"{name}: {path} cannot be read as .npy: {error}"
        raise TaskError(text, code="array-unreadable", field=name, file=path) from None
    if not isinstance(mapped, np.ndarray) or mapped.shape != shape:
        found = getattr(mapped, "shape", "several arrays")
        text = f"{name}: {path} holds {found}, not {shape}"
        raise TaskError(text, code="array-shape", field=name, file=path)
    if mapped.dtype.kind not in "fiu":
        text = f"{name}: {path} holds {mapped.dtype}, not real numbers"
        raise TaskError(text, code="array-type", field=name, file=path)
    return mapped


def _demand_finite(name: str, path: str, values: NDArray[np.float64]) -> None:
    # A NaN would spread silently, and the kernels' maxima treat it differently.
    if not np.isfinite(values).all():
        text = f"{name}: {path} holds a value that is not finite"
        raise TaskError(text, code="array-not-finite", field=name, file=path)
