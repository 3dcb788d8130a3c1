"""What of an exchange of edges is transfer and what is waiting, from time stamps of both ends.

Nothing is added to the rows themselves: each rank keeps when it began each exchange and when the one with
each neighbour had ended, and neighbours swap these stamps where the run is reported anyway. A transfer
lasts from the moment both ends are there until both are done; what one end spent before the other was
there is waiting, however long a message is on its way, and also where the message was there first.
"""

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

import numpy as np
from kernels import Grid
from mpi4py import MPI
from patience import Patience

STAMPS, PING, PONG, AGREED = 3, 4, 5, 6
"""Tags beside those of the rows."""
KEPT = 4096
"""Exchanges whose stamps are kept from one report to the next; further ones are taken to be like these."""
# The quickest exchange compares two clocks best (Cristian 1989).
ROUNDS = 6
"""Small messages there and back, of which the quickest tells latency and the difference of two clocks."""


class Neighbour:
    """A rank beside this one: its clock, and the transfers at the common border.

    Attributes
    ----------
    ahead
        Seconds by which its clock is ahead of this rank's.
    latency
        Seconds of a small message, one way.
    transfer
        Seconds of all transfers so far, each taken as long as the median one of its report.
    exchanges
        How many these were.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.ahead = self.latency = self.transfer = 0.0
        self.exchanges = 0

    @property
    def mean(self) -> float:
        """Seconds of one transfer; 0 before any was settled."""
        return self.transfer / max(1, self.exchanges)


class Transfers:
    """The time stamps of one rank's exchanges with its neighbours: those `beside` it, else the next ranks.

    Everything but `record` is collective: all ranks call it as often as the others, in the same order.

    Attributes
    ----------
    clock
        Returns this rank's time; those of other hosts may begin at any other moment.
    comparing
        Seconds that the last comparison of clocks took.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        patience: Patience,
        clock: Callable[[], float] = perf_counter,
        beside: Sequence[int] | None = None,
    ) -> None:
        self.comm, self.patience, self.clock = comm, patience, clock
        rank, size = comm.Get_rank(), comm.Get_size()
        ranks = (rank - 1, rank + 1) if beside is None else beside
        self.neighbours = [Neighbour(other) for other in ranks if 0 <= other < size]
        self.comparing = 0.0
        self._exchanges = 0
        self._stamps = np.empty((1 + len(self.neighbours), KEPT))
        self._kept = 0

    def compare_clocks(self) -> None:
        """Ask the neighbours for the time; `comparing` says how long that took. Collective.

        Of several questions the quickest answer counts: the neighbour read its clock in the middle of it
        (Cristian 1989). The lower rank of two asks; all take their turns in one order of the pairs, so that nobody
        waits in a circle: first those in which an even rank asks, of strips half of them at once.
        """
        begin = self.clock()
        rank = self.comm.Get_rank()
        pairs = [(min(rank, one.rank), max(rank, one.rank), one) for one in self.neighbours]
        for asks, _, one in sorted(pairs, key=lambda pair: (pair[0] % 2, *pair[:2])):
            if asks == rank:
                self._ask(one)
            else:
                self._answer(one)
        self.comparing = self.clock() - begin

    def _ask(self, other: Neighbour) -> None:
        best, ping, pong = np.inf, np.zeros(1), np.zeros(2)
        for _ in range(ROUNDS):
            asked = self.clock()
            self._swap(other.rank, ping, PING, pong, PONG)
            answered = self.clock()
            heard, said = pong.tolist()
            on_the_way = (answered - asked) - (said - heard)
            if on_the_way < best:
                best = on_the_way
                other.ahead = ((heard - asked) + (said - answered)) / 2
        other.latency = max(0.0, best / 2)
        agreed = np.array([other.ahead, other.latency])
        self.patience.wait(self.comm.Isend(agreed, other.rank, AGREED).Test)

    def _answer(self, other: Neighbour) -> None:
        ping, agreed = np.empty(1), np.empty(2)
        for _ in range(ROUNDS):
            self.patience.wait(self.comm.Irecv(ping, other.rank, PING).Test)
            heard = self.clock()
            pong = np.array([heard, self.clock()])
            self.patience.wait(self.comm.Isend(pong, other.rank, PONG).Test)
        self.patience.wait(self.comm.Irecv(agreed, other.rank, AGREED).Test)
        other.ahead, other.latency = -float(agreed[0]), float(agreed[1])

    def _swap(self, rank: int, mine: Grid, tag: int, theirs: Grid, their_tag: int) -> None:
        requests = [
            self.comm.Irecv(theirs, rank, their_tag),
            self.comm.Isend(mine, rank, tag),
        ]
        self.patience.wait(lambda: MPI.Request.Testall(requests))

    @property
    def later(self) -> list[Neighbour]:
        """The neighbours of higher ranks: with them this rank reports the common border."""
        return [one for one in self.neighbours if one.rank > self.comm.Get_rank()]

    def record(self, began: float, ended: Sequence[float]) -> None:
        """Keep when an exchange began here, and when it had ended with each neighbour, in their order."""
        self._exchanges += 1
        if self._kept < KEPT:
            self._stamps[0, self._kept] = began
            self._stamps[1:, self._kept] = ended
            self._kept += 1

    def settle(self) -> float:
        """Return what part of the exchanges since the last call was transfer. Collective."""
        kept, self._kept = self._kept, 0
        exchanges, self._exchanges = self._exchanges, 0
        if not self.neighbours or kept == 0:
            return 1.0
        began, *ended = self._stamps[:, :kept]
        theirs = []
        for other, here in zip(self.neighbours, ended, strict=True):
            mine, stamps = np.stack([began, here]), np.empty((2, kept))
            self._swap(other.rank, mine, STAMPS, stamps, STAMPS)
            theirs.append(stamps - other.ahead)
        usual, share = transfers_of(began, ended, theirs)
        for other, seconds in zip(self.neighbours, usual, strict=True):
            other.transfer += seconds * exchanges
            other.exchanges += exchanges
        return share


def transfers_of(
    began: Grid, ended: Sequence[Grid], theirs: Sequence[Grid]
) -> tuple[list[float], float]:
    """Return the median transfer with each neighbour, and what part of all exchanges was transfer.

    Parameters
    ----------
    began
        When each exchange began here.
    ended
        For each neighbour: when each exchange with it had ended here.
    theirs
        For each neighbour the same two of its own, by the clock here, shape (2, exchanges).

    Examples
    --------
    One exchange: the other was 3 s later, and each had the other's row 1 s after that.

    >>> transfers_of(np.array([5.0]), [np.array([9.0])], [np.array([[8.0], [9.0]])])
    ([1.0], 0.25)
    """
    both_there, usual = began, []
    for here, (their_begin, their_end) in zip(ended, theirs, strict=True):
        there = np.maximum(began, their_begin)
        transfer = np.maximum(np.maximum(here, their_end) - there, 0.0)
        # Not the mean: delays of a rank that had no CPU belong to the straggler factor, not to the
        # link.
        usual.append(median(transfer.tolist()))
        both_there = np.maximum(both_there, there)
    spent = np.max(ended, axis=0) - began
    waited = np.clip(both_there - began, 0.0, spent)
    return usual, float(1.0 - waited.sum() / max(float(spent.sum()), 1e-12))
