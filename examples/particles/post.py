"""Mail between cells: in memory on one rank, one message a step between two ranks."""

from collections.abc import Mapping

import numpy as np
from box import Box, Numbers
from cell import Cell
from mpi4py import MPI

from apples.malleable import Blocks, wait

TAG = 7
WIDTH = 5
"""Numbers of a particle that travel; a parcel's head takes a row of as many."""


class Post:
    """The routes of one block table; made again when the table changes."""

    def __init__(self, cells: Blocks[Cell], box: Box) -> None:
        self.cells, self.comm = cells, cells.comm
        rank = self.comm.Get_rank()
        around = {cells.owner(n) for number, _ in cells.items() for n in box.neighbours(number)}
        self.partners = sorted(around - {rank})

    def deliver(self, mail: Mapping[int, Mapping[int, Numbers]]) -> dict[int, list[Numbers]]:
        """Return what came for each cell that is here, given what each of them sends. Collective."""
        arrived: dict[int, list[Numbers]] = {number: [] for number, _ in self.cells.items()}
        parcels: dict[int, list[Numbers]] = {partner: [] for partner in self.partners}
        for sent in mail.values():
            for number, rows in sent.items():
                if number in arrived:
                    arrived[number].append(rows)
                else:
                    head = np.zeros((1, WIDTH))
                    head[0, :2] = number, len(rows)
                    parcels[self.cells.owner(number)] += [head, rows]
        letters = {partner: np.concatenate(parts) for partner, parts in parcels.items()}
        requests = [self.comm.Isend(letter, partner, TAG) for partner, letter in letters.items()]
        self._open(arrived)
        wait(lambda: MPI.Request.Testall(requests))
        return arrived

    def _open(self, arrived: dict[int, list[Numbers]]) -> None:
        """Take one letter from each partner and hand out what is in it."""
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

    @staticmethod
    def _sort(letter: Numbers, arrived: dict[int, list[Numbers]]) -> None:
        place = 0
        while place < len(letter):
            number, count = int(letter[place, 0]), int(letter[place, 1])
            arrived[number].append(letter[place + 1 : place + 1 + count])
            place += 1 + count
