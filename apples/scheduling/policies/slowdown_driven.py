"""SD-Policy: shrink running jobs so that a waiting job can start, if it ends sooner that way.

`apples.simulation.kernels.slowdown_driven` has a compiled form of the pass. `tests/simulation/test_oracles.py`
tests that both are equal, bit for bit.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, inf
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from apples.errors import UsageError
from apples.scheduling.instants import HALF_INSTANT, instant
from apples.scheduling.jobs import Decision, Job, Resize, Start
from apples.scheduling.mates import contiguous_mates, find_mates, parse_node_ids, pick_free
from apples.scheduling.policies.easy import HeadReservation
from apples.scheduling.policy import ClusterState, RunningJob, SchedulingPolicy, requests
from apples.scheduling.profile import Profile, releases
from apples.topology.distribute import distribute

# This is exact: reservations that are entered later can only delay a job. Once it would end too late, the rest of
# the map cannot change the answer.
AT_ONCE = 16
"""Reservations that are entered in the map between two searches for the job's own place."""

APART = 1e-3
"""Seconds. Two requests that differ by more are different in spite of rounding in sums of times."""


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
        Maximum number of mates of one job (m).
    guard
        Whether a job shares nodes only if it is estimated to end sooner than by waiting (Listing 1; the released
        code has this test off).
    free_nodes
        Whether free nodes may complete the mates' nodes.
    depth
        Number of waiting jobs, from the first, that may look for mates (1000 as in the authors' script).
    protect
        Whether the first waiting job keeps its reservation: sharing then delays no mate with nodes that this job
        needs. Off as in the paper, where a stream of malleable jobs can delay it for ever.
    contiguous
        Whether a job's nodes must have consecutive numbers.
    nodes
        Nodes that jobs may share, such as `0-511`; empty: all.

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
    depth: int = 1000
    protect: bool = True
    contiguous: bool = False
    nodes: str = ""
    uses_malleable: ClassVar[bool] = True
    looks_at = ("reservations",)

    def __post_init__(self) -> None:
        if isinstance(self.max_slowdown, str) and self.max_slowdown != "dynamic":
            raise UsageError(
                f"max_slowdown {self.max_slowdown!r}: must be a number, inf or dynamic",
                code="value-invalid", option="max_slowdown", value=self.max_slowdown,
            )  # fmt: skip
        if self.max_slowdown != "dynamic" and not self.max_slowdown >= 0:
            raise UsageError(
                f"max_slowdown {self.max_slowdown:g}: must be 0 or more",
                code="value-range", option="max_slowdown", value=self.max_slowdown, bound=0,
            )  # fmt: skip
        if not 0 < self.sharing_factor < 1:
            raise UsageError(
                f"sharing_factor {self.sharing_factor:g}: must be between 0 and 1",
                code="value-range", option="sharing_factor", value=self.sharing_factor, bound=[0, 1],
            )  # fmt: skip
        if parse_node_ids(str(self.nodes)) and self.free_nodes:
            raise UsageError(
                "free_nodes and nodes exclude each other",
                code="option-conflict", options=["free_nodes", "nodes"],
            )  # fmt: skip
        if self.contiguous and self.free_nodes:
            raise UsageError(
                "free_nodes and contiguous exclude each other",
                code="option-conflict", options=["free_nodes", "contiguous"],
            )  # fmt: skip
        if self.mates < 1:
            raise UsageError(
                f"mates {self.mates}: a job needs at least one mate",
                code="value-range", option="mates", value=self.mates, bound=1,
            )  # fmt: skip

    @property
    def needs_node_ids(self) -> bool:
        """Whether the options `contiguous` or `nodes` need node ids."""
        return self.contiguous or bool(self.nodes)

    def share(self, cores: int) -> float:
        """Return the part of a node that a guest gets, rounded to whole cores (Listing 3, distribute_cpu)."""
        taken = floor(cores * self.sharing_factor)
        if taken < 1:
            raise UsageError(
                f"SD-Policy shares nodes: {cores} cores a node and sharing_factor "
                f"{self.sharing_factor:g} leave a guest none (--nodes, --cores-per-node)",
                code="value-range", option="sharing_factor", value=self.sharing_factor, cores=cores,
            )  # fmt: skip
        _, guest = distribute(cores, [cores - taken, taken], [cores, cores])
        return guest / cores

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the starts of this pass, those inside mates' nodes included."""
        growing = []
        one_pass = _Pass(self, cluster)
        for running, more in requests(cluster):
            if more > 0:
                growing.append((running, more))
            else:
                one_pass.room.take(more, running.limit)
                one_pass.unsettled = True
                yield one_pass.resize(running, more)
        for job in cluster.queue:
            start = one_pass.consider(job)
            if start is not None:
                yield start
        for running, more in growing:
            if one_pass.room.take(more, running.limit):
                yield one_pass.resize(running, more)


def average_slowdown(running: Collection[RunningJob]) -> float:
    """Return the mean estimated slowdown of running jobs (DynAVGSD), 0 if none runs."""
    total = 0.0
    for one in running:  # not sum(): it rounds differently from Python 3.12 on
        total += instant(one.limit - one.job.submit) / one.job.requested
    return total / len(running) if running else 0.0


class _Pass:
    """The state after the decisions that the pass has made so far."""

    def __init__(self, policy: SlowdownDriven, cluster: ClusterState) -> None:
        self.policy = policy
        self.cluster = cluster
        self.share = policy.share(cluster.cores_per_node)
        self.room = HeadReservation(cluster)
        self.running = dict(cluster.running)
        self.free_node_ids = frozenset(cluster.free_node_ids)
        self.shareable = parse_node_ids(str(policy.nodes))
        # Whether nodes are leaving: a job that starts may have to wait for them and cannot be a mate yet.
        self.unsettled = cluster.leaving > 0
        self.waiting: list[Job] = []
        self.cut = (
            average_slowdown(self.running.values())
            if policy.max_slowdown == "dynamic"
            else policy.max_slowdown
        )
        # (nodes, request) of a job -> its mates, valid until pool, shadow or spare nodes change.
        self.groups: dict[tuple[int, float], list[RunningJob]] = {}
        # Number of nodes -> a request without mates of that many nodes. A longer request has fewer eligible mates,
        # so it has none either.
        self.barren: dict[int, float] = {}
        self.pool = _Pool(one for one in self.running.values() if one.can_be_mate)
        # The profile with the reservations of waiting jobs, their number, and the place of each shape of job.
        # None: not built yet.
        self.map: Profile | None = None
        self.mapped = 0
        self.places: dict[tuple[int, float], float] = {}
        # The releases of the running jobs, up to date after the first use.
        self.ends: list[tuple[float, int]] | None = None

    def resize(self, running: RunningJob, more: int) -> Resize:
        """Give an evolving job more nodes, or fewer."""
        number = running.job.id
        self.running[number] = running._replace(nodes=running.nodes + more)
        self.ends = None
        return Resize(number, running.nodes + more)

    def consider(self, job: Job) -> Start | None:
        """Start one job if possible (Listing 1); None: it waits."""
        now, nodes = self.cluster.time, self.cluster.nodes_for(job.processors)
        node_ids: frozenset[int] | None = frozenset()
        if self.policy.needs_node_ids:
            node_ids = pick_free(self.free_node_ids, nodes, self.policy.contiguous)
        if node_ids is not None and self.room.take(nodes, now + job.requested):
            self.free_node_ids -= node_ids
            limit = instant(now + job.requested)
            self._run(RunningJob(job, now, nodes, limit, node_ids=node_ids))
            return Start(job.id, nodes, node_ids=node_ids)
        if job.malleable and not job.exclusive and len(self.waiting) < self.policy.depth:
            mates = self._select_nodes(job, nodes)
            if mates and self._ends_sooner(job, nodes) and self._is_unreserved(job, nodes, mates):
                return self._share(job, nodes, mates)
        self.waiting.append(job)
        if len(self.waiting) == 1:
            self._reserve()
        return None

    def _is_unreserved(self, job: Job, nodes: int, mates: Sequence[RunningJob]) -> bool:
        """Take the nodes of a guest and its delayed mates if advance reservations leave enough; return whether."""
        now = self.cluster.time
        end = instant(now + instant(job.requested / self.share))
        own = nodes - sum(mate.nodes for mate in mates)
        longer = [(m.nodes, m.limit, max(instant(m.limit + job.requested), end)) for m in mates]
        return self.room.margin.take((own, now, end), *longer)

    def _run(self, running: RunningJob) -> None:
        self.running[running.job.id] = running
        self.map = None
        own = running.nodes - running.shared
        if self.ends is not None and own:
            self.ends.append((running.limit, own))
        self.groups.clear()
        self.barren.clear()
        if running.can_be_mate and not self.unsettled:
            self.pool.add(running)

    def _reserve(self) -> None:
        head = self.waiting[0]
        need = self.cluster.nodes_for(head.processors)
        self.room.hold(need, head.requested, self._releases())
        self.groups.clear()
        self.barren.clear()

    def _releases(self) -> list[tuple[float, int]]:
        if self.ends is None:
            self.ends = releases(self.cluster._replace(running=self.running))
        return self.ends

    def _select_nodes(self, job: Job, nodes: int) -> list[RunningJob]:
        """Return the mates of least impact that make up the job's nodes (Listing 2)."""
        alike = nodes, job.requested
        if alike not in self.groups:
            mates = self._mates(job, nodes, 0)
            if not mates and self.policy.free_nodes:
                own = min(self.room.free, nodes - 1)
                if self.cluster.time + instant(job.requested / self.share) > self.room.shadow:
                    own = min(own, self.room.spare)
                while not mates and own > 0:
                    mates = self._mates(job, nodes - own, own)
                    own -= 1
            self.groups[alike] = mates
        return self.groups[alike]

    def _mates(self, job: Job, wanted: int, own: int) -> list[RunningJob]:
        """Return mates that together with `own` free nodes have the wanted number of nodes; empty: none."""
        request = job.requested
        if request >= self.barren.get(wanted, inf) + APART:
            return []
        if self.policy.mates <= 2 and not self.pool.may_have(wanted):
            return []
        ends = instant(self.cluster.time + instant(request / self.share))
        shadow = self.room.shadow if self.policy.protect else inf
        until = self.room.until if self.policy.protect else inf
        all_sizes = self.policy.mates > 2 or self.policy.needs_node_ids
        eligible, penalties = self.pool.eligible(
            request, ends, self.cut, (shadow, until), self.room.spare, 0 if all_sizes else wanted
        )
        if self.shareable:
            kept = [k for k, one in enumerate(eligible) if one.node_ids <= self.shareable]
            eligible, penalties = [eligible[k] for k in kept], [penalties[k] for k in kept]
        if self.policy.contiguous:
            node_ids = [one.node_ids for one in eligible]
            group = contiguous_mates(node_ids, penalties, wanted, self.policy.mates)
        else:
            sizes = [one.nodes for one in eligible]
            group = find_mates(sizes, penalties, wanted, self.policy.mates)
        if not group:
            self.barren[wanted] = min(request, self.barren.get(wanted, inf))
        mates = [eligible[k] for k in group]
        late = sum(m.nodes for m in mates if m.limit <= until and shadow < m.limit + request)
        if late and late + (own if ends > shadow else 0) > self.room.spare:
            return []
        return mates

    def _ends_sooner(self, job: Job, nodes: int) -> bool:
        """Return whether a job is estimated to end sooner with mates than by waiting for its turn."""
        if not self.policy.guard:
            return True
        now = self.cluster.time
        if self.map is None:
            blocked = self.room.blocks
            self.map = Profile(now, self.room.free, self._releases(), blocked=blocked)
            self.mapped = 0
            self.places.clear()
        # Each further reservation can only delay the job. Once it would end too late, the reservations that are
        # not entered yet cannot change the answer.
        end = now + instant(job.requested / self.share) + HALF_INSTANT
        while self._place(self.map, nodes, job.requested) + job.requested <= end:
            some = self.waiting[self.mapped : self.mapped + AT_ONCE]
            if not some:
                return False
            for ahead in some:
                need = self.cluster.nodes_for(ahead.processors)
                begin = self._place(self.map, need, ahead.requested)
                self.map.reserve(begin, begin + ahead.requested, need)
            self.mapped += len(some)
        return True

    def _place(self, profile: Profile, nodes: int, seconds: float) -> float:
        """Return the earliest time on the map; since no step rises, the search begins at that of an equal job."""
        alike = nodes, seconds
        begin = self.places[alike] = profile.earliest(nodes, seconds, self.places.get(alike))
        return begin

    def _share(self, job: Job, nodes: int, mates: list[RunningJob]) -> Start:
        """Start a job in the nodes of its mates; their estimated ends move by its request."""
        now = self.cluster.time
        ends = instant(now + instant(job.requested / self.share))
        shared = sum(mate.nodes for mate in mates)
        for mate in mates:
            self.pool.remove(mate)
            limit = instant(mate.limit + job.requested)
            self.running[mate.job.id] = mate._replace(
                limit=limit, delay=mate.delay + job.requested, guest=job.id
            )
            if self.ends is not None:
                self.ends.remove((mate.limit, mate.nodes))
                self.ends.append((max(limit, ends), mate.nodes))
        numbers = tuple(mate.job.id for mate in mates)
        self.room.free -= nodes - shared
        guest = RunningJob(
            job, now, nodes, ends,
            delay=instant(job.requested / self.share) - job.requested,
            mates=numbers, shared=shared, share=self.share,
            node_ids=frozenset().union(*(mate.node_ids for mate in mates)),
        )  # fmt: skip
        self._run(guest)
        if self.waiting:
            self._reserve()
        return Start(job.id, nodes, numbers, self.share)


class _Pool:
    """The running jobs that may be mates, in the order of their starts, with their numbers as columns."""

    def __init__(self, jobs: Iterable[RunningJob]) -> None:
        self._jobs = list(jobs)
        self._columns: NDArray[np.float64] | None = None
        # Node counts of single jobs, and sums of one or two. Counts of removed jobs stay, since the sets only
        # serve to skip searches that must fail.
        self._sizes = {one.nodes for one in self._jobs}
        self._sums = {a + b for a in (0, *self._sizes) for b in self._sizes}

    def may_have(self, wanted: int) -> bool:
        """Return whether one or two jobs may have `wanted` nodes together; False is certain."""
        return wanted in self._sums

    def add(self, job: RunningJob) -> None:
        """Add a job that has started."""
        self._jobs.append(job)
        self._sizes.add(job.nodes)
        self._sums |= {size + job.nodes for size in (0, *self._sizes)}
        if self._columns is not None:
            self._columns = np.hstack([self._columns, _columns_of([job])])

    def remove(self, job: RunningJob) -> None:
        """Remove a job that has become a mate."""
        place = next(k for k, one in enumerate(self._jobs) if one is job)
        del self._jobs[place]
        if self._columns is not None:
            self._columns = np.delete(self._columns, place, axis=1)

    def eligible(
        self,
        request: float,
        ends: float,
        cut: float,
        window: tuple[float, float],
        spare: int,
        wanted: int,
    ) -> tuple[list[RunningJob], list[float]]:
        """Return the jobs that may be mates of a newcomer, and their penalties (equation 4).

        A mate lasts until the newcomer's end and has a penalty below the cut-off. In the window of the first
        waiting job, from its shadow on, it holds no more nodes than are spare then. For a pair of `wanted` nodes
        the two least penalties of each number of nodes suffice; `wanted` is 0 for a larger group.
        """
        if self._columns is None:
            self._columns = _columns_of(self._jobs)
        limit, wait, delay, requested, nodes = self._columns
        # The order of the operations is the kernel's: the same bits.
        penalty = (wait + (delay + request) + requested) / requested
        longer = limit + request
        chosen = (longer >= ends - HALF_INSTANT) & (penalty < cut)
        shadow, until = window
        chosen &= (limit > until) | (longer <= shadow) | (nodes <= spare)
        places = chosen.nonzero()[0]
        if wanted and len(places) > 8:
            places = places[nodes[places] <= wanted]
            sorted_places = places[np.lexsort((penalty[places], nodes[places]))]
            sizes = nodes[sorted_places]
            third = np.zeros(len(sizes), dtype=bool)
            third[2:] = sizes[2:] == sizes[:-2]
            places = np.sort(sorted_places[~third])
        return [self._jobs[k] for k in places], penalty[places].tolist()


def _columns_of(jobs: Iterable[RunningJob]) -> NDArray[np.float64]:
    """Return limit, wait, delay, request and nodes of jobs, a column each."""
    rows = [
        (
            one.limit,
            instant(one.start - one.job.submit),
            one.delay,
            one.job.requested,
            one.nodes,
        )
        for one in jobs
    ]
    return np.array(rows).reshape(-1, 5).T
