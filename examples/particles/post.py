"""Mail between cells: in memory on one rank, one message a step between two ranks."""

from collections.abc import Mapping, Sequence

import numpy as np
from box import Box, Numbers
from cell import Cell
from mpi4py import MPI

from apples.malleable import Blocks, wait

TAG = 7
WIDTH = 5
"""Numbers of a particle in a message; the head of a message takes a row of as many."""


Mail = Mapping[int, Mapping[int, Numbers]]
"""Cell -> neighbour -> the particles sent to it."""


class Post:
    """The routes of one block table; made again when the table changes.

    Attributes
    ----------
    border, inside
        The cells of this rank: those with a neighbour on another rank, and those without.
    """

    def __init__(self, cells: Blocks[Cell], box: Box) -> None:
        self.cells, self.comm = cells, cells.comm
        rank = self.comm.Get_rank()
        around = {
            number: {cells.owner(n) for n in box.neighbours(number)} - {rank}
            for number, _ in cells.items()
        }
        self.partners = sorted(set().union(*around.values()))
        self.border = [number for number, ranks in around.items() if ranks]
        self.inside = [number for number, ranks in around.items() if not ranks]
        self._requests: Sequence[MPI.Request] = ()

    def send(self, mail: Mail) -> None:
        """Send the mail of border cells to other ranks; `fetch` must follow."""
        parcels: dict[int, list[Numbers]] = {partner: [] for partner in self.partners}
        for sent in mail.values():
            for number, rows in sent.items():
                if number not in self.cells:
                    head = np.zeros((1, WIDTH))
                    head[0, :2] = number, len(rows)
                    parcels[self.cells.owner(number)] += [head, rows]
        letters = {partner: np.concatenate(parts) for partner, parts in parcels.items()}
        self._requests = [
            self.comm.Isend(letter, partner, TAG) for partner, letter in letters.items()
        ]

    def sorted(self, mail: Mail) -> dict[int, list[Numbers]]:
        """Return the mail between cells of this rank, by receiver."""
        arrived: dict[int, list[Numbers]] = {number: [] for number, _ in self.cells.items()}
        for sent in mail.values():
            for number, rows in sent.items():
                if number in arrived:
                    arrived[number].append(rows)
        return arrived

    def fetch(self, arrived: dict[int, list[Numbers]]) -> None:
        """Receive a message from each partner and add its contents by cell; complete all sends."""
        missing = list(self.partners)

        def look() -> bool:
            for partner in list(missing):
                status = MPI.Status()
                message = self.comm.Improbe(partner, TAG, status)
                if message is not None:
                    letter = np.empty((status.Get_count(MPI.DOUBLE) // WIDTH, WIDTH))
                    message.Recv(letter)
                    self._sort(letter, arrived)
                    missing.remove(partner)
            return not missing

        wait(look)
        wait(lambda: MPI.Request.Testall(self._requests))

    @staticmethod
    def _sort(letter: Numbers, arrived: dict[int, list[Numbers]]) -> None:
        place = 0
        while place < len(letter):
            number, count = int(letter[place, 0]), int(letter[place, 1])
            arrived[number].append(letter[place + 1 : place + 1 + count])
            place += 1 + count
