"""The kernel compiled by numba, the ``[fast]`` extra."""

import os
from collections.abc import Callable

import numpy as np
from cache import cache_directory
from kernels import LEFT, Grid, Kernel, KernelUnavailableError, allocate

try:
    # Otherwise numba writes its __pycache__ files into this directory.
    os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_directory() / "numba"))
    CACHE = True
except OSError:
    CACHE = False

try:
    from numba import config, njit
except ImportError as missing:
    raise KernelUnavailableError(
        "the implementation numba needs numba: pip install 'apples[fast]'",
        "numba-missing",
    ) from missing

# For programs that have imported numba before.
_reload: Callable[[], None] = config.reload_config
_reload()

Span = tuple[int, int]


# No fastmath: it may reorder and fuse, and the bits would differ from the other kernels'. The
# loops are over slices of contiguous rows, because LLVM vectorises those (72 % of memcpy) and not
# loops over both indices (20 %).
def _compile(function: Callable[..., None]) -> Callable[..., None]:
    return njit(nogil=True, boundscheck=False, fastmath=False, cache=CACHE)(function)


def _sweep(now: Grid, new: Grid, columns: int, rows: Span) -> None:
    for i in range(rows[0], rows[1]):
        north, south = now[i - 1, LEFT : LEFT + columns], now[i + 1, LEFT : LEFT + columns]
        west = now[i, LEFT - 1 : LEFT - 1 + columns]
        east = now[i, LEFT + 1 : LEFT + 1 + columns]
        out = new[i, LEFT : LEFT + columns]
        for j in range(columns):
            out[j] = 0.25 * ((north[j] + south[j]) + (west[j] + east[j]))


def _sweep_forced(now: Grid, new: Grid, forcing: Grid, columns: int, rows: Span) -> None:
    for i in range(rows[0], rows[1]):
        north, south = now[i - 1, LEFT : LEFT + columns], now[i + 1, LEFT : LEFT + columns]
        west = now[i, LEFT - 1 : LEFT - 1 + columns]
        east = now[i, LEFT + 1 : LEFT + 1 + columns]
        out, force = new[i, LEFT : LEFT + columns], forcing[i, LEFT : LEFT + columns]
        for j in range(columns):
            out[j] = 0.25 * ((north[j] + south[j]) + (west[j] + east[j])) + force[j]


sweep = _compile(_sweep)
sweep_forced = _compile(_sweep_forced)


# `largest` has a maximum for each column: these vectorise. A single running maximum must not be
# reordered, so it does not.


def _widen(now: Grid, new: Grid, largest: Grid, row: int) -> None:
    columns = largest.size
    before, after = now[row, LEFT : LEFT + columns], new[row, LEFT : LEFT + columns]
    for j in range(columns):
        size = abs(after[j] - before[j])
        largest[j] = max(largest[j], size)


widen = _compile(_widen)


def _residual(now: Grid, new: Grid, largest: Grid, rows: Span) -> None:
    for i in range(rows[0], rows[1]):
        sweep(now, new, largest.size, (i, i + 1))
        widen(now, new, largest, i)


def _residual_forced(now: Grid, new: Grid, forcing: Grid, largest: Grid, rows: Span) -> None:
    for i in range(rows[0], rows[1]):
        sweep_forced(now, new, forcing, largest.size, (i, i + 1))
        widen(now, new, largest, i)


residual = _compile(_residual)
residual_forced = _compile(_residual_forced)


class NumbaKernel(Kernel):
    """Loops compiled when the kernel is made, or found in the user's cache directory."""

    def __init__(self, columns: int) -> None:
        super().__init__(columns)
        self.largest = np.zeros(columns)
        # Compile now, before the first barrier, for exactly the types of a run.
        now, new, forcing = (allocate(1, columns) for _ in range(3))
        for given in (None, forcing):
            self.sweep(now, new, given, 1, 2)
            self.sweep_residual(now, new, given, 1, 2)

    def sweep(self, now: Grid, new: Grid, forcing: Grid | None, first: int, last: int) -> None:
        """Make the rows of `new`."""
        if forcing is None:
            sweep(now, new, self.columns, (first, last))
        else:
            sweep_forced(now, new, forcing, self.columns, (first, last))

    def sweep_residual(
        self, now: Grid, new: Grid, forcing: Grid | None, first: int, last: int
    ) -> float:
        """Make the rows of `new` and return the largest absolute change of a point."""
        self.largest[...] = 0.0
        if forcing is None:
            residual(now, new, self.largest, (first, last))
        else:
            residual_forced(now, new, forcing, self.largest, (first, last))
        return float(self.largest.max())
