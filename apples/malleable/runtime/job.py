"""`MalleableJob`: the runtime of a malleable program, in each of its ranks.

    job = MalleableJob()
    u = job.array("u", (rows, columns), halo=1, fill=first_contents)
    state = job.state(iteration=0)
    while state.iteration < iterations:
        if job.safepoint():
            ...  # u.local, job.comm, job.rank, job.size are new here
        ...
        state.iteration += 1
    job.finish()

Programs use it through `apples.program.Task`, which has the same calls. Without a job manager the same program
runs rigid on its MPI world: with the rows that the agent's task assigns to each host (`agent_task`), or, started
by hand, with equal rows on each rank.
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
from apples.malleable.runtime import membership, rank_image, saved_state, undeclared
from apples.malleable.runtime.agent_task import TASK, AgentTaskError, AskedTask, task_of_agent
from apples.malleable.runtime.agreement import COMMIT, MESSAGE, Agreement
from apples.malleable.runtime.blocks import Blocks
from apples.malleable.runtime.channel import ADDRESS, Message, RankChannel
from apples.malleable.runtime.checkpoint import CheckpointPolicy
from apples.malleable.runtime.collectives import (
    broadcast_document,
    gather_documents,
    throttle_mpi,
)
from apples.malleable.runtime.constant_parts import ConstantParts, Source, locations
from apples.malleable.runtime.csr import CsrMatrix, MatrixFill
from apples.malleable.runtime.declared import (
    DeclarationError,
    DeclaredArray,
    DistributedArray,
    Fill,
    Replicated,
    RowArray,
    State,
    TileArray,
    TileFill,
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
from apples.malleable.runtime.packing import Arrays, Image
from apples.malleable.runtime.row_memory import MAKING_SECONDS
from apples.malleable.runtime.saved_state import UndecidedChange

T = TypeVar("T")
S = TypeVar("S", RowArray, TileArray, CsrMatrix)

TOPOLOGY = "APPLES_TOPOLOGY_JOB"
"""Environment variable that the topology daemon sets for its processes: it announces changes of their CPUs."""


class CpuMask:
    """Adapts a rank's threads to the CPUs that it may use, as the malleability points of DROM do (SD-Policy, 3.3).

    `Threads` is imported only when the CPUs change, so that ranks start faster.

    Parameters
    ----------
    ranks
        Number of the job's ranks on this host, which share its CPUs.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._cpus = os.sched_getaffinity(0)
        self._threads: Any = None
        if os.environ.get(TOPOLOGY):
            self._threads = self._loaded()

    def follow(self) -> bool:
        """Set the threads of every loaded pool if the CPUs have changed; return whether they have."""
        if self._threads is not None:
            return self._threads.adapt() is not None
        if os.sched_getaffinity(0) == self._cpus:
            return False
        self._threads = self._loaded()
        return True

    def _loaded(self) -> Any:
        from apples.topology.threads import Threads  # noqa: PLC0415 - a rank starts sooner without

        return Threads(self._ranks)


# For commits in memory. The user chooses commits on disk, because their cost depends on a disk
# that other users share.
PACE_SECONDS = 5.0
"""Minimum time between two opportunistic commits."""
COMMITTED_SHARE = 0.01
"""Maximum share of the time that opportunistic commits take."""
PROGRESS_SECONDS = 0.5
"""Interval at which rank 0 reports the iteration to the job manager, and the arrays' messages to the agent."""
HOST = "APPLES_HOST"
"""Environment variable with the host's name, if a process group has one host."""
RIGID = "here"
"""Name of the host of a job that was started without a job manager."""


class MalleableJob:
    """The runtime of a malleable program, one object in each rank. Programs use it through `apples.program.Task`.

    Parameters
    ----------
    commit_seconds
        Interval of commits, to which the job rolls back when a host is lost. 0: a commit only when `commit` is
        called. None: the job file's value. If the job file has none either, a job on several hosts commits only in
        memory, if enough memory is free, and spends at most one hundredth of its time on it.
    task
        The agent's task; None: all ranks together read it from the agent's file.

    Attributes
    ----------
    comm, members, strip
        The communicator of the job's ranks, all hosts with their rows, and this rank's rows; from the first safe
        point on, and new after every change.
    host
        Name of this rank's host, from the start if every host has an MPI world of its own.
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
        self._prefetch: ConstantParts | None = None
        self._mask = CpuMask(self._world.Get_size())
        self.comm: MPI.Intracomm = self._world
        self.members: tuple[HostRows, ...] = ()
        self.strip = RowRange(0, 0)
        self.layout: list[tuple[str, RowRange]] = []
        self.host = os.environ.get(HOST, RIGID)
        self._task = task if task or self._channel else task_of_agent(self._world)
        if task is None and self._task is not None and self._task.mode == "calibrate":
            raise AgentTaskError(
                "a program written on Job cannot be calibrated: write it on apples.program.Task, "
                "or give seconds_per_point in the host list",
                code="calibration-unsupported",
            )
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
        """Number of this rank in the job."""
        return self.comm.Get_rank()

    def commit(self) -> str:
        """Commit the state, to which the job rolls back when a host is lost. Collective.

        Return the reason of a failure, or an empty text. A failure leaves the commit before it intact. A job
        without a job manager commits nothing.
        """
        return self._commit(opportunistic=False)

    def _commit(self, *, opportunistic: bool) -> str:
        """Commit as `commit` does, or only in memory and only if enough memory is free. Collective."""
        begin = self._committed = time.monotonic()
        if self._checkpoints is None or self._plan is None or self._channel is None:
            return ""
        fault = self._checkpoints.make(
            self.comm, self._plan, self._declared, opportunistic=opportunistic
        )
        self._pace = max(PACE_SECONDS, (time.monotonic() - begin) / COMMITTED_SHARE)
        if self.rank == 0:
            word, on_disk = "uncommitted" if fault else "committed", not opportunistic
            iteration, number = self._iteration(), self._checkpoints.number
            self._channel.send(
                word, commit=number, iteration=iteration, reason=fault, on_disk=on_disk
            )
        return fault

    @property
    def rigid(self) -> bool:
        """Whether the job was started without a job manager, so that its hosts never change."""
        return self._channel is None

    @property
    def size(self) -> int:
        """Number of the job's ranks."""
        return self.comm.Get_size()

    @property
    def shares_rows(self) -> bool:
        """Whether the program has declared distributed arrays."""
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
        """Declare an array with distributed rows; see `RowArray`."""
        return self._share_out(RowArray(name, shape, dtype, halo, fill, constant=constant))

    def tiles(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: DTypeLike = np.float64,
        halo: int = 0,
        fill: TileFill | None = None,
        *,
        constant: bool = False,
    ) -> TileArray:
        """Declare an array with distributed rows and columns; see `TileArray`."""
        return self._share_out(TileArray(name, shape, dtype, halo, fill, constant=constant))

    def csr(
        self,
        name: str,
        shape: tuple[int, int],
        fill: MatrixFill,
        dtype: DTypeLike = np.float64,
        *,
        constant: bool = False,
    ) -> CsrMatrix:
        """Declare a sparse matrix with distributed rows; see `CsrMatrix`."""
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
        """Declare objects that migrate one by one, placed by a load balancer; see `Blocks`.

        If the task has a decomposition, it replaces `decomposition`.
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
        """Declare values that are the same on every rank, once in a job; the value `iteration` is reported."""
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
        """Permit names of the program's loop to differ on new ranks, for example a timer or a cache."""
        self._losable |= set(names)

    def safepoint(
        self,
        before: Callable[[], object] | None = None,
        *,
        collect: Callable[[], object] | None = None,
    ) -> HostChange | Rollback | None:
        """Return the change of hosts at this safe point, or None. Collective; all ranks call it equally often.

        Parameters
        ----------
        before
            Called before a change, also on leaving ranks; must free requests on the old communicator.
        collect
            Called before a commit or a change reads the declared arrays: a program that keeps them elsewhere, for
            example in a GPU's memory, must copy them back into `local`.

        Raises
        ------
        Released
            This rank's host leaves the job; the program must not catch it.
        UndeclaredStateError
            At the first safe point: a change would lose undeclared state.
        """
        if self._agreement is None:
            self.demand_declared(sys._getframe(1))
            return self.join()
        # No other code before this test: it would run with cold caches after each sweep, and most calls end here.
        if self._agreement.skip():
            return None
        self._mask.follow()
        asked = self._agreement.take()
        if not asked:
            return None
        if collect is not None:
            collect()
        change: HostChange | Rollback | None = None
        if asked & COMMIT:
            self._commit(opportunistic=self._commit_seconds is None)
        if asked & MESSAGE:
            change = self._handle_order(before)
        if change is None:
            self._agreement.begin()
        return change

    def join(self) -> HostChange | Rollback:
        """Handle the first safe point: report ``parked``, wait for the order, merge with the other ranks."""
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
        return self._change_hosts(lambda: self._merge_groups(order), order.get("plan"), None)

    def demand_declared(self, frame: FrameType, *kept: type) -> None:
        """Raise an error if the loop around a frame carries an undeclared value from one safe point to the next.

        Parameters
        ----------
        frame
            Frame of the function with the loop.
        kept
            Types of values that every new rank creates itself, for example the program's task.
        """
        own = (MalleableJob, DistributedArray, CsrMatrix, Replicated, State, Blocks, *kept)
        # `isinstance` would ask a weak proxy for the class of its referent, which may be gone.
        known = {name for name, it in frame.f_locals.items() if issubclass(type(it), own)}
        carried = undeclared.carried(frame, known | self._losable)
        if carried:
            names = ", ".join(f"{name} (line {line})" for name, line in carried)
            lines = [line for _, line in carried]
            swap = (
                " by u.swap(v) if two arrays change places,"
                if len(set(lines)) < len(lines)
                else ""
            )
            raise UndeclaredStateError(
                f"carried from one safe point to the next and not declared: {names}; a new rank would"
                f" not have it:{swap} declare it by task.state, task.array or task.replicated, make it anew where"
                " safepoint() reports a change, or allow its loss by task.may_lose",
                names=[name for name, _ in carried],
                lines=lines,
            )

    @property
    def prefetching(self) -> bool:
        """Whether a prefetch of constant arrays is in progress, before a change."""
        return self._prefetch is not None

    def allreduce(self, value: float, operation: MPI.Op = MPI.SUM) -> float:
        """Return a reduction of MAX, MIN or SUM over all ranks, which also carries the safe points' agreement."""
        if self._agreement is None:
            raise DeclarationError(
                "allreduce comes after the first safe point", code="safepoint-missing"
            )
        return self._agreement.reduce(value, operation)

    def request(self, minimum: int, maximum: int) -> None:
        """Request other limits on the number of hosts (an evolving job); the agent may answer with a change."""
        if self._channel is not None and self.rank == 0:
            self._channel.send("limits", minimum=minimum, maximum=maximum)

    def finish(self) -> None:
        """End the collective safe points; every rank calls it after the loop, and works alone afterwards."""
        if self._agreement is not None:
            self._agreement.end()
            self._agreement = None
        self._end_prefetch(keep=False)
        self._declared.release()
        self._tell_messages()
        self.comm.Barrier()
        if self._channel is not None:
            if self.rank == 0:
                self._channel.send("finished", iteration=self._iteration())
            self._channel.send("leaving")

    def __enter__(self) -> MalleableJob:
        """Return this job."""
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
        shown = error
        if written := written_constants(self._declared.arrays, error, trace):
            names = " or ".join(map(repr, written))
            shown = DeclarationError(
                f"array {names} is constant: only its fill function may write it",
                code="constant-written",
                names=list(written),
            )
        if self._channel is not None and not isinstance(error, Released):
            # MPI may fail because of a lost rank before the manager has noticed the loss.
            word = "broken" if isinstance(error, MPI.Exception) else "failed"
            message = f"{type(shown).__name__}: {shown}"[:2000]
            # An error of a program's task has a code too, but is not an `ApplesError`.
            code = getattr(shown, "code", "") if hasattr(shown, "fields") else ""
            self._channel.send(word, message=message, code=code, certain=False)
            while word == "broken":  # until this process or its supervisor is ended
                self._channel.wait()
        if shown is not error:
            raise shown from error

    # ---------------------------------------------------------------- membership
    def _iteration(self) -> int:
        value = self._declared.state.dump().get("iteration", 0)
        return value if isinstance(value, int) else 0

    def _question(self) -> int:
        """Return the bits that rank 0 puts into the agreement; each `PROGRESS_SECONDS`, report the iteration."""
        channel, now = self._channel, time.monotonic()
        if now - self._progress_sent > PROGRESS_SECONDS:
            self._progress_sent = now
            self._tell_messages()
            if channel is not None:
                channel.send("progress", iteration=self._iteration())
        if channel is None:
            return 0
        seconds = self._commit_seconds
        if seconds is None:  # on a single host, its loss would leave no copy of a commit in memory
            seconds = self._pace if len(self.members) > 1 else 0.0
        due = seconds and now - self._committed >= seconds
        return (MESSAGE if channel.waiting() else 0) | (COMMIT if due else 0)

    def _tell_messages(self) -> None:
        """Report the messages of the arrays to the agent; only rank 0 does."""
        if self._messages is not None:
            self._messages.report(self._iteration())

    def _merge_groups(self, order: Message) -> MPI.Intracomm:
        """Merge with the other groups; then, except at the launch, wait without MPI until the job connects."""
        channel, world, port = self._channel, self._world, ""
        assert channel is not None  # noqa: S101 - as below
        met = membership.merge_worlds(world, order["place"], order["groups"], channel)
        if order["order"] == "launch":
            return met
        plan = ChangePlan.load(order["plan"])
        rank = sum(plan.slots[one.host] for one in plan.old) + met.Get_rank()
        self._make_room(plan, rank)
        if met.Get_rank() == 0:
            port = MPI.Open_port()
            channel.send("merged", port=port)
        while (order := channel.wait())["order"] == "fetch":
            plan, constant = ChangePlan.load(order["plan"]), self._declared.constant.arrays
            for array in constant:
                array.place(order["located"].get(array.name))
            old, new, _ = membership.layout(membership.rank_ids(plan), plan)
            parts = ConstantParts(constant, old, new, rank, order["secret"])
            self._fetch(parts, order["sources"])
        self._end_prefetch(keep=True)
        return membership.accept(met, port, world)

    def _make_room(self, plan: ChangePlan, rank: int) -> None:
        """Allocate the memory of a joining rank now; otherwise the kernel clears it while the job waits."""
        _, new, _ = membership.layout(membership.rank_ids(plan), plan)
        deadline = time.monotonic() + MAKING_SECONDS
        for array in self._declared.arrays:
            if isinstance(array, DeclaredArray):  # other arrays are located in the change
                array.make_room(array.parts(new), rank, deadline)

    def _run_rigid(self) -> HostChange:
        """Distribute all data over the MPI world of the program, by the agent's task."""
        size, slots = self._world.Get_size(), {RIGID: self._world.Get_size()}
        shares, rows = [HostShare(RIGID, weight=size)], self._declared.rows
        if self._task is not None:
            slots = {piece.host: piece.ranks for piece in self._task.pieces}
            shares = [HostShare.planned(piece.host, piece.rows) for piece in self._task.pieces]
            if self._task.mode == "calibrate" and self.shares_rows:
                rows = min(rows, self._task.pieces[0].rows)  # only the first rows of the array
        self.members = strips(shares, rows, slots)
        self.layout = rank_ranges(self.members, slots)
        self.host, self.strip = self.layout[self._local_rank]
        speeds = {member.host: member.weight / slots[member.host] for member in self.members}
        known = self._task.distances if self._task is not None else {}
        processors = [
            Processor(host, speeds[host], distances=known.get(host, {})) for host, _ in self.layout
        ]
        ranges = [rows for _, rows in self.layout]
        membership.begin_all(self._world, self._declared, ranges, processors)
        self._work_on(self._world.Dup())
        self._declared.adopt_layout(self.comm, {rank: rank for rank in range(size)})
        return HostChange("started", 0, (), self.members, True)

    def _handle_order(self, before: Callable[[], object] | None) -> HostChange | Rollback | None:
        """Request the job manager's order, after its message to rank 0, and carry it out. Collective."""
        channel = self._channel
        assert channel is not None  # noqa: S101 - without one no message is ever waiting
        answer: Message = {}
        if self.rank == 0:
            channel.wait()  # the message that an order waits
            channel.send("safepoint")
            while answer.get("order") in (None, "ask"):
                answer = channel.wait()
        # All ranks of a change, also the joining ranks, get the plan together in `_change_hosts`.
        plan = answer.pop("plan", None) if answer.get("order") == "resize" else None
        order = broadcast_document(self.comm, answer)
        self._end_prefetch(keep=order["order"] == "resize" and order["prefetched"])
        if order["order"] == "prefetch":
            self._begin_prefetch(ChangePlan.load(order["plan"]), order["secret"])
        if order["order"] != "resize":
            return None  # the manager has refused the change, or a prefetch has begun
        assert self._checkpoints is not None  # noqa: S101 - as above
        state = rank_image.snapshot(
            self._declared,
            [rows for _, rows in self.layout],
            self.rank,
            commit=self._checkpoints.number,
            constants=self._checkpoints.constants,
        )

        def merge() -> MPI.Intracomm:
            if before is not None:
                before()
            if not order["port"]:
                return self.comm
            return membership.connect(self.comm, order["port"], self.comm, first=True)

        return self._change_hosts(merge, plan, state)

    def _begin_prefetch(self, plan: ChangePlan, secret: str) -> None:
        """Begin to serve and to fetch parts of constant arrays for the coming change. Collective."""
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
        """Fetch the constant parts of this rank in threads; report to the manager when they have arrived."""
        channel = self._channel
        assert channel is not None  # noqa: S101 - as above
        self._prefetch = parts
        parts.fetch(sources, lambda whole: channel.send("fetched", whole=whole))

    def _end_prefetch(self, *, keep: bool) -> None:
        """Stop the prefetch; without `keep` also free the memory of the parts that have arrived."""
        if self._prefetch is None:
            return
        if keep:
            self._prefetch.close()
        else:
            self._prefetch.forget()
            self._prefetch = None

    def _change_hosts(
        self,
        merge: Callable[[], MPI.Intracomm],
        sent: Message | None,
        state: Callable[[], Image] | None,
    ) -> HostChange | Rollback:
        """Carry out the plan that rank 0 received; return as a member, or leave.

        All old and new ranks call this together. Rank 0 reports to the manager that all data is in its new places,
        and the manager commits the new map. Until then the manager may abort the change: this rank then saves its
        data of the safe point and waits for its end. After the commit the old rows and communicators are freed.

        Parameters
        ----------
        merge
            Returns the communicator of all these ranks.
        sent
            The manager's plan, on the rank that received it.
        state
            Returns the image of this rank's data at the safe point; None for a rank that joins.
        """
        channel, rank = self._channel, self._local_rank
        assert channel is not None  # noqa: S101 - as above
        undecided = UndecidedChange(channel, state, rank)
        self._tell_messages()
        begin = time.perf_counter()
        try:
            with throttle_mpi():
                merged = merge()
                join = time.perf_counter() - begin
                plan, done, commit = self._move_data(merged, sent)
        except (MPI.Exception, ApplesError, MemoryError, OSError) as error:
            message = f"{type(error).__name__}: {error}"[:2000]
            channel.send("broken", message=message, certain=not isinstance(error, MPI.Exception))
            undecided.wait()  # until this process is ended, or the change is committed and this rank leaves
            raise
        reports = merged.Get_rank() == 0
        if reports:
            channel.send(
                "changed",
                epoch=plan.epoch,
                bytes=done.moved_bytes,
                fetched=done.fetched_bytes,
                iteration=self._iteration(),
                commit=commit,
            )
        undecided.wait()
        channel.send("forget", saved=rank)  # the state saved by an aborted change, if any
        self._declared.release()
        if done.comm is not None:
            self._declared.adopt_layout(done.comm, done.ranks)
        if state is not None:
            self.comm.Disconnect()
        if merged not in (self._world, self.comm):
            merged.Disconnect()
        phases = {"join": join, **done.phases}
        # Time outside the other phases counts as rebuilding.
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
        return self._become_member(plan, done, state is None, commit)

    def _move_data(
        self, merged: MPI.Intracomm, sent: Message | None
    ) -> tuple[ChangePlan, ChangeResult, int]:
        """Move all data to its new places; return the plan, the result, and the number of the used commit, or 0.

        Only the old rank 0 has the plan. It adds the program's state and broadcasts the plan.
        """
        checkpoints, commit = self._checkpoints, 0
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
            nonlocal commit
            first = self._local_rank == 0
            commit = checkpoints.restore(comm, plan, self._declared, strips, first)
            return commit > 0

        def take_saved(comm: MPI.Intracomm, strips: Sequence[RowRange]) -> None:
            if self._channel is not None:
                mine = (self._channel, self._local_rank)
                saved_state.resume(comm, *mine, self._declared, strips, checkpoints)

        fetched = self._prefetch.received if self._prefetch else 0
        done = carry_out(merged, plan, self._declared, take_commit, take_saved, fetched)
        self._prefetch = None
        return plan, done, commit

    def _become_member(
        self, plan: ChangePlan, done: ChangeResult, is_new: bool, commit: int
    ) -> HostChange | Rollback:
        """Adopt the new communicator, strip and CPUs; return the result of the safe point."""
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
        """Make a commit due at once if hosts left, because one of the two copies in memory left with them."""
        gone = {*plan.lost, *(one.host for one in plan.old)} - {one.host for one in plan.new}
        if gone and (self._commit_seconds is None or not plan.commits):
            self._committed = -math.inf

    def _work_on(self, comm: MPI.Intracomm, epoch: int = 0, *, anew: bool = False) -> None:
        self.comm, self._messages = comm, None
        # No reports without an agent, nor in a calibration, which uses one host.
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
        """Register a declaration; raise an error if its number of rows differs from the others."""
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
                f"{name!r}: declare before the first safe point, and before task.strip is read, as new ranks do",
                code="declared-late",
                name=name,
            )
        if name in names:
            raise DeclarationError(
                f"{name!r} is declared twice", code="declared-name-repeated", name=name
            )
