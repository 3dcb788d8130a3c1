"""Types of the JSON documents of topology commands and daemons."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import TypedDict


class MemoryNodeInfo(TypedDict):
    """A memory node."""

    node: int
    """Number of the node."""
    cpus: list[int]
    """Its CPUs."""
    memory: float | None
    """Bytes; null: not known."""
    kind: str
    """Kind of memory."""


class DistanceMatrix(TypedDict):
    """Distances between memory nodes."""

    nodes: list[int]
    """Numbers of the nodes."""
    values: list[list[float]]
    """Latency from each node (row) to each node (column)."""


class LocalDevice(TypedDict):
    """A device of the machine."""

    name: str
    """Name of the device."""
    kind: Literal["gpu", "nic"]
    """Kind of device."""
    cpus: list[int]
    """CPUs local to it."""
    memory: int | None
    """Bytes of its own memory; null: none."""
    model: str
    """Model; empty: not known."""
    aliases: list[str]
    """Its other names."""


class CoreKindInfo(TypedDict):
    """The cores of a kind."""

    kind: Literal["performance", "efficiency"]
    """Kind of core."""
    cpus: list[int]
    """CPUs of these cores."""


class TopologyDocument(TypedDict):
    """``apples topology show --json`` prints this document."""

    schema: Literal["apples.topology/1"]
    pus: int
    """Hardware threads."""
    cores: int
    """Cores."""
    packages: int
    """Packages."""
    numa_nodes: int
    """Memory nodes."""
    latencies: list[float]
    """Distinct latencies between memory nodes, ascending."""
    cpus: list[int]
    """Numbers of the usable CPUs."""
    disallowed: list[int]
    """CPUs that this process may not use."""
    offline: list[int]
    """CPUs that are offline."""
    nodes: list[MemoryNodeInfo]
    """The memory nodes."""
    devices: list[LocalDevice]
    """The devices."""
    kinds: list[CoreKindInfo]
    """Kinds of cores; empty: all are of one kind."""
    matrix: DistanceMatrix
    """Distances between memory nodes."""


class BindingOptions(TypedDict):
    """The same CPUs as options of other programs."""

    taskset: str
    """Value for `taskset -c`."""
    hwloc_bind: str
    """Value for `hwloc-bind`."""
    srun: str
    """Options of `srun`."""
    omp_places: str
    """Value of `OMP_PLACES`."""
    gomp_cpu_affinity: str
    """Value of `GOMP_CPU_AFFINITY`."""


class RankCpus(TypedDict):
    """CPUs of the ranks."""

    cpus: list[list[int]]
    """CPUs of each rank, in the order of the ranks."""
    byte_hops: float
    """Bytes between two ranks times the hops between their CPUs, over all pairs."""
    byte_hops_in_order: float
    """The same with ranks in the order of the topology."""


class FitDocument(TypedDict):
    """``apples topology fit --json`` prints this document."""

    schema: Literal["apples.fit/1"]
    cpus: list[int]
    """Numbers of the chosen CPUs."""
    radius: float
    """Largest distance from the centre to a chosen CPU."""
    centre: int
    """CPU at the centre."""
    total: float
    """Sum of the distances between all pairs of chosen CPUs."""
    memory: list[int]
    """Numbers of their memory nodes."""
    devices: list[str]
    """Names of the devices local to one of the CPUs."""
    bindings: BindingOptions
    """The same CPUs as options of other programs."""
    ranks: RankCpus | None
    """CPUs of the ranks, with `--messages`; null: not requested."""


class HostVerdict(TypedDict):
    """The answer of one host."""

    host: str
    """Name of the host."""
    verdict: Literal["yes", "not now", "never"]
    """Whether the job fits: now, later, or never."""
    reason: str
    """Reason of the verdict."""
    found: Any
    """Value on the host that decides; null: none."""
    needed: Any
    """Value that the job needs; null: none."""
    key: str | None
    """Requirement that decides; null: none."""
    radius: float | None
    """Radius of the CPUs, if the verdict is `yes`; else null."""


class WhyDocument(TypedDict):
    """``apples topology why --json`` prints this document."""

    schema: Literal["apples.why/1"]
    hosts: list[HostVerdict]
    """Answer of each host."""
    ranking: list[str]
    """Hosts that fit, the best first."""


class IsolationEntry(TypedDict):
    """A level of isolation."""

    fence: str
    """Name of the level."""
    holds: bool
    """Whether it works on this machine."""
    guarantee: str | None
    """Guarantee that it gives; null: none."""
    why_not: str | None
    """Reason that it does not work; null: it works."""


class FencesDocument(TypedDict):
    """``apples topologyd --probe --json`` prints this document."""

    schema: Literal["apples.fences/1"]
    fences: list[IsolationEntry]
    """Levels of isolation, the strongest first."""


class CpuAllocationInfo(TypedDict):
    """CPUs of one job."""

    job: str
    """Id of the job."""
    number: int
    """Number of the allocation."""
    principal: str
    """User that owns the job."""
    state: str
    """State of the allocation."""
    cpus: str
    """CPUs that it may use, as a kernel list."""
    owns: str
    """CPUs that it owns, as a kernel list."""
    mems: str
    """Memory nodes, as a kernel list."""
    pen: str
    """Control group of the job; empty: none."""
    guarantee: str | None
    """Guarantee of its isolation; null: none."""


class TopologydDocument(TypedDict):
    """``apples topologyd --status --json`` prints this document.

    Sets of CPUs are kernel lists such as `0-3,8`.
    """

    schema: Literal["apples.topologyd/1"]
    protocol: int
    """Version of the requests that the daemon takes."""
    fence: str
    """Level of isolation."""
    universe: str
    """CPUs that the daemon manages."""
    sharing_factor: float
    """Share of a mate's CPUs that another job may take."""
    free: str
    """Free CPUs."""
    epoch: int
    """Number of this start of the daemon, ascending."""
    version: int
    """Changes of the free CPUs since this start."""
    foreign: dict[str, str]
    """CPUs reserved by other software, by path of the control group."""
    quarantined: dict[str, str]
    """CPUs in quarantine, by job."""
    problems: list[str]
    """Problems, one line each."""
    jobs: list[CpuAllocationInfo]
    """Allocations."""


class CountedRankInfo(TypedDict):
    """A rank of a run."""

    host: str
    """Host of the rank."""
    world: int
    """World of the rank: a job that was resized has had several."""
    rank: int
    """Number of the rank in its world."""


class Messages(TypedDict):
    """Messages between hosts and between ranks: a row for each sender, in it a number for each receiver."""

    source: Literal["declared", "arrays", "counted"]
    """Counted with `--count-messages`, else reported by the program's arrays, else borders of the template."""
    hosts: list[str]
    """The hosts, in the order of rows and columns."""
    bytes: list[list[int]]
    """Bytes between hosts; the diagonal is between ranks of one host."""
    messages: list[list[int]]
    """Messages between hosts."""
    missed: int
    """Messages with an unknown receiver."""
    ranks: list[CountedRankInfo] | None
    """The ranks, in the order of rows and columns; null: more than 256."""
    rank_bytes: list[list[int]] | None
    """Bytes between ranks; null: more than 256 ranks."""
    rank_messages: list[list[int]] | None
    """Messages between ranks; null: more than 256 ranks."""
