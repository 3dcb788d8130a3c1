"""The ledger of a cluster: which job has which nodes, and whether a decision can be carried out.

The ledger knows neither clock nor processes. It is told what happened (a job came, a job ended, a node
failed) and asked whether a policy's decision fits the machine and the job; `driver` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from apples.scheduling.jobs import (
    Decision,
    Hold,
    Job,
    JobKind,
    Migrate,
    Reject,
    Requeue,
    Reserve,
    Resize,
    Start,
    Wait,
    Wake,
)
from apples.scheduling.policy import (
    NONE,
    NOTHING_HAPPENED,
    ClusterState,
    Events,
    NodeOccupancy,
    ReadOnly,
    RunningJob,
)

INSTANT = 1e-3
"""Seconds by which a job may be past its estimated end and still be due in this instant: sums of the
same times in another order differ by less."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The ledger has entered a decision: the state shows it from now on.

    Attributes
    ----------
    affected
        The running jobs whose speed may have changed, mates before their guest.
    nodes_before
        Nodes that a resized job had.
    """

    affected: tuple[int, ...] = ()
    nodes_before: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A decision breaks a limit of the machine or of the job: the state is as before.

    A policy that is asked again for the same state decides the same: the refusal is permanent.

    Attributes
    ----------
    decision
        As the policy made it.
    time
        Of the cluster, seconds.
    malformed
        Whether it is no decision at all: of wrong types or without what a decision has.
    """

    decision: object
    time: float
    reason: str
    malformed: bool = False

    def __str__(self) -> str:
        """Return the refusal as one line."""
        return f"at {self.time!r} s: {self.decision}: {self.reason}"


class _Refusal(Exception):  # noqa: N818 - never leaves this module: it carries a reason to `apply`
    pass


class ClusterLedger:
    """A cluster's state and the steps that change it, each checked before anything is changed.

    A job may run beyond its estimated end. It then has a new one, the same for all policies: now and a
    stated guess, doubled at each overrun of the job (as Tsafrir, Etsion and Feitelson 2007 correct
    predictions that were too short).

    Parameters
    ----------
    nodes, cores_per_node
        The machine.
    track_node_ids
        Whether to say which nodes a job has, not only how many; the lowest free ones are given.
    overrun_guess
        Seconds that a job is given at its first overrun.

    Attributes
    ----------
    nodes, free
        Nodes in service, and those of them on which nothing runs.
    time
        Of the last thing that happened, seconds.
    rejected
        Job -> reason, of the jobs that the policy will never run.
    waits
        Job -> why it waits, as the policy said last.
    """

    def __init__(
        self,
        nodes: int,
        cores_per_node: int = 1,
        track_node_ids: bool = False,
        overrun_guess: float = 60.0,
    ) -> None:
        self.nodes = self.free = nodes
        self.cores_per_node = cores_per_node
        self.time = 0.0
        self.rejected: dict[int, str] = {}
        self.waits: dict[int, Wait] = {}
        self._guess = overrun_guess
        self._waiting: dict[int, Job] = {}
        self._queue: tuple[Job, ...] | None = ()
        self._held: dict[int, Job] = {}
        self._running: dict[int, RunningJob] = {}
        self._reservations: dict[int, float] = {}
        self._limits: list[tuple[float, int]] = []
        self._tracks_ids = track_node_ids
        self._free_ids: list[int] = list(range(nodes)) if track_node_ids else []
        self._out: dict[int, int] = {}
        self._draining: set[int] = set()
        self._submitted: list[int] = []
        self._ended: list[int] = []
        self._rarer: dict[str, list[int]] = {}

    # ------------------------------------------------------------------- what can be seen

    @property
    def queue(self) -> tuple[Job, ...]:
        """The waiting jobs in order of (submit, id)."""
        if self._queue is None:
            self._queue = tuple(self._waiting.values())
        return self._queue

    @property
    def running(self) -> Mapping[int, RunningJob]:
        """The running jobs by id, in the order of their starts; changes with the ledger."""
        return self._running

    def nodes_for(self, processors: int) -> int:
        """Return the whole nodes that so many processors take."""
        return -(-processors // self.cores_per_node)

    @property
    def state(self) -> ClusterState:
        """What a policy would see now."""
        return self.snapshot(self.time)

    def snapshot(self, time: float) -> ClusterState:
        """Return what a policy sees at a time: a value that later changes leave as it is."""
        self.time = time
        if self._limits and self._limits[0][0] < time - INSTANT:
            self._extend_overrun(time)
        events = NOTHING_HAPPENED
        if self._submitted or self._ended or self._rarer:
            events = Events(tuple(self._submitted), tuple(self._ended))
            if self._rarer:
                events = events._replace(**{k: tuple(ids) for k, ids in self._rarer.items()})
        return ClusterState(
            self.nodes,
            self.cores_per_node,
            time,
            self.free,
            self.queue,
            ReadOnly(self._running),
            ReadOnly(self._reservations) if self._reservations else NONE,
            "early" in self._rarer,
            tuple(self._free_ids),
            events,
            tuple(self._held.values()),
            draining=len(self._draining),
            down=len(self._out),
            node_states=self._node_states() if self._tracks_ids else (),
        )

    def _extend_overrun(self, time: float) -> None:
        """Give the jobs that are still running at their estimated end a later one."""
        while self._limits and self._limits[0][0] < time - INSTANT:
            limit, number = heappop(self._limits)
            running = self._running.get(number)
            if running is not None and running.limit == limit:
                longer = self._guess * 2.0**running.overruns
                self._set_limit(
                    running._replace(limit=time + longer, overruns=running.overruns + 1)
                )
                self._happened("overran", number)

    def _set_limit(self, running: RunningJob) -> None:
        self._running[running.job.id] = running
        heappush(self._limits, (running.limit, running.job.id))

    def _node_states(self) -> tuple[NodeOccupancy, ...]:
        states = [NodeOccupancy.HELD] * (self.nodes + len(self._out))
        for node in self._free_ids:
            states[node] = NodeOccupancy.FREE
        for node in self._draining:
            states[node] = NodeOccupancy.DRAINING
        for node in self._out:
            states[node] = NodeOccupancy.DOWN
        return tuple(states)

    def _happened(self, kind: str, number: int) -> None:
        self._rarer.setdefault(kind, []).append(number)

    # ------------------------------------------------------------- what happens to jobs and nodes

    def submit(self, job: Job) -> None:
        """Add a job at the end of the queue."""
        self._enter_queue(job)
        self._submitted.append(job.id)

    def _enter_queue(self, job: Job) -> None:
        self._waiting[job.id] = job
        self._queue = None

    def withdraw(self, job: int) -> None:
        """Take a waiting job, or one that is held back, away."""
        if self._held.pop(job, None) is None:
            self._leave_queue(job)
        self._happened("withdrawn", job)

    def release(self, number: int) -> None:
        """Put a job that is held back into the queue, in its old place."""
        self._enter_queue(self._held.pop(number))
        self._sort_queue()
        self._happened("requeued", number)

    def request(self, number: int, nodes: int) -> None:
        """Note that a running evolving job asks for so many nodes."""
        self._running[number] = self._running[number]._replace(wanted=nodes)
        self._happened("requested", number)

    def end(self, number: int) -> tuple[int, ...]:
        """End a running job; return the running jobs whose speed may have changed.

        When a mate ends before its guest, the guest keeps the mate's nodes and has them to itself from
        then on; when the guest ends, its mates get their cores back.
        """
        ended = self._running.pop(number)
        self._ended.append(number)
        if ended.limit > self.time:
            self._happened("early", number)
        if ended.guest is not None:
            guest = self._running[ended.guest]
            self._running[ended.guest] = guest._replace(
                mates=tuple(mate for mate in guest.mates if mate != number),
                shared=guest.shared - ended.nodes,
            )
            return (ended.guest,)
        lent: set[int] = set()
        for mate in ended.mates:
            owner = self._running[mate]
            lent |= owner.node_ids
            self._running[mate] = owner._replace(guest=None)
        self._free_nodes(ended.nodes - ended.shared, ended.node_ids - lent)
        return ended.mates

    def fail_node(self, node: int) -> int | None:
        """Take a free node out of service, or return the job that still holds it.

        The caller ends that job and asks again: a shared node has two jobs. A node that fails twice has
        to be repaired twice. Needs `track_node_ids`.
        """
        if node in self._out:
            self._out[node] += 1
            return None
        owners = [one for one in self._running.values() if node in one.node_ids]
        if owners:
            return owners[0].job.id
        if node in self._draining:
            self._draining.discard(node)
        else:
            self._free_ids.remove(node)
            self.free -= 1
            self.nodes -= 1
        self._out[node] = 1
        self._happened("lost", node)
        return None

    def restore_node(self, node: int) -> None:
        """Put a node back into service."""
        self._out[node] -= 1
        if not self._out[node]:
            del self._out[node]
            self.nodes += 1
            self._happened("repaired", node)
            self._free_nodes(1, frozenset({node}))

    def drain(self, node: int) -> None:
        """Give a node to no other job; it leaves service when its job has left it.

        Needs `track_node_ids`; a node that is down stays so.
        """
        if node not in self._out and node not in self._draining:
            self._draining.add(node)
            if node in self._free_ids:
                self._free_ids.remove(node)
                self.free -= 1
                self.nodes -= 1

    def resume(self, node: int) -> None:
        """Take back `drain`."""
        if node in self._draining:
            self._draining.discard(node)
            if not any(node in one.node_ids for one in self._running.values()):
                self.nodes += 1
                self._free_nodes(1, frozenset({node}))

    def requeue(self, job: Job) -> None:
        """Put a job whose run was lost back into the queue, in its old place."""
        self._enter_queue(job)
        self._sort_queue()
        self._happened("requeued", job.id)

    def _sort_queue(self) -> None:
        waiting = sorted(self._waiting.values(), key=lambda one: (one.submit, one.id))
        self._waiting = {job.id: job for job in waiting}

    # ------------------------------------------------------------------ decisions

    def apply(self, decision: Decision) -> Accepted | Refused:
        """Enter a decision, or say why it cannot be carried out.

        Whatever a user's policy yields is answered, objects that are no decision too.
        """
        enter = ENTRIES.get(type(decision))
        if enter is None:
            return Refused(decision, self.time, "no decision")
        try:
            return enter(self, decision)
        except _Refusal as refusal:
            return Refused(decision, self.time, str(refusal))
        except (TypeError, AttributeError, LookupError, ValueError, OverflowError) as error:
            return Refused(decision, self.time, str(error), malformed=True)

    def first_refused(self, decisions: Sequence[Decision]) -> tuple[int, Refused] | None:
        """Return which of a pass's decisions would be refused first, and the answer; None: all fit."""
        trial = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list | set):
                setattr(trial, name, copy(value))
        trial._ended, trial._submitted, trial._rarer = [], [], {}
        for position, decision in enumerate(decisions):
            answer = trial.apply(decision)
            if isinstance(answer, Refused):
                return position, answer
        return None

    def settle(self) -> None:
        """End a pass: what happened before it was seen."""
        self._submitted, self._ended = [], []
        if self._rarer:
            self._rarer = {}

    def _leave_queue(self, number: int) -> None:
        del self._waiting[number]
        self._queue = None
        self._reservations.pop(number, None)
        self.waits.pop(number, None)

    def _waiting_job(self, number: int) -> Job:
        if number not in self._waiting:
            raise _Refusal("that job is not waiting")
        return self._waiting[number]

    def _reserve(self, decision: Reserve) -> Accepted:
        self._waiting_job(decision.job)
        if not decision.time >= self.time:
            raise _Refusal("the time is past")
        self._reservations[decision.job] = decision.time
        return Accepted()

    def _reject(self, decision: Reject) -> Accepted:
        self._waiting_job(decision.job)
        self._leave_queue(decision.job)
        self.rejected[decision.job] = decision.reason
        return Accepted()

    def _hold(self, decision: Hold) -> Accepted:
        job = self._waiting_job(decision.job)
        self._leave_queue(decision.job)
        self._held[job.id] = job
        self.waits[job.id] = Wait(job.id, decision.reason)
        return Accepted()

    def _wake(self, decision: Wake) -> Accepted:
        if not decision.time >= self.time:
            raise _Refusal("the time is past")
        return Accepted()

    def _wait(self, decision: Wait) -> Accepted:
        self._waiting_job(decision.job)
        if not isinstance(decision.reason, str):
            raise _Refusal("a reason is text")
        if decision.until is not None and not decision.until >= self.time:
            raise _Refusal("the time is past")
        self.waits[decision.job] = decision
        return Accepted()

    def _requeue(self, decision: Requeue) -> Accepted:
        running = self._running.get(decision.job)
        if running is None:
            raise _Refusal("that job is not running")
        affected = self.end(decision.job)
        self.requeue(running.job)
        return Accepted(affected)

    def _start(self, decision: Start) -> Accepted:
        job = self._held.get(decision.job) or self._waiting_job(decision.job)
        if decision.nodes != int(decision.nodes):
            raise _Refusal("nodes are whole")
        need = self.nodes_for(job.processors)
        flexible = job.kind is not JobKind.RIGID
        least = self.nodes_for(job.minimum) if flexible else need
        most = self.nodes_for(job.maximum) if flexible else need
        if not least <= decision.nodes <= most:
            raise _Refusal(f"it can run on {least} to {most} nodes")
        if len(set(decision.mates)) < len(decision.mates):
            raise _Refusal("a mate is named twice")
        mates = [self._mate(number) for number in decision.mates]
        shared = sum(mate.nodes for mate in mates)
        taken = int(decision.nodes) - shared
        if taken < 0:
            raise _Refusal(f"its mates have {shared} nodes")
        if taken > self.free:
            raise _Refusal(f"{self.free} nodes are free, not {taken}")
        if mates and not (0 < decision.share < 1 and job.malleable):
            raise _Refusal("only a malleable job can be guest, with a part")
        if decision.node_ids and (
            len(decision.node_ids) != taken or not decision.node_ids <= set(self._free_ids)
        ):
            raise _Refusal(f"needs {taken} nodes that are free")
        share = decision.share if mates else 1.0
        # Everything is checked: from here on the state changes, and nothing may be refused any more.
        node_ids = self._take(taken, decision.node_ids)
        # A mate runs slower while the guest is there: its estimated end moves by the guest's request.
        for mate in mates:
            limit, delay = mate.limit + job.requested, mate.delay + job.requested
            self._set_limit(mate._replace(guest=job.id, limit=limit, delay=delay))
            node_ids |= mate.node_ids
        self._set_limit(
            RunningJob(
                job,
                self.time,
                int(decision.nodes),
                self.time + job.requested / share,
                delay=job.requested / share - job.requested if mates else 0.0,
                mates=tuple(decision.mates),
                shared=shared,
                share=share,
                node_ids=node_ids,
            )
        )
        if self._held.pop(job.id, None) is None:
            self._leave_queue(job.id)
        return Accepted((*decision.mates, job.id))

    def _mate(self, number: int) -> RunningJob:
        mate = self._running.get(number)
        if mate is None or not mate.can_be_mate:
            raise _Refusal(f"job {number} cannot be a mate")
        return mate

    def _resize(self, decision: Resize) -> Accepted:
        running = self._running.get(decision.job)
        if running is None:
            raise _Refusal("that job is not running")
        job = running.job
        if job.kind not in (JobKind.MALLEABLE, JobKind.EVOLVING):
            raise _Refusal(f"the job is {job.kind}")
        if running.guest is not None or running.shared:
            raise _Refusal("the job shares nodes")
        least, most = self.nodes_for(job.minimum), self.nodes_for(job.maximum)
        if not least <= decision.nodes <= most:
            raise _Refusal(f"it can run on {least} to {most} nodes")
        if decision.nodes != int(decision.nodes):
            raise _Refusal("nodes are whole")
        before, after = running.nodes, int(decision.nodes)
        if after - before > self.free:
            raise _Refusal(f"{self.free} nodes are free, not {after - before}")
        node_ids = running.node_ids
        if after > before:
            node_ids |= self._take(after - before)
        elif after < before:
            gone = frozenset(sorted(node_ids)[after:])
            node_ids -= gone
            self._free_nodes(before - after, gone)
        self._running[job.id] = running._replace(
            nodes=after,
            wanted=None if running.wanted == after else running.wanted,
            node_ids=node_ids,
        )
        return Accepted((job.id,), before)

    def _migrate(self, decision: Migrate) -> Accepted:
        running = self._running.get(decision.job)
        if running is None or not self._tracks_ids:
            raise _Refusal("the job does not run, or places are not kept")
        if running.guest is not None or running.shared:
            raise _Refusal("the job shares nodes")
        free = set(self._free_ids) | running.node_ids
        if len(decision.nodes) != running.nodes or not decision.nodes <= free:
            raise _Refusal(f"needs {running.nodes} nodes that are free")
        new = frozenset(decision.nodes)
        self._running[decision.job] = running._replace(node_ids=new)
        gone = running.node_ids - new
        self._free_ids = [node for node in self._free_ids if node not in new]
        self.free -= len(gone)
        self._free_nodes(len(gone), gone)
        return Accepted((decision.job,))

    # -------------------------------------------------------------------- nodes

    def _take(self, nodes: int, node_ids: frozenset[int] = frozenset()) -> frozenset[int]:
        """Take nodes that are free; return which."""
        self.free -= nodes
        if not self._tracks_ids:
            return frozenset()
        chosen = node_ids or frozenset(self._free_ids[:nodes])
        self._free_ids = [each for each in self._free_ids if each not in chosen]
        return chosen

    def _free_nodes(self, nodes: int, node_ids: frozenset[int]) -> None:
        """Make nodes free, but for those that are to leave service."""
        leave = self._draining & node_ids if self._draining else frozenset()
        self.nodes -= len(leave)
        self.free += nodes - len(leave)
        if self._tracks_ids and nodes:
            self._free_ids = sorted([*self._free_ids, *(node_ids - leave)])


ENTRIES: Mapping[type, Callable[[ClusterLedger, Any], Accepted]] = {
    Start: ClusterLedger._start,
    Resize: ClusterLedger._resize,
    Migrate: ClusterLedger._migrate,
    Reserve: ClusterLedger._reserve,
    Reject: ClusterLedger._reject,
    Requeue: ClusterLedger._requeue,
    Hold: ClusterLedger._hold,
    Wake: ClusterLedger._wake,
    Wait: ClusterLedger._wait,
}
