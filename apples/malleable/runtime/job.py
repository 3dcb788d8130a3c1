"""`MalleableJob`: a program's side of a malleable job.

    job = Job()
    u = job.array("u", (rows, columns), halo=1, fill=first_contents)
    state = job.state(iteration=0)
    while state.iteration < iterations:
        if job.safepoint():
            ...  # u.local, job.comm, job.rank, job.size are new here
        ...
        state.iteration += 1
    job.finish()

Started without a job manager the same program runs rigid on its MPI world: with the rows that the agent's task
gives each host (`agent_task`), or started by hand with as many for each rank.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import Any, NoReturn, TypeVar

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike, NDArray

from apples.errors import ApplesError
from apples.malleable.balancers.contract import LoadBalancer, Processor
from apples.malleable.control.command import ChangePlan, HostRows, HostShare
from apples.malleable.control.strips import RowRange, rank_ranges, strips
from apples.malleable.runtime import membership, saved_state, undeclared
from apples.malleable.runtime.agent_task import TASK, AgentTaskError, AskedTask, task_of_agent
from apples.malleable.runtime.agreement import COMMIT, MESSAGE, Agreement
from apples.malleable.runtime.blocks import Blocks
from apples.malleable.runtime.channel import ADDRESS, Message, RankChannel
from apples.malleable.runtime.checkpoint import CheckpointPolicy
from apples.malleable.runtime.collectives import (
    broadcast_document,
    gather_documents,
    patient_calls,
)
from apples.malleable.runtime.constant_parts import ConstantParts, Source, locations
from apples.malleable.runtime.csr import CsrMatrix, Rows
from apples.malleable.runtime.declared import (
    DeclarationError,
    DeclaredArray,
    DistributedArray,
    Fill,
    Replicated,
    RowArray,
    State,
    TileArray,
    UndeclaredStateError,
    Value,
    written_constants,
)
from apples.malleable.runtime.halo_messages import HaloMessages
from apples.malleable.runtime.membership import (
    ChangeResult,
    Declared,
    HostChange,
    Released,
    Rollback,
    carry_out,
)
from apples.malleable.runtime.packing import Arrays
from apples.malleable.runtime.row_memory import MAKING_SECONDS
from apples.malleable.runtime.saved_state import RankState, UndecidedChange

T = TypeVar("T")
S = TypeVar("S", RowArray, TileArray, CsrMatrix)

TOPOLOGY = "APPLES_TOPOLOGY_JOB"
"""Set by the topology daemon for processes it starts: then changes of CPUs are announced and acknowledged."""


class CpuMask:
    """Keeps a rank's threads to the CPUs it may use, as the malleability points of DROM do (SD-Policy, 3.3).

    `Threads` is loaded only when the CPUs change, because a rank starts sooner without it.

    Parameters
    ----------
    ranks
        Ranks of the job on this host, which divide the CPUs among them.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._cpus = os.sched_getaffinity(0)
        self._threads: Any = None
        if os.environ.get(TOPOLOGY):
            self._threads = self._loaded()

    def follow(self) -> bool:
        """Set the threads of every loaded pool where the CPUs have changed; say whether they had."""
        if self._threads is not None:
            return self._threads.adapt() is not None
        if os.sched_getaffinity(0) == self._cpus:
            return False
        self._threads = self._loaded()
        return True

    def _loaded(self) -> Any:
        from apples.topology.threads import Threads  # noqa: PLC0415 - a rank starts sooner without

        return Threads(self._ranks)


# Applies to commits in memory. Commits on disk stay the user's choice: their cost depends on a disk
# that others share.
PACE_SECONDS = 5.0
"""Between two commits that nobody asked for, at least."""
COMMITTED_SHARE = 0.01
"""Of the time, what these commits may take."""
PROGRESS_SECONDS = 0.5
"""How often rank 0 reports the iteration to the job manager, and the messages of its arrays to the agent."""
HOST = "APPLES_HOST"
"""Environment variable with the host's name, where a process group has one host."""
RIGID = "here"
"""Name of the host of a job that was started without a job manager."""


class MalleableJob:
    """A program's side of its malleable job, one object a rank. In programs it is called `malleable.Job`.

    Parameters
    ----------
    commit_seconds
        How often a state is committed to which the job rolls back when a host is lost; 0: only when `commit`
        is called. None: what the job file says; where that says nothing either, on several hosts, in memory
        alone, where there is some to spare, and so seldom that it takes a hundredth of the time.
    task
        What an agent asks; read where that is when None, by all ranks together.

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

    def __init__(
        self, commit_seconds: float | None = None, *, task: AskedTask | None = None
    ) -> None:
        self._world = MPI.COMM_WORLD
        self._local_rank = self._world.Get_rank()
        address = os.environ.get(ADDRESS)
        self._channel = RankChannel(address, self._local_rank) if address else None
        self._checkpoints = CheckpointPolicy(self._channel) if self._channel else None
        self._declared = Declared()
        self._agreement: Agreement | None = None
        self._commit_seconds = commit_seconds
        self._losable: set[str] = set()
        self._committed = self._progress_sent = time.monotonic()
        self._pace = PACE_SECONDS
        self._plan: ChangePlan | None = None
        self._messages: HaloMessages | None = None
        self._ahead: ConstantParts | None = None
        self._mask = CpuMask(self._world.Get_size())
        self.comm: MPI.Intracomm = self._world
        self.members: tuple[HostRows, ...] = ()
        self.strip = RowRange(0, 0)
        self.layout: list[tuple[str, RowRange]] = []
        self.host = os.environ.get(HOST, RIGID)
        self._task = task if task or self._channel else task_of_agent(self._world)
        if self._channel is None and self._task is not None:
            hosts = [piece.host for piece in self._task.pieces for _ in range(piece.ranks)]
            if len(hosts) != self.size:
                raise AgentTaskError(
                    f"the task is for {len(hosts)} ranks; MPI has {self.size}",
                    code="program-ranks-differ",
                    value=self.size,
                    bound=len(hosts),
                )
            self.host = hosts[self._local_rank]

    @property
    def rank(self) -> int:
        """This rank's number among all."""
        return self.comm.Get_rank()

    def commit(self) -> str:
        """Commit the state: what the job rolls back to when a host is lost. Collective.

        Returns what went wrong, empty if nothing did; the commit before is still there then. A job
        without a job manager commits nothing.
        """
        return self._commit(sparing=False)

    def _commit(self, *, sparing: bool) -> str:
        """Commit as `commit` does, or in memory alone and where there is some to spare. Collective."""
        begin = self._committed = time.monotonic()
        if self._checkpoints is None or self._plan is None or self._channel is None:
            return ""
        fault = self._checkpoints.make(self.comm, self._plan, self._declared, sparing=sparing)
        self._pace = max(PACE_SECONDS, (time.monotonic() - begin) / COMMITTED_SHARE)
        if self.rank == 0:
            word, on_disk = "uncommitted" if fault else "committed", not sparing
            iteration, number = self._iteration(), self._checkpoints.number
            self._channel.send(
                word, commit=number, iteration=iteration, reason=fault, on_disk=on_disk
            )
        return fault

    @property
    def rigid(self) -> bool:
        """Whether it was started without a job manager: its hosts never change."""
        return self._channel is None

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.comm.Get_size()

    @property
    def shares_rows(self) -> bool:
        """Whether it has declared arrays, whose rows are shared out."""
        return bool(self._declared.arrays)

    def array(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike = np.float64,
        halo: int = 0,
        fill: Fill | None = None,
        *,
        constant: bool = False,
    ) -> RowArray:
        """Declare an array whose rows are shared out; see `RowArray`."""
        return self._share_out(RowArray(name, shape, dtype, halo, fill, constant=constant))

    def tiles(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike = np.float64,
        halo: int = 0,
        fill: Fill | None = None,
        *,
        constant: bool = False,
    ) -> TileArray:
        """Declare an array whose rows and columns are shared out; see `TileArray`."""
        return self._share_out(TileArray(name, shape, dtype, halo, fill, constant=constant))

    def csr(
        self,
        name: str,
        shape: tuple[int, int],
        fill: Rows,
        dtype: DTypeLike = np.float64,
        *,
        constant: bool = False,
    ) -> CsrMatrix:
        """Declare a sparse matrix whose rows are shared out; see `CsrMatrix`."""
        declared = self._share_out(CsrMatrix(name, shape, fill, dtype, constant=constant))
        self._declared.matrices.append(declared)
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
        strategy: str | LoadBalancer = "greedy",
        background: bool = False,
        partners: Callable[[int], Mapping[int, float]] | None = None,
    ) -> Blocks[T]:
        """Declare objects that migrate one by one, as a load balancer wants them; see `Blocks`.

        Where the task says how the data is to be cut, that takes the place of `decomposition`.
        """
        self._demand_new(name)
        asked = self._task.partitions if self._task is not None else ""
        if asked and count:
            raise DeclarationError(
                f"blocks {name!r}: the task asks for partitions = {asked!r}; declare them by a decomposition, "
                "not by a count, or leave partitions = true out of the template",
                code="decomposition-required",
                name=name,
                value=asked,
            )
        declared = Blocks(
            name,
            make,
            pack,
            unpack,
            count=count,
            decomposition=asked or decomposition,
            strategy=strategy,
            background=background,
            partners=partners,
        )
        self._declared.blocks.append(declared)
        return declared

    def state(self, **values: Value) -> State:
        """Declare values that are the same on every rank; once a job. One named `iteration` is reported."""
        self._demand_new("state")
        if self._declared.state.dump():
            raise DeclarationError(
                "state is declared once, with all its values",
                code="declared-name-repeated",
                name="state",
            )
        self._declared.state = State(values)
        return self._declared.state

    def may_lose(self, *names: str) -> None:
        """Allow names of the program's loop to differ on new ranks: a timer, a cache."""
        self._losable |= set(names)

    def safepoint(
        self,
        before: Callable[[], object] | None = None,
        *,
        collect: Callable[[], object] | None = None,
    ) -> HostChange | Rollback | None:
        """Return what changed, None if nothing did. Collective; every rank calls it as often as the others.

        Parameters
        ----------
        before
            Called when a change is about to be made, by leaving ranks too: frees requests on the old
            communicator.
        collect
            Called when the declared arrays are about to be read, by a commit or a change: a program that keeps
            them elsewhere, as in a GPU's memory, brings them back into `local` then.

        Raises
        ------
        Released
            This rank's host leaves the job; not to be caught.
        UndeclaredStateError
            At the first safe point: something would be lost.
        """
        if self._agreement is None:
            return self.join(sys._getframe(1))
        # Nothing else before this test: a sweep leaves none of it in the caches, and most safe points pass.
        if self._agreement.passes():
            return None
        self._mask.follow()
        asked = self._agreement.take()
        if not asked:
            return None
        if collect is not None:
            collect()
        found: HostChange | Rollback | None = None
        if asked & COMMIT:
            self._commit(sparing=self._commit_seconds is None)
        if asked & MESSAGE:
            found = self._handle_order(before)
        if found is None:
            self._agreement.begin()
        return found

    def join(self, caller: FrameType | None = None, *kept: type) -> HostChange | Rollback:
        """Come to the first safe point.

        Parameters
        ----------
        caller
            Frame of the loop around it: each value that the loop carries must be declared.
        kept
            Types of values that every new rank makes itself, such as the program's task.
        """
        if caller is not None:
            self._demand_declared(caller, kept)
        return self._join()

    @property
    def prefetching(self) -> bool:
        """Whether constant arrays are on their way to new places, ahead of a change."""
        return self._ahead is not None

    def allreduce(self, value: float, operation: MPI.Op = MPI.SUM) -> float:
        """Return a reduction of MAX, MIN or SUM over all ranks, which carries the safe point's question along."""
        if self._agreement is None:
            raise DeclarationError(
                "allreduce comes after the first safe point", code="safepoint-missing"
            )
        return self._agreement.reduce(value, operation)

    def request(self, minimum: int, maximum: int) -> None:
        """Ask for other limits, in hosts (an evolving job); whoever runs the job may answer with a change."""
        if self._channel is not None and self.rank == 0:
            self._channel.send("limits", minimum=minimum, maximum=maximum)

    def finish(self) -> None:
        """End the job's collective life; every rank calls it after the loop, and works alone from then on."""
        if self._agreement is not None:
            self._agreement.end()
            self._agreement = None
        self._end_ahead(hold=False)
        self._declared.release()
        self._tell_messages()
        self.comm.Barrier()
        if self._channel is not None:
            if self.rank == 0:
                self._channel.send("finished", iteration=self._iteration())
            self._channel.send("leaving")

    def __enter__(self) -> MalleableJob:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish; an error ends the whole job with its message."""
        del kind
        if error is None:
            self.finish()
            return
        said = error
        if written := written_constants(self._declared.arrays, error, trace):
            names = " or ".join(map(repr, written))
            said = DeclarationError(
                f"array {names} is constant: nothing but its fill writes it",
                code="constant-written",
                names=list(written),
            )
        if self._channel is not None and not isinstance(error, Released):
            # A lost rank may show in the MPI library of the others before anybody has heard of it.
            word = "broken" if isinstance(error, MPI.Exception) else "failed"
            message = f"{type(said).__name__}: {said}"[:2000]
            # An error of a program's task has a code too, and is no `ApplesError`.
            code = getattr(said, "code", "") if hasattr(said, "fields") else ""
            self._channel.send(word, message=message, code=code, certain=False)
            while word == "broken":  # until this process is ended, or its supervisor is
                self._channel.wait()
        if said is not error:
            raise said from error

    # ---------------------------------------------------------------- membership
    def _iteration(self) -> int:
        value = self._declared.state.dump().get("iteration", 0)
        return value if isinstance(value, int) else 0

    def _question(self) -> int:
        """Return the bits that rank 0 puts into the agreement; now and then report the iteration."""
        channel, now = self._channel, time.monotonic()
        if now - self._progress_sent > PROGRESS_SECONDS:
            self._progress_sent = now
            self._tell_messages()
            if channel is not None:
                channel.send("progress", iteration=self._iteration())
        if channel is None:
            return 0
        seconds = self._commit_seconds
        if seconds is None:  # the loss of an only host would leave no copy
            seconds = self._pace if len(self.members) > 1 else 0.0
        due = seconds and now - self._committed >= seconds
        return (MESSAGE if channel.waiting() else 0) | (COMMIT if due else 0)

    def _tell_messages(self) -> None:
        """Tell the agent what the arrays have sent from rank to rank, on the rank that does."""
        if self._messages is not None:
            self._messages.tell(self._iteration())

    def _join(self) -> HostChange | Rollback:
        """Become a member: report being parked, wait for the order, and meet the other ranks."""
        if self._channel is None:
            return self._run_rigid()
        self._channel.send(
            "parked",
            declared=self._declared.summary(),
            rows=self._declared.rows,
            row_bytes=self._declared.row_bytes,
            constant_bytes=self._declared.constant.row_bytes,
        )
        order = self._channel.wait()
        if self._commit_seconds is None:
            self._commit_seconds = order["commit_seconds"]
        return self._change_hosts(lambda: self._meet(order), order.get("plan"), None)

    def _meet(self, order: Message) -> MPI.Intracomm:
        """Meet the other groups; then, unless this is the launch, wait without MPI until the job comes to join."""
        channel, world, port = self._channel, self._world, ""
        assert channel is not None  # noqa: S101 - as below
        met = membership.meet(world, order["place"], order["groups"], channel)
        if order["order"] == "launch":
            return met
        plan = ChangePlan.load(order["plan"])
        rank = sum(plan.slots[one.host] for one in plan.old) + met.Get_rank()
        self._make_room(plan, rank)
        if met.Get_rank() == 0:
            port = MPI.Open_port()
            channel.send("met", port=port)
        while (order := channel.wait())["order"] == "fetch":
            plan, constant = ChangePlan.load(order["plan"]), self._declared.constant.arrays
            for array in constant:
                array.place(order["located"].get(array.name))
            old, new, _ = membership.layout(membership.rank_ids(plan), plan)
            parts = ConstantParts(constant, old, new, rank, order["secret"])
            self._fetch(parts, order["sources"])
        self._end_ahead(hold=True)
        return membership.accept(met, port, world)

    def _make_room(self, plan: ChangePlan, rank: int) -> None:
        """Have the memory for what this rank, which joins, will get: else it is made while the job waits."""
        _, new, _ = membership.layout(membership.rank_ids(plan), plan)
        deadline = time.monotonic() + MAKING_SECONDS
        for array in self._declared.arrays:
            if isinstance(
                array, DeclaredArray
            ):  # where the parts of others lie is found out in the change
                array.make_room(array.parts(new), rank, deadline)

    def _run_rigid(self) -> HostChange:
        """Share everything out over the MPI world the program was started with, as the task has it."""
        size, slots = self._world.Get_size(), {RIGID: self._world.Get_size()}
        shares, rows = [HostShare(RIGID, weight=size)], self._declared.rows
        if self._task is not None:
            slots = {piece.host: piece.ranks for piece in self._task.pieces}
            shares = [HostShare.planned(piece.host, piece.rows) for piece in self._task.pieces]
            if self._task.mode == "calibrate" and self.shares_rows:
                rows = min(rows, self._task.pieces[0].rows)  # the first few of those there are
        self.members = strips(shares, rows, slots)
        self.layout = rank_ranges(self.members, slots)
        self.host, self.strip = self.layout[self._local_rank]
        speeds = {member.host: member.weight / slots[member.host] for member in self.members}
        known = self._task.distances if self._task is not None else {}
        processors = [
            Processor(host, speeds[host], distances=known.get(host, {})) for host, _ in self.layout
        ]
        ranges = [found for _, found in self.layout]
        membership.begin_all(self._world, self._declared, ranges, processors)
        self._work_on(self._world.Dup())
        self._declared.settle(self.comm, {rank: rank for rank in range(size)})
        return HostChange("started", 0, (), self.members, True)

    def _handle_order(self, before: Callable[[], object] | None) -> HostChange | Rollback | None:
        """Ask the job manager, which sent word to rank 0, and carry out what it answers. Collective."""
        channel = self._channel
        assert channel is not None  # noqa: S101 - without one no message is ever waiting
        answer: Message = {}
        if self.rank == 0:
            channel.wait()  # that there is something to ask for
            channel.send("safepoint")
            while answer.get("order") in (None, "ask"):
                answer = channel.wait()
        # All ranks of a change get it together, those that join too.
        plan = answer.pop("plan", None) if answer.get("order") == "resize" else None
        order = broadcast_document(self.comm, answer)
        self._end_ahead(hold=order["order"] == "resize" and order["ahead"])
        if order["order"] == "restart":
            self._restart(before)
        if order["order"] == "ahead":
            self._go_ahead(ChangePlan.load(order["plan"]), order["secret"])
        if order["order"] != "resize":
            return None  # what there was to do has been given up, or could not be done
        assert self._checkpoints is not None  # noqa: S101 - as above
        state = RankState.of(self._declared, self.strip, self._checkpoints)

        def meet() -> MPI.Intracomm:
            if before is not None:
                before()
            if not order["port"]:
                return self.comm
            return membership.connect(self.comm, order["port"], self.comm, first=True)

        return self._change_hosts(meet, plan, state)

    def _go_ahead(self, plan: ChangePlan, secret: str) -> None:
        """Begin to give the parts of constant arrays to the ranks that are to have them. Collective."""
        assert self._channel is not None  # noqa: S101 - as above
        constant = self._declared.constant.arrays
        old, new, _ = membership.layout(membership.rank_ids(plan), plan)
        for array in constant:
            array.locate(self.comm, old, new)
        parts = ConstantParts(constant, old, new, self.rank, secret)
        sources = gather_documents(self.comm, parts.give())
        if self.rank == 0:
            located = locations(constant)
            self._channel.send("gives", sources=sources, located=located)
        self._fetch(parts, sources)

    def _fetch(self, parts: ConstantParts, sources: Sequence[Source]) -> None:
        """Fetch what this rank is to have of constant arrays, in threads; the manager hears when it is here."""
        channel = self._channel
        assert channel is not None  # noqa: S101 - as above
        self._ahead = parts
        parts.fetch(sources, lambda whole: channel.send("fetched", whole=whole))

    def _end_ahead(self, *, hold: bool) -> None:
        """Give and fetch nothing any more; without `hold` what has come is given back too."""
        if self._ahead is None:
            return
        if hold:
            self._ahead.close()
        else:
            self._ahead.forget()
            self._ahead = None

    def _restart(self, before: Callable[[], object] | None) -> None:
        """Commit and leave, to be started again on other hosts; stay where the commit fails. Collective."""
        if fault := self.commit():
            if self._channel is not None and self.rank == 0:
                self._channel.send("commit_failed", reason=fault)
            return
        if before is not None:
            before()
        self._tell_messages()
        if self._channel is not None and self.rank == 0:
            self._channel.send("restarting")
        self._declared.release()
        self.comm.Disconnect()
        self._leave()

    def _change_hosts(
        self, meet: Callable[[], MPI.Intracomm], sent: Message | None, state: RankState | None
    ) -> HostChange | Rollback:
        """Carry out the plan that rank 0 was sent; return as a member, or leave.

        All old and new ranks do this together. Until the manager has heard from rank 0 that all data is in its new
        places, and says that the new map holds, the change may still be taken back: then this rank saves what it
        had at the safe point and waits for its end. Afterwards the old rows and communicators are left.

        Parameters
        ----------
        meet
            Returns the communicator of all of them.
        sent
            The manager's plan, on the rank that got it.
        state
            What this rank has; None for one that joins.
        """
        channel, rank = self._channel, self._local_rank
        assert channel is not None  # noqa: S101 - as above
        undecided = UndecidedChange(channel, state, rank)
        self._tell_messages()
        begin = time.perf_counter()
        try:
            with patient_calls():
                merged = meet()
                join = time.perf_counter() - begin
                plan, done, found = self._move_data(merged, sent)
        except (MPI.Exception, ApplesError, MemoryError, OSError) as error:
            said = f"{type(error).__name__}: {error}"[:2000]
            channel.send("broken", message=said, certain=not isinstance(error, MPI.Exception))
            undecided.wait()  # until this process is ended; or the change holds, and this is no part of it
            raise
        reports = merged.Get_rank() == 0
        if reports:
            channel.send(
                "changed",
                epoch=plan.epoch,
                bytes=done.moved_bytes,
                fetched=done.fetched_bytes,
                iteration=self._iteration(),
                commit=found,
            )
        undecided.wait()
        channel.send(
            "forget", saved=rank
        )  # what was ever saved for this rank is not needed any more
        self._declared.release()
        if done.comm is not None:
            self._declared.settle(done.comm, done.ranks)
        if state is not None:
            self.comm.Disconnect()
        if merged not in (self._world, self.comm):
            merged.Disconnect()
        phases = {"join": join, **done.phases}
        # What is no other phase of the change counts as rebuilding.
        others = sum(seconds for name, seconds in phases.items() if name != "rebuild")
        phases["rebuild"] = time.perf_counter() - begin - others
        held = sum(blocks.nbytes for blocks in self._declared.blocks)
        size = {
            "row_bytes": self._declared.row_bytes,
            "block_bytes": held,
            "constant_bytes": self._declared.constant.row_bytes,
        }
        channel.send("settled", phases=phases if reports else {}, **size)
        if done.comm is None:
            self._leave()
        return self._become_member(plan, done, state is None, found)

    def _move_data(
        self, merged: MPI.Intracomm, sent: Message | None
    ) -> tuple[ChangePlan, ChangeResult, int]:
        """Move all data to its new places; return the plan, the result, and which commit it came from, or 0.

        Only the old rank 0 knows the plan, so it completes it with the program's state and broadcasts it.
        """
        checkpoints, found = self._checkpoints, 0
        assert checkpoints is not None  # noqa: S101 - as above
        if merged.Get_rank() == 0 and sent is not None:
            sent = {
                **sent,
                "values": self._declared.state.dump(),
                "commit": checkpoints.number,
                "constants": checkpoints.constants,
            }
        plan = ChangePlan.load(broadcast_document(merged, sent))
        checkpoints.number, checkpoints.constants = plan.commit, plan.constants

        def take_commit(comm: MPI.Intracomm, strips: Sequence[RowRange]) -> bool:
            nonlocal found
            first = self._local_rank == 0
            found = checkpoints.restore(comm, plan, self._declared, strips, first)
            return found > 0

        def take_saved(comm: MPI.Intracomm, strips: Sequence[RowRange]) -> None:
            if self._channel is not None:
                mine = (self._channel, self._local_rank)
                saved_state.resume(comm, *mine, self._declared, strips, checkpoints)

        fetched = self._ahead.received if self._ahead else 0
        done = carry_out(merged, plan, self._declared, take_commit, take_saved, fetched)
        self._ahead = None
        return plan, done, found

    def _become_member(
        self, plan: ChangePlan, done: ChangeResult, is_new: bool, commit: int
    ) -> HostChange | Rollback:
        """Take over the new communicator, strip and CPUs; return what the safe point returns."""
        assert done.comm is not None  # noqa: S101 - a member has one
        self._plan, self.members, self.strip = plan, plan.new, done.strip
        self.layout = rank_ranges(plan.new, plan.slots)
        self.host = self.layout[done.comm.Get_rank()][0]
        if cpus := plan.cpus.get(self.host):
            os.sched_setaffinity(0, cpus)
        self._commit_soon_where_copies_went(plan)
        self._work_on(done.comm, plan.epoch, anew=plan.origin != "live")
        if plan.origin == "commit":
            return Rollback(plan.epoch, commit, plan.lost, plan.new)
        kind = "started" if not plan.old else "resized"
        return HostChange(kind, plan.epoch, plan.old, plan.new, is_new, done.phases)  # type: ignore[arg-type]

    def _commit_soon_where_copies_went(self, plan: ChangePlan) -> None:
        """Let a commit be due at once where hosts are gone, and with them one of two copies in memory."""
        gone = {*plan.lost, *(one.host for one in plan.old)} - {one.host for one in plan.new}
        if gone and (self._commit_seconds is None or not plan.commits):
            self._committed = -math.inf

    def _work_on(self, comm: MPI.Intracomm, epoch: int = 0, *, anew: bool = False) -> None:
        self.comm, self._messages = comm, None
        # Neither by hand, where nobody listens, nor of a calibration, which is of one host.
        calibrates = self._task is not None and self._task.mode == "calibrate"
        if comm.Get_rank() == 0 and os.environ.get(TASK) and not calibrates:
            together = self._world.Get_size() == comm.Get_size()
            self._messages = HaloMessages(
                self._declared.arrays, self.layout, epoch, anew=anew, together=together
            )
        self._agreement = Agreement(comm, self._question)
        self._agreement.begin()

    def _leave(self) -> NoReturn:
        if self._channel is not None:
            self._channel.send("leaving")
        membership.end_at_once()
        raise Released

    # -------------------------------------------------------------- declarations
    def _share_out(self, one: S) -> S:
        """Take up what has been declared, if its rows are as many as those of everything else."""
        self._demand_new(one.name)
        arrays = one.arrays if isinstance(one, CsrMatrix) else (one,)
        rows, declared = arrays[0].rows, self._declared
        if declared.arrays and rows != declared.rows:
            raise DeclarationError(
                f"array {one.name!r} has {rows} rows, {declared.arrays[0].name!r} {declared.rows}:"
                " all arrays of a job must have equal numbers of rows",
                code="rows-differ",
                name=one.name,
                value=rows,
                bound=declared.rows,
            )
        declared.arrays.extend(arrays)
        return one

    def _demand_new(self, name: str) -> None:
        names = {one.name for one in self._declared.arrays}
        names |= {one.name for one in self._declared.replicated}
        names |= {one.name for one in self._declared.blocks}
        names |= {one.name for one in self._declared.matrices}
        if self._agreement is not None:
            raise DeclarationError(
                f"{name!r}: declare before the first safe point, as new ranks do",
                code="declared-late",
                name=name,
            )
        if name in names:
            raise DeclarationError(
                f"{name!r} is declared twice", code="declared-name-repeated", name=name
            )

    def _demand_declared(self, frame: FrameType, kept: Sequence[type] = ()) -> None:
        """Refuse a loop that carries an undeclared value from one safe point to the next."""
        own = (MalleableJob, DistributedArray, CsrMatrix, Replicated, State, Blocks, *kept)
        # `isinstance` would ask a weak proxy for the class of what it stood for, which may be gone.
        known = {name for name, it in frame.f_locals.items() if issubclass(type(it), own)}
        found = undeclared.carried(frame, known | self._losable)
        if found:
            names = ", ".join(f"{name} (line {line})" for name, line in found)
            lines = [line for _, line in found]
            swap = (
                " by u.swap(v) if two arrays change places,"
                if len(set(lines)) < len(lines)
                else ""
            )
            raise UndeclaredStateError(
                f"carried from one safe point to the next and not declared: {names}; a new rank would"
                f" not have it:{swap} declare it by job.state, job.array or job.replicated, make it anew where"
                " safepoint() reports a change, or allow its loss by job.may_lose",
                names=[name for name, _ in found],
                lines=lines,
            )
