"""The ledger of a cluster: which job has which nodes, and whether a decision can be carried out.

The ledger uses neither clock nor processes. The driver reports events (a job arrived, a job ended, a node failed)
and submits the policy's decisions, which the ledger checks against the machine and the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf
from typing import Any, NamedTuple

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
from apples.scheduling.reservations import Margin, Use
from apples.scheduling.usage import UserUsage

NO_NODES: frozenset[int] = frozenset()
NEVER: ReadOnly[int, float] = ReadOnly()
NO_JOBS: ReadOnly[int, Job] = ReadOnly()
NO_GUESTS: ReadOnly[int, tuple[tuple[int, ...], float]] = ReadOnly()
NodeChoice = Callable[[int, Sequence[int], int, frozenset[int]], frozenset[int]]

OVERDUE_SECONDS = 1e-3
"""A job has overrun if it is this many seconds past its estimated end. The tolerance is needed since the end of a
job with rate changes is the sum of many parts, each rounded to a microsecond."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The ledger has entered a decision: the state shows it from now on.

    Attributes
    ----------
    affected
        The running jobs with a possibly changed speed, mates before their guest.
    nodes_before
        Nodes of a resized job before the resize.
    later
        Whether other jobs are still leaving nodes that the decision needs. The back end then carries out nothing,
        the ledger keeps the nodes until the end of the pass, and a later pass decides again.
    """

    affected: tuple[int, ...] = ()
    nodes_before: int = 0
    later: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A decision that breaks a limit of the machine or of the job; the state is unchanged.

    The refusal is permanent, since a policy makes the same decisions for the same state.

    Attributes
    ----------
    decision
        The decision as the policy made it.
    time
        Time of the cluster, seconds.
    malformed
        Whether the object is not a decision: its type is wrong or fields are missing.
    crosses
        Whether an advance reservation is the only obstacle.
    """

    decision: object
    time: float
    reason: str
    malformed: bool = False
    crosses: bool = False

    def __str__(self) -> str:
        """Return the refusal as one line."""
        return f"at {self.time!r} s: {self.decision}: {self.reason}"


class ResizeUnderWay(NamedTuple):
    """A change of a running job's nodes that was ordered and has not ended yet.

    Attributes
    ----------
    job
        The job itself; meanwhile policies see it as rigid.
    since
        When it was ordered, seconds.
    left, left_ids
        Nodes that the job gives up: their number, and their ids where the ledger tracks them.
    joined, joined_ids
        Nodes that it gets.
    reason
        Why the policy moves the job.
    """

    job: Job
    since: float
    left: int = 0
    left_ids: frozenset[int] = NO_NODES
    joined: int = 0
    joined_ids: frozenset[int] = NO_NODES
    reason: str = ""


class _Refusal(Exception):  # noqa: N818 - never leaves this module: carries a reason to `apply`
    pass


class _Crossing(_Refusal):
    pass


class ClusterLedger:
    """A cluster's state and the steps that change it, each checked before the state changes.

    A job may run beyond its estimated end. The ledger then extends the estimate, for all policies alike: to now
    plus `overrun_guess`, which doubles at each overrun of the job. (Tsafrir, Etsion and Feitelson 2007 correct too
    short predictions in this way.) If jobs are killed at their limits, the new estimate is the old one plus
    `grace`.

    Parameters
    ----------
    nodes, cores_per_node
        Size of the machine.
    track_node_ids
        Whether to track the ids of a job's nodes, not only their number.
    overrun_guess
        Seconds by which the first overrun of a job extends its estimated end.
    grace
        The back end kills a job this many seconds after its limit; None: never.
    resizes_take_time
        Whether a resize or migration ends later than its decision (`finish_resize`). Until then policies see the
        job as rigid, and the nodes that it gives up are leaving: no job gets them.
    usage_half_life
        Half-life of the users' usage, seconds; 0 for no decay, None to keep no usage.
    advance
        Advance reservations. The ledger refuses a start or growth that would run into a reservation by its
        estimated end. If a job overruns into a reservation, the reservation takes the free nodes at once and the
        others as they come free, before any job.
    choose
        Chooses the nodes that a job gets or keeps. Its arguments are the job's number, the candidate nodes in
        rising order, the number to choose and the other nodes of the job. Default: the lowest.

    Attributes
    ----------
    nodes, free, reserved
        Nodes in service, those that a job may have, and those that advance reservations have.
    time
        Time of the last event, seconds.
    rejected
        Job -> reason, of the jobs that the policy will never run.
    resizing
        Job -> its resize or migration that is under way.
    waits
        Job -> the policy's last reason why it waits.
    loads
        Monitored loads of the nodes for policies; the monitor sets the attribute.
    """

    def __init__(
        self,
        nodes: int,
        cores_per_node: int = 1,
        track_node_ids: bool = False,
        overrun_guess: float = 60.0,
        grace: float | None = None,
        resizes_take_time: bool = False,
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
        self.resizing: dict[int, ResizeUnderWay] = {}
        self._resizes_take_time = resizes_take_time
        # Nodes that this pass keeps for decisions of a later pass.
        self._kept = self._claimed = 0
        self._kept_ids: list[int] = []
        self._waiting: dict[int, Job] = {}
        self._queue: tuple[Job, ...] | None = ()
        self._held: dict[int, Job] = {}
        self._running: dict[int, RunningJob] = {}
        self._starting: set[int] = set()
        self._reservations: dict[int, float] = {}
        self._limits: list[tuple[float, int]] = []
        self._tracks_ids = track_node_ids
        self._free_ids: list[int] = list(range(nodes)) if track_node_ids else []
        self._out: dict[int, int] = {}
        self._draining: set[int] = set()
        self._submitted: list[int] = []
        self._ended: list[int] = []
        self._early: list[int] = []
        self._other_events: dict[str, list[int]] = {}
        self._unseen = False
        self._usage = None if usage_half_life is None else UserUsage(usage_half_life)
        self.advance = tuple(
            sorted(one._replace(begin=instant(one.begin), end=instant(one.end)) for one in advance)
        )
        self.reserved = 0
        self._reserved_ids: list[int] = []

    # ------------------------------------------------------------------- views of the state

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
        """The held jobs (`Hold`), by id; `waits` has the reasons. Changes with the ledger."""
        return self._held

    def nodes_for(self, processors: int) -> int:
        """Return the number of whole nodes that hold a number of processors."""
        return -(-processors // self.cores_per_node)

    @property
    def state(self) -> ClusterState:
        """The state for a policy now."""
        return self.snapshot(self.time)

    def snapshot(self, time: float) -> ClusterState:
        """Return the state for a policy at a time; later changes of the ledger do not affect it."""
        self.time = time
        if self._limits and self._limits[0][0] < time - OVERDUE_SECONDS:
            self._extend_overrun(time)
        if self.advance and self.advance[0].begin <= time:
            self.keep_reserved(time)
        events = NOTHING_HAPPENED
        if self._submitted or self._ended or self._early or self._other_events:
            events = Events(tuple(self._submitted), tuple(self._ended), tuple(self._early))
            if self._other_events:
                events = events._replace(
                    **{k: tuple(ids) for k, ids in self._other_events.items()}
                )
        return ClusterState(
            self.nodes,
            self.cores_per_node,
            time,
            self.free,
            self.queue,
            ReadOnly(self._running),
            ReadOnly(self._reservations) if self._reservations else NONE,
            bool(self._early) or self._unseen,
            tuple(self._free_ids) if self._tracks_ids else (),
            events,
            tuple(self._held.values()) if self._held else (),
            self.leaving,
            sum(change.joined for change in self.resizing.values()) if self.resizing else 0,
            len(self._draining),
            len(self._out),
            self._node_states() if self._tracks_ids else (),
            usage=NOTHING_USED if self._usage is None else self._usage_now(self._usage),
            advance=self.advance,
            reserved=self.reserved,
            loads=self.loads,
        )

    @property
    def leaving(self) -> int:
        """Number of nodes that resizing or migrating jobs are still leaving."""
        return sum(change.left for change in self.resizing.values()) if self.resizing else 0

    def keep_reserved(self, time: float) -> None:
        """Release the nodes of advance reservations that are over; give free nodes to those that have begun."""
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
        """Remove a node that left service from its advance reservation."""
        self._reserved_ids.remove(node)
        self.reserved -= 1
        k, one = next((k, one) for k, one in enumerate(self.advance) if one.taken)
        less = one._replace(taken=one.taken - 1)
        self.advance = (*self.advance[:k], less, *self.advance[k + 1 :])

    def _usage_now(self, usage: UserUsage) -> ReadOnly[str, float]:
        """Enter the usage of the running jobs until now; return the usage of each user."""
        for running in self._running.values():
            self._use(usage, running)
        return ReadOnly(usage.until(self.time))

    def _use(self, usage: UserUsage, running: RunningJob) -> None:
        own = running.nodes - running.shared * (1.0 - running.share)
        job = running.job
        usage.enter(job.id, job.user, running.start, self.time, own * self.cores_per_node)

    def _extend_overrun(self, time: float) -> None:
        """Extend the estimated end of each job that still runs past it."""
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
        for change in self.resizing.values():
            for node in change.joined_ids:
                states[node] = NodeOccupancy.JOINING
            for node in change.left_ids:
                states[node] = NodeOccupancy.LEAVING
        for node in self._reserved_ids:
            states[node] = NodeOccupancy.RESERVED
        for node in self._draining:
            states[node] = NodeOccupancy.DRAINING
        for node in self._out:
            states[node] = NodeOccupancy.DOWN
        return tuple(states)

    def _happened(self, kind: str, number: int) -> None:
        self._other_events.setdefault(kind, []).append(number)

    # ------------------------------------------------------------- events of jobs and nodes

    def submit(self, job: Job) -> None:
        """Add a job at the end of the queue."""
        self._enter_queue(job)
        self._submitted.append(job.id)

    def add_running(
        self,
        runs: Iterable[tuple[Job, float, frozenset[int]]],
        ends: Mapping[int, float] = NEVER,
        moved: Mapping[int, float] = NEVER,
        delays: Mapping[int, float] = NEVER,
        guests: Mapping[int, tuple[tuple[int, ...], float]] = NO_GUESTS,
    ) -> None:
        """Enter jobs that run already: job, start time and nodes; the nodes must be free.

        Needs `track_node_ids`. The estimated end of a job that is past is extended, one overrun at a time, until
        it is later than now.

        Parameters
        ----------
        ends
            Job -> estimated end; default: start and requested time.
        moved
            Job -> time of its last change of nodes, for the jobs that changed nodes.
        delays
            Job -> increase of its run time through sharing, seconds (`RunningJob.delay`).
        guests
            Guest -> its mates and its share of their nodes; it runs on all nodes of these mates.
        """
        taken: set[int] = set()
        for job, start, node_ids in runs:
            delay = delays.get(job.id, 0.0)
            limit, overruns = instant(ends.get(job.id, start + job.requested + delay)), 0
            while limit < self.time - OVERDUE_SECONDS:
                limit = instant(limit + self._guess * 2.0**overruns)
                overruns += 1
            since = moved.get(job.id, -inf)
            self._set_limit(
                RunningJob(
                    job, start, len(node_ids), limit, delay, node_ids=node_ids, moved=since, overruns=overruns
                )
            )  # fmt: skip
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

    def add_waiting(
        self,
        waiting: Mapping[int, Job],
        held: Mapping[int, Job] = NO_JOBS,
        promises: Mapping[int, float] = NEVER,
    ) -> None:
        """Enter waiting jobs in order of (submit, id), held jobs, and the promised start times."""
        self._waiting |= waiting
        self._queue = None
        self._held |= held
        self._reservations |= {job: time for job, time in promises.items() if job in self._waiting}

    def add_usage(self, usage: UserUsage) -> None:
        """Enter a copy of the users' usage until now."""
        self._usage = usage.copy()

    def note_changes(self, last: ClusterLedger | None) -> None:
        """Record the differences from an earlier ledger of the same nodes as events.

        If `last` is None, no policy has seen these jobs, and a job may have left early since.
        """
        if last is None:
            self._submitted, self._unseen = list(self._waiting), True
            return
        self._note_queue(last)
        for number, was in last._running.items():
            now = self._running.get(number)
            if now is None:
                self._ended.append(number)
            else:
                self._note_run(last, was, now)
            if (self.time if now is None else now.limit) < was.limit:
                self._early.append(number)
        usable, were = self._in_service(), last._in_service()
        for kind, nodes in (("repaired", usable - were), ("lost", were - usable)):
            for node in sorted(nodes):
                self._happened(kind, node)

    def _note_queue(self, last: ClusterLedger) -> None:
        before, run, held = last._waiting, last._running, last._held
        for number, job in self._waiting.items():
            was = before.get(number)
            if was is job:
                continue
            if was is not None:
                if job.requested < was.requested:
                    self._early.append(number)
            elif number in run or number in held:
                self._happened("requeued", number)
            else:
                self._submitted.append(number)
        gone = before.keys() - self._waiting.keys() - self._running.keys() - self._held.keys()
        for number in sorted(gone):
            self._happened("withdrawn", number)

    def _note_run(self, last: ClusterLedger, was: RunningJob, now: RunningJob) -> None:
        number = now.job.id
        if now.overruns > was.overruns:
            self._happened("overran", number)
        if now.wanted is not None and now.wanted != was.wanted:
            self._happened("requested", number)
        if was.changing and not now.changing and number not in last._starting:
            made = now.moved > was.moved or now.node_ids == was.node_ids
            self._happened("settled" if made else "refused", number)

    def _in_service(self) -> set[int]:
        """Return the nodes that are neither down nor draining."""
        return {*range(self._size)} - self._draining - self._out.keys()

    def _enter_queue(self, job: Job) -> None:
        self._waiting[job.id] = job
        self._queue = None

    def withdraw(self, job: int) -> None:
        """Remove a waiting or held job."""
        if self._held.pop(job, None) is None:
            self._leave_queue(job)
        self._happened("withdrawn", job)

    def request(self, number: int, nodes: int) -> None:
        """Note the number of nodes that a running evolving job asks for."""
        self._running[number] = self._running[number]._replace(wanted=nodes)
        self._happened("requested", number)

    def note_changing(self, number: int, *, starting: bool = False) -> None:
        """Note that a running job is being started, or that a change of its nodes is under way.

        Policies see it as rigid from now on. The end of a start is not an event.
        """
        self._running[number] = self._running[number]._replace(changing=True)
        if starting:
            self._starting.add(number)

    def note_messages(self, number: int, messages: tuple[tuple[int, int, float], ...]) -> None:
        """Note the bytes that the nodes of a running job exchange in an iteration."""
        self._running[number] = self._running[number]._replace(messages=messages)

    def end(self, number: int) -> tuple[int, ...]:
        """End a running job; return the started jobs with a possibly changed speed.

        When a mate ends before its guest, the guest keeps the mate's nodes and shares them no longer. When the
        guest ends, its mates get their cores back.
        """
        if number in self.resizing:
            self.finish_resize(number)
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

        The caller ends that job and calls again, since a shared node has two jobs. A node that fails twice has to
        be repaired twice. Needs `track_node_ids`.
        """
        if node in self._out:
            self._out[node] += 1
            return None
        for number, change in self.resizing.items():
            if node in change.left_ids:
                return number
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
        """Give a node no further job; it leaves service when its job has left it.

        Needs `track_node_ids`; a node that is down stays down.
        """
        if node not in self._out and node not in self._draining:
            self._draining.add(node)
            if node in self._free_ids:
                self._free_ids.remove(node)
                self.free -= 1
                self.nodes -= 1

    def requeue(self, job: Job) -> None:
        """Put a job that lost its run back into its old place in the queue."""
        self._enter_queue(job)
        self._sort_queue()
        self._happened("requeued", job.id)

    def _sort_queue(self) -> None:
        waiting = sorted(self._waiting.values(), key=lambda one: (one.submit, one.id))
        self._waiting = {job.id: job for job in waiting}

    # ------------------------------------------------------------------ decisions

    def apply(self, decision: Decision) -> Accepted | Refused:
        """Enter a decision, or return the reason why it cannot be carried out.

        Any object that a user's policy yields gets an answer, even if it is not a decision.
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

    def clear_events(self, *, seen: bool = True) -> None:
        """End a pass; `seen`: the policy has seen the events before it, and the next pass does not show them."""
        if self._kept:
            self.free += self._kept
            self._free_ids = sorted([*self._free_ids, *self._kept_ids])
        self._kept = self._claimed = 0
        self._kept_ids = []
        if not seen:
            return
        if self._submitted:
            self._submitted = []
        if self._ended or self._early:
            self._ended, self._early = [], []
        if self._other_events:
            self._other_events = {}
        self._unseen = False

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
        under_way = self.resizing.get(decision.job)
        job = running.job if under_way is None else under_way.job
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
        # All checks are done: from here on the state changes, and no step may refuse.
        if self._has_to_wait(taken, decision.node_ids):
            return self._keep(taken, decision.node_ids)
        node_ids = self._take(job.id, taken, decision.node_ids)
        # A mate runs slower beside the guest: its estimated end moves by the guest's request.
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
        if self._held.pop(job.id, None) is None:
            self._leave_queue(job.id)
        return Accepted((*decision.mates, job.id))

    def _check_reserved(self, *uses: Use) -> None:
        """Refuse nodes to a job that would still use them when an advance reservation needs them."""
        now = ClusterState(
            self.nodes,
            time=self.time,
            free=self.free,
            running=self._running,
            leaving=self.leaving,
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
        self._check_unchanging(running)
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
        if after > before and self._has_to_wait(after - before, NO_NODES):
            return self._keep(after - before, NO_NODES)
        return self._enter_resize(running, after)

    def _check_unchanging(self, running: RunningJob) -> None:
        if running.changing:
            raise _Refusal("a change of the job's nodes is under way")
        if running.guest is not None or running.shared:
            raise _Refusal("the job shares nodes")

    def _enter_resize(self, running: RunningJob, after: int) -> Accepted:
        job, before = running.job, running.nodes
        if self._usage is not None:
            self._use(self._usage, running)
        node_ids = running.node_ids
        come = gone = NO_NODES
        if after > before:
            come = self._take(job.id, after - before, NO_NODES, node_ids)
        elif after < before:
            gone = node_ids - self._choose(job.id, sorted(node_ids), after, NO_NODES)
        self._running[job.id] = running._replace(
            nodes=after,
            wanted=None if running.wanted == after else running.wanted,
            node_ids=(node_ids | come) - gone,
        )
        left, joined = max(0, before - after), max(0, after - before)
        if after != before:
            self._give_up(job, left, gone, joined, come)
        return Accepted((job.id,), before)

    def _give_up(
        self,
        job: Job,
        left: int,
        left_ids: frozenset[int],
        joined: int,
        joined_ids: frozenset[int],
        reason: str = "",
    ) -> None:
        """Free the nodes that a job gives up, now or at the end of its resize."""
        if not self._resizes_take_time:
            self._free_nodes(left, left_ids)
            return
        self.resizing[job.id] = ResizeUnderWay(
            job, self.time, left, left_ids, joined, joined_ids, reason
        )
        fixed = replace(job, kind=JobKind.RIGID)
        self._running[job.id] = self._running[job.id]._replace(job=fixed, changing=True)

    def finish_resize(self, number: int) -> None:
        """Enter that a running job has completed its resize; free the nodes that it gave up."""
        change = self.resizing.pop(number)
        self._running[number] = self._running[number]._replace(job=change.job, changing=False)
        self._free_nodes(change.left, change.left_ids)
        self._happened("settled", number)

    def _migrate(self, decision: Migrate) -> Accepted:
        running = self._running.get(decision.job)
        if running is None or not self._tracks_ids:
            raise _Refusal("the job does not run, or places are not kept")
        self._check_unchanging(running)
        free = set(self._free_ids) | running.node_ids
        if len(decision.nodes) != running.nodes or not decision.nodes <= free:
            raise _Refusal(f"needs {running.nodes} nodes that are free")
        new = frozenset(decision.nodes)
        self._running[decision.job] = running._replace(node_ids=new, moved=self.time)
        gone, come = running.node_ids - new, new - running.node_ids
        self._free_ids = [node for node in self._free_ids if node not in new]
        self.free -= len(come)
        self._give_up(running.job, len(gone), gone, len(come), come, decision.reason)
        return Accepted((decision.job,), running.nodes)

    # -------------------------------------------------------------------- nodes

    def _check_room(self, nodes: int, node_ids: frozenset[int]) -> None:
        """Refuse more nodes than are free or leaving, and node ids that are neither."""
        left = self.leaving - self._claimed
        if nodes > self.free + left:
            also = f" and {left} are leaving" if left else ""
            raise _Refusal(f"{self.free} nodes are free{also}, not {nodes}")
        if node_ids and (
            len(node_ids) != nodes or not node_ids.difference(self._free_ids) <= self._leaving_ids
        ):
            raise _Refusal(f"needs {nodes} nodes that are free")

    @property
    def _leaving_ids(self) -> frozenset[int]:
        return NO_NODES.union(*(change.left_ids for change in self.resizing.values()))

    def _has_to_wait(self, nodes: int, node_ids: frozenset[int]) -> bool:
        """Whether other jobs are still leaving some of the nodes of a decision."""
        return nodes > self.free or not node_ids.issubset(self._free_ids)

    def _keep(self, nodes: int, node_ids: frozenset[int]) -> Accepted:
        """Keep nodes for a decision of a later pass: free nodes first, then leaving nodes."""
        free = len(node_ids.intersection(self._free_ids)) if node_ids else min(nodes, self.free)
        if self._tracks_ids:
            ids = [node for node in self._free_ids if node in node_ids] or self._free_ids[:free]
            self._free_ids = [node for node in self._free_ids if node not in ids]
            self._kept_ids += ids
        self.free -= free
        self._kept += free
        self._claimed += nodes - free
        return Accepted(later=True)

    def _take(
        self,
        job: int,
        nodes: int,
        node_ids: frozenset[int],
        beside: frozenset[int] = NO_NODES,
    ) -> frozenset[int]:
        """Take free nodes for a job and return their ids; `beside` are the job's other nodes."""
        self.free -= nodes
        if not self._tracks_ids:
            return NO_NODES
        chosen = node_ids or self._choose(job, self._free_ids, nodes, beside)
        self._free_ids = [node for node in self._free_ids if node not in chosen]
        return chosen

    def _free_nodes(self, nodes: int, node_ids: frozenset[int]) -> None:
        """Free nodes; draining nodes leave service instead."""
        leave = self._draining & node_ids if self._draining else frozenset()
        self.nodes -= len(leave)
        self.free += nodes - len(leave)
        if self._tracks_ids and nodes:
            self._free_ids = sorted([*self._free_ids, *(node_ids - leave)])


def first_nodes(
    job: int,  # noqa: ARG001 - any node serves any job
    nodes: Sequence[int],
    count: int,
    beside: frozenset[int],  # noqa: ARG001
) -> frozenset[int]:
    """Return the first nodes of a list; all nodes are equivalent."""
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
