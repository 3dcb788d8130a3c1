"""The steps of molecular dynamics over the cells of this rank, and the energy of all cells.

After the border cells have moved, their particles are sent to other ranks. Meanwhile the rank computes the cells
without neighbours on other ranks.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from box import Box, Numbers
from cell import Cell
from mpi4py import MPI
from post import Post

from apples.malleable import Blocks, State, wait
from apples.program import Task


class Dynamics:
    """Advances all cells together; every rank makes the same collective calls."""

    def __init__(self, task: Task, cells: Blocks[Cell], box: Box) -> None:
        self.task, self.cells, self.box = task, cells, box
        self._post: Post | None = None
        self._version = cells.version

    def advance(self, step: float) -> None:
        """Do one step of velocity Verlet; with length 0 it only computes the forces. Collective."""
        post = self._post
        if post is None or self._version != self.cells.version:
            post = self._post = Post(self.cells, self.box)
            self._version = self.cells.version
        mail = self._move(post.border, step)
        with self.task.communicating():
            post.send(mail)
        mail |= self._move(post.inside, step)
        arrived = post.sorted(mail)
        self._act(post.inside, arrived, step)
        with self.task.communicating():
            post.fetch(arrived)
        self._act(post.border, arrived, step)

    def _move(self, numbers: Iterable[int], step: float) -> dict[int, dict[int, Numbers]]:
        """Move the particles of some cells; return the particles that the cells' neighbours need."""
        mail = {}
        for number in numbers:
            with self.cells.timed(number):
                self.cells[number].drift(step, self.box)
                mail[number] = self.cells[number].mail(self.box)
        return mail

    def _act(
        self, numbers: Iterable[int], arrived: Mapping[int, Iterable[Numbers]], step: float
    ) -> None:
        """Compute the forces in some cells that have received all their mail."""
        for number in numbers:
            with self.cells.timed(number):
                self.cells[number].receive(arrived[number], self.box)
                self.cells[number].kick(step)

    def energy(self) -> tuple[float, int]:
        """Return the energy of all particles and their number. Collective.

        The sum is in the order of cells, so it is the same on any number of ranks, bit for bit.
        """
        mine, every = np.zeros((3, len(self.cells))), np.empty((3, len(self.cells)))
        for number, cell in self.cells.items():
            mine[:, number] = cell.kinetic, cell.potential, len(cell.rows)
        with self.task.communicating():
            wait(self.cells.comm.Iallreduce(mine, every, MPI.SUM).Test)
        return float(every[0].sum()) + float(every[1].sum()), int(every[2].sum())

    def error(self, first: State) -> float:
        """Return the relative error of the energy since the first step. Collective.

        Raises
        ------
        ArithmeticError
            A particle was lost. Permanent.
        """
        energy, particles = self.energy()
        if particles != first.particles:
            raise ArithmeticError(f"{particles} particles are left of {first.particles}")
        begin = float(first.energy)
        return abs(energy - begin) / max(abs(begin), 1e-300)
