"""The kernel: one sweep of the five-point stencil over some rows of a strip.

Whatever the implementation, a new value is

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
"""Rows beyond a rank's own on each side of its arrays: as many as a kernel makes sweeps after one exchange."""
LINE = 8
PAGE = 512

NAMES = ("numpy", "numba", "compiled", "wavefront", "threads", "cuda")


class KernelUnavailableError(TaskError):
    """The implementation cannot run on this host; the message names what is missing. Permanent."""

    def __init__(self, message: str, code: str = "kernel-unavailable") -> None:
        super().__init__(message, code=code)


class Kernel(ABC):
    """A sweep from one array to another; `columns` is the number of unknowns in a row.

    `now`, `new` and `forcing` come from `allocate`, are of the same shape and distinct; `forcing`
    may be None. The two side columns hold the same boundary in `now` and `new`. The sweep makes
    the unknowns of rows `first` .. `last` - 1 (counted as they lie in the array, where row 0 is
    halo) of `new`. Besides them it may write to the padding outside the side columns, and to
    nothing else.

    A kernel may keep the arrays elsewhere, as a GPU does: they are given to `take` first, and after a
    sweep only the first and the last row of unknowns of `new` are sure to be in the array, all of it
    after `settle`; of `now` it looks at the halo alone.

    Attributes
    ----------
    most_sweeps
        How many sweeps `several_sweeps` makes at most; with 1 there is none.
    strips_only
        Whether it needs strips of the whole width: what comes at the two sides of a rectangle it does not see.
    threads
        By how many threads it sweeps.
    """

    most_sweeps = 1
    strips_only = False
    threads = 1

    def __init__(self, columns: int) -> None:
        self.columns = columns

    def take(self, *grids: Grid) -> None:  # noqa: B027  # nothing to do where they stay
        """Sweep over these arrays from now on, as they are now."""

    def settle(self) -> None:  # noqa: B027  # likewise
        """Have in the arrays all that the sweeps made of them."""

    def processor_seconds(self) -> float:
        """Return the seconds that the processor has worked, from any moment on: a thread's processor time.

        Where the thread waits while another kind of processor sweeps, those on the clock.
        """
        return time.thread_time()

    def free_memory(self) -> float | None:
        """Return the bytes that the arrays may take where the kernel keeps them; None: the host's own."""
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

        Returns the largest absolute change of a point in the last of them, if it is to be checked, else nan.
        `beside` is whether there are neighbours above and below. Then `now` and `forcing` are views of arrays that
        go on beyond them: with their edge they have `sweeps` rows of the neighbour.
        """
        raise NotImplementedError(f"{type(self).__name__} makes one sweep at a time")


def pitch_of(columns: int) -> int:
    """Return how many numbers apart rows lie.

    >>> pitch_of(4000), pitch_of(4087)
    (4016, 4104)
    """
    pitch = -(-(LEFT + columns + 1) // LINE) * LINE
    return pitch + LINE if pitch % PAGE == 0 else pitch


def allocate(rows: int, columns: int) -> Grid:
    """Return an array for `rows` of unknowns, zero and touched, with rows on cache lines."""
    pitch = pitch_of(columns)
    count = (rows + 2) * pitch
    raw = np.empty(count + LINE)
    skip = (-raw.ctypes.data // 8) % LINE
    grid = raw[skip : skip + count].reshape(rows + 2, pitch)
    # Writing makes the pages real: a page only read would be the kernel's one zero page.
    grid[...] = 0.0
    return grid


def unknowns(grid: Grid, columns: int) -> Grid:
    """Return the view of a strip's unknowns."""
    return grid[1:-1, LEFT : LEFT + columns]


def load_kernel(name: str, columns: int, threads: int = 1) -> Kernel:
    """Return the implementation of this name, compiled and ready; with this number of threads if it has threads.

    Raises
    ------
    KernelUnavailableError
        Permanent on this host: no such name, no numba, no compiler, no GPU.
    """
    # Imported here, for each has needs of its own and a rank runs one.
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
