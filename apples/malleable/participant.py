"""`Participant`: how a rank becomes a member of its job, changes with it, commits, and leaves."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from mpi4py import MPI

from apples.malleable import assembly
from apples.malleable.agreement import COMMIT, MESSAGE, Agreement
from apples.malleable.balancer import Processor
from apples.malleable.changes import (
    Change,
    Released,
    Rollback,
)
from apples.malleable.channel import ADDRESS, Channel, Message
from apples.malleable.command import Member
from apples.malleable.keeping import Keeping
from apples.malleable.mask import Mask
from apples.malleable.membership import Changed, Declared, Plan, change
from apples.malleable.strips import Range, rank_ranges

T = TypeVar("T")

NEWS_SECONDS = 0.5
"""How often rank 0 tells the anchor where the job is."""
HOST = "APPLES_HOST"
"""Environment variable with the host's name, where a group has one host."""
RIGID = "here"
"""The host of a job that no anchor started."""


class Participant:
    """One rank's membership; `Job` is what a program sees of it."""

    def __init__(self, commit_seconds: float | None = None) -> None:
        self._world = MPI.COMM_WORLD
        self._local_rank = self._world.Get_rank()
        address = os.environ.get(ADDRESS)
        self._channel = Channel(address, self._local_rank) if address else None
        self._keeping = Keeping(self._channel) if self._channel else None
        self._declared = Declared()
        self._agreement: Agreement | None = None
        self._commit_seconds = commit_seconds
        self._losable: set[str] = set()
        self._committed = self._told = time.monotonic()
        self._host, self._seat = -1, self._local_rank
        self._plan: Plan | None = None
        self._mask = Mask(self._world.Get_size())
        self.comm: MPI.Intracomm = self._world
        self.members: tuple[Member, ...] = ()
        self.strip = Range(0, 0)
        self.layout: list[tuple[str, Range]] = []
        self.host = os.environ.get(HOST, RIGID)

    @property
    def rank(self) -> int:
        """This rank's number among all."""
        return self.comm.Get_rank()

    def commit(self) -> str:
        """Commit the state: what the job rolls back to when a host is lost. Collective.

        Returns what went wrong, empty if nothing did; the commit before is still there then. A job that
        no anchor started commits nothing.
        """
        self._committed = time.monotonic()
        if self._keeping is None or self._plan is None or self._channel is None:
            return ""
        fault = self._keeping.make(self.comm, self._plan, self._declared, self.strip)
        if self.rank == 0:
            word = "uncommitted" if fault else "committed"
            self._channel.say(
                word, commit=self._keeping.number, iteration=self._iteration(), reason=fault
            )
        return fault

    def _iteration(self) -> int:
        value = self._declared.state.dump().get("iteration", 0)
        return value if isinstance(value, int) else 0

    def _look(self) -> int:
        """Return what rank 0 has to tell the others; where the job is, now and then, to the anchor."""
        channel = self._channel
        if channel is None:
            return 0
        now = time.monotonic()
        if now - self._told > NEWS_SECONDS:
            self._told = now
            channel.say("at", iteration=self._iteration())
        due = self._commit_seconds and now - self._committed >= self._commit_seconds
        return (MESSAGE if channel.waiting() else 0) | (COMMIT if due else 0)

    def _enter(self) -> Change | Rollback:
        """Become a member: wait, parked, to be told with whom."""
        if self._channel is None:
            return self._run_rigid()
        self._channel.say("parked", declared=self._declared.summary(), rows=self._declared.rows)
        order = self._channel.wait()
        self._host, self._seat = order["seats"][self._local_rank]
        if self._commit_seconds is None:
            self._commit_seconds = order["commit_seconds"]
        if order["do"] == "join":
            return self._become(assembly.connect(self._world, order["port"]), None, True)
        merged = self._admit(self._world, order)
        return self._become(merged, order["plan"], True)

    def _run_rigid(self) -> Change:
        size, rows = self._world.Get_size(), self._declared.rows
        self.members = (Member(RIGID, 0, rows),)
        self.host, self.layout = RIGID, rank_ranges(self.members, {RIGID: size})
        self.strip = self.layout[self._local_rank][1]
        for array in self._declared.arrays:
            array.begin(self.strip)
        for blocks in self._declared.blocks:
            blocks.begin(self._world, (Processor(RIGID),) * size)
        self._settle(self._world.Dup())
        for blocks in self._declared.blocks:
            blocks.settle(self.comm, {rank: rank for rank in range(size)})
        return Change("started", 0, (), self.members, True)

    def _obey(self, before: Callable[[], object] | None) -> Change | Rollback | None:
        """Do what the anchor sent to rank 0. Collective."""
        channel = self._channel
        assert channel is not None  # noqa: S101 - who has none is never asked anything
        order = assembly.share(self.comm, channel.wait() if self.rank == 0 else None)
        if order["do"] == "restart":
            self._restart(before)
            return None
        if before is not None:
            before()
        begin = time.perf_counter()
        merged = self._admit(self.comm, order)
        return self._become(merged, order["plan"], False, time.perf_counter() - begin)

    def _restart(self, before: Callable[[], object] | None) -> None:
        """Commit and leave, to be started elsewhere; where the commit fails, stay. Collective."""
        if self._channel is not None and self.rank == 0:
            self._channel.say("safepoint")
        if fault := self.commit():
            if self._channel is not None and self.rank == 0:
                self._channel.say("stays", reason=fault)
            return
        if before is not None:
            before()
        if self._channel is not None and self.rank == 0:
            self._channel.say("stops")
        self.comm.Disconnect()
        self._leave()

    def _admit(self, comm: MPI.Intracomm, order: Message) -> MPI.Intracomm:
        """Let the groups join that the anchor names."""
        channel = self._channel
        assert channel is not None  # noqa: S101 - as above
        if comm.Get_rank() == 0:
            channel.say("safepoint")
        return assembly.admit(
            comm, order["joining"], lambda port: channel.say("invite", port=port)
        )

    def _become(
        self, merged: MPI.Intracomm, sent: Message | None, is_new: bool, join: float = 0.0
    ) -> Change | Rollback:
        """Carry out the plan that rank 0 was sent; return as a member, or leave."""
        begin = time.perf_counter()
        if merged.Get_rank() == 0 and sent is not None:
            sent = {
                **sent,
                "values": self._declared.state.dump(),
                "commit": self._keeping.number if self._keeping else 0,
            }
        plan = Plan.load(assembly.share(merged, sent))
        seat = assembly.Seat(self._host, self._seat, -1 if is_new else self.comm.Get_rank())
        speaks = merged.Get_rank() == 0
        keeping, found = self._keeping, 0
        assert keeping is not None  # noqa: S101 - as above
        keeping.number = plan.commit

        def take_commit(comm: MPI.Intracomm, strips: Sequence[Range]) -> bool:
            nonlocal found
            first = self._local_rank == 0
            found = keeping.restore(comm, plan, self._declared, strips, first)
            return found > 0

        done = change(merged, plan, self._declared, seat, take_commit)
        if not is_new:
            self.comm.Disconnect()
        if merged not in (self._world, self.comm):
            merged.Disconnect()
        phases = {"join": join, **done.phases}
        phases["rebuild"] = time.perf_counter() - begin - phases["redistribute"]
        if speaks and self._channel is not None:
            self._channel.say(
                "changed",
                epoch=plan.epoch,
                phases=phases,
                bytes=done.moved_bytes,
                iteration=self._iteration(),
            )
        if done.comm is None:
            self._leave()
        return self._member(plan, done, is_new, found)

    def _member(self, plan: Plan, done: Changed, is_new: bool, commit: int) -> Change | Rollback:
        assert done.comm is not None  # noqa: S101 - a member has one
        self._plan, self.members, self.strip = plan, plan.new, done.strip
        self.layout = rank_ranges(plan.new, plan.slots)
        if cpus := plan.cpus.get(plan.hosts[self._host]):
            os.sched_setaffinity(0, cpus)
        self.host = plan.hosts[self._host]
        self._settle(done.comm)
        if plan.origin == "commit":
            return Rollback(plan.epoch, commit, plan.lost, plan.new)
        kind = "started" if not plan.old else "resized"
        return Change(kind, plan.epoch, plan.old, plan.new, is_new, done.phases)  # type: ignore[arg-type]

    def _settle(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self._agreement = Agreement(comm, self._look)
        self._agreement.begin()

    def _leave(self) -> NoReturn:
        if self._channel is not None:
            self._channel.say("leaving")
        raise Released
