"""A cell of the box: the migratable block of this program, with the physics of its particles.

Particles of mass 1 have Lennard-Jones forces up to a cutoff, at which force and potential are shifted to zero, so
that neither jumps and the energy is conserved. Velocity Verlet.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from box import Box, FlightError, Numbers
from numpy.typing import NDArray

CUTOFF = 2.5
_C6 = CUTOFF**-6
SLOPE_AT_CUTOFF = -24.0 * (2.0 * _C6 * _C6 - _C6) / CUTOFF
POTENTIAL_AT_CUTOFF = 4.0 * (_C6 * _C6 - _C6)

NAME, PLACE, VELOCITY, FORCE = 0, slice(1, 3), slice(3, 5), slice(5, 7)
TRAVELS = slice(0, 5)
COLUMNS = 7


class Cell:
    """The particles in one cell, a row each, in the order of their names.

    The motion of a particle depends only on this cell and the cells around it, not on the rank that computes it.
    So a run is the same, bit for bit, on any number of ranks and for any migration of cells.
    """

    def __init__(self, number: int, rows: Numbers, potential: float = 0.0) -> None:
        self.number, self.rows, self.potential = number, rows, potential

    @property
    def kinetic(self) -> float:
        """Kinetic energy of its particles."""
        return 0.5 * float((self.rows[:, VELOCITY] ** 2).sum())

    def pack(self) -> dict[str, NDArray[np.generic]]:
        """Return the cell as arrays of numbers."""
        head = np.array([self.number], np.int64)
        return {"number": head, "rows": self.rows, "potential": np.array([self.potential])}

    @classmethod
    def unpack(cls, arrays: Mapping[str, Numbers]) -> "Cell":
        """Return the cell of the arrays from `pack`."""
        number, potential = int(arrays["number"][0]), float(arrays["potential"][0])
        return cls(number, arrays["rows"], potential)

    def drift(self, step: float, box: Box) -> None:
        """Do half a kick and a whole drift; afterwards particles may be outside the cell."""
        rows = self.rows
        rows[:, VELOCITY] += 0.5 * step * rows[:, FORCE]
        rows[:, PLACE] = box.wrap(rows[:, PLACE] + step * rows[:, VELOCITY])

    def mail(self, box: Box) -> dict[int, Numbers]:
        """Return for each neighbour the particles that it needs: inside it, or within the cutoff of it.

        Raises
        ------
        FlightError
            A particle is in no neighbour. Permanent: the time step is too long.
        """
        points = self.rows[:, PLACE]
        around = box.neighbours(self.number)
        homes = box.home(points)
        if not np.isin(homes, [self.number, *around]).all():
            raise FlightError(
                f"a particle of cell {self.number} flew further than a cell in one step: "
                "set a shorter time_step",
                code="time-step-too-long",
                cell=self.number,
            )
        return {
            there: self.rows[box.near(there, points, CUTOFF)][:, TRAVELS].copy()
            for there in around
        }

    def receive(self, mail: Iterable[Numbers], box: Box) -> None:
        """Keep the particles that are now in the cell, and compute the forces on them.

        Parameters
        ----------
        mail
            From the eight neighbours, in any order.
        """
        known = np.concatenate([self.rows[:, TRAVELS], *mail])
        known = known[box.near(self.number, known[:, PLACE], CUTOFF)]
        known = known[np.argsort(known[:, NAME], kind="stable")]
        mine = box.home(known[:, PLACE]) == self.number
        rows = np.zeros((int(mine.sum()), COLUMNS))
        rows[:, TRAVELS] = known[mine]
        self.rows = rows
        rows[:, FORCE], self.potential = act(rows[:, PLACE], known[:, PLACE], box.length)

    def kick(self, step: float) -> None:
        """Do the second half kick."""
        self.rows[:, VELOCITY] += 0.5 * step * self.rows[:, FORCE]


def act(here: Numbers, known: Numbers, length: float) -> tuple[Numbers, float]:
    """Return the force on each of `here` by all that is `known`, and half the potential of these pairs.

    Examples
    --------
    >>> two = np.array([[1.0, 1.0], [2.0, 1.0]])
    >>> force, potential = act(two, two, 100.0)
    >>> np.allclose(force[0], -force[1]), bool(force[0, 0] < 0)
    (True, True)
    """
    x = here[:, None, 0] - known[None, :, 0]
    y = here[:, None, 1] - known[None, :, 1]
    x -= length * np.round(x / length)
    y -= length * np.round(y / length)
    square = x * x + y * y
    one, other = np.nonzero((square > 0.0) & (square < CUTOFF * CUTOFF))
    x, y, square = x[one, other], y[one, other], square[one, other]
    distance = np.sqrt(square)
    six = 1.0 / (square * square * square)
    slope = -24.0 * (2.0 * six * six - six) / distance - SLOPE_AT_CUTOFF
    # Zero in value and in slope: the error of the energy is then that of the integrator, and falls
    # with the square of the step.
    shift = POTENTIAL_AT_CUTOFF + SLOPE_AT_CUTOFF * (distance - CUTOFF)
    pull = -slope / distance
    force = [np.bincount(one, pull * way, len(here)) for way in (x, y)]
    return np.stack(force, axis=1), 0.5 * float((4.0 * (six * six - six) - shift).sum())
