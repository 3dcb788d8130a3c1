"""The steps of molecular dynamics over the cells that are here, and what is measured of them.

What other ranks must know is sent as soon as the cells at the border have moved; while it is on its way, the cells
whose neighbours are all here are computed.
"""

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from box import Box, Numbers
from cell import TRAVELS, Cell
from mpi4py import MPI
from post import Post

from apples.malleable import Blocks, wait


@dataclass
class Clock:
    """Seconds of this rank in computing (wall and processor) and in exchanging mail."""

    compute: float = 0.0
    processor: float = 0.0
    communicate: float = 0.0


class Dynamics:
    """Advances all cells together; every rank calls what is collective as often as the others."""

    def __init__(self, cells: Blocks[Cell], box: Box) -> None:
        self.cells, self.box = cells, box
        self.clock = Clock()
        self._post = Post(cells, box)
        self._version = cells.version

    def advance(self, step: float) -> None:
        """Do one step of velocity Verlet; of length 0 it only finds the forces. Collective."""
        if self._version != self.cells.version:
            self._post, self._version = Post(self.cells, self.box), self.cells.version
        post = self._post
        with self._counted(computing=True):
            mail = self._move(post.border, step)
        with self._counted(computing=False):
            post.send(mail)
        with self._counted(computing=True):
            mail |= self._move(post.inside, step)
            arrived = post.sorted(mail)
            self._act(post.inside, arrived, step)
        with self._counted(computing=False):
            post.fetch(arrived)
        with self._counted(computing=True):
            self._act(post.border, arrived, step)

    def _move(self, numbers: Iterable[int], step: float) -> dict[int, dict[int, Numbers]]:
        """Let the particles of some cells fly; return what the cells' neighbours must know of them."""
        mail = {}
        for number in numbers:
            with self.cells.timed(number):
                self.cells[number].drift(step, self.box)
                mail[number] = self.cells[number].mail(self.box)
        return mail

    def _act(
        self, numbers: Iterable[int], arrived: Mapping[int, Iterable[Numbers]], step: float
    ) -> None:
        """Compute the forces in some cells, whose mail is complete."""
        for number in numbers:
            with self.cells.timed(number):
                self.cells[number].receive(arrived[number], self.box)
                self.cells[number].kick(step)

    @contextmanager
    def _counted(self, *, computing: bool) -> Iterator[None]:
        """Count what is done inside as computing, or as communication."""
        wall, processor = time.perf_counter(), time.thread_time()
        yield
        spent = time.perf_counter() - wall
        if computing:
            self.clock.compute += spent
            self.clock.processor += time.thread_time() - processor
        else:
            self.clock.communicate += spent

    def energy(self) -> tuple[float, float, int]:
        """Return kinetic and potential energy and the number of particles. Collective.

        Summed in the order of cells: the same on any number of ranks, bit for bit.
        """
        mine, every = np.zeros((3, len(self.cells))), np.empty((3, len(self.cells)))
        for number, cell in self.cells.items():
            mine[:, number] = cell.kinetic, cell.potential, len(cell.rows)
        wait(self.cells.comm.Iallreduce(mine, every, MPI.SUM).Test)
        return float(every[0].sum()), float(every[1].sum()), int(every[2].sum())

    def digest(self) -> str:
        """Return, on rank 0, the SHA-256 of all particles. Collective; no rank holds them all."""
        comm, sha = self.cells.comm, hashlib.sha256()
        rank = comm.Get_rank()
        for number in range(len(self.cells)):
            owner = self.cells.owner(number)
            if rank == owner:
                rows = np.ascontiguousarray(self.cells[number].rows[:, TRAVELS])
                if rank == 0:
                    sha.update(rows.tobytes())
                else:
                    comm.Send(rows, 0, number % 1024)
            elif rank == 0:
                sha.update(_receive(comm, owner, number % 1024).tobytes())
        return sha.hexdigest()


def _receive(comm: MPI.Intracomm, owner: int, tag: int) -> Numbers:
    status = MPI.Status()
    message = comm.Mprobe(owner, tag, status)
    rows = np.empty(status.Get_count(MPI.DOUBLE))
    message.Recv(rows)
    return rows
