"""The periodic box and its square cells: the neighbours of a cell, and the cell of a point."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from apples.program import TaskError

Numbers = NDArray[np.float64]
DIRECTIONS = tuple((dx, dy) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dx, dy) != (0, 0))


class FlightError(TaskError):
    """A particle moved further than a cell in one step: the step is too long for its speed. Permanent."""


@dataclass(frozen=True)
class Box:
    """`cells` x `cells` square cells of side `side`, periodic, numbered row by row."""

    cells: int
    side: float

    @property
    def length(self) -> float:
        """Side of the whole box."""
        return self.cells * self.side

    def neighbour(self, number: int, direction: tuple[int, int]) -> int:
        """Return the cell next to a cell."""
        row, column = divmod(number, self.cells)
        return (row + direction[1]) % self.cells * self.cells + (
            column + direction[0]
        ) % self.cells

    def neighbours(self, number: int) -> list[int]:
        """Return the eight cells around a cell, all different: a box has three cells a side or more."""
        return [self.neighbour(number, direction) for direction in DIRECTIONS]

    def home(self, points: Numbers) -> NDArray[np.int64]:
        """Return the number of the cell that each point is in; the same on every rank, bit for bit."""
        place = np.floor(points / self.side).astype(np.int64) % self.cells
        return place[:, 1] * self.cells + place[:, 0]

    def wrap(self, points: Numbers) -> Numbers:
        """Return the points inside the box."""
        inside: Numbers = points - self.length * np.floor(points / self.length)
        return inside

    def inside(self, number: int, points: Numbers) -> Numbers:
        """Return the points relative to the middle of a cell, by the shorter way round."""
        row, column = divmod(number, self.cells)
        middle = (np.array([column, row]) + 0.5) * self.side
        way = points - middle
        shorter: Numbers = way - self.length * np.round(way / self.length)
        return shorter

    def near(self, number: int, points: Numbers, reach: float) -> NDArray[np.bool_]:
        """Return which points are in a cell or within `reach` of it."""
        out = np.maximum(np.abs(self.inside(number, points)) - self.side / 2, 0.0)
        found: NDArray[np.bool_] = (out * out).sum(axis=1) < reach * reach
        return found
