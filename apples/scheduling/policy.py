"""What a scheduling policy sees, and the one thing it does: decide.

A policy proposes; the ledger disposes, and says why not. `driver` runs both, simulated or live.
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
    """What a node is doing.

    A held node has a job. A leaving one was taken from a job that has not confirmed yet that nothing of it
    is there; a joining one was given to a job that has not confirmed yet that it is there. A draining node
    keeps its job and gets no other; one that is down is out of service; a reserved one is kept from jobs by
    an advance reservation that has begun.
    """

    FREE = "free"
    HELD = "held"
    LEAVING = "leaving"
    JOINING = "joining"
    DRAINING = "draining"
    DOWN = "down"
    RESERVED = "reserved"


class ReadOnly(dict[K, V]):
    """A mapping that refuses to be changed: part of what a policy is shown."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("what a policy is shown cannot be changed")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[ReadOnly[K, V]], tuple[dict[K, V]]]:
        """Return how a copy is made: not item by item."""
        return ReadOnly, (dict(self),)


class AdvanceReservation(NamedTuple):
    """Nodes that no job may have for a time; any nodes, so many of them.

    Attributes
    ----------
    begin, end
        Seconds.
    name
        In messages.
    taken
        Nodes that it has since it began: those that were free then, and came free since.
    """

    begin: float
    end: float
    nodes: int
    name: str = ""
    taken: int = 0


class NodeLoad(NamedTuple):
    """What is known of a node, and what others want of it, as monitored.

    Attributes
    ----------
    name
        In reasons.
    cpus, processes
        Processors, and how many processes a job has there.
    speed
        Work that a process with a processor of its own does in a second, beside that of other nodes.
    others
        Mean number of processes of others that want one of its processors.
    owner_first
        Whether it is to be left when its owner comes back.
    site
        Its network: what moves stays there if it can.
    parts
        What else is free of it, each as a part of the whole: ``memory``, ``swap``, ``disk``, ``network``.
    error
        Standard error of `others`, 0: nobody says.

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
        """The part of a processor that each process of a job gets there."""
        return min(1.0, self.cpus / (self.processes + self.others))

    @property
    def owner_back(self) -> bool:
        """Whether it is to be left now, and gets no job."""
        return self.owner_first and self.others > OWNER_BACK


NONE: ReadOnly[int, Any] = ReadOnly()
NOTHING_USED: ReadOnly[str, float] = ReadOnly()


class RunningJob(NamedTuple):
    """A job on its nodes, as of one moment; `_replace` makes another.

    Attributes
    ----------
    nodes
        Whole nodes it runs on, those it shares included; while a resize is under way, those it will have.
    limit
        Estimated end, seconds, extensions included: later than now, but for a job that is due in this very
        instant. A job that overran its limit has a new one (`ClusterLedger`).
    delay
        Estimated increase of its run time so far through sharing, seconds.
    guest
        Id of the job that is guest in its nodes, None if it has them to itself.
    mates
        Ids of the jobs in whose nodes it is guest.
    shared
        Of its nodes, those it shares as a guest.
    wanted
        Nodes an evolving job asks for, None when it is content.
    node_ids
        Numbers of its nodes; empty where the ledger does not track them.
    overruns
        How often it was still running at its estimated end.
    changing
        Whether it is being started, or a change of its nodes is under way. Until then it is shown as a rigid job.
    moved
        When it was moved to other nodes last, seconds; -inf: it was not.
    iteration_seconds
        What an iteration of it takes now, as measured; 0: nobody says.
    messages
        What its nodes send each other in an iteration, where it was counted or declared: node, node, bytes.
    work
        What each node of it has to do in an iteration, in any unit: node, work; empty: as much as it is fast.
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
        """How many nodes beyond those it has an evolving job asks for, negative: how many it gives back.

        0 where it is content, and while a change of its nodes is under way: it is a rigid job until then.
        """
        if self.wanted is None or self.job.kind is not JobKind.EVOLVING:
            return 0
        return self.wanted - self.nodes

    @property
    def can_be_mate(self) -> bool:
        """Whether it is malleable, has all its nodes to itself and may share them."""
        job = self.job
        return job.malleable and self.guest is None and self.shared == 0 and not job.exclusive


class Events(NamedTuple):
    """What happened since the last pass: numbers of jobs, of nodes where they are tracked.

    Attributes
    ----------
    submitted, ended
        Jobs that came into the queue; jobs that left their nodes.
    early, overran
        Jobs that ended before their estimated end, or are estimated to end sooner or run shorter than they were;
        jobs that are still running at theirs.
    withdrawn, requeued
        Jobs that left the queue unasked, or came back to it since their run was lost.
    requested
        Evolving jobs that asked for other nodes.
    settled, refused
        Jobs that confirmed a change of their nodes; that refused it, or did not answer in time.
    lost, repaired
        Nodes that went out of service; nodes that came back, drained ones too.
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

    A machine whose processors are given out one by one has nodes of one core. `_replace` makes another
    state, `snapshot.to_json` and `snapshot.from_json` write one and read it back. (This and `RunningJob`
    are tuples since one is made in every pass: a frozen dataclass of so many fields takes ten times as long.)

    Attributes
    ----------
    nodes
        In service: free, held, leaving, joining or reserved.
    time
        Seconds.
    free
        Nodes on which nothing runs and that are nobody's.
    queue
        Waiting jobs in order of (submit, id).
    running
        By id, in the order of their starts.
    reservations
        Waiting job -> time promised by an earlier `Reserve`.
    early_release
        Whether a job left before its estimated end since the last pass.
    free_node_ids
        Numbers of the free nodes, ascending; empty where the ledger does not track them.
    events
        What happened since the last pass.
    held
        Jobs that a `Hold` took out of the queue.
    leaving, joining, draining, down
        Nodes in these states. A start or a growth may count on nodes that are leaving: it is decided again when
        they are left, and until then no other decision of the pass gets the nodes that it needs.
    node_states
        By the number of the node; empty where the ledger does not track them.
    enforces
        What the ledger refuses to overcommit.
    usage
        User -> processor-seconds that the nodes of the user's jobs were held, those of a half-life ago counted
        half; empty unless the policy has a `usage_half_life`.
    advance
        The advance reservations that are not over, in the order in which they begin.
    reserved
        Nodes that they have now; not free, though nothing runs there.
    loads
        By the number of the node; empty where nobody monitors them, or the policy does not look at `loads`.
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
        """Return the whole nodes that so many processors take."""
        return -(-processors // self.cores_per_node)


class SchedulingPolicy(ABC):
    """Decides which jobs of a cluster start, shrink and grow.

    A policy is a value: its fields are its options, and `decide` depends on them and on the state
    alone, so that the same state gives the same decisions in a simulation, in a live scheduler and
    after a restart of either. All decisions of a pass are taken together, in the order they are
    made; the state does not change while the policy decides, and a policy only reads it.

    `apples.simulation.policy_checks.check_policy` runs these rules on any policy. The built-in ones exist
    in a second form on purpose, as compiled kernels (`apples.simulation.run.KERNELS`), which are held
    equal to them by one test.
    """

    #: Whether the policy resizes jobs: then all jobs of a log are malleable unless one says else.
    uses_malleable: ClassVar[bool] = False

    @property
    def needs_node_ids(self) -> bool:
        """Whether it must know which nodes jobs have, not only how many."""
        return False

    @property
    def looks_at(self) -> tuple[str, ...]:
        """What it looks at beside nodes and times.

        Of jobs `user`, `partition`, `qos`, `priority`; `reservations`; `loads` of nodes.

        A start that would run into an advance reservation is refused. Where a policy does not look at
        `reservations` that is counted; elsewhere it is an error.
        """
        return ()

    @property
    def usage_half_life(self) -> float | None:
        """Seconds after which what a user has used counts half, 0: never; None: it does not matter."""
        return None

    @abstractmethod
    def decide(self, cluster: ClusterState) -> Iterator[Decision]:
        """Yield the decisions of one pass.

        The ledger refuses a decision that breaks a limit of the machine or of a job, with the reason
        (`apples.scheduling.ledger.Refused`); a simulation then ends with an error that names both.
        """


WANTED = itemgetter(RunningJob._fields.index("wanted"))
"""Of a running job: asked of all of them in every pass, hence without a loop of ours."""


def requests(cluster: ClusterState) -> list[tuple[RunningJob, int]]:
    """Return the running jobs that ask for other nodes and may have them, and how many more each."""
    asking = filter(WANTED, cluster.running.values())
    return [(running, more) for running in asking if (more := running.more_wanted)]


QUEUE_ORDERS = ("fcfs", "priority")
"""Of submission, or of the log's priorities, the largest first; ties go by (submit, id)."""


def in_order(queue: Sequence[Job], order: str) -> Sequence[Job]:
    """Return waiting jobs in one of `QUEUE_ORDERS`."""
    if order == "fcfs":
        return queue
    return sorted(queue, key=lambda job: (-job.priority, job.submit, job.id))


@dataclass(frozen=True)
class OrderedPolicy(SchedulingPolicy):
    """A policy of ours that takes the queue in an order which is one of its options.

    Attributes
    ----------
    orders
        Those that it knows.
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
        """Reservations, and priorities where they are the order."""
        return ("reservations", "priority") if self.order == "priority" else ("reservations",)


def grant_requests(cluster: ClusterState, take: Callable[[int, float], bool]) -> Iterator[Resize]:
    """Yield the resizes that evolving jobs asked for and that the free nodes allow.

    `take` takes so many nodes until an estimated end, or says no; a negative number gives back.
    """
    for running, more in requests(cluster):
        if take(more, running.limit):
            yield Resize(running.job.id, running.nodes + more)
