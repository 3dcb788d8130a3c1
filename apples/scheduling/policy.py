"""The state that a scheduling policy reads, and the interface of a policy.

A policy proposes decisions; the ledger accepts each or refuses it with a reason. `driver` runs both, simulated or
live.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

from apples.errors import UsageError
from apples.scheduling.decider import OWNER_BACK
from apples.scheduling.jobs import Decision, Job, JobKind, Resize

K = TypeVar("K")
V = TypeVar("V")


class NodeOccupancy(StrEnum):
    """State of a node.

    A held node has a job. A leaving node was taken from a job that has not yet confirmed that it left. A joining
    node was given to a job that has not yet confirmed that it runs there. A draining node keeps its job and gets
    no other. A node that is down is out of service. A reserved node belongs to an advance reservation that has
    begun.
    """

    FREE = "free"
    HELD = "held"
    LEAVING = "leaving"
    JOINING = "joining"
    DRAINING = "draining"
    DOWN = "down"
    RESERVED = "reserved"


class ReadOnly(dict[K, V]):
    """An immutable mapping: part of the state that a policy reads."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("the input of a policy is read-only")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[ReadOnly[K, V]], tuple[dict[K, V]]]:
        """Pickle and copy the mapping as a whole, since item assignment is refused."""
        return ReadOnly, (dict(self),)


class AdvanceReservation(NamedTuple):
    """A number of nodes, any nodes, that no job may have for a time.

    Attributes
    ----------
    begin, end
        Seconds.
    name
        Name in messages.
    taken
        Nodes that it has so far: those free at its start and those that came free since.
    """

    begin: float
    end: float
    nodes: int
    name: str = ""
    taken: int = 0


class NodeLoad(NamedTuple):
    """Properties of a node and its load by other users, as monitored.

    Attributes
    ----------
    name
        Name in reasons.
    cpus, processes
        Processors of the node, and processes of a job there.
    speed
        Work per second of a process that has a processor to itself, relative to other nodes.
    others
        Mean number of other users' processes that want one of its processors.
    owner_first
        Whether jobs leave it when its owner comes back.
    site
        Its network; a task moves within it if possible.
    parts
        Other free parts of the node, each as a fraction: ``memory``, ``swap``, ``disk``, ``network``.
    error
        Standard error of `others`; 0 if unknown.

    Examples
    --------
    >>> NodeLoad("ada", cpus=2, processes=2, others=2.0).share
    0.5
    """

    name: str = ""
    cpus: int = 1
    processes: int = 1
    speed: float = 1.0
    others: float = 0.0
    owner_first: bool = False
    site: str = "local"
    parts: tuple[tuple[str, float], ...] = ()
    error: float = 0.0

    @property
    def share(self) -> float:
        """The fraction of a processor that each process of a job gets there."""
        return min(1.0, self.cpus / (self.processes + self.others))

    @property
    def owner_back(self) -> bool:
        """Whether its owner is back: jobs leave it, and it gets no job."""
        return self.owner_first and self.others > OWNER_BACK


NONE: ReadOnly[int, Any] = ReadOnly()
NOTHING_USED: ReadOnly[str, float] = ReadOnly()


class RunningJob(NamedTuple):
    """A running job on its nodes at one moment; `_replace` returns a changed copy.

    Attributes
    ----------
    nodes
        Number of whole nodes it runs on, including shared nodes; during a resize, the number after it.
    limit
        Estimated end with all extensions, seconds. It is later than now, or equal for a job that ends in this
        instant. The ledger extends the limit of a job that overran it (`ClusterLedger`).
    delay
        Estimated increase of its run time so far through sharing, seconds.
    guest
        Id of the job that is guest in its nodes, None without a guest.
    mates
        Ids of the jobs that share their nodes with it.
    shared
        Number of nodes that it shares as a guest.
    wanted
        Number of nodes that an evolving job asks for, None without a request.
    node_ids
        Numbers of its nodes; empty where the ledger does not track them.
    overruns
        Number of times that it was still running at its estimated end.
    changing
        Whether its start or a change of its nodes is under way. Meanwhile policies see it as rigid.
    moved
        Time of its last move to other nodes, seconds; -inf if it never moved.
    iteration_seconds
        Measured seconds of an iteration on its present nodes; 0 if unknown.
    messages
        Bytes between two of its nodes in an iteration, as counted or declared: (node, node, bytes).
    work
        Work of each of its nodes in an iteration, in any unit: (node, work); empty: proportional to the node's
        speed.
    """

    job: Job
    start: float
    nodes: int
    limit: float
    delay: float = 0.0
    guest: int | None = None
    mates: tuple[int, ...] = ()
    shared: int = 0
    share: float = 1.0
    wanted: int | None = None
    node_ids: frozenset[int] = frozenset()
    overruns: int = 0
    changing: bool = False
    moved: float = -inf
    iteration_seconds: float = 0.0
    messages: tuple[tuple[int, int, float], ...] = ()
    work: tuple[tuple[int, float], ...] = ()

    @property
    def more_wanted(self) -> int:
        """Number of further nodes that an evolving job asks for; negative if it gives nodes back.

        0 without a request, and while a change of its nodes is under way, since it counts as rigid until then.
        """
        if self.wanted is None or self.job.kind is not JobKind.EVOLVING:
            return 0
        return self.wanted - self.nodes

    @property
    def can_be_mate(self) -> bool:
        """Whether it is malleable, shares no node yet and may share nodes."""
        job = self.job
        return job.malleable and self.guest is None and self.shared == 0 and not job.exclusive


class Events(NamedTuple):
    """Events since the last pass: ids of jobs, and ids of nodes where the ledger tracks them.

    Attributes
    ----------
    submitted, ended
        Jobs that entered the queue; jobs that left their nodes.
    early, overran
        Jobs that ended before their estimated end, or have a lower estimate of their end or run time than before;
        jobs that still run at their estimated end.
    withdrawn, requeued
        Jobs that left the queue without a decision of the policy; jobs that came back to it after their run was
        lost.
    requested
        Evolving jobs that asked for other nodes.
    settled, refused
        Jobs that confirmed a change of their nodes; jobs that refused it or did not answer in time.
    lost, repaired
        Nodes that went out of service; nodes that came back, including drained nodes.
    """

    submitted: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()
    early: tuple[int, ...] = ()
    overran: tuple[int, ...] = ()
    withdrawn: tuple[int, ...] = ()
    requeued: tuple[int, ...] = ()
    requested: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    repaired: tuple[int, ...] = ()
    settled: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()


NOTHING_HAPPENED = Events()


class ClusterState(NamedTuple):
    """A machine of whole nodes with cores inside, at one moment: a frozen value.

    A machine that allocates single processors has nodes of one core. `_replace` returns a changed copy;
    `snapshot.to_json` and `snapshot.from_json` write and read a state. (The class and `RunningJob` are named
    tuples since every pass creates a state: a frozen dataclass with this number of fields takes ten times as long
    to create.)

    Attributes
    ----------
    nodes
        Number of nodes in service: free, held, leaving, joining or reserved.
    time
        Seconds.
    free
        Number of nodes in service that neither a job nor an advance reservation holds.
    queue
        Waiting jobs in order of (submit, id).
    running
        Id -> running job, in the order of their starts.
    reservations
        Waiting job -> time promised by an earlier `Reserve`.
    early_release
        Whether a job left before its estimated end since the last pass.
    free_node_ids
        Numbers of the free nodes, ascending; empty where the ledger does not track them.
    events
        Events since the last pass.
    held
        Jobs that a `Hold` took out of the queue.
    leaving, joining, draining, down
        Number of nodes in these states. A start or a growth may use leaving nodes: the policy decides it again
        when they are free, and until then no other decision of the pass gets its nodes.
    node_states
        State of each node by its number; empty where the ledger does not track nodes.
    enforces
        Resources that the ledger does not overcommit.
    usage
        User -> processor-seconds of the user's jobs, with a weight that halves every half-life; empty unless the
        policy has a `usage_half_life`.
    advance
        The advance reservations that are not over, in the order in which they begin.
    reserved
        Number of nodes that they have now; these are not free, although no job runs there.
    loads
        Load of each node by its number; empty without a monitor, or if the policy does not read `loads`.
    """

    nodes: int
    cores_per_node: int = 1
    time: float = 0.0
    free: int = 0
    queue: Sequence[Job] = ()
    running: Mapping[int, RunningJob] = NONE
    reservations: Mapping[int, float] = NONE
    early_release: bool = False
    free_node_ids: Sequence[int] = ()
    events: Events = NOTHING_HAPPENED
    held: Sequence[Job] = ()
    leaving: int = 0
    joining: int = 0
    draining: int = 0
    down: int = 0
    node_states: Sequence[NodeOccupancy] = ()
    enforces: tuple[str, ...] = ("nodes",)
    usage: Mapping[str, float] = NOTHING_USED
    advance: Sequence[AdvanceReservation] = ()
    reserved: int = 0
    loads: Sequence[NodeLoad] = ()

    def nodes_for(self, processors: int) -> int:
        """Return the number of whole nodes that hold a number of processors."""
        return -(-processors // self.cores_per_node)


class SchedulingPolicy(ABC):
    """Decides which jobs of a cluster start, shrink and grow.

    A policy is a value: its fields are its options, and `decide` depends only on them and on the state. The same
    state therefore gives the same decisions in a simulation, in a live scheduler and after a restart. The state
    does not change while the policy decides, and a policy only reads it. The driver carries out all decisions of a
    pass together, in their order.

    `apples.simulation.policy_checks.check_policy` checks these rules for any policy. Some built-in policies also
    have a compiled kernel (`apples.simulation.run.KERNELS`); a test compares both.
    """

    #: Whether the policy resizes jobs: then a log's jobs are malleable unless an option of the simulation differs.
    uses_malleable: ClassVar[bool] = False

    @property
    def needs_node_ids(self) -> bool:
        """Whether it needs the ids of the jobs' nodes, not only their number."""
        return False

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Attributes that it reads beside nodes and times.

        Of jobs `user`, `partition`, `qos`, `priority`; `reservations`; `loads` of nodes.

        The ledger refuses a start that would run into an advance reservation. If the policy does not read
        `reservations`, the simulation counts such refusals; otherwise they are errors.
        """
        return ()

    @property
    def usage_half_life(self) -> float | None:
        """Half-life of the users' usage, seconds; 0: no decay; None: the policy does not read the usage."""
        return None

    @abstractmethod
    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the decisions of one pass.

        The ledger refuses a decision that breaks a limit of the machine or of a job, with the reason
        (`apples.scheduling.ledger.Refused`); a simulation then ends with an error that names both.
        """


WANTED = itemgetter(RunningJob._fields.index("wanted"))
"""Getter of a running job's `wanted`; `filter` applies it to all of them in every pass without a Python loop."""


def requests(cluster: ClusterState) -> list[tuple[RunningJob, int]]:
    """Return the running jobs that ask for another number of nodes, each with the difference."""
    asking = filter(WANTED, cluster.running.values())
    return [(running, more) for running in asking if (more := running.more_wanted)]


QUEUE_ORDERS = ("fcfs", "priority")
"""Order of submission, or of falling priority in the log; (submit, id) breaks ties."""


def in_order(queue: Sequence[Job], order: str) -> Sequence[Job]:
    """Return waiting jobs in one of `QUEUE_ORDERS`."""
    if order == "fcfs":
        return queue
    return sorted(queue, key=lambda job: (-job.priority, job.submit, job.id))


@dataclass(frozen=True)
class OrderedPolicy(SchedulingPolicy):
    """A built-in policy with an option for the order of the queue.

    Attributes
    ----------
    orders
        Allowed values of `order`.
    """

    orders: ClassVar[Collection[str]] = QUEUE_ORDERS

    order: str = "fcfs"

    def __post_init__(self) -> None:
        if self.order not in self.orders:
            raise UsageError(
                f"order {self.order!r}: not one of {', '.join(self.orders)}",
                code="value-unknown", option="order", value=self.order, known=list(self.orders),
            )  # fmt: skip

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Reservations, and priorities if they are the order."""
        return ("reservations", "priority") if self.order == "priority" else ("reservations",)


def grant_requests(cluster: ClusterState, take: Callable[[int, float], bool]) -> Iterator[Resize]:
    """Yield the resizes that evolving jobs asked for and that the free nodes allow.

    `take(nodes, end)` takes nodes until an estimated end and returns whether it could; a negative number gives
    nodes back.
    """
    for running, more in requests(cluster):
        if take(more, running.limit):
            yield Resize(running.job.id, running.nodes + more)
