"""The ledger of a cluster: which job has which nodes, and whether a decision can be carried out.

The ledger knows neither clock nor processes. It is told what happened (a job came, a job ended, a node
failed) and asked whether a policy's decision fits the machine and the job; `driver` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from typing import Any

from apples.scheduling.instants import instant
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
    NOTHING_USED,
    AdvanceReservation,
    ClusterState,
    Events,
    NodeLoad,
    NodeOccupancy,
    ReadOnly,
    RunningJob,
)
from apples.scheduling.proposals import Change, Nodes, Proposal, Proposals
from apples.scheduling.reservations import Margin, Use
from apples.scheduling.usage import UserUsage

NO_NODES: frozenset[int] = frozenset()
NEVER: ReadOnly[int, float] = ReadOnly()
NO_GUESTS: ReadOnly[int, tuple[tuple[int, ...], float]] = ReadOnly()
NodeChoice = Callable[[int, Sequence[int], int, frozenset[int]], frozenset[int]]

OVERDUE_SECONDS = 1e-3
"""By how much a job is past its estimated end when it has overrun: the end of one whose rate changed is
the sum of many parts, each taken to its microsecond."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The ledger has entered a decision: the state shows it from now on.

    Attributes
    ----------
    affected
        The running jobs whose speed may have changed, mates before their guest.
    nodes_before
        Nodes that a resized job had.
    proposal
        Number of what has to be sent to the job (`ClusterLedger.ready`) and confirmed by it, 0: nothing,
        the change is made.
    """

    affected: tuple[int, ...] = ()
    nodes_before: int = 0
    proposal: int = 0


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
    crosses
        Whether all that stands against it is an advance reservation.
    """

    decision: object
    time: float
    reason: str
    malformed: bool = False
    crosses: bool = False

    def __str__(self) -> str:
        """Return the refusal as one line."""
        return f"at {self.time!r} s: {self.decision}: {self.reason}"


class _Refusal(Exception):  # noqa: N818 - never leaves this module: it carries a reason to `apply`
    pass


class _Crossing(_Refusal):
    pass


class ClusterLedger:
    """A cluster's state and the steps that change it, each checked before anything is changed.

    A job may run beyond its estimated end. It then has a new one, the same for all policies: now and a
    stated guess, doubled at each overrun of the job (as Tsafrir, Etsion and Feitelson 2007 correct
    predictions that were too short). Where jobs are killed at their limits, it has the grace.

    Parameters
    ----------
    nodes, cores_per_node
        The machine.
    track_node_ids
        Whether to say which nodes a job has, not only how many.
    overrun_guess
        Seconds that a job is given at its first overrun.
    grace
        Seconds after its limit at which a job is killed, by whoever runs it; None: it is not.
    acknowledged
        The changes that count as made only when the job has confirmed them (`proposals`).
    answer_seconds
        How long an answer may take before a proposal is unsettled.
    usage_half_life
        Seconds after which what a user has used counts half, 0: never; None: it is not kept.
    advance
        Nodes that are kept from jobs for a time. A start or growth that would run into one by its estimated
        end is refused; where a job overruns into one, that has the nodes which are free, and gets the others
        as they come free, before any job.
    choose
        Of nodes, in rising order, those that a job gets or keeps: its number, nodes, how many, and which it has
        beside them. Default: the lowest.

    Attributes
    ----------
    nodes, free, reserved
        Nodes in service, those of them that a job may have, and those that advance reservations have.
    time
        Of the last thing that happened, seconds.
    rejected
        Job -> reason, of the jobs that the policy will never run.
    proposals
        What is under way and not confirmed.
    undone
        Mates whose guest was taken back since this was last emptied: they have their cores again.
    waits
        Job -> why it waits, as the policy said last.
    loads
        What a policy is shown of the nodes; whoever monitors them sets it.
    """

    def __init__(
        self,
        nodes: int,
        cores_per_node: int = 1,
        track_node_ids: bool = False,
        overrun_guess: float = 60.0,
        grace: float | None = None,
        acknowledged: Collection[Change] = (),
        answer_seconds: float = inf,
        usage_half_life: float | None = None,
        advance: Sequence[AdvanceReservation] = (),
        choose: NodeChoice | None = None,
    ) -> None:
        self.nodes = self.free = self._size = nodes
        self._choose = choose or first_nodes
        self.cores_per_node = cores_per_node
        self.time = 0.0
        self.rejected: dict[int, str] = {}
        self.waits: dict[int, Wait] = {}
        self.loads: Sequence[NodeLoad] = ()
        self._guess = overrun_guess
        self._grace = grace
        self.proposals = Proposals()
        self.undone: list[int] = []
        self._acknowledged = frozenset(acknowledged)
        self._answer_seconds = answer_seconds
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
        self._early: list[int] = []
        self._rarer: dict[str, list[int]] = {}
        self._usage = None if usage_half_life is None else UserUsage(usage_half_life)
        self.advance = tuple(
            sorted(one._replace(begin=instant(one.begin), end=instant(one.end)) for one in advance)
        )
        self.reserved = 0
        self._reserved_ids: list[int] = []

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

    @property
    def held(self) -> Mapping[int, Job]:
        """The jobs that a `Hold` took out of the queue, by id; `waits` says why. Changes with the ledger."""
        return self._held

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
        if self._limits and self._limits[0][0] < time - OVERDUE_SECONDS:
            self._extend_overrun(time)
        if self.advance and self.advance[0].begin <= time:
            self.keep_reserved(time)
        events = NOTHING_HAPPENED
        if self._submitted or self._ended or self._early or self._rarer:
            events = Events(tuple(self._submitted), tuple(self._ended), tuple(self._early))
            if self._rarer:
                events = events._replace(**{k: tuple(ids) for k, ids in self._rarer.items()})
        under_way = self.proposals.open
        return ClusterState(
            self.nodes,
            self.cores_per_node,
            time,
            self.free,
            self.queue,
            ReadOnly(self._running),
            ReadOnly(self._reservations) if self._reservations else NONE,
            bool(self._early),
            tuple(self._free_ids) if self._tracks_ids else (),
            events,
            tuple(self._held.values()) if self._held else (),
            self.proposals.left if under_way else 0,
            sum(one.taken.count for one in under_way.values()) if under_way else 0,
            len(self._draining),
            len(self._out),
            self._node_states() if self._tracks_ids else (),
            usage=NOTHING_USED if self._usage is None else self._usage_now(self._usage),
            advance=self.advance,
            reserved=self.reserved,
            loads=self.loads,
        )

    def keep_reserved(self, time: float) -> None:
        """Give the nodes of reservations that are over back, and those that have begun what is free."""
        kept = []
        for one in self.advance:
            if one.end <= time:
                self.reserved -= one.taken
                ids = frozenset(self._reserved_ids[: one.taken])
                self._reserved_ids = self._reserved_ids[one.taken :]
                self._free_nodes(one.taken, ids)
            else:
                kept.append(one)
        for k, one in enumerate(kept):
            more = min(self.free, one.nodes - one.taken) if one.begin <= time else 0
            if more > 0:
                kept[k] = one._replace(taken=one.taken + more)
                self.reserved += more
                self.free -= more
                if self._tracks_ids:
                    self._reserved_ids += self._free_ids[-more:]
                    self._free_ids = self._free_ids[:-more]
        self.advance = tuple(kept)

    def _lose_reserved(self, node: int) -> None:
        """Take a node out of service that a reservation has."""
        self._reserved_ids.remove(node)
        self.reserved -= 1
        k, one = next((k, one) for k, one in enumerate(self.advance) if one.taken)
        less = one._replace(taken=one.taken - 1)
        self.advance = (*self.advance[:k], less, *self.advance[k + 1 :])

    def _usage_now(self, usage: UserUsage) -> ReadOnly[str, float]:
        """Enter what the running jobs have used until now, and return what each user has."""
        for running in self._running.values():
            self._use(usage, running)
        return ReadOnly(usage.until(self.time))

    def _use(self, usage: UserUsage, running: RunningJob) -> None:
        own = running.nodes - running.shared * (1.0 - running.share)
        usage.enter(running.job, running.start, self.time, own * self.cores_per_node)

    def _extend_overrun(self, time: float) -> None:
        """Give the jobs that are still running at their estimated end a later one."""
        while self._limits and self._limits[0][0] < time - OVERDUE_SECONDS:
            limit, number = heappop(self._limits)
            running = self._running.get(number)
            if running is not None and running.limit == limit:
                # A prediction that was too short is raised in doubling steps: 60 s, 120 s, 240 s.
                later = instant(time + self._guess * 2.0**running.overruns)
                if self._grace is not None:
                    later = max(time, instant(limit + self._grace))
                self._set_limit(running._replace(limit=later, overruns=running.overruns + 1))
                self._happened("overran", number)

    def _set_limit(self, running: RunningJob) -> None:
        self._running[running.job.id] = running
        heappush(self._limits, (running.limit, running.job.id))

    def _node_states(self) -> tuple[NodeOccupancy, ...]:
        states = [NodeOccupancy.HELD] * self._size
        for node in self._free_ids:
            states[node] = NodeOccupancy.FREE
        for one in self.proposals:
            for node in one.taken.ids:
                states[node] = NodeOccupancy.JOINING
            for node in one.left.ids.union(*(claimed.ids for claimed in one.claims.values())):
                states[node] = NodeOccupancy.LEAVING
        for node in self._reserved_ids:
            states[node] = NodeOccupancy.RESERVED
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

    def adopt(
        self,
        runs: Iterable[tuple[Job, float, frozenset[int]]],
        moved: Mapping[int, float] = NEVER,
        delays: Mapping[int, float] = NEVER,
        guests: Mapping[int, tuple[tuple[int, ...], float]] = NO_GUESTS,
    ) -> None:
        """Enter jobs that run already: each with when it was started, and its nodes, which are free.

        Needs `track_node_ids`. An estimate that is past is an overrun, found by the next `snapshot`.

        Parameters
        ----------
        moved
            Job -> when it came to these nodes, of those that have changed them.
        delays
            Job -> seconds that it takes longer since it shares nodes (`RunningJob.delay`).
        guests
            Job -> its mates, all of whose nodes it has too, and its share of them.
        """
        taken: set[int] = set()
        for job, start, node_ids in runs:
            delay = delays.get(job.id, 0.0)
            limit = instant(start + job.requested + delay)
            since = moved.get(job.id, -inf)
            self._set_limit(
                RunningJob(job, start, len(node_ids), limit, delay, node_ids=node_ids, moved=since)
            )
            taken |= node_ids
        for number, (mates, share) in guests.items():
            owners = [self._running[mate] for mate in mates]
            for owner in owners:
                self._running[owner.job.id] = owner._replace(guest=number)
            shared = sum(owner.nodes for owner in owners)
            self._running[number] = self._running[number]._replace(
                mates=mates, shared=shared, share=share
            )
        self._free_ids = [node for node in self._free_ids if node not in taken]
        self.free = len(self._free_ids)

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

    def note_messages(self, number: int, messages: tuple[tuple[int, int, float], ...]) -> None:
        """Note what the nodes of a running job send each other in an iteration."""
        self._running[number] = self._running[number]._replace(messages=messages)

    def estimate(self, number: int, seconds: float) -> None:
        """Note how long a job is now estimated to run, if it waits."""
        for jobs in (self._waiting, self._held):
            if number in jobs:
                if seconds < jobs[number].requested:
                    self._early.append(number)
                jobs[number] = replace(jobs[number], requested=seconds)
                self._queue = None

    def expect(self, number: int, end: float) -> None:
        """Note when a running job is now estimated to end."""
        running, limit = self._running[number], max(self.time, instant(end))
        if limit < running.limit:
            self._early.append(number)
        self._set_limit(running._replace(limit=limit, overruns=0))

    def end(self, number: int) -> tuple[int, ...]:
        """End a running job; return the jobs that have begun and whose speed may have changed.

        When a mate ends before its guest, the guest keeps the mate's nodes and has them to itself from
        then on; when the guest ends, its mates get their cores back.
        """
        if self.proposals.open:
            self._abandon(number)
            if number not in self._running:  # it had not been started
                return ()
        ended = self._running.pop(number)
        if self._usage is not None:
            self._use(self._usage, ended)
            self._usage.forget(number)
        self._ended.append(number)
        if ended.limit > self.time:
            self._early.append(number)
        if ended.guest is not None:
            guest = self._running[ended.guest]
            self._running[ended.guest] = guest._replace(
                mates=tuple(mate for mate in guest.mates if mate != number),
                shared=guest.shared - ended.nodes,
            )
            start = self.proposals.get(guest.proposal)
            if start is not None:
                start.taken.add(Nodes(ended.nodes, ended.node_ids))
                if not start.sent:
                    return ()
            return (ended.guest,)
        lent: set[int] = set()
        for mate in ended.mates:
            owner = self._running[mate]
            lent |= owner.node_ids
            self._running[mate] = owner._replace(guest=None)
        if self._tracks_ids:
            self._free_nodes(ended.nodes - ended.shared, ended.node_ids - lent)
        else:
            self.free += ended.nodes - ended.shared
        return ended.mates

    def fail_node(self, node: int) -> int | None:
        """Take a free node out of service, or return the job that still holds it.

        The caller ends that job and asks again: a shared node has two jobs. A node that fails twice has
        to be repaired twice. Needs `track_node_ids`.
        """
        if node in self._out:
            self._out[node] += 1
            return None
        for one in self.proposals:
            if node in one.left.ids or any(node in got.ids for got in self._claimed_of(one)):
                return one.job
        for one in self.proposals:
            if node in one.taken.ids and not one.sent:
                self._take_back(one)
        owners = [one for one in self._running.values() if node in one.node_ids]
        if owners:
            return owners[0].job.id
        if node in self._reserved_ids:
            self._lose_reserved(node)
            self._draining.discard(node)
            self.nodes -= 1
        elif node in self._draining:
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
            held = any(node in one.node_ids for one in self._running.values())
            held = held or any(
                node in nodes.ids
                for one in self.proposals
                for nodes in (one.left, *one.claims.values())
            )  # its job has not confirmed yet that it has left: that frees it
            if not held and node not in self._reserved_ids:
                self.nodes += 1
                self._happened("repaired", node)
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
            crosses = isinstance(refusal, _Crossing)
            return Refused(decision, self.time, str(refusal), crosses=crosses)
        except (TypeError, AttributeError, LookupError, ValueError, OverflowError) as error:
            return Refused(decision, self.time, str(error), malformed=True)

    def first_refused(self, decisions: Sequence[Decision]) -> tuple[int, Refused] | None:
        """Return which of a pass's decisions would be refused first, and the answer; None: all fit.

        What runs into an advance reservation does not count.
        """
        if self._all_fit(decisions):
            return None
        trial = object.__new__(ClusterLedger)
        vars(trial).update(
            (name, value.copy() if type(value) in {dict, list, set} else value)
            for name, value in vars(self).items()
        )
        if self.proposals.open:
            trial.proposals = deepcopy(self.proposals)
        elif self._acknowledged:
            trial.proposals = Proposals()
        if self._usage is not None:
            trial._usage = deepcopy(self._usage)
        for position, decision in enumerate(decisions):
            answer = trial.apply(decision)
            if isinstance(answer, Refused) and not answer.crosses:
                return position, answer
        return None

    def _all_fit(self, decisions: Sequence[Decision]) -> bool:
        """Return whether all fit where that takes counting only: starts on free nodes, and promises.

        Not so is no refusal: it takes a trial.
        """
        if self.proposals.open or self.advance or Change.START in self._acknowledged:
            return False
        free, seen = self.free, set()
        for one in decisions:
            job = self._waiting.get(one.job) if isinstance(one, Start | Reserve) else None
            if job is None or job.id in seen:
                return False
            if isinstance(one, Reserve):
                if not one.time >= self.time:
                    return False
                continue
            need = self.nodes_for(job.processors)
            if not isinstance(one, Start) or one.nodes != need or one.mates or one.node_ids:
                return False
            seen.add(job.id)
            free -= need
        return free >= 0

    def settle(self) -> None:
        """End a pass: what happened before it was seen."""
        if self._submitted:
            self._submitted = []
        if self._ended or self._early:
            self._ended, self._early = [], []
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
        under_way = self.proposals.get(running.proposal)
        job = running.job if under_way is None else under_way.job_before or running.job
        affected = self.end(decision.job)
        self.requeue(job)
        return Accepted(affected)

    def _start(self, decision: Start) -> Accepted:
        job = self._held.get(decision.job) or self._waiting_job(decision.job)
        self._check_width(job, decision.nodes)
        if len(set(decision.mates)) < len(decision.mates):
            raise _Refusal("a mate is named twice")
        mates = [self._mate(number) for number in decision.mates]
        shared = sum(mate.nodes for mate in mates)
        taken = int(decision.nodes) - shared
        if taken < 0:
            raise _Refusal(f"its mates have {shared} nodes")
        if taken > self.free or decision.node_ids:
            self._check_room(taken, decision.node_ids)
        if mates:
            self._check_guest(job, decision.share)
        share = decision.share if mates else 1.0
        seconds = instant(job.requested / share)
        end = instant(self.time + seconds)
        if self.advance:
            longer = [
                (m.nodes, m.limit, max(instant(m.limit + job.requested), end)) for m in mates
            ]
            self._check_reserved((taken, self.time, end), *longer)
        # Everything is checked: from here on the state changes, and nothing may be refused any more.
        proposal = None
        if self._acknowledged:
            proposal = self._propose_start(job, mates, taken, decision.node_ids)
        node_ids = self._take(job.id, taken, decision.node_ids, proposal)
        # A mate runs slower while the guest is there: its estimated end moves by the guest's request.
        for mate in mates:
            limit, delay = instant(mate.limit + job.requested), mate.delay + job.requested
            self._set_limit(mate._replace(guest=job.id, limit=limit, delay=delay))
            node_ids |= mate.node_ids
        self._set_limit(
            RunningJob(
                job,
                self.time,
                int(decision.nodes),
                end,
                delay=seconds - job.requested if mates else 0.0,
                mates=tuple(decision.mates),
                shared=shared,
                share=share,
                node_ids=node_ids,
            )
        )
        if proposal is not None:
            self._show_proposed(proposal)
        if self._held.pop(job.id, None) is None:
            self._leave_queue(job.id)
        return Accepted((*decision.mates, job.id), proposal=proposal.number if proposal else 0)

    def _check_reserved(self, *uses: Use) -> None:
        """Refuse to give nodes to a job that would have them when a reservation needs them."""
        now = ClusterState(
            self.nodes,
            time=self.time,
            free=self.free,
            running=self._running,
            leaving=self.proposals.left if self.proposals.open else 0,
            advance=self.advance,
        )
        at = Margin.of(now).crossed(*uses)
        if at < inf:
            names = [one.name or "one" for one in self.advance if one.begin <= at < one.end]
            raise _Crossing(f"it would run into the reservation {', '.join(names)} at {at:g} s")

    def _check_width(self, job: Job, nodes: int) -> None:
        if nodes != int(nodes):
            raise _Refusal("nodes are whole")
        need = self.nodes_for(job.processors)
        flexible = job.kind is not JobKind.RIGID
        least = self.nodes_for(job.minimum) if flexible else need
        most = self.nodes_for(job.maximum) if flexible else need
        if not least <= nodes <= most:
            raise _Refusal(f"it can run on {least} to {most} nodes")

    def _check_guest(self, job: Job, share: float) -> None:
        if not (0 < share < 1 and job.malleable):
            raise _Refusal("only a malleable job can be guest, with a part")
        if job.exclusive:
            raise _Refusal("the job shares no nodes: it leaves too little memory or GPUs")

    def _mate(self, number: int) -> RunningJob:
        mate = self._running.get(number)
        if mate is None or not mate.can_be_mate:
            raise _Refusal(f"job {number} cannot be a mate")
        return mate

    def _resize(self, decision: Resize) -> Accepted:
        running = self._running.get(decision.job)
        if running is None:
            raise _Refusal("that job is not running")
        self._check_settled(running)
        job = running.job
        if job.kind not in (JobKind.MALLEABLE, JobKind.EVOLVING):
            raise _Refusal(f"the job is {job.kind}")
        least, most = self.nodes_for(job.minimum), self.nodes_for(job.maximum)
        if not least <= decision.nodes <= most:
            raise _Refusal(f"it can run on {least} to {most} nodes")
        if decision.nodes != int(decision.nodes):
            raise _Refusal("nodes are whole")
        before, after = running.nodes, int(decision.nodes)
        if after - before > self.free:
            self._check_room(after - before, NO_NODES)
        if self.advance and after > before:
            self._check_reserved((after - before, self.time, running.limit))
        return self._enter_resize(running, after)

    def _check_settled(self, running: RunningJob) -> None:
        if running.proposal:
            raise _Refusal("a change of the job's nodes is under way")
        if running.guest is not None or running.shared:
            raise _Refusal("the job shares nodes")

    def _enter_resize(self, running: RunningJob, after: int) -> Accepted:
        job, before = running.job, running.nodes
        if self._usage is not None:
            self._use(self._usage, running)
        node_ids = running.node_ids
        proposal = None
        if self._acknowledged:
            proposal = self._propose_resize(running, after - before)
        if after > before:
            node_ids |= self._take(job.id, after - before, frozenset(), proposal, node_ids)
        elif after < before:
            gone = node_ids - self._choose(job.id, sorted(node_ids), after, NO_NODES)
            node_ids -= gone
            if proposal is None:
                self._free_nodes(before - after, gone)
            else:
                proposal.left = Nodes(before - after, gone)
        self._running[job.id] = running._replace(
            nodes=after,
            wanted=None if running.wanted == after else running.wanted,
            node_ids=node_ids,
        )
        if proposal is not None:
            self._show_proposed(proposal)
        return Accepted((job.id,), before, proposal.number if proposal else 0)

    def _migrate(self, decision: Migrate) -> Accepted:
        running = self._running.get(decision.job)
        if running is None or not self._tracks_ids:
            raise _Refusal("the job does not run, or places are not kept")
        self._check_settled(running)
        free = set(self._free_ids) | running.node_ids
        if len(decision.nodes) != running.nodes or not decision.nodes <= free:
            raise _Refusal(f"needs {running.nodes} nodes that are free")
        new = frozenset(decision.nodes)
        self._running[decision.job] = running._replace(node_ids=new, moved=self.time)
        gone, come = running.node_ids - new, new - running.node_ids
        self._free_ids = [node for node in self._free_ids if node not in new]
        self.free -= len(come)
        if Change.MIGRATE not in self._acknowledged:
            self._free_nodes(len(gone), gone)
            return Accepted((decision.job,))
        proposal = self.proposals.make(decision.job, Change.MIGRATE, self.time, running)
        proposal.left, proposal.taken = Nodes(len(gone), gone), Nodes(len(come), come)
        proposal.reason = decision.reason
        self._show_proposed(proposal)
        return Accepted((decision.job,), running.nodes, proposal.number)

    def reseat(self, number: int, node_ids: frozenset[int]) -> bool:
        """Have a job that was given nodes, and has not begun, be on others; return whether they are free."""
        running = self._running[number]
        alone = not (running.proposal or running.mates or running.guest)
        free = running.node_ids.union(self._free_ids)
        if not (alone and len(node_ids) == running.nodes and node_ids <= free):
            return False
        gone, come = running.node_ids - node_ids, node_ids - running.node_ids
        self._running[number] = running._replace(node_ids=node_ids)
        self._free_ids = [node for node in self._free_ids if node not in come]
        self.free -= len(come)
        self._free_nodes(len(gone), gone)
        return True

    # ---------------------------------------------------------------- acknowledgements

    def is_acknowledged(self, change: Change) -> bool:
        """Return whether a change counts as made only when the job has confirmed it."""
        return change in self._acknowledged

    def _propose_start(
        self, job: Job, mates: Sequence[RunningJob], taken: int, node_ids: frozenset[int]
    ) -> Proposal | None:
        """Return the proposal of a start that is confirmed, or has to wait; None: it is made at once."""
        shares = Change.SHARE in self._acknowledged and mates
        at_once = node_ids <= set(self._free_ids) if node_ids else taken <= self.free
        if Change.START not in self._acknowledged and at_once and not shares:
            return None
        proposal = self.proposals.make(job.id, Change.START, self.time, None)
        proposal.job_before = job
        if shares:
            for mate in mates:
                share = self.proposals.make(mate.job.id, Change.SHARE, self.time, mate)
                proposal.waits_for.add(share.number)
        return proposal

    def _propose_resize(self, running: RunningJob, more: int) -> Proposal | None:
        change = Change.GROW if more > 0 else Change.SHRINK
        if not more or (change not in self._acknowledged and more <= self.free):
            return None
        return self.proposals.make(running.job.id, change, self.time, running)

    def _show_proposed(self, proposal: Proposal) -> None:
        """Show a job as rigid while something is under way with its nodes."""
        running = self._running[proposal.job]
        fixed = replace(running.job, kind=JobKind.RIGID)
        self._running[proposal.job] = running._replace(job=fixed, proposal=proposal.number)
        for number in proposal.waits_for:
            other = self.proposals.get(number)
            if other is not None and other.change is Change.SHARE:
                self._running[other.job] = self._running[other.job]._replace(proposal=number)

    def ready(self) -> list[Proposal]:
        """Return the proposals that are to be sent now; they count as sent.

        A start counts from now on, not from when it was decided. Proposals that nobody has to confirm are
        settled.
        """
        sent: list[Proposal] = []
        while found := self.proposals.ready():
            for one in found:
                one.sent = True
                one.deadline = self.time + self._answer_seconds
                if one.change is Change.START:
                    running = self._running.pop(one.job)
                    more = self.time - running.start
                    self._set_limit(
                        running._replace(start=self.time, limit=instant(running.limit + more))
                        if more
                        else running
                    )
                sent.append(one)
                if one.change not in self._acknowledged:
                    self.confirm(one.number)
        return sent

    def confirm(self, number: int) -> bool:
        """Enter a job's answer that a proposal is carried out; return whether that is news.

        The nodes that the job gave up are free, or those of the proposals that claimed them: ask `ready`.
        """
        one = self.proposals.get(number)
        if one is None or not one.sent:
            return False
        self.proposals.settle(number)
        left = one.left
        running = self._running[one.job]
        if (one.unsettled and one.change is Change.SHRINK) or (
            one.unsettled and one.change is Change.MIGRATE
        ):
            running = running._replace(
                nodes=running.nodes - left.count, node_ids=running.node_ids - left.ids
            )
        self._running[one.job] = self._as_settled(running, one)
        self._free_nodes(left.count, left.ids)
        self.proposals.confirmed(number)
        self._happened("settled", one.job)
        return True

    def refuse(self, number: int) -> bool:
        """Enter a job's answer that nothing of a proposal was done; return whether that is news.

        The job has the nodes that it had; a job that was to start waits again. Those that waited for nodes
        of this proposal are taken back.
        """
        one = self.proposals.get(number)
        if one is None or not one.sent:
            return False
        self._happened("refused", one.job)
        self._take_back(one)
        return True

    def expire(self, now: float) -> list[Proposal]:
        """Make the proposals unsettled whose answer is late; return them.

        The job is shown on all nodes on which something of it may be. Those that waited for it are taken
        back. A late answer counts.
        """
        self.time = now
        late = self.proposals.overdue(now)
        for one in late:
            one.unsettled = True
            self._take_back_claims(one)
            running = self._running[one.job]
            if one.left.count:
                self._running[one.job] = running._replace(
                    nodes=running.nodes + one.left.count, node_ids=running.node_ids | one.left.ids
                )
            self._happened("refused", one.job)
        return late

    def _claimed_of(self, source: Proposal) -> list[Nodes]:
        return [
            one.claims[source.number]
            for one in self.proposals.waiting_for(source.number)
            if source.number in one.claims
        ]

    def _as_settled(self, running: RunningJob, one: Proposal) -> RunningJob:
        """Return a job as it is shown when nothing is under way with its nodes."""
        return running._replace(job=one.job_before or running.job, proposal=0)

    def _take_back_claims(self, source: Proposal) -> None:
        for one in self.proposals.waiting_for(source.number):
            if self.proposals.get(one.number) is one:
                self._take_back(one)

    def _take_back(self, one: Proposal) -> None:
        """Undo a proposal, and those that wait for it."""
        self._take_back_claims(one)
        if self.proposals.get(one.number) is not one:  # a share, taken back with its guest
            return
        self.proposals.unclaim(one)
        self.proposals.settle(one.number)
        running = self._running[one.job]
        if one.change is Change.START:
            del self._running[one.job]
            for mate in running.mates:
                self._undo_share(mate, running)
            self.requeue(one.job_before or running.job)
        elif one.change is not Change.SHARE and one.before is not None:
            self._running[one.job] = one.before._replace(
                limit=running.limit,
                overruns=running.overruns,
                wanted=one.before.wanted if running.wanted is None else running.wanted,
            )
        else:
            self._running[one.job] = running._replace(proposal=0)
        self._free_nodes(one.taken.count, one.taken.ids)

    def _undo_share(self, number: int, guest: RunningJob) -> None:
        """Give a mate its cores back, of which a guest that does not come would have had a part."""
        mate = self._running[number]
        less = guest.job.requested
        self.undone.append(number)
        self._set_limit(
            mate._replace(guest=None, limit=instant(mate.limit - less), delay=mate.delay - less)
        )
        share = self.proposals.get(mate.proposal)
        if share is not None and share.change is Change.SHARE:
            self.proposals.settle(share.number)
            self._running[number] = self._running[number]._replace(proposal=0)

    def _abandon(self, number: int) -> None:
        """Settle what is under way with the nodes of a job that ends."""
        one = self.proposals.get(self._running[number].proposal)
        if one is None:
            return
        if not one.sent:
            self._take_back(one)
            if one.change is Change.START:
                self.withdraw(number)
        elif one.unsettled:
            one.left = Nodes()  # they are counted with the job
            self.confirm(one.number)
        else:
            self.confirm(one.number)

    # -------------------------------------------------------------------- nodes

    def _check_room(self, nodes: int, node_ids: frozenset[int]) -> None:
        """Refuse to take more nodes than are free or leaving, or others."""
        left = self.proposals.left if self.proposals.open else 0
        if nodes > self.free + left:
            also = f" and {left} are leaving" if left else ""
            raise _Refusal(f"{self.free} nodes are free{also}, not {nodes}")
        if node_ids and (
            len(node_ids) != nodes
            or not node_ids <= (set(self._free_ids) | self.proposals.left_ids)
        ):
            raise _Refusal(f"needs {nodes} nodes that are free")

    def _take(
        self,
        job: int,
        nodes: int,
        node_ids: frozenset[int],
        proposal: Proposal | None,
        beside: frozenset[int] = NO_NODES,
    ) -> frozenset[int]:
        """Take nodes, free ones first, for a job that has those `beside`; return which.

        A proposal may claim others that are leaving.
        """
        if proposal is None and not self._tracks_ids:
            self.free -= nodes
            return NO_NODES
        free = min(nodes, self.free) if not node_ids else len(node_ids & set(self._free_ids))
        self.free -= free
        chosen: frozenset[int] = frozenset()
        if self._tracks_ids:
            chosen = node_ids & set(self._free_ids) or self._choose(
                job, self._free_ids, free, beside
            )
            self._free_ids = [each for each in self._free_ids if each not in chosen]
        if proposal is None:
            return chosen
        proposal.taken = Nodes(free, chosen)
        return chosen | self.proposals.claim(proposal, nodes - free, node_ids)

    def _free_nodes(self, nodes: int, node_ids: frozenset[int]) -> None:
        """Make nodes free, but for those that are to leave service."""
        leave = self._draining & node_ids if self._draining else frozenset()
        self.nodes -= len(leave)
        self.free += nodes - len(leave)
        if self._tracks_ids and nodes:
            self._free_ids = sorted([*self._free_ids, *(node_ids - leave)])


def first_nodes(
    job: int,  # noqa: ARG001 - any do
    nodes: Sequence[int],
    count: int,
    beside: frozenset[int],  # noqa: ARG001
) -> frozenset[int]:
    """Return the first of some nodes: they are alike."""
    return frozenset(nodes[:count])


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
