"""The agreement of all ranks on a safe point: one number, reduced while they compute.

Rank 0 alone hears the job manager. The number it puts into a reduction at one safe point is taken out by every
rank at the next that does not pass, so that all of them turn to the manager's message at the same one.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable

from mpi4py import MPI

from apples.malleable.runtime.collectives import wait

MESSAGE, COMMIT = 1, 2
"""The bits of the number: the manager sent a message; a commit is due. Above them: safe points to pass."""
BITS = MESSAGE | COMMIT
PERIOD_SECONDS = 0.04
"""Between two reductions: each costs two ranks 70 microseconds, for a sweep leaves none of it in the caches."""
MOST_PASSED = 15
"""Safe points that pass without a reduction, at most: so many iterations a message may wait, however long."""

OPERATIONS = (MPI.MAX, MPI.MIN, MPI.SUM)


class Agreement:
    """The number that rank 0 puts in and every rank takes out one safe point later.

    A program that reduces anyway carries it in its own reduction (`reduce`); for any other it travels in
    a reduction that is begun at one safe point and taken at the next. Rank 0 says in it at how many safe
    points nobody need ask: as many as pass in `PERIOD_SECONDS`.

    Parameters
    ----------
    question
        Called on rank 0: returns the bits to put in.
    clock
        In seconds.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        question: Callable[[], int],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._comm, self._question, self._clock = comm, question, clock
        self._root = comm.Get_rank() == 0
        self._given, self._taken = array("q", [0]), array("q", [0])
        self._value, self._result = array("d", [0.0]), array("d", [0.0])
        # The types are given, because mpi4py takes longer to find them out than MPI to reduce.
        self._buffers = [self._value, 1, MPI.DOUBLE], [self._result, 1, MPI.DOUBLE]
        self._begun: MPI.Request | None = None
        self._carried: int | None = None
        self._pause = 0
        self._rest = 0
        self._asked_at: float | None = None

    def passes(self) -> bool:
        """Whether this safe point passes without a question; the same on all ranks."""
        if self._pause:
            self._pause -= 1
            return True
        return False

    def take(self) -> int:
        """Return the bits put in at the last safe point that did not pass. Collective, and waits for nobody.

        Called at safe points that do not pass. Where nothing is asked, the next number begins when its time
        comes; where something is, the caller begins it when that is done.
        """
        carried = self._carried is not None
        found = self.end()
        if found or carried:
            return found
        if self._pause:
            self._pause -= 1
        else:
            self.begin()
        return 0

    def begin(self) -> None:
        """Send the number on its way."""
        self._pause = 0
        self._given[0] = self._word()
        self._begun = self._comm.Iallreduce(
            [self._given, 1, MPI.INT64_T], [self._taken, 1, MPI.INT64_T], MPI.MAX
        )

    def end(self) -> int:
        """Return the bits that are there or on their way, 0 if none are."""
        if self._carried is not None:
            word, self._carried = self._carried, None
        elif self._begun is not None:
            wait(self._begun.Test)
            self._begun, word = None, self._taken[0]
        else:
            return 0
        self._pause = word // (BITS + 1)
        if word & BITS:
            self._asked_at = None  # what is done now is no measure of the safe points to come
        return word & BITS

    def reduce(self, value: float, operation: MPI.Op) -> float:
        """Return the reduction of a value over all ranks, carrying the number if it is time. Collective."""
        if operation not in OPERATIONS:
            raise ValueError("reductions that carry the safe point are MAX, MIN and SUM")
        if self._pause or self._begun is not None or self._carried is not None:
            self._value[0] = value
            wait(self._comm.Iallreduce(*self._buffers, operation).Test)
            return self._result[0]
        word = self._word()
        given = array("d", [value, -word if operation == MPI.MIN else word])
        taken = array("d", [0.0, 0.0])
        wait(self._comm.Iallreduce([given, 2, MPI.DOUBLE], [taken, 2, MPI.DOUBLE], operation).Test)
        self._carried = abs(int(taken[1]))
        return taken[0]

    def _word(self) -> int:
        """Return rank 0's number: its bits, and above them how many safe points pass until the next reduction.

        As many as make a period together with the one that reduces, by the time the last ones took. The number at
        most doubles, plus one, from one reduction to the next: a first quick iteration says little of the others.
        """
        if not self._root:
            return 0
        now, before = self._clock(), self._asked_at
        rest = 0
        if before is not None:
            fit = PERIOD_SECONDS * (self._rest + 1) / max(now - before, 1e-9)
            # Only rank 0 reads its clock: ranks with clocks of their own would disagree.
            # MOST_PASSED bounds the delay if iterations suddenly grow from microseconds to seconds.
            rest = int(min(max(fit, 1.0) - 1.0, MOST_PASSED, 2 * self._rest + 1))
        self._rest, self._asked_at = rest, now
        return self._question() + (BITS + 1) * rest
