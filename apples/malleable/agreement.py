"""All ranks learn at the same safe point that something is asked: one number, on its way while they compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from apples.malleable.patience import wait

MESSAGE, COMMIT = 1, 2
"""The bits of the number: the anchor sent something; a commit is due."""


class Agreement:
    """The number that rank 0 puts in and every rank takes out one safe point later.

    A program that reduces anyway carries it in its own reduction (`reduce`) and pays nothing more; for
    any other it travels in a reduction that is begun at one safe point and taken at the next.

    Parameters
    ----------
    look
        What rank 0 asks: the bits to put in.
    """

    def __init__(self, comm: MPI.Intracomm, look: Callable[[], int]) -> None:
        self._comm, self._look = comm, look
        self._root = comm.Get_rank() == 0
        self._given = np.zeros(1, np.int64)
        self._taken = np.zeros(1, np.int64)
        self._begun: MPI.Request | None = None
        self._carried: int | None = None

    def take(self) -> int:
        """Return what was put in one safe point ago, and begin the next. Collective, and waits for nobody."""
        found = self.end()
        if self._carried is not None:
            found |= self._carried
            self._carried = None
        elif not found:
            self.begin()
        return found

    def begin(self) -> None:
        """Send the number on its way."""
        self._given[0] = self._look() if self._root else 0
        self._begun = self._comm.Iallreduce(self._given, self._taken, MPI.MAX)

    def end(self) -> int:
        """Return the number that is on its way, 0 if none is."""
        if self._begun is None:
            return 0
        wait(self._begun.Test)
        self._begun = None
        return int(self._taken[0])

    def reduce(self, value: float, operation: MPI.Op) -> float:
        """Return the reduction of a value over all ranks, carrying the number along. Collective."""
        word = float(self._look()) if self._root else 0.0
        given, taken = np.array([value, word]), np.empty(2)
        if operation == MPI.MIN:
            given[1] = -word
        elif operation not in (MPI.MAX, MPI.SUM):
            raise ValueError("reductions that carry the safe point are MAX, MIN and SUM")
        wait(self._comm.Iallreduce(given, taken, operation).Test)
        self._carried = int(abs(taken[1]))
        return float(taken[0])
