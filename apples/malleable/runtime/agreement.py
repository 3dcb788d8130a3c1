"""The agreement of all ranks on a safe point: one number, reduced while they compute.

Only rank 0 receives the job manager's messages. It puts a number into a reduction at one safe point, and every
rank takes it out at the next safe point that it does not skip. So all ranks handle the message at the same one.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable

from mpi4py import MPI

from apples.malleable.runtime.collectives import wait

MESSAGE, COMMIT = 1, 2
"""The bits of the number: the manager sent a message; a commit is due. Above them: safe points to skip."""
BITS = MESSAGE | COMMIT
PERIOD_SECONDS = 0.04
"""Interval of reductions: each costs 70 microseconds with two ranks, because a sweep evicts its code from the
caches."""
MAX_SKIPPED = 15
"""Maximum number of safe points skipped in a row. A message may wait for this number of iterations."""

OPERATIONS = (MPI.MAX, MPI.MIN, MPI.SUM)


class Agreement:
    """The number that rank 0 puts into a reduction and every rank takes out one safe point later.

    A program with reductions of its own carries the number in them (`reduce`). For any other program a reduction
    is begun at one safe point and completed at the next. The number includes the count of safe points that all
    ranks skip, about as many as fit into `PERIOD_SECONDS`.

    Parameters
    ----------
    question
        Called on rank 0; returns the bits to put into the reduction.
    clock
        Returns seconds, monotonic.
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
        # The types are explicit, because mpi4py takes longer to detect them than MPI takes for the reduction.
        self._buffers = [self._value, 1, MPI.DOUBLE], [self._result, 1, MPI.DOUBLE]
        self._begun: MPI.Request | None = None
        self._carried: int | None = None
        self._pause = 0
        self._rest = 0
        self._asked_at: float | None = None

    def skip(self) -> bool:
        """Return whether to skip this safe point; the same on all ranks."""
        if self._pause:
            self._pause -= 1
            return True
        return False

    def take(self) -> int:
        """Return the bits put in at the last safe point that was not skipped. Collective, without a wait.

        Called at safe points that are not skipped. If no bit is set, this method begins the next reduction when it
        is due. Otherwise the caller begins it after it has handled the bits.
        """
        carried = self._carried is not None
        bits = self.end()
        if bits or carried:
            return bits
        if self._pause:
            self._pause -= 1
        else:
            self.begin()
        return 0

    def begin(self) -> None:
        """Begin the reduction of the number."""
        self._pause = 0
        self._given[0] = self._word()
        self._begun = self._comm.Iallreduce(
            [self._given, 1, MPI.INT64_T], [self._taken, 1, MPI.INT64_T], MPI.MAX
        )

    def end(self) -> int:
        """Return the bits of the carried or pending reduction, which this completes; 0 if neither exists."""
        if self._carried is not None:
            word, self._carried = self._carried, None
        elif self._begun is not None:
            wait(self._begun.Test)
            self._begun, word = None, self._taken[0]
        else:
            return 0
        self._pause = word // (BITS + 1)
        if word & BITS:
            self._asked_at = (
                None  # handling the bits delays this safe point, so its time is not a measure
            )
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
        """Return rank 0's number: its bits, and above them how many safe points to skip until the next reduction.

        The skipped safe points and the next reduction together take one period, estimated from the last safe
        points. From one reduction to the next the number at most doubles, plus one, because a first iteration may
        be faster than the others.
        """
        if not self._root:
            return 0
        now, before = self._clock(), self._asked_at
        rest = 0
        if before is not None:
            fit = PERIOD_SECONDS * (self._rest + 1) / max(now - before, 1e-9)
            # Only rank 0 reads its clock: ranks with clocks of their own would disagree.
            # MAX_SKIPPED bounds the delay if iterations suddenly grow from microseconds to seconds.
            rest = int(min(max(fit, 1.0) - 1.0, MAX_SKIPPED, 2 * self._rest + 1))
        self._rest, self._asked_at = rest, now
        return self._question() + (BITS + 1) * rest
