"""Policies that move running jobs off nodes that others load: Dynamite's decider, and a decider with payback.

Both start jobs as EASY does, and give an owner-first node to no job while its owner is there. They add `Migrate`
decisions, which exchange one node of a malleable job for a free node. The loads come from a monitor of the nodes;
without loads both policies are EASY.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from math import inf
from types import ModuleType
from typing import NamedTuple

from apples.errors import UsageError
from apples.scheduling.decider import THRESHOLD, NodeCapacity, available_cpu, check_for_migration
from apples.scheduling.jobs import Decision, Migrate, Wake
from apples.scheduling.policies.easy import Easy
from apples.scheduling.policy import ClusterState, NodeLoad, RunningJob


class NodeExchange(NamedTuple):
    """The exchange of one node of a job for a free node, with the reason."""

    job: int
    source: int
    target: int
    reason: str


@dataclass(frozen=True)
class LoadMigration(Easy):
    """Starts jobs as EASY does, and moves running jobs away from loaded nodes.

    Attributes
    ----------
    hold
        Seconds for which a job stays after its start or move, unless an owner comes back.
    """

    hold: float = 20.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hold >= 0:
            raise UsageError(
                f"option hold={self.hold:g}: must be 0 or more",
                code="value-range", option="hold", value=self.hold, bound=0,
            )  # fmt: skip

    @property
    def needs_node_ids(self) -> bool:
        """Whether it needs the ids of the jobs' nodes: always."""
        return True

    @property
    def looks_at(self) -> tuple[str, ...]:
        """The attributes of EASY, and the loads of nodes."""
        return (*super().looks_at, "loads")

    @abstractmethod
    def exchanges(
        self, cluster: ClusterState, movable: Sequence[RunningJob], free: Sequence[int]
    ) -> list[NodeExchange]:
        """Return the exchanges of nodes in this pass.

        Parameters
        ----------
        movable
            Jobs that can be moved, in the order of their starts.
        free
            Nodes to which they can move: free nodes without a returned owner.
        """

    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the moves of this pass, then EASY's starts on the remaining nodes."""
        loads = cluster.loads
        if not loads:
            yield from super().decide(cluster)
            return
        free = [node for node in cluster.free_node_ids if not loads[node].owner_back]
        movable = [one for one in cluster.running.values() if _can_be_moved(one)]
        exchanged = self.exchanges(cluster, movable, free) if movable else []
        for running in movable:
            mine = [one for one in exchanged if one.job == running.job.id]
            if mine:
                nodes = running.node_ids - {one.source for one in mine}
                reasons = [*(one.reason for one in mine), _messages(running, mine, loads)]
                reason = "; ".join(dict.fromkeys(filter(None, reasons)))
                yield Migrate(running.job.id, nodes | {one.target for one in mine}, reason)
        again = self._again_at(cluster, movable)
        if again < inf:
            yield Wake(again)
        shut = sum(loads[node].owner_back for node in cluster.free_node_ids)
        left = cluster.nodes - shut
        yield from super().decide(
            cluster._replace(
                nodes=left,
                free=cluster.free - shut - len(exchanged),
                free_node_ids=(),
                queue=[job for job in cluster.queue if cluster.nodes_for(job.processors) <= left],
            )
        )

    def _again_at(self, cluster: ClusterState, movable: Sequence[RunningJob]) -> float:
        """Return the time at which the first held job on loaded nodes becomes movable; inf: no such job."""
        ends = [
            max(one.start, one.moved) + self.hold
            for one in movable
            if any(cluster.loads[node].others for node in one.node_ids)
        ]
        return min((end for end in ends if end > cluster.time), default=inf)

    def is_held(self, running: RunningJob, now: float) -> bool:
        """Return whether a job was started or moved within the last `hold` seconds."""
        return now < max(running.start, running.moved) + self.hold


def _measured(reason: str, source: NodeLoad, target: NodeLoad) -> str:
    """Return the reason of a move that pays, with the measured loads instead of the believed loads."""
    _, separator, why = reason.partition("; ")
    if not separator:
        return reason  # the owner is back
    loads = ", ".join(f"{one.others:.2f} on {one.name}" for one in (source, target))
    return f"load of others {loads}; {why}"


def _messages(
    running: RunningJob, exchanges: Sequence[NodeExchange], loads: Sequence[NodeLoad]
) -> str:
    """Return a text on the bytes that an iteration sends between nodes, and between sites before and after."""
    instead = {one.source: one.target for one in exchanges}
    between, before, after = 0.0, 0.0, 0.0
    for one, other, sent in running.messages:
        if not {one, other} <= running.node_ids:
            continue  # the job has left one of the nodes since the measurement
        there = loads[instead.get(one, one)], loads[instead.get(other, other)]
        between += sent
        before += sent * (loads[one].site != loads[other].site)
        after += sent * (there[0].site != there[1].site)
    if not between:
        return ""
    text = f"its nodes send each other {between:.3g} bytes an iteration"
    return text + (
        f", between sites {before:.3g} before and {after:.3g} after" if before or after else ""
    )


def _can_be_moved(running: RunningJob) -> bool:
    shares = running.guest is not None or running.shared
    return running.job.malleable and not running.changing and not shares


@dataclass(frozen=True)
class ThresholdMigration(LoadMigration):
    """Dynamite's decider: a node above the threshold gives its task to a node below it.

    The capacity of a node is a weighted mean of its free parts; processors with one process each are half used.
    Only a free node can take a task.

    Attributes
    ----------
    threshold
        T: a node with a load index above T gives its task to a node with a capacity above 1 - T.
    cpu, memory, swap, disk, network
        k_i: weight of each attribute.

    References
    ----------
    van Albada et al. 1999, "Dynamite", section "Migration decider".

    Examples
    --------
    >>> from apples.scheduling.jobs import Job, JobKind
    >>> job = Job(1, 0.0, 1, 900.0, 1, 1, JobKind.MALLEABLE)
    >>> running = {1: RunningJob(job, 0.0, 1, 900.0, node_ids=frozenset({0}))}
    >>> loads = (NodeLoad("ada", others=1.0), NodeLoad("bob"))
    >>> now = ClusterState(
    ...     2, time=60.0, free=1, free_node_ids=(1,), running=running, loads=loads
    ... )
    >>> moved, = ThresholdMigration().decide(now)
    >>> sorted(moved.nodes), moved.reason
    ([1], 'load 1.00 of ada is above 0.60, capacity 1.00 of bob above 0.40')
    """

    threshold: float = THRESHOLD
    cpu: float = 1.0
    memory: float = 0.0
    swap: float = 0.0
    disk: float = 0.0
    network: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_for_migration([], self.threshold, self.priorities)  # raises if invalid

    @property
    def priorities(self) -> Mapping[str, float]:
        """The weight k_i of each attribute."""
        names = ("cpu", "memory", "swap", "disk", "network")
        return {name: getattr(self, name) for name in names}

    def exchanges(
        self, cluster: ClusterState, movable: Sequence[RunningJob], free: Sequence[int]
    ) -> list[NodeExchange]:
        """Return the exchanges of one global step: off nodes with a returned owner, then by the paper's rule."""
        jobs = {
            node: one
            for one in movable
            for node in one.node_ids
            if cluster.loads[node].owner_back or not self.is_held(one, cluster.time)
        }
        numbers = [*jobs, *free]
        nodes = [
            _capacity(cluster.loads[node], node if node in jobs else None, self.priorities)
            for node in numbers
        ]
        found = check_for_migration(nodes, self.threshold, self.priorities)
        return [
            NodeExchange(jobs[move.task].job.id, move.task, numbers[move.target], move.reason)
            for move in found
        ]


def _capacity(load: NodeLoad, task: int | None, priorities: Mapping[str, float]) -> NodeCapacity:
    """Return the capacity of a node, which is 0 if its owner is back."""
    wanting = load.others + (0 if task is None else load.processes)
    available = {**dict(load.parts), "cpu": available_cpu(wanting, load.cpus)}
    if load.owner_back:
        available = dict.fromkeys(priorities, 0.0)
    tasks = () if task is None else (task,)
    return NodeCapacity(load.name, available, tasks, load.site, takes=task is None)


@dataclass(frozen=True)
class PaybackMigration(LoadMigration):
    """Moves jobs if that pays within a horizon, and off nodes with a returned owner at once.

    A job's iteration takes as long as on its slowest node. Its duration is the measured one, otherwise one second
    on unloaded nodes. The policy examines one job after the other: first the jobs on nodes with a returned owner,
    then the others in the order of their starts.

    Attributes
    ----------
    shorter
        Fraction by which an iteration must get shorter.
    standard_errors
        Safety margin against short peaks: this many standard errors are subtracted from the measured load of a
        job's own nodes and added to that of other nodes. The load of a returned owner counts without the margin.
    horizon
        Seconds for which loads are trusted; at most the remaining estimated time of the job counts.
    base_seconds, move_seconds
        Seconds that a move costs the job, and each moved node.

    Examples
    --------
    >>> from apples.scheduling.jobs import Job, JobKind
    >>> job = Job(1, 0.0, 1, 900.0, 1, 1, JobKind.MALLEABLE)
    >>> running = {1: RunningJob(job, 0.0, 1, 900.0, node_ids=frozenset({0}))}
    >>> loads = (NodeLoad("ada", others=1.0), NodeLoad("bob"))
    >>> now = ClusterState(
    ...     2, time=60.0, free=1, free_node_ids=(1,), running=running, loads=loads
    ... )
    >>> moved, = PaybackMigration().decide(now)
    >>> moved.reason.partition("; ")[2]
    'an iteration from 2 s to 1 s with 1 move: 3.5 s are paid back in 7 s'
    """

    shorter: float = 0.05
    standard_errors: float = 2.0
    horizon: float = 60.0
    base_seconds: float = 3.0
    move_seconds: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("shorter", "standard_errors", "horizon", "base_seconds", "move_seconds"):
            if not 0 <= getattr(self, name) < inf:
                value = getattr(self, name)
                raise UsageError(
                    f"option {name}={value:g}: must be 0 or more",
                    code="value-range", option=name, value=value, bound=0,
                )  # fmt: skip
        _payback()

    def exchanges(
        self, cluster: ClusterState, movable: Sequence[RunningJob], free: Sequence[int]
    ) -> list[NodeExchange]:
        """Return the exchanges that `apples.scheduling.payback` proposes for each job."""
        loads, left, found = cluster.loads, set(free), []
        wanted_back = {
            one.job.id: any(loads[node].owner_back for node in one.node_ids) for one in movable
        }
        for running in sorted(movable, key=lambda one: not wanted_back[one.job.id]):
            held = self.is_held(running, cluster.time)
            if left and (wanted_back[running.job.id] or not held):
                mine = self._of_job(cluster, running, left, held)
                found += mine
                left -= {one.target for one in mine}
        return found

    def _believed(self, load: NodeLoad, own: bool) -> float:
        """Return the load of others that counts for a move, with the safety margin."""
        if load.owner_back:
            return load.others
        off = self.standard_errors * load.error
        return max(0.0, load.others - off if own else load.others + off)

    def _of_job(
        self, cluster: ClusterState, running: RunningJob, free: set[int], held: bool
    ) -> list[NodeExchange]:
        """Return the exchanges of one job with free nodes."""
        loads, own = cluster.loads, sorted(running.node_ids)
        fastest = sorted(free, key=lambda node: (-loads[node].speed * loads[node].share, node))
        numbers = [*own, *fastest[: len(own)]]
        if all(loads[node].others == 0 for node in own):
            return []
        payback = _payback()
        hosts = tuple(
            payback.SharedHost(
                *(one.name, one.speed, one.cpus, self._believed(one, node in own)),
                *(one.owner_first, one.processes),
                room=1,
            )
            for node, one in ((node, loads[node]) for node in numbers)
        )
        given = dict(running.work)
        work = tuple(given.get(node, 0.0) if given else loads[node].speed for node in own)
        now = payback.SharedHosts(hosts, work)
        if running.iteration_seconds > 0:
            scale = running.iteration_seconds / now.iteration_seconds(range(len(own)))
            now = payback.SharedHosts(hosts, tuple(scale * work for work in now.work))
        seconds = max(0.0, min(self.horizon, running.limit - cluster.time))
        rule = payback.MigrationRule(
            self.shorter, seconds, self.base_seconds, self.move_seconds, self.hold
        )
        moves = payback.migrate(
            now, list(range(len(own))), rule, range(len(numbers)) if held else ()
        )
        return [
            NodeExchange(
                running.job.id,
                own[move.task],
                numbers[move.target],
                _measured(move.reason, loads[own[move.task]], loads[numbers[move.target]]),
            )
            for move in {move.task: move for move in moves}.values()
        ]


def _payback() -> ModuleType:
    """Import the rule here: it loads numpy, which a scheduler with another policy does not need."""
    return import_module("apples.scheduling.payback")


__all__: Sequence[str] = ["LoadMigration", "PaybackMigration", "ThresholdMigration"]
