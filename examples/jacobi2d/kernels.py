"""The kernel: one sweep of the five-point stencil over some rows of a strip.

In every implementation, a new value is

    0.25 * ((north + south) + (west + east)) [+ forcing]

in this order of summation and with no fused or reordered operation, so that all kernels and all
partitions give the same bits.

A strip lies in an array of ``rows + 2`` by `pitch` numbers. Its unknowns are rows 1 .. rows and
columns `LEFT` .. `LEFT` + n - 1, its halo or boundary the rows and columns around them. The
unknowns of every row start on a cache line, and the pitch avoids multiples of a page, where the
three rows a point needs would fall into the same cache sets. Measured at 4000 x 4000 (20 Nov 2026,
EPYC, medians of 11): numpy 51 % of memcpy against 43 % in a tight (n+2) array, numba 72 % on
contiguous arrays against 44 % on strided views of the same numbers.
"""

import time
from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from apples.program import TaskError

Grid = NDArray[np.float64]

LEFT = 8
HALO = 8
"""Rows beyond a rank's own on each side of its arrays: the most sweeps of a kernel after one exchange."""
LINE = 8
PAGE = 512

NAMES = ("numpy", "numba", "compiled", "wavefront", "threads", "cuda")


class KernelUnavailableError(TaskError):
    """The implementation cannot run on this host; the message names the missing part. Permanent."""

    def __init__(self, message: str, code: str = "kernel-unavailable") -> None:
        super().__init__(message, code=code)


class Kernel(ABC):
    """A sweep from one array to another; `columns` is the number of unknowns in a row.

    `now`, `new` and `forcing` come from `allocate`, are of the same shape and distinct; `forcing`
    may be None. The two side columns hold the same boundary in `now` and `new`. The sweep makes
    the unknowns of rows `first` .. `last` - 1 (counted as they lie in the array, where row 0 is
    halo) of `new`. Besides them it may write to the padding outside the side columns, and to
    nothing else.

    A kernel may keep the arrays elsewhere, as a GPU does. Then they are passed to `take` first. After a sweep,
    the array `new` has only its first and last row of unknowns; after `settle` it is complete. Of `now`, a sweep
    reads only the halo.

    Attributes
    ----------
    most_sweeps
        Most sweeps of `several_sweeps`; with 1 it is not available.
    strips_only
        Whether it needs strips of the whole width, because it does not read the two sides of a rectangle.
    threads
        Number of threads of a sweep.
    """

    most_sweeps = 1
    strips_only = False
    threads = 1

    def __init__(self, columns: int) -> None:
        self.columns = columns

    def take(self, *grids: Grid) -> None:  # noqa: B027  # nothing to do where they stay
        """Sweep over these arrays from now on, with their current contents."""

    def settle(self) -> None:  # noqa: B027  # likewise
        """Write all results of the sweeps into the arrays."""

    def processor_seconds(self) -> float:
        """Return the working seconds of the processor since any fixed moment: a thread's processor time.

        If the thread waits while another kind of processor sweeps, it is the wall time.
        """
        return time.thread_time()

    def free_memory(self) -> float | None:
        """Return the free bytes for arrays where the kernel keeps them; None: in the host's memory."""
        return None

    @abstractmethod
    def sweep(self, now: Grid, new: Grid, forcing: Grid | None, first: int, last: int) -> None:
        """Make the rows of `new`."""

    @abstractmethod
    def sweep_residual(
        self, now: Grid, new: Grid, forcing: Grid | None, first: int, last: int
    ) -> float:
        """Make the rows of `new` and return the largest absolute change of a point."""

    def several_sweeps(
        self,
        now: Grid,
        new: Grid,
        forcing: Grid | None,
        beside: tuple[bool, bool],
        sweeps: int,
        checked: bool,
    ) -> float:
        """Make all rows of `new` as they are after several sweeps.

        Return the largest absolute change of a point in the last sweep if `checked`, else nan. `beside` is
        whether there are neighbours above and below. Then `now` and `forcing` are views of larger arrays: with
        their edge they have `sweeps` rows of the neighbour.
        """
        raise NotImplementedError(f"{type(self).__name__} makes one sweep at a time")


def pitch_of(columns: int) -> int:
    """Return the distance between rows, in numbers.

    >>> pitch_of(4000), pitch_of(4087)
    (4016, 4104)
    """
    pitch = -(-(LEFT + columns + 1) // LINE) * LINE
    return pitch + LINE if pitch % PAGE == 0 else pitch


def allocate(rows: int, columns: int) -> Grid:
    """Return a zeroed array for `rows` of unknowns, with its memory allocated and rows on cache lines."""
    pitch = pitch_of(columns)
    count = (rows + 2) * pitch
    raw = np.empty(count + LINE)
    skip = (-raw.ctypes.data // 8) % LINE
    grid = raw[skip : skip + count].reshape(rows + 2, pitch)
    # Writing allocates the pages: pages that are only read would be the kernel's one zero page.
    grid[...] = 0.0
    return grid


def unknowns(grid: Grid, columns: int) -> Grid:
    """Return the view of a strip's unknowns."""
    return grid[1:-1, LEFT : LEFT + columns]


def load_kernel(name: str, columns: int, threads: int = 1) -> Kernel:
    """Return the implementation of this name, compiled and ready; `threads` applies if it uses threads.

    Raises
    ------
    KernelUnavailableError
        No such name, numba, compiler or GPU. Permanent on this host.
    """
    # Imported here, because each has its own dependencies and a rank uses one.
    if name == "numpy":
        from kernel_numpy import NumpyKernel  # noqa: PLC0415  # see above

        return NumpyKernel(columns)
    if name == "numba":
        from kernel_numba import NumbaKernel  # noqa: PLC0415  # see above

        return NumbaKernel(columns)
    if name == "compiled":
        from kernel_c import CompiledKernel  # noqa: PLC0415  # see above

        return CompiledKernel(columns)
    if name == "wavefront":
        from kernel_c import WavefrontKernel  # noqa: PLC0415  # see above

        return WavefrontKernel(columns)
    if name == "threads":
        from kernel_c import ThreadsKernel  # noqa: PLC0415  # see above

        return ThreadsKernel(columns, threads)
    if name == "cuda":
        from kernel_cuda import CudaKernel  # noqa: PLC0415  # see above

        return CudaKernel(columns)
    text = f"no implementation {name!r}; there are {', '.join(NAMES)}"
    raise KernelUnavailableError(text, "implementation-unknown")
