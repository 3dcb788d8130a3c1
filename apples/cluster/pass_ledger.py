"""The ledger of a pass, derived from the state of a live scheduler and from the reports of jobs and hosts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from apples.cluster.live_job import LiveJob, LiveJobState
from apples.cluster.state import SchedulerState
from apples.scheduling.jobs import Job, JobKind
from apples.scheduling.ledger import ClusterLedger, NodeChoice
from apples.scheduling.policy import NodeLoad

Messages = tuple[tuple[str, str, float], ...]
"""Sending host, receiving host and bytes of an iteration."""


@dataclass(frozen=True, slots=True)
class Reported:
    """Facts besides the state; jobs and hosts report them again after a restart.

    Attributes
    ----------
    time
        Present time in seconds of the scheduler's clock.
    away
        Hosts that get no job because they do not answer or their lease ends soon.
    ends
        Job -> its estimated end by its measured progress.
    resting
        Jobs that have refused their last resizes and get no resize order for a time.
    messages
        Job -> the messages between its hosts, if the policy reads them.
    loads
        Loads of the hosts, in their order; empty: the policy gets none.
    """

    time: float
    away: Collection[str] = ()
    ends: Mapping[int, float] = field(default_factory=dict)
    resting: Collection[int] = ()
    messages: Mapping[int, Messages] = field(default_factory=dict)
    loads: Sequence[NodeLoad] = ()


def ledger_of(
    state: SchedulerState,
    reported: Reported,
    active: Iterable[int],
    waiting: Mapping[int, Job],
    cpus: int = 0,
    choose: NodeChoice | None = None,
) -> ClusterLedger:
    """Return the ledger of a pass: hosts are nodes, numbered in the order of the list.

    A job that is not settled (`LiveJob.settled`) counts as rigid, on all the hosts that it holds.

    Parameters
    ----------
    active
        The jobs that hold hosts.
    waiting
        The jobs that the policy may start, in order of (submit, number).
    cpus
        CPUs of each host if jobs share hosts; 0: a host counts as one processor.
    """
    ledger = ClusterLedger(
        len(state.hosts), cpus or 1, track_node_ids=True, resizes_take_time=True, choose=choose
    )
    ledger.time = reported.time
    nodes = {host: node for node, host in enumerate(state.hosts)}
    jobs = [state.jobs[number] for number in active]
    runs = _Runs(state, reported, cpus, nodes)
    guests = runs.guests(jobs)
    sharing = {*guests}.union(*(mates for mates, _ in guests.values()))
    ledger.add_running(
        runs.of(jobs, sharing),
        reported.ends,
        {job.number: job.placed for job in jobs if job.placed is not None},
        {job.number: job.delay for job in jobs},
        guests,
    )
    for job in jobs:
        if job.number in ledger.running:
            runs.note(ledger, job)
    held = {job.number: job.as_job(cpus) for job in map(state.jobs.__getitem__, state.held)}
    ledger.add_waiting(waiting, held, state.promises)
    if state.usage is not None:
        ledger.add_usage(state.usage)
    ledger.loads = reported.loads
    for host in (*state.drained, *state.quarantined, *reported.away):
        if host in nodes:
            ledger.drain(nodes[host])
    ledger.clear_events()
    return ledger


def is_alone(state: SchedulerState, job: LiveJob) -> bool:
    """Return whether a job shares none of its hosts."""
    return all(state.holders[host] == (job.number,) for host in job.holds)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Derives the runs of a ledger from the jobs that hold hosts."""

    state: SchedulerState
    reported: Reported
    cpus: int
    nodes: Mapping[str, int]

    def of(
        self, jobs: Iterable[LiveJob], sharing: Collection[int]
    ) -> list[tuple[Job, float, frozenset[int]]]:
        """Return each job as a policy sees it, with its start and its nodes.

        Jobs that share hosts in any other way than as guest and mates count as rigid; the first has the host.
        """
        taken: set[str] = set()
        runs = []
        for job in sorted(jobs, key=lambda job: (job.started or 0.0, job.number)):
            overlaps = not (job.number in sharing or is_alone(self.state, job))
            rest = job.holds - taken if overlaps else job.holds
            taken |= rest
            holds = frozenset(self.nodes[host] for host in rest)
            if holds:
                shown = self._shown(job, len(holds), overlaps)
                runs.append((shown, job.started or 0.0, holds))
        return runs

    def guests(self, jobs: Iterable[LiveJob]) -> dict[int, tuple[tuple[int, ...], float]]:
        """Return guest -> its mates and its share, for guests on all hosts of mates that share with no other job.

        Any other sharing comes from hosts that are lost or being left, and the ledger cannot represent it.
        """
        guests, state = {}, self.state
        for job in jobs:
            mates = [state.jobs[mate] for mate in job.mates if mate in state.jobs]
            hosts = [host for mate in mates for host in mate.holds]
            both = [{mate.number, job.number} for mate in mates for _ in mate.holds]
            alone = [{*state.holders[host]} for host in hosts] == both
            if mates and alone and {*hosts} <= job.holds:
                guests[job.number] = tuple(mate.number for mate in mates), job.share
        return guests

    def note(self, ledger: ClusterLedger, job: LiveJob) -> None:
        """Add the request of a job, its messages, and whether its hosts are changing by a start, resize or end."""
        running = ledger.running[job.number]
        if running.job.kind is JobKind.EVOLVING:
            ledger.request(job.number, job.wants or running.nodes)
        starting = job.state is LiveJobState.STARTING
        if starting or not job.settled:
            ledger.note_changing(job.number, starting=starting)
        if sent := self.reported.messages.get(job.number):
            nodes = {host: self.nodes[host] for host in job.hosts}
            known = (
                (nodes[a], nodes[b], each) for a, b, each in sent if a in nodes and b in nodes
            )
            ledger.note_messages(job.number, tuple(known))

    def _shown(self, job: LiveJob, nodes: int, overlaps: bool) -> Job:
        """Return a job on this number of nodes as a policy sees it."""
        as_it_is = job.as_job(self.cpus)
        if self.cpus and not self._get_jobs(job.holds):
            as_it_is = replace(as_it_is, exclusive=True)
        rigid = job.submission.kind is JobKind.RIGID
        fits = job.submission.minimum <= nodes <= job.submission.maximum
        fits = fits and job.number not in self.reported.resting
        if (
            job.state is LiveJobState.RUNNING
            and job.settled
            and fits
            and not overlaps
            and not (rigid and nodes != job.submission.maximum)
        ):
            return as_it_is
        has = nodes * (self.cpus or 1)
        return replace(as_it_is, kind=JobKind.RIGID, processors=has, minimum=has, maximum=has)

    def _get_jobs(self, hosts: frozenset[str]) -> bool:
        state = self.state
        return hosts.isdisjoint((*self.reported.away, *state.drained, *state.quarantined))
