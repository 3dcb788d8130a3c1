"""The kernel on an NVIDIA GPU, compiled by numba, the ``[gpu]`` extra.

A strip stays in the GPU's memory from `take` on. In a sweep, only edges are copied between it and the host's
array: the halo before the sweep, and the first and the last row after it, because the solver exchanges these.
`settle` copies the remaining rows back.
"""

import math
import operator
import os
import time
from collections.abc import Callable
from typing import Any

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
    from numba import config
except ImportError as missing:
    raise KernelUnavailableError(
        "the implementation cuda needs numba: pip install 'apples[gpu]'",
        "numba-missing",
    ) from missing

# For programs that have imported numba before; the simulator is selected when its module is imported.
_reload: Callable[[], None] = config.reload_config
_reload()
from numba import cuda  # noqa: E402  # see above

# A small strip cannot fill a GPU, but the user should not get a warning at every sweep.
config.CUDA_LOW_OCCUPANCY_WARNINGS = 0

SIMULATED = bool(config.ENABLE_CUDASIM)
"""Whether numba simulates a GPU in Python: NUMBA_ENABLE_CUDASIM=1, for tests."""

COLUMNS, ROWS = (8 if SIMULATED else 128), 8
"""Threads of a block, on neighbouring columns; each goes down ROWS rows and loads a row's value once.

In the simulator each is a thread of Python.
"""

if SIMULATED:
    _times: Any = operator.mul
else:
    from numba.cuda import libdevice

    # A multiplication with its own rounding is not fused with an addition. The bits must be those of the other
    # kernels, and numba cannot disable fusing in its compiler.
    _times = libdevice.dmul_rn


def variant(forced: bool, checked: bool) -> Callable[..., None]:
    """Return a sweep that is not compiled yet, with or without forcing, and with or without the largest changes.

    Unused features add no branch to the compiled code. Each column has its own largest change.
    """

    def sweep(
        now: Any, new: Any, forcing: Any, largest: Any, columns: int, first: int, last: int
    ) -> None:
        column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        i = first + cuda.blockIdx.y * ROWS
        if column >= columns:
            return
        j = column + LEFT
        north, here, change = now[i - 1, j], now[i, j], 0.0
        for row in range(i, min(i + ROWS, last)):
            south = now[row + 1, j]
            value = _times(0.25, (north + south) + (now[row, j - 1] + now[row, j + 1]))
            if forced:
                value += forcing[row, j]
            new[row, j] = value
            if checked:
                change = max(change, abs(value - here))
            north, here = here, south
        if checked:
            cuda.atomic.max(largest, column, change)

    return sweep


class _Resident:
    """A strip's array in the GPU's memory, and the rows that are copied at each sweep."""

    def __init__(self, grid: Grid, columns: int, stream: Any) -> None:
        self.host, self.changed = grid, False
        self.device = cuda.to_device(grid, stream)
        unknowns = slice(LEFT, LEFT + columns)
        self.halo, self.edges = (
            [(self.device[row, unknowns], grid[row, unknowns]) for row in rows]
            for rows in ((0, len(grid) - 1), (1, len(grid) - 2))
        )


class CudaKernel(Kernel):
    """Loops on the first GPU of the process, compiled when the kernel is made.

    Several ranks may share a GPU: each has its own context, and they take turns.
    """

    strips_only = True  # the columns of the halo would need copying too

    def __init__(self, columns: int) -> None:
        super().__init__(columns)
        if not cuda.is_available():
            raise KernelUnavailableError(
                f"the implementation cuda needs an NVIDIA GPU and its driver: {_why_not()}",
                "gpu-missing",
            )
        self.stream = cuda.stream()
        self.changes = np.zeros(columns)
        self.resident: dict[int, _Resident] = {}
        try:
            self.largest = cuda.to_device(self.changes, self.stream)
            self.sweeps = {
                (forced, checked): cuda.jit(cache=CACHE)(variant(forced, checked))
                for forced in (False, True)
                for checked in (False, True)
            }
            self._compile()
        except Exception as error:  # errors of driver and compiler have no common class
            raise KernelUnavailableError(
                f"the implementation cuda: {_first_line(error)}"
            ) from error

    def _compile(self) -> None:
        """Compile now, before the first barrier, for the types of a run."""
        now, new, forcing = (allocate(1, self.columns) for _ in range(3))
        self.take(now, new, forcing)
        for given in (None, forcing):
            self.sweep(now, new, given, 1, 2)
            self.sweep_residual(now, new, given, 1, 2)
        self.take()

    def processor_seconds(self) -> float:
        """Return the wall time, because the GPU works while this thread waits for it."""
        return time.perf_counter()

    def free_memory(self) -> float | None:
        """Return the free bytes of the GPU's memory; None for a simulated GPU, which uses the host's."""
        return None if SIMULATED else float(cuda.current_context().get_memory_info().free)

    def take(self, *grids: Grid) -> None:
        """Copy these arrays into the GPU's memory, and drop all others.

        Raises
        ------
        MemoryError
            They do not fit; the message has the required and the free bytes.
        """
        self.resident.clear()
        needed, free = sum(grid.nbytes for grid in grids), self.free_memory() or 0.0
        try:
            for grid in grids:
                self.resident[grid.ctypes.data] = _Resident(grid, self.columns, self.stream)
        except Exception as error:
            raise MemoryError(
                f"the strip needs {needed / 1e9:.3g} GB of the GPU's memory, {free / 1e9:.3g} GB were free: "
                f"{_first_line(error)}"
            ) from error
        self.stream.synchronize()

    def settle(self) -> None:
        """Copy the results of the sweeps back to the host's arrays."""
        for one in self.resident.values():
            if one.changed:
                one.device.copy_to_host(one.host, self.stream)
                one.changed = False
        self.stream.synchronize()

    def sweep(self, now: Grid, new: Grid, forcing: Grid | None, first: int, last: int) -> None:
        """Make the rows of `new`."""
        self._sweep(now, new, forcing, (first, last), checked=False)
        self.stream.synchronize()

    def sweep_residual(
        self, now: Grid, new: Grid, forcing: Grid | None, first: int, last: int
    ) -> float:
        """Make the rows of `new` and return the largest absolute change of a point."""
        self.changes[...] = 0.0
        self.largest.copy_to_device(self.changes, self.stream)
        self._sweep(now, new, forcing, (first, last), checked=True)
        self.largest.copy_to_host(self.changes, self.stream)
        self.stream.synchronize()
        return float(self.changes.max())

    def _sweep(
        self, now: Grid, new: Grid, forcing: Grid | None, rows: tuple[int, int], checked: bool
    ) -> None:
        before, after = self.resident[now.ctypes.data], self.resident[new.ctypes.data]
        # A missing array is replaced by an array that the kernel does not read.
        force = before if forcing is None else self.resident[forcing.ctypes.data]
        first, last = rows
        blocks = math.ceil(self.columns / COLUMNS), math.ceil((last - first) / ROWS)
        for device, host in before.halo:
            device.copy_to_device(host, self.stream)
        self.sweeps[forcing is not None, checked][blocks, (COLUMNS, 1), self.stream](
            before.device, after.device, force.device, self.largest, self.columns, first, last
        )
        for device, host in after.edges:
            device.copy_to_host(host, self.stream)
        after.changed = True


def _why_not() -> str:
    """Return numba's message about the missing GPU."""
    try:
        cuda.get_current_device()
    except Exception as error:  # noqa: BLE001  # any of the driver's own
        return _first_line(error)
    return "there is no compiler for it: pip install 'apples[gpu]'"


def _first_line(error: Exception) -> str:
    """Return the first informative line of a message; numba's begin with a heading or a blank."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.endswith(":")]
    return said[0] if said else type(error).__name__
