"""What a simulation assumes beside its workload and its policy, and what comes out of it.

`SimulationConfig` has the machine, the tie rule, the speed-up model, the costs of resizes and the events
beside the log's; `SimulationResult` has what became of every job.
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
    """How long a resize stalls a job.

    Attributes
    ----------
    shrink, expand
        Seconds for any resize.
    wait
        Seconds that a resize waits for the job's next safe point, while it goes on as before.
    curve
        (nodes before, nodes after, seconds of waiting, seconds of stall) as measured, in place of the other
        figures: between them a resize takes what lies between, by its direction and the part that changes
        place.
    data_bytes, bandwidth
        A job's data and how fast it moves, bytes and bytes a second: the part of it that changes
        its place, |new - old| / max(new, old), takes that much longer.
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
        """Return how long a resize waits for a safe point."""
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
        """Whether a resize takes no time at all."""
        return not (self.shrink or self.expand or self.move_seconds or self.wait or self.curve)


#: `kale`: Table 1 of Kale et al. 2002, 128 to 64 processors and back with 1 MB on the Platinum
#: cluster. `stall`: the five seconds they quote for dynamic equipartition.
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
    """From `time` on so many processes of `others` want a processor of a node, until it is said anew."""

    time: float
    node: int
    others: float


@dataclass(frozen=True)
class Checkpointing:
    """How often running jobs save their state, and how long that takes.

    Attributes
    ----------
    interval
        Seconds of a job's work, on the processors it asked for, between two checkpoints. There is none at
        its end.
    cost
        Seconds that one takes on these processors, in which the job does nothing else; on others as much
        longer or shorter as its work.

    Examples
    --------
    >>> saving = Checkpointing(60.0, cost=5.0)
    >>> saving.with_checkpoints(150.0), saving.saved(100.0, 150.0)
    (160.0, 65.0)
    """

    interval: float
    cost: float = 0.0

    def count(self, work: float) -> int:
        """Return how many checkpoints a job of so much work makes."""
        return max(0, ceil(work / self.interval) - 1)

    def with_checkpoints(self, work: float) -> float:
        """Return a job's work with the time of its checkpoints."""
        return work + self.count(work) * self.cost

    def saved(self, done: float, work: float) -> float:
        """Return how much of what is done, checkpoints included, the last checkpoint holds."""
        every = self.interval + self.cost
        return min(floor(done / every + 1e-9), self.count(work)) * every


@dataclass(frozen=True)
class Partition:
    """Like nodes of a machine with a queue of their own; no node is in two partitions.

    Attributes
    ----------
    name, number
        What a log calls it: by name, or by number where it has no names.
    nodes, cores
        How many, and cores of each.
    memory
        Bytes of a node; None: not looked at.
    gpus
        Of a node; None: not looked at.
    speed
        Seconds of a log's run time that pass in a second.
    default
        Whether jobs go there that name no partition; if none says so it is the first.
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
        """Of all its nodes."""
        return self.nodes * self.cores

    def __str__(self) -> str:
        """Return its size in words."""
        speed = "" if self.speed == 1.0 else f" at speed {self.speed:g}"
        return f"{self.name}: {self.nodes} nodes x {self.cores} cores{speed}"


@dataclass(frozen=True)
class SimulationConfig:
    """The assumptions of a simulation.

    Attributes
    ----------
    nodes, cores_per_node
        The machine. Jobs get whole nodes; processors given out one by one are nodes of one core. With
        partitions: all their nodes, and the cores of each; 1 where they differ.
    speed
        Of its nodes: seconds of a log's run time that pass in a second.
    partitions
        Of the machine; empty: it is one whole.
    ties
        `instant`: all events of an instant, then one pass. `event`: a pass after every event,
        submissions before ends. `predictsim`: as `event`, and a job whose estimated end has come
        counts as gone (pyss, predictsim).
    speedup, cost
        Of jobs whose nodes change.
    release
        When the nodes that a job gives up are free: `confirmed`, when its resize is done, so that a
        newcomer waits until then; `at_once`, when it is decided, and resizes wait for
        no safe point, as simulators have it.
    runtime_model
        Of jobs that share nodes: `ideal` by all cores (equation 5 of D'Amico et al. 2019) or
        `worst` by the poorest node (equation 6).
    failures, cancellations, demands
        Events beside the log's: nodes that fail; job -> time of cancellation; evolving job ->
        (part of the work done, processors it then asks for), in order.
    owners, owner_first
        What others want of nodes, from when on: a job is as fast as on the node that has least left. Whether
        nodes belong first to these others, for a policy that looks at `loads`.
    dependencies
        Job -> the job whose end it waits for, and how many seconds after it it comes.
    advance
        Nodes that are kept from jobs for a time.
    slowdown
        How many times longer a job takes on the nodes it has; None: it matters only how many they are.
    overrun_seconds
        What a job is guessed to need still when it is first found running at its estimated end.
    limits, grace
        `overrun`: a job may run beyond its limit, its estimated end as the ledger has it
        (`RunningJob.limit`). `kill`: it is ended so many seconds after it.
    checkpoint
        What a run that is lost goes on from; None: it starts again from nothing.
    fallback
        Whether first-come-first-served decides a pass in which the policy fails; else the failure is an error.
    idle_watts, busy_watts
        Of a node; energy is not known without them.
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
        """Of the whole machine."""
        if self.partitions:
            return sum(part.processors for part in self.partitions)
        return self.nodes * self.cores_per_node

    @property
    def kills(self) -> bool:
        """Whether a job is ended at its limit."""
        return self.limits == "kill"

    @property
    def machine(self) -> str:
        """The machine in words."""
        if self.partitions:
            return ", ".join(map(str, self.partitions))
        return f"{self.nodes} nodes x {self.cores_per_node} cores"

    @property
    def acknowledges(self) -> bool:
        """Whether nodes that a job gives up are free only some time later."""
        return self.release == "confirmed" and not self.cost.is_free

    @property
    def has_events(self) -> bool:
        """Whether anything but submissions and ends happens, or matters."""
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
        """Return the whole nodes for so many processors."""
        return processors if self.cores_per_node == 1 else -(-processors // self.cores_per_node)


@dataclass(frozen=True)
class SimulationResult:
    """What became of the jobs of a workload, in its order.

    The same workload, policy and configuration give the same result bit for bit, by whatever engine.

    Attributes
    ----------
    start, end
        Seconds; NaN for a job that never ran.
    resizes
        How often the processors of a job changed while it ran.
    guest, mate
        Whether it started inside mates' nodes; whether it was a mate at least once.
    completed
        False for cancelled, rejected and held jobs, and for those that were killed.
    node_seconds
        Nodes that were occupied, times seconds.
    engine
        `numba` for a compiled kernel, `events` for the event engine.
    seconds
        Simulation, wall time without reading and compiling.
    restarts
        Runs lost to failures and requeues.
    killed
        Jobs that were ended at their limit.
    work_lost, work_saved
        What was done of the runs that were lost: since their last checkpoint, and what they had saved in
        theirs, in processor-seconds on the processors asked for.
    passes, failed_passes
        Passes of the event engine, and those of them in which the policy failed, so that
        first-come-first-served decided.
    failures
        The first failure of each kind, and how many there were.
    rejected, held
        Job -> reason, of those that the policy will never run; of those that it held back and never released.
    reservations
        The advance reservations that began, each with the nodes that it `taken` had at its beginning.
    refused_starts, first_refused
        Starts and growths of a policy that does not look at reservations, refused since they would have run
        into one; the first of them.
    changes
        (time, position of the job, cores it has from then on), if recorded.
    partition, partition_node_seconds
        By job the position of its partition in the configuration, and `node_seconds` by partition; empty for
        a machine that is one whole.
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
        """Return how many jobs there were, and how many of them completed."""
        done = f"{counted(len(self.start), 'job')}, {int(self.completed.sum())} completed"
        return in_one_line(self, f"{done}, by {self.engine} in {duration(self.seconds)}")
