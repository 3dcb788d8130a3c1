"""The iteration on one rank: exchange borders, sweep once or several times, and check the change at intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fields import fill_first, fill_forcing, set_sides
from kernels import (
    HALO,
    LEFT,
    Grid,
    KernelUnavailableError,
    allocate,
    load_kernel,
    pitch_of,
    unknowns,
)
from parameters import Parameters
from picture import Picture

from apples.program import Task

if TYPE_CHECKING:  # a rigid run does not need this package
    from apples.malleable import RowArray

FILLS = {"even": fill_first, "odd": set_sides, "forcing": fill_forcing}
"""The arrays by name: two that alternate, and the forcing if there is a source."""


class Relaxation:
    """The arrays of one rank and the operations on them. All ranks base every decision on the same numbers.

    The forcing is ``0.25 h^2 f`` with ``h = 1 / (n + 1)``: a sweep then solves ``-laplace(u) = f`` on the unit
    square, the sides at 0 and 1. Every array has `HALO` rows beyond the rank's own, as a kernel may make as many
    sweeps after an exchange.

    Attributes
    ----------
    kernel
        The implementation for this rank's host.
    arrays
        Two that alternate, and the forcing if there is a source.
    columns
        This rank's columns.
    """

    def __init__(self, task: Task, parameters: Parameters) -> None:
        self.task, self.parameters = task, parameters
        self._names = [name for name in FILLS if name != "forcing" or parameters.source != ""]
        self._declared: list[RowArray] = []
        self.arrays: list[Grid] = []
        self._sweeps = 1
        self._forcing: Grid | None = None
        self._turns: list[tuple[Grid, Grid, Grid]] = []
        """The arrays that are exchanged, read and written in this sweep, and in the next."""
        self.columns = range(parameters.grid)
        if task.malleable:
            self._declare()
        else:
            self._allocate()
        name = task.implementation or "numpy"
        self.kernel = load_kernel(name, len(self.columns), task.threads)
        if task.rectangular and self.kernel.strips_only:
            raise KernelUnavailableError(
                f"the implementation {name} takes strips alone, no rectangles",
                "rectangles-undeclared",
            )
        task.processor_time = self.kernel.processor_seconds

    def _declare(self) -> None:
        """Declare the arrays: their rows go to other hosts when the hosts change."""
        shape = (self.parameters.grid, pitch_of(self.parameters.grid))
        self._declared = [
            self.task.array(name, shape, halo=HALO, fill=self._filler(name))
            for name in self._names
        ]

    def _filler(self, name: str) -> Callable[[range, Grid], None]:
        fill = FILLS[name]
        return lambda rows, block: fill(rows, block, self.parameters, self.columns)

    def _allocate(self) -> None:
        """Allocate and fill the arrays of this rank's strip or rectangle."""
        rows, self.columns = self.task.rectangle
        # The sides of the grid above and below count as rows -1 and `grid`.
        first = rows.start - (rows.start == 0)
        stop = rows.stop + (rows.stop == self.parameters.grid)
        place = slice(HALO + first - rows.start, HALO + stop - rows.start)
        for name in self._names:
            array = allocate(len(rows) + 2 * HALO - 2, len(self.columns))
            self._filler(name)(range(first, stop), array[place])
            self.arrays.append(array)

    def advance(self, iteration: int) -> bool:
        """Exchange borders and do as many iterations as that allows; return whether the tolerance is met.

        A step ends at each check of the change; the steps up to there have numbers of sweeps as equal as
        possible. The sweep begins when the halo has arrived. Sweeping the inner rows meanwhile gained at most 1 %
        at 1000 and 4000 rows, over shared memory and TCP; and a planner can predict the sum of both times.
        """
        task, parameters = self.task, self.parameters
        if task.changed:
            self.take_arrays()
        end = parameters.iterations
        if parameters.residual_every > 0:
            every = parameters.residual_every
            end = min(end, iteration - iteration % every + every)
        steps = -(-(end - iteration) // self._sweeps)
        sweeps = -(-(end - iteration) // steps)
        checked = iteration + sweeps == end
        self.exchange()
        change = self._sweep(sweeps, checked)
        self._turns.reverse()
        if self._declared:
            self._declared[0].swap(self._declared[1])
        task.advance(sweeps - 1)
        if not checked:
            return False
        task.residual = task.allreduce(change, "max")
        return task.residual <= parameters.tolerance > 0

    def take_arrays(self) -> None:
        """Take the rank's current arrays, and agree on the number of sweeps after an exchange. Collective.

        For strips it is the most that every rank's kernel makes in a pass and every strip has rows for. For
        rectangles it is one, because several sweeps would need the neighbours' corners too.
        """
        task = self.task
        if self._declared:
            self.arrays = [array.local for array in self._declared]
        most = 1 if task.rectangular else min(self.kernel.most_sweeps, len(task.strip))
        self._sweeps = task.allreduce(most, "min")
        self._above, self._below = task.rank > 0, task.rank + 1 < task.size
        even, odd, *forcing = map(strip_of, self.arrays)
        borders = [self._exchanged(array) for array in self.arrays]
        self._forcing = forcing[0] if forcing else None
        self._turns = [(borders[0], even, odd), (borders[1], odd, even)]
        for border in borders[2:]:
            task.exchange(border, halo=self._sweeps)
        self.kernel.take(even, odd, *forcing)

    def exchange(self) -> None:
        """Update the rows and columns beyond the rank's own. Collective."""
        self.task.exchange(self._turns[0][0], halo=self._sweeps)

    def _exchanged(self, array: Grid) -> Grid:
        """Return the view of an array that `exchange` takes; several halo rows are whole, contiguous rows."""
        beyond = HALO - self._sweeps
        rows = array[beyond : len(array) - beyond]
        if self._sweeps > 1:
            return rows
        aside = int(self.task.rectangular)
        return rows[:, LEFT - aside : LEFT + len(self.columns) + aside]

    def _sweep(self, sweeps: int, checked: bool) -> float:
        """Sweep the strip and return its largest change in the last sweep, if it is to be checked."""
        _, now, new = self._turns[0]
        forcing, end = self._forcing, len(now) - 1
        if self._sweeps > 1:
            beside = self._above, self._below
            return self.kernel.several_sweeps(now, new, forcing, beside, sweeps, checked)
        if checked:
            return self.kernel.sweep_residual(now, new, forcing, 1, end)
        self.kernel.sweep(now, new, forcing, 1, end)
        return math.nan

    def deliver(self) -> None:
        """Report the grid; draw it too if it is saved. Collective."""
        task = self.task
        self.kernel.settle()
        inside = unknowns(self._turns[0][1], len(self.columns))
        if not (task.save and task.output):
            task.result(inside if self.parameters.digest else None)
            return
        low = task.allreduce(float(inside.min()), "min")
        high = task.allreduce(float(inside.max()), "max")
        picture = Picture(Path(task.output) / "result.png", self.parameters.grid, low, high)
        task.result(inside, files=[str(picture.path)], sink=picture.take)


def strip_of(array: Grid) -> Grid:
    """Return an array's part with one row beyond the rank's own on each side, as kernels take it."""
    return array[HALO - 1 : len(array) - HALO + 1]
