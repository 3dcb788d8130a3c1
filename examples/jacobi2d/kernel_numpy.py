"""The kernel in numpy alone: in-place passes over a few rows at a time."""

import numpy as np
from kernels import LEFT, Grid, Kernel, pitch_of
from numpy.typing import NDArray

# A block's part of `new` and the scratch array stay in the second-level cache through the
# passes. At 4000 x 4000 and 1 MiB of L2: 768 KiB ran at 53 % of memcpy, 256 KiB at 43 %
# (whole-array passes: 21 %, an expression with temporaries: 14 %).
BLOCK_BYTES = 768 << 10


class NumpyKernel(Kernel):
    """Row-blocked passes with ``out=``; needs nothing but numpy.

    The passes run over the block as one flat stretch of memory, padding included, and put the
    two side columns right afterwards. Two-dimensional slices would be as fast for wide rows, but
    below 8192 / 3 columns numpy's iterator copies each operand into its buffer first: 3.3 ns a
    point instead of 1.0 at 400 columns.
    """

    def __init__(self, columns: int) -> None:
        super().__init__(columns)
        self.pitch = pitch_of(columns)
        self.block = max(1, BLOCK_BYTES // (8 * self.pitch))
        self.scratch = np.empty(self.block * self.pitch)

    def sweep(self, now: Grid, new: Grid, forcing: Grid | None, first: int, last: int) -> None:
        """Make the rows of `new`."""
        for start in range(first, last, self.block):
            self._block(now, new, forcing, start, min(start + self.block, last))

    def sweep_residual(
        self, now: Grid, new: Grid, forcing: Grid | None, first: int, last: int
    ) -> float:
        """Make the rows of `new` and return the largest absolute change of a point."""
        largest = 0.0
        for start in range(first, last, self.block):
            stop = min(start + self.block, last)
            self._block(now, new, forcing, start, stop)
            largest = max(largest, self._change(now, new, start, stop))
        return largest

    def _block(self, now: Grid, new: Grid, forcing: Grid | None, start: int, stop: int) -> None:
        flat, pitch = now.reshape(-1), self.pitch
        first, last = self._stretch(start, stop)
        target = new.reshape(-1)[first:last]
        across = self.scratch[: last - first]
        np.add(flat[first - pitch : last - pitch], flat[first + pitch : last + pitch], target)
        np.add(flat[first - 1 : last - 1], flat[first + 1 : last + 1], across)
        np.add(target, across, target)
        np.multiply(target, 0.25, target)
        if forcing is not None:
            np.add(target, forcing.reshape(-1)[first:last], target)
        for side in (LEFT - 1, LEFT + self.columns):
            new[start:stop, side] = now[start:stop, side]

    def _change(self, now: Grid, new: Grid, start: int, stop: int) -> float:
        first, last = self._stretch(start, stop)
        change = self.scratch[: last - first]
        np.subtract(new.reshape(-1)[first:last], now.reshape(-1)[first:last], change)
        self._forget_padding(stop - start)
        # Two passes that write nothing are faster than abs in place and one maximum.
        return max(float(change.max()), -float(change.min()))

    def _stretch(self, start: int, stop: int) -> tuple[int, int]:
        """Return the start and the end of the rows' unknowns in the flat array."""
        return start * self.pitch + LEFT, (stop - 1) * self.pitch + LEFT + self.columns

    def _forget_padding(self, rows: int) -> None:
        padded: NDArray[np.float64] = self.scratch[: rows * self.pitch].reshape(rows, self.pitch)
        padded[:, self.columns :] = 0.0
