"""`Job`: a program's side of a malleable job.

    job = Job()
    u = job.array("u", (rows, columns), halo=1, fill=first_contents)
    state = job.state(iteration=0)
    while state.iteration < iterations:
        if job.safepoint():
            ...  # u.local, job.comm, job.rank, job.size are new here
        ...
        state.iteration += 1
    job.finish()

Started without an anchor the same program runs rigid on its MPI world.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from apples.malleable import undeclared
from apples.malleable.agreement import COMMIT, MESSAGE
from apples.malleable.balancer import Strategy
from apples.malleable.blocks import Blocks
from apples.malleable.changes import (
    Change,
    DeclarationError,
    Released,
    Rollback,
    UndeclaredStateError,
)
from apples.malleable.packing import Arrays
from apples.malleable.participant import Participant
from apples.malleable.row_array import Fill, RowArray
from apples.malleable.state import Replicated, State, Value

T = TypeVar("T")


class Job(Participant):
    """The job this program is, one object a rank.

    Parameters
    ----------
    commit_seconds
        How often a state is committed to which the job rolls back when a host is lost; None: what the
        job file says; 0: only when `commit` is called.

    Attributes
    ----------
    comm, members, strip
        The communicator to work on, all hosts with their rows, and this rank's rows; from the first
        safe point on, and new after every change.
    host
        Name of this rank's host, from the start where every host has a world of its own.
    layout
        Host and rows of every rank.
    """

    @property
    def rigid(self) -> bool:
        """Whether no anchor started it: its hosts never change."""
        return self._channel is None

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.comm.Get_size()

    def array(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike = np.float64,
        halo: int = 0,
        fill: Fill | None = None,
    ) -> RowArray:
        """Declare an array whose rows are shared out; see `RowArray`."""
        self._demand_new(name)
        declared = RowArray(name, shape, dtype, halo, fill)
        if self._declared.arrays and declared.rows != self._declared.rows:
            raise DeclarationError(
                f"array {name!r} has {declared.rows} rows, {self._declared.arrays[0].name!r}"
                f" {self._declared.rows}: arrays of one job share their rows out alike"
            )
        self._declared.arrays.append(declared)
        return declared

    def replicated(self, name: str, array: NDArray[np.generic]) -> Replicated:
        """Declare an array that is the same on every rank; new ranks get rank 0's contents."""
        self._demand_new(name)
        declared = Replicated(name, array)
        self._declared.replicated.append(declared)
        return declared

    def blocks(
        self,
        name: str,
        make: Callable[[int], T],
        pack: Callable[[T], Arrays],
        unpack: Callable[[dict[str, NDArray[Any]]], T],
        *,
        count: int = 0,
        decomposition: str = "",
        strategy: str | Strategy = "greedy",
        background: bool = False,
    ) -> Blocks[T]:
        """Declare objects that migrate one by one, as a load balancer wants them; see `Blocks`."""
        self._demand_new(name)
        declared = Blocks(
            name,
            make,
            pack,
            unpack,
            count=count,
            decomposition=decomposition,
            strategy=strategy,
            background=background,
        )
        self._declared.blocks.append(declared)
        return declared

    def state(self, **values: Value) -> State:
        """Declare values that are the same on every rank; once a job. One named `iteration` is reported."""
        self._demand_new("state")
        if self._declared.state.dump():
            raise DeclarationError("state is declared once, with all its values")
        self._declared.state = State(values)
        return self._declared.state

    def may_lose(self, *names: str) -> None:
        """Allow names of the program's loop to differ on new ranks: a timer, a cache."""
        self._losable |= set(names)

    def safepoint(self, before: Callable[[], object] | None = None) -> Change | Rollback | None:
        """Return what changed, None if nothing did. Collective; every rank calls it as often as the others.

        Parameters
        ----------
        before
            Called when a change is about to be made, by leaving ranks too: frees requests on the old
            communicator.

        Raises
        ------
        Released
            This rank's host leaves the job; not to be caught.
        UndeclaredStateError
            At the first safe point: something would be lost.
        """
        if self._agreement is None:
            self._demand_declared(sys._getframe(1))
            return self._enter()
        if (
            self._agreement.passes()
        ):  # in the caches a sweep leaves nothing of what all else would take
            return None
        self._mask.follow()
        asked = self._agreement.take()
        if not asked:
            return None
        found: Change | Rollback | None = None
        if asked & COMMIT:
            self.commit()
        if asked & MESSAGE:
            found = self._obey(before)
        if found is None:
            self._agreement.begin()
        return found

    def allreduce(self, value: float, operation: MPI.Op = MPI.SUM) -> float:
        """Return a reduction of MAX, MIN or SUM over all ranks, which carries the safe point's question along."""
        if self._agreement is None:
            raise DeclarationError("allreduce comes after the first safe point")
        return self._agreement.reduce(value, operation)

    def request(self, minimum: int, maximum: int) -> None:
        """Ask for other limits, in hosts (an evolving job); whoever runs the job may answer with a change."""
        if self._channel is not None and self.rank == 0:
            self._channel.say("request", minimum=minimum, maximum=maximum)

    def finish(self) -> None:
        """End the job's collective life; every rank calls it after the loop, and works alone from then on."""
        if self._agreement is not None:
            self._agreement.end()
            self._agreement = None
        self.comm.Barrier()
        if self._channel is not None:
            if self.rank == 0:
                self._channel.say("finished", iteration=self._iteration())
            self._channel.say("leaving")

    def __enter__(self) -> Job:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish; an error ends the whole job with its message."""
        if kind is None:
            self.finish()
        elif self._channel is not None and not issubclass(kind, Released):
            self._channel.say("failed", message=f"{kind.__name__}: {error}"[:2000])

    def _demand_new(self, name: str) -> None:
        names = {one.name for one in self._declared.arrays}
        names |= {one.name for one in self._declared.replicated}
        names |= {one.name for one in self._declared.blocks}
        if self._agreement is not None:
            raise DeclarationError(
                f"{name!r}: declare before the first safe point, as new ranks do"
            )
        if name in names:
            raise DeclarationError(f"{name!r} is declared twice")

    def _demand_declared(self, frame: FrameType) -> None:
        """Refuse a loop that carries what nobody declared."""
        kept = (Job, RowArray, Replicated, State, Blocks)
        known = {name for name, value in frame.f_locals.items() if isinstance(value, kept)}
        found = undeclared.carried(frame, known | self._losable)
        if found:
            names = ", ".join(f"{name} (line {line})" for name, line in found)
            raise UndeclaredStateError(
                f"carried from one safe point to the next and not declared: {names}; a new rank would"
                " not have it: declare it by job.state, job.array or job.replicated, make it anew where"
                " safepoint() reports a change, or allow its loss by job.may_lose"
            )
