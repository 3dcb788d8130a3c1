"""Values the user gives as one number or as a ``.npy`` file: sides, source, initial grid."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from task import TaskError

# Rows are copied out of a mapped file in pieces of this size, so that a file of another type
# (float32, big-endian) is never converted whole.
PIECE_BYTES = 4 << 20


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
