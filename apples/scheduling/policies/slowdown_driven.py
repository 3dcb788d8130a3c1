"""SD-Policy: shrink running jobs so that a waiting one can start, if it ends sooner that way."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import floor
from typing import ClassVar, Literal

from apples.errors import UsageError
from apples.scheduling.jobs import Decision, Job, Resize, Start
from apples.scheduling.mates import contiguous_mates, find_mates, parse_node_ids, pick_free
from apples.scheduling.policies.easy import shadow
from apples.scheduling.policy import ClusterState, RunningJob, SchedulingPolicy, grant_requests
from apples.scheduling.profile import Profile, releases
from apples.topology.distribute import distribute


@dataclass(frozen=True)
class SlowdownDriven(SchedulingPolicy):
    """EASY on whole nodes; a malleable job that cannot start moves into the nodes of mates.

    Attributes
    ----------
    max_slowdown
        Cut-off of a mate's estimated slowdown (P, equation 2); `inf` for none, `dynamic` for
        the mean estimated slowdown of the running jobs (DynAVGSD).
    sharing_factor
        Largest part of a node's cores that may be taken from a mate.
    mates
        Most mates of one job (m).
    guard
        Whether the job must be estimated to end sooner than by waiting (Listing 1; the released
        code has this test off).
    free_nodes
        Whether free nodes may make up what the mates' nodes leave missing.
    depth
        Waiting jobs, from the first, that may look for mates.
    contiguous
        Whether a job's nodes must have numbers that follow one another.
    nodes
        Nodes that may be shared, such as `0-511`; empty: all.

    Examples
    --------
    Two nodes of two cores, taken for 100 s; a job of 10 s would have to wait for them.

    >>> from apples.scheduling.jobs import JobKind
    >>> long = Job(1, 0.0, 4, 100.0, 2, 4, JobKind.MALLEABLE)
    >>> short = Job(2, 0.0, 4, 10.0, 2, 4, JobKind.MALLEABLE)
    >>> state = ClusterState(2, 2, queue=[short], running={1: RunningJob(long, 0.0, 2, 100.0)})
    >>> list(SlowdownDriven().decide(state))
    [Start(job=2, nodes=2, mates=(1,), share=0.5)]

    References
    ----------
    D'Amico, Jokanovic and Corbalan 2019, Listings 1 and 2, equations 1-4.
    """

    max_slowdown: float | Literal["dynamic"] = 10.0
    sharing_factor: float = 0.5
    mates: int = 2
    guard: bool = True
    free_nodes: bool = False
    depth: int = 100
    contiguous: bool = False
    nodes: str = ""
    uses_malleable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.max_slowdown, str) and self.max_slowdown != "dynamic":
            raise UsageError(f"max_slowdown {self.max_slowdown!r}: a number, inf or dynamic")
        if self.max_slowdown != "dynamic" and not self.max_slowdown >= 0:
            raise UsageError(f"max_slowdown {self.max_slowdown:g} is not 0 or more")
        if not 0 < self.sharing_factor < 1:
            raise UsageError(f"sharing_factor {self.sharing_factor:g} lies outside 0..1")
        if parse_node_ids(str(self.nodes)) and self.free_nodes:
            raise UsageError("free_nodes and nodes exclude each other")
        if self.contiguous and self.free_nodes:
            raise UsageError("free_nodes and contiguous exclude each other")
        if self.mates < 1:
            raise UsageError(f"mates {self.mates}: a job needs at least one mate")

    @property
    def needs_node_ids(self) -> bool:
        """Whether nodes are told apart."""
        return self.contiguous or bool(self.nodes)

    def share(self, cores: int) -> float:
        """Return the part of a node a guest gets, in whole cores (Listing 3, distribute_cpu)."""
        taken = floor(cores * self.sharing_factor)
        if taken < 1:
            raise UsageError(
                f"SD-Policy shares nodes: {cores} cores a node and sharing_factor "
                f"{self.sharing_factor:g} leave a guest none (--nodes, --cores-per-node)"
            )
        _, guest = distribute(cores, [cores - taken, taken], [cores, cores])
        return guest / cores

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass, those inside mates' nodes included."""
        granted = list(grant_requests(cluster))
        yield from granted
        one_pass = _Pass(self, cluster, granted)
        for job in cluster.queue:
            start = one_pass.consider(job)
            if start is not None:
                yield start


def average_slowdown(running: Collection[RunningJob]) -> float:
    """Return the mean estimated slowdown of running jobs (DynAVGSD), 0 if none runs."""
    total = 0.0
    for one in running:  # not sum(), which rounds otherwise from Python 3.12 on
        total += (one.limit - one.job.submit) / one.job.requested
    return total / len(running) if running else 0.0


class _Pass:
    """The state as it will be once the decisions taken so far are carried out."""

    def __init__(
        self, policy: SlowdownDriven, cluster: ClusterState, granted: Sequence[Resize]
    ) -> None:
        self.policy = policy
        self.cluster = cluster
        self.share = policy.share(cluster.cores_per_node)
        self.free = cluster.free
        self.running = dict(cluster.running)
        for resize in granted:
            one = self.running[resize.job]
            self.free -= resize.nodes - one.nodes
            self.running[resize.job] = one._replace(nodes=resize.nodes)
        self.free_node_ids = frozenset(cluster.free_node_ids)
        self.shareable = parse_node_ids(str(policy.nodes))
        self.pool = [one for one in self.running.values() if one.can_be_mate]
        self.waiting: list[Job] = []
        self.shadow, self.spare = 0.0, 0
        self.cut = (
            average_slowdown(self.running.values())
            if policy.max_slowdown == "dynamic"
            else policy.max_slowdown
        )

    def releases(self) -> list[tuple[float, int]]:
        return releases(self.cluster._replace(running=self.running))

    def consider(self, job: Job) -> Start | None:
        """Decide about one job (Listing 1)."""
        now, nodes = self.cluster.time, self.cluster.nodes_for(job.processors)
        in_time = now + job.requested <= self.shadow
        node_ids: frozenset[int] | None = frozenset()
        if self.policy.needs_node_ids:
            node_ids = pick_free(self.free_node_ids, nodes, self.policy.contiguous)
        allowed = not self.waiting or in_time or nodes <= self.spare
        if nodes <= self.free and allowed and node_ids is not None:
            if self.waiting and not in_time:
                self.spare -= nodes
            self.free_node_ids -= node_ids
            self._run(RunningJob(job, now, nodes, now + job.requested, node_ids=node_ids), nodes)
            return Start(job.id, nodes, node_ids=node_ids)
        if job.malleable and len(self.waiting) < self.policy.depth:
            mates = self._select_nodes(job, nodes)
            if mates and self._ends_sooner(job, nodes):
                return self._share(job, nodes, mates)
        self.waiting.append(job)
        if len(self.waiting) == 1:
            self._reserve()
        return None

    def _run(self, running: RunningJob, taken: int) -> None:
        self.running[running.job.id] = running
        self.free -= taken
        if running.can_be_mate:
            self.pool.append(running)

    def _reserve(self) -> None:
        need = self.cluster.nodes_for(self.waiting[0].processors)
        self.shadow, self.spare = shadow(need, self.free, self.releases())

    def _select_nodes(self, job: Job, nodes: int) -> list[RunningJob]:
        """Return the mates of least impact that make up the job's nodes (Listing 2)."""
        mates = self._mates(job, nodes)
        if not mates and self.policy.free_nodes:
            room = min(self.free, nodes - 1)
            if self.waiting and self.cluster.time + job.requested / self.share > self.shadow:
                room = min(room, self.spare)
            while not mates and room > 0:
                mates = self._mates(job, nodes - room)
                room -= 1
        return mates

    def _mates(self, job: Job, wanted: int) -> list[RunningJob]:
        ends = self.cluster.time + job.requested / self.share
        eligible, penalties = [], []
        for one in self.pool:
            mate = one.job
            wait = one.start - mate.submit
            penalty = (wait + (one.delay + job.requested) + mate.requested) / mate.requested
            if self.shareable and not one.node_ids <= self.shareable:
                continue
            if one.limit + job.requested >= ends and penalty < self.cut:
                eligible.append(one)
                penalties.append(penalty)
        if self.policy.contiguous:
            node_ids = [one.node_ids for one in eligible]
            group = contiguous_mates(node_ids, penalties, wanted, self.policy.mates)
            return [eligible[k] for k in group]
        sizes = [one.nodes for one in eligible]
        return [eligible[k] for k in find_mates(sizes, penalties, wanted, self.policy.mates)]

    def _ends_sooner(self, job: Job, nodes: int) -> bool:
        if not self.policy.guard:
            return True
        now = self.cluster.time
        profile = Profile(now, self.free, self.releases())
        for ahead in self.waiting:
            need = self.cluster.nodes_for(ahead.processors)
            begin = profile.earliest(need, ahead.requested)
            profile.reserve(begin, begin + ahead.requested, need)
        static_end = profile.earliest(nodes, job.requested) + job.requested
        return static_end > now + job.requested / self.share

    def _share(self, job: Job, nodes: int, mates: list[RunningJob]) -> Start:
        now = self.cluster.time
        shared = sum(mate.nodes for mate in mates)
        for mate in mates:
            self.running[mate.job.id] = mate._replace(
                limit=mate.limit + job.requested,
                delay=mate.delay + job.requested,
                guest=job.id,
            )
            self.pool.remove(mate)
        numbers = tuple(mate.job.id for mate in mates)
        guest = RunningJob(
            job, now, nodes, now + job.requested / self.share,
            delay=job.requested / self.share - job.requested,
            mates=numbers, shared=shared, share=self.share,
            node_ids=frozenset().union(*(mate.node_ids for mate in mates)),
        )  # fmt: skip
        self._run(guest, nodes - shared)
        if self.waiting:
            self._reserve()
        return Start(job.id, nodes, numbers, self.share)
