"""The ledger of a cluster: which job has which nodes, and whether a decision can be carried out.

The ledger knows neither clock nor processes. It is told what happened (a job came, a job ended, a node
failed) and asked whether a policy's decision fits the machine and the job; `driver` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from apples.scheduling.jobs import Decision, Job, JobKind, Migrate, Reject, Reserve, Resize, Start
from apples.scheduling.policy import ClusterState, RunningJob


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

    Parameters
    ----------
    nodes, cores_per_node
        The machine.
    track_node_ids
        Whether to say which nodes a job has, not only how many; the lowest free ones are given.

    Attributes
    ----------
    state
        What policies see.
    rejected
        Job -> reason, of the jobs that the policy will never run.
    """

    def __init__(self, nodes: int, cores_per_node: int = 1, track_node_ids: bool = False) -> None:
        self._queue: list[Job] = []
        self._waiting: dict[int, Job] = {}
        self._running: dict[int, RunningJob] = {}
        self._reservations: dict[int, float] = {}
        self._tracks_ids = track_node_ids
        self._left: set[int] = set()
        self._entries: Mapping[type, Callable[[Any], Accepted]] = {
            Start: self._start,
            Resize: self._resize,
            Migrate: self._migrate,
            Reserve: self._reserve,
            Reject: self._reject,
        }
        self.rejected: dict[int, str] = {}
        self.state = ClusterState(
            nodes,
            cores_per_node,
            free=nodes,
            queue=self._queue,
            running=self._running,
            reservations=self._reservations,
            free_node_ids=list(range(nodes)) if track_node_ids else (),
        )

    # ------------------------------------------------------------- what happens to jobs and nodes

    def submit(self, job: Job) -> None:
        """Add a job at the end of the queue."""
        self._queue.append(job)
        self._waiting[job.id] = job

    def withdraw(self, job: int) -> None:
        """Take a waiting job out of the queue."""
        self._leave_queue(job)
        self.settle()

    def end(self, number: int) -> tuple[int, ...]:
        """End a running job; return the running jobs whose speed may have changed.

        When a mate ends before its guest, the guest keeps the mate's nodes and has them to itself from
        then on; when the guest ends, its mates get their cores back.
        """
        ended = self._running.pop(number)
        if ended.limit > self.state.time:
            self.state.early_release = True
        if ended.guest is not None:
            guest = self._running[ended.guest]
            guest.mates = tuple(mate for mate in guest.mates if mate != number)
            guest.shared -= ended.nodes
            return (guest.job.id,)
        for mate in ended.mates:
            self._running[mate].guest = None
        self._give_back(ended, ended.nodes - ended.shared)
        return ended.mates

    def fail_node(self, node: int) -> int | None:
        """Take a free node out of service, or return the job that still holds it.

        The caller ends that job and asks again: a shared node has two jobs. Needs `track_node_ids`.
        """
        state = self.state
        if node in state.free_node_ids:
            state.free_node_ids = [each for each in state.free_node_ids if each != node]
            state.free -= 1
            state.nodes -= 1
            return None
        owners = [one for one in self._running.values() if node in one.node_ids]
        return owners[0].job.id

    def restore_node(self, node: int) -> None:
        """Put a node back into service."""
        state = self.state
        state.nodes += 1
        state.free += 1
        state.free_node_ids = sorted([*state.free_node_ids, node])

    def requeue(self, job: Job) -> None:
        """Put a job whose run was lost back into the queue, in its old place."""
        self.submit(job)
        self._queue.sort(key=lambda one: (one.submit, one.id))

    # ------------------------------------------------------------------ decisions

    def apply(self, decision: Decision) -> Accepted | Refused:
        """Enter a decision, or say why it cannot be carried out.

        The queue keeps the jobs that left it until `settle`, so that a policy may still go through
        it. Whatever a user's policy yields is answered, objects that are no decision too.
        """
        enter = self._entries.get(type(decision))
        if enter is None:
            return Refused(decision, self.state.time, "no decision")
        try:
            return enter(decision)
        except _Refusal as refusal:
            return Refused(decision, self.state.time, str(refusal))
        except (TypeError, AttributeError, LookupError, ValueError, OverflowError) as error:
            return Refused(decision, self.state.time, str(error), malformed=True)

    def settle(self) -> None:
        """Take the jobs out of the queue that left it in this pass; called at the end of a pass."""
        if self._left:
            self._queue[:] = [job for job in self._queue if job.id not in self._left]
            for job in self._left:
                self._reservations.pop(job, None)
            self._left.clear()

    def _leave_queue(self, number: int) -> None:
        del self._waiting[number]
        self._left.add(number)

    def _waiting_job(self, number: int) -> Job:
        if number not in self._waiting:
            raise _Refusal("that job is not waiting")
        return self._waiting[number]

    def _reserve(self, decision: Reserve) -> Accepted:
        self._waiting_job(decision.job)
        if not decision.time >= self.state.time:
            raise _Refusal("the time is past")
        self._reservations[decision.job] = decision.time
        return Accepted()

    def _reject(self, decision: Reject) -> Accepted:
        self._waiting_job(decision.job)
        self._leave_queue(decision.job)
        self.rejected[decision.job] = decision.reason
        return Accepted()

    def _start(self, decision: Start) -> Accepted:
        state = self.state
        job = self._waiting_job(decision.job)
        if decision.nodes != int(decision.nodes):
            raise _Refusal("nodes are whole")
        need = state.nodes_for(job.processors)
        flexible = job.kind is not JobKind.RIGID
        least = state.nodes_for(job.minimum) if flexible else need
        most = state.nodes_for(job.maximum) if flexible else need
        if not least <= decision.nodes <= most:
            raise _Refusal(f"it can run on {least} to {most} nodes")
        if len(set(decision.mates)) < len(decision.mates):
            raise _Refusal("a mate is named twice")
        mates = [self._mate(number) for number in decision.mates]
        shared = sum(mate.nodes for mate in mates)
        taken = decision.nodes - shared
        if taken < 0:
            raise _Refusal(f"its mates have {shared} nodes")
        if taken > state.free:
            raise _Refusal(f"{state.free} nodes are free, not {taken}")
        if mates and not (0 < decision.share < 1 and job.malleable):
            raise _Refusal("only a malleable job can be guest, with a part")
        share = decision.share if mates else 1.0
        running = RunningJob(
            job,
            state.time,
            int(decision.nodes),
            state.time + job.requested / share,
            delay=job.requested / share - job.requested if mates else 0.0,
            mates=tuple(decision.mates),
            shared=shared,
            share=share,
        )
        if decision.node_ids and (
            len(decision.node_ids) != taken or not decision.node_ids <= set(state.free_node_ids)
        ):
            raise _Refusal(f"needs {taken} nodes that are free")
        # Everything is checked: from here on the state changes, and nothing may be refused any more.
        self._take(running, running.nodes - shared, decision.node_ids)
        # A mate runs slower while the guest is there: its estimated end moves by the guest's request.
        for mate in mates:
            mate.guest = job.id
            mate.limit += job.requested
            mate.delay += job.requested
            running.node_ids |= mate.node_ids
        self._running[job.id] = running
        self._leave_queue(job.id)
        return Accepted((*running.mates, job.id))

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
        least, most = self.state.nodes_for(job.minimum), self.state.nodes_for(job.maximum)
        if not least <= decision.nodes <= most:
            raise _Refusal(f"it can run on {least} to {most} nodes")
        if decision.nodes != int(decision.nodes):
            raise _Refusal("nodes are whole")
        before, after = running.nodes, int(decision.nodes)
        more = after - before
        if more > self.state.free:
            raise _Refusal(f"{self.state.free} nodes are free, not {more}")
        if more > 0:
            self._take(running, more)
        else:
            self._give_back(running, -more)
        running.nodes = after
        if running.wanted == after:
            running.wanted = None
        return Accepted((job.id,), before)

    def _migrate(self, decision: Migrate) -> Accepted:
        running = self._running.get(decision.job)
        if running is None or not self._tracks_ids:
            raise _Refusal("the job does not run, or places are not kept")
        if running.guest is not None or running.shared:
            raise _Refusal("the job shares nodes")
        free = set(self.state.free_node_ids) | running.node_ids
        if len(decision.nodes) != running.nodes or not decision.nodes <= free:
            raise _Refusal(f"needs {running.nodes} nodes that are free")
        running.node_ids = decision.nodes
        self.state.free_node_ids = sorted(free - decision.nodes)
        return Accepted((decision.job,))

    # -------------------------------------------------------------------- nodes

    def _take(
        self, running: RunningJob, nodes: int, node_ids: frozenset[int] = frozenset()
    ) -> None:
        self.state.free -= nodes
        if self._tracks_ids:
            chosen = node_ids or frozenset(self.state.free_node_ids[:nodes])
            running.node_ids |= chosen
            self.state.free_node_ids = [
                each for each in self.state.free_node_ids if each not in chosen
            ]

    def _give_back(self, running: RunningJob, nodes: int) -> None:
        self.state.free += nodes
        if self._tracks_ids and nodes:
            gone = self._own_node_ids(running)[-nodes:]
            running.node_ids -= frozenset(gone)
            self.state.free_node_ids = sorted([*self.state.free_node_ids, *gone])

    def _own_node_ids(self, running: RunningJob) -> list[int]:
        """Return the ids of the nodes that a job has but for those of its mates, ascending."""
        lent: set[int] = set()
        for mate in running.mates:
            lent |= self._running[mate].node_ids
        return sorted(running.node_ids - lent)
