"""The configuration and the result of a simulation.

`SimulationConfig` has the machine, the tie rule, the speed-up model, the costs of resizes and the events that are
not in the log. `SimulationResult` has the outcome of every job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from apples.errors import UsageError
from apples.scheduling.passes import PolicyFailure
from apples.scheduling.policy import AdvanceReservation, RunningJob
from apples.simulation.speedup import Speedup, linear
from apples.ui.units import counted, duration, in_one_line

PlacementSlowdown = Callable[[RunningJob], float]
TIES = ("instant", "event", "predictsim")
RELEASES = ("confirmed", "at_once")
RUNTIME_MODELS = ("ideal", "worst")
LIMITS = ("overrun", "kill")


@dataclass(frozen=True)
class ReconfigurationCost:
    """Duration of a job's stall in a resize.

    Attributes
    ----------
    shrink, expand
        Fixed seconds of a shrink and of an expansion.
    wait
        Seconds until the job's next safe point; until then it runs on its old nodes.
    curve
        Measured resizes (nodes before, nodes after, seconds of waiting, seconds of stall), in place of the other
        figures. Other resizes are interpolated by direction and by the fraction of the data that moves.
    data_bytes, bandwidth
        Bytes of a job's data, and bytes per second of the transfer. A resize moves the fraction |new - old| /
        max(new, old) of the data.
    """

    shrink: float = 0.0
    expand: float = 0.0
    data_bytes: float = 0.0
    bandwidth: float = float("inf")
    wait: float = 0.0
    curve: tuple[tuple[float, float, float, float], ...] = ()

    @property
    def move_seconds(self) -> float:
        """Seconds to move all data of a job."""
        return self.data_bytes / self.bandwidth

    def seconds(self, old: int, new: int) -> float:
        """Return the stall of a resize from `old` to `new` nodes."""
        if self.curve:
            return self._measured(old, new, 3)
        moved = abs(new - old) / max(new, old)
        return (self.shrink if new < old else self.expand) + self.move_seconds * moved

    def waiting_seconds(self, old: int, new: int) -> float:
        """Return the seconds that a resize waits for a safe point."""
        return self._measured(old, new, 2) if self.curve else self.wait

    def _measured(self, old: int, new: int, column: int) -> float:
        points = sorted(
            (abs(row[1] - row[0]) / max(row[:2]), row[column])
            for row in self.curve
            if (row[1] < row[0]) == (new < old)
        )
        parts, seconds = zip(*points, strict=True) if points else ((0.0,), (0.0,))
        return float(np.interp(abs(new - old) / max(new, old), parts, seconds))

    @property
    def is_free(self) -> bool:
        """Whether a resize takes no time."""
        return not (self.shrink or self.expand or self.move_seconds or self.wait or self.curve)


#: `kale`: Table 1 of Kale et al. 2002, 128 to 64 processors and back with 1 MB on the Platinum
#: cluster. `stall`: the five seconds that they quote for dynamic equipartition.
COSTS: Mapping[str, ReconfigurationCost] = {
    "none": ReconfigurationCost(),
    "kale": ReconfigurationCost(shrink=0.086, expand=0.0676),
    "stall": ReconfigurationCost(shrink=5.0, expand=5.0),
}


@dataclass(frozen=True)
class NodeFailure:
    """A node is out of service from `time` to `repaired` seconds."""

    time: float
    node: int
    repaired: float


@dataclass(frozen=True)
class OwnerLoad:
    """From `time` until the node's next entry, `others` processes of other users want a processor of the node."""

    time: float
    node: int
    others: float


@dataclass(frozen=True)
class Checkpointing:
    """Interval and cost of the checkpoints of running jobs.

    Attributes
    ----------
    interval
        Seconds of work between two checkpoints, on the processors that the job asked for. A job makes no
        checkpoint at its end.
    cost
        Seconds of a checkpoint on these processors, during which the job does no work. On other processors the
        time scales as that of the work.

    Examples
    --------
    >>> saving = Checkpointing(60.0, cost=5.0)
    >>> saving.with_checkpoints(150.0), saving.saved(100.0, 150.0)
    (160.0, 65.0)
    """

    interval: float
    cost: float = 0.0

    def count(self, work: float) -> int:
        """Return the number of checkpoints of a job with `work` seconds."""
        return max(0, ceil(work / self.interval) - 1)

    def with_checkpoints(self, work: float) -> float:
        """Return the work of a job including its checkpoints, in seconds."""
        return work + self.count(work) * self.cost

    def saved(self, done: float, work: float) -> float:
        """Return the part of `done` seconds, checkpoints included, that the last checkpoint holds."""
        every = self.interval + self.cost
        return min(floor(done / every + 1e-9), self.count(work)) * every


@dataclass(frozen=True)
class Partition:
    """Equal nodes of a machine with their own queue; no node is in two partitions.

    Attributes
    ----------
    name, number
        Its name in a log, or its number in a log without names.
    nodes, cores
        Number of nodes, and cores of each.
    memory
        Bytes of a node; None: the simulation ignores memory.
    gpus
        GPUs of a node; None: the simulation ignores GPUs.
    speed
        Speed of a node: seconds of a log's run time that pass in one second.
    default
        Whether it gets the jobs that name no partition; without a default the first partition gets them.
    """

    name: str
    number: int
    nodes: int
    cores: int = 1
    memory: int | None = None
    gpus: int | None = None
    speed: float = 1.0
    default: bool = False

    @property
    def processors(self) -> int:
        """Processors of all its nodes."""
        return self.nodes * self.cores

    def __str__(self) -> str:
        """Return its size in words."""
        speed = "" if self.speed == 1.0 else f" at speed {self.speed:g}"
        return f"{self.name}: {self.nodes} nodes x {self.cores} cores{speed}"


@dataclass(frozen=True)
class SimulationConfig:
    """The configuration of a simulation.

    Attributes
    ----------
    nodes, cores_per_node
        Size of the machine. Jobs get whole nodes; a machine that allocates single processors has nodes of one
        core. With partitions: the sum of their nodes, and their cores per node, 1 if these differ.
    speed
        Speed of its nodes: seconds of a log's run time that pass in one second.
    partitions
        Partitions of the machine; empty: none.
    ties
        `instant`: all events of an instant, then one pass. `event`: a pass after every event, submissions before
        ends. `predictsim`: as `event`, and a job counts as gone from its estimated end on (pyss, predictsim).
    speedup, cost
        Speed-up, and cost of a resize, of jobs with changing nodes.
    release
        Time at which the nodes that a job gives up come free. `confirmed`: at the end of its resize, so that a
        newcomer waits until then. `at_once`: at the decision, and resizes wait for no safe point, as in other
        simulators.
    runtime_model
        Run time of jobs that share nodes: `ideal` by all their cores (equation 5 of D'Amico et al. 2019), or
        `worst` by the node with the fewest cores (equation 6).
    failures, cancellations, demands
        Events that are not in the log: nodes that fail; job -> time of cancellation; evolving job -> (fraction of
        the work done, processors that it then asks for), in order.
    owners, owner_first
        Loads of nodes by other users over time: a job is as fast as its node with the least capacity left. Whether
        nodes are owner-first, for a policy that reads `loads`.
    dependencies
        Job -> (its predecessor, seconds from the end of the predecessor to its submission).
    advance
        Advance reservations.
    slowdown
        Factor of a job's run time on its nodes; None: only their number counts.
    overrun_seconds
        Seconds by which the first overrun of a job extends its estimated end.
    limits, grace
        `overrun`: a job may run beyond its limit, which is the ledger's estimated end (`RunningJob.limit`).
        `kill`: the job is killed `grace` seconds after its limit.
    checkpoint
        Checkpoints from which a lost run continues; None: it starts from the beginning.
    fallback
        Whether first-come-first-served decides a pass in which the policy fails; otherwise the failure is an
        error.
    idle_watts, busy_watts
        Power of an idle and of a busy node; without them the energy is unknown.
    """

    nodes: int
    cores_per_node: int = 1
    speed: float = 1.0
    partitions: tuple[Partition, ...] = ()
    ties: str = "instant"
    speedup: Speedup = linear
    cost: ReconfigurationCost = COSTS["none"]
    release: str = "confirmed"
    runtime_model: str = "ideal"
    failures: tuple[NodeFailure, ...] = ()
    cancellations: Mapping[int, float] = field(default_factory=dict)
    demands: Mapping[int, tuple[tuple[float, int], ...]] = field(default_factory=dict)
    owners: tuple[OwnerLoad, ...] = ()
    owner_first: bool = False
    dependencies: Mapping[int, tuple[int, float]] = field(default_factory=dict)
    advance: tuple[AdvanceReservation, ...] = ()
    slowdown: PlacementSlowdown | None = None
    overrun_seconds: float = 60.0
    limits: str = "overrun"
    grace: float = 0.0
    checkpoint: Checkpointing | None = None
    fallback: bool = False
    idle_watts: float | None = None
    busy_watts: float | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("ties", self.ties, TIES), ("release", self.release, RELEASES),
            ("model", self.runtime_model, RUNTIME_MODELS), ("limits", self.limits, LIMITS),
        ):  # fmt: skip
            if value not in known:
                raise UsageError(
                    f"{name} {value!r}: not one of {', '.join(known)}",
                    code="value-unknown", option=name, value=value, known=[*known],
                )  # fmt: skip
        self._check_limits()
        if self.nodes < 1 or self.cores_per_node < 1:
            raise UsageError(
                f"machine: must have at least 1 node of 1 core (has {self.nodes} x {self.cores_per_node})",
                code="value-range",
                field="nodes" if self.nodes < 1 else "cores_per_node",
                value=self.nodes if self.nodes < 1 else self.cores_per_node,
                bound=1,
            )
        self._check_advance()
        for name, number in (("speed", self.speed), ("overrun_seconds", self.overrun_seconds)):
            if not number > 0:
                raise UsageError(
                    f"{name} {number:g}: must be more than 0",
                    code="value-range",
                    option=name,
                    value=number,
                    bound=0,
                )

    def _check_limits(self) -> None:
        if self.grace < 0:
            raise UsageError(
                f"grace: must be 0 or more (is {self.grace:g})",
                code="value-range",
                option="grace",
                value=self.grace,
                bound=0,
            )
        if self.grace and not self.kills:
            raise UsageError(
                f"grace {self.grace:g}: applies only with limits=kill",
                code="option-not-applicable",
                option="grace",
                value=self.grace,
            )
        if self.checkpoint and not (self.checkpoint.interval > 0 and self.checkpoint.cost >= 0):
            raise UsageError(
                f"checkpoint {self.checkpoint.interval:g},cost={self.checkpoint.cost:g}: an interval of "
                "more than 0 s, a cost of 0 s or more",
                code="value-range",
                option="checkpoint",
                value=[self.checkpoint.interval, self.checkpoint.cost],
            )

    def _check_advance(self) -> None:
        for one in self.advance:
            if not (one.begin < one.end and one.nodes > 0):
                raise UsageError(
                    f"{one}: must end after it begins and have at least 1 node",
                    code="reservation-invalid",
                    reservation=one.name,
                    begin=one.begin,
                    end=one.end,
                    nodes=one.nodes,
                )
            together = sum(
                other.nodes for other in self.advance if other.begin <= one.begin < other.end
            )
            if together > self.nodes:
                raise UsageError(
                    f"{together} nodes are reserved at {one.begin:g} s, of a machine of {self.nodes}",
                    code="reservation-too-large",
                    reservation=one.name,
                    time=one.begin,
                    value=together,
                    bound=self.nodes,
                )

    @property
    def processors(self) -> int:
        """Processors of the whole machine."""
        if self.partitions:
            return sum(part.processors for part in self.partitions)
        return self.nodes * self.cores_per_node

    @property
    def kills(self) -> bool:
        """Whether a job is killed at its limit."""
        return self.limits == "kill"

    @property
    def machine(self) -> str:
        """A description of the machine."""
        if self.partitions:
            return ", ".join(map(str, self.partitions))
        return f"{self.nodes} nodes x {self.cores_per_node} cores"

    @property
    def acknowledges(self) -> bool:
        """Whether nodes that a job gives up come free later than the decision."""
        return self.release == "confirmed" and not self.cost.is_free

    @property
    def has_events(self) -> bool:
        """Whether the event engine must run: other events than submissions and ends occur."""
        return bool(
            self.failures
            or self.owners
            or self.cancellations
            or self.demands
            or self.dependencies
            or self.advance
            or self.slowdown
            or self.speed != 1.0
        )

    def need(self, processors: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of whole nodes for each number of processors."""
        return processors if self.cores_per_node == 1 else -(-processors // self.cores_per_node)


@dataclass(frozen=True)
class SimulationResult:
    """The outcome of each job of a workload, in its order.

    The same workload, policy and configuration give the same result bit for bit with each engine.

    Attributes
    ----------
    start, end
        Times in seconds; NaN for a job that never ran.
    resizes
        Number of changes of a job's processors during its run.
    guest, mate
        Whether it started inside mates' nodes; whether it was a mate at least once.
    completed
        False for cancelled, rejected, held and killed jobs.
    node_seconds
        Occupied nodes times seconds.
    engine
        `numba` for a compiled kernel, `events` for the event engine.
    seconds
        Wall time of the simulation, without reading and compilation.
    restarts
        Runs lost to failures and requeues.
    killed
        Jobs that were killed at their limit.
    work_lost, work_saved
        Work of the lost runs, after their last checkpoint and up to it, in processor-seconds on the processors
        that the jobs asked for.
    passes, failed_passes
        Passes of the event engine, and those that first-come-first-served decided because the policy failed.
    failures
        The first failure of each kind, and their number.
    rejected, held
        Job -> reason: jobs that the policy will never run; jobs that it held and never released.
    reservations
        The advance reservations that began; `taken` is the number of nodes that each had at its start.
    refused_starts, first_refused
        Number of refused starts and growths that would have run into an advance reservation, for a policy that
        does not read reservations; the first of them.
    changes
        (time, position of the job, its cores from then on), if recorded.
    partition, partition_node_seconds
        Position of each job's partition in the configuration, and `node_seconds` by partition; empty without
        partitions.
    """

    start: NDArray[np.float64]
    end: NDArray[np.float64]
    resizes: NDArray[np.int64]
    guest: NDArray[np.bool_]
    mate: NDArray[np.bool_]
    completed: NDArray[np.bool_]
    node_seconds: float
    engine: str
    seconds: float
    restarts: int = 0
    killed: int = 0
    work_lost: float = 0.0
    work_saved: float = 0.0
    reservations: tuple[AdvanceReservation, ...] = ()
    refused_starts: int = 0
    first_refused: str = ""
    changes: tuple[tuple[float, int, int], ...] = ()
    rejected: Mapping[int, str] = field(default_factory=dict)
    held: Mapping[int, str] = field(default_factory=dict)
    passes: int = 0
    failed_passes: int = 0
    failures: tuple[tuple[PolicyFailure, int], ...] = ()
    partition: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    partition_node_seconds: tuple[float, ...] = ()

    def __repr__(self) -> str:
        """Return the number of jobs and of completed jobs."""
        done = f"{counted(len(self.start), 'job')}, {int(self.completed.sum())} completed"
        return in_one_line(self, f"{done}, by {self.engine} in {duration(self.seconds)}")
