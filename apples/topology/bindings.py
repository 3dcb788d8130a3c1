"""A set of CPUs in the syntax of taskset, hwloc-bind, srun and OpenMP; and one set per rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from apples.topology.cpus import CpuSet
from apples.topology.distribute import distribute
from apples.topology.machine import Topology


@dataclass(frozen=True, slots=True)
class Bindings:
    """The same CPUs as options of four tools.

    Attributes
    ----------
    taskset, hwloc_bind, srun
        Commands to put in front of a program. ``srun``: options, with a mask for each rank in turn.
    omp_places, gomp_cpu_affinity
        Values of the environment variables of these names: a place for each core, and single CPUs.
    """

    taskset: str
    hwloc_bind: str
    srun: str
    omp_places: str
    gomp_cpu_affinity: str


@dataclass(frozen=True, slots=True)
class RankOrder:
    """An order of the ranks on a host's CPUs, and its cost.

    Attributes
    ----------
    shares
        The CPUs of each rank.
    cost
        Bytes times hops, summed over all pairs of ranks.
    before
        The same for the topology's own order, in which the next rank gets the next share.
    """

    shares: tuple[CpuSet, ...]
    cost: float
    before: float


def bindings(
    topology: Topology, cpus: CpuSet, ranks: int = 1, shares: Sequence[CpuSet] = ()
) -> Bindings:
    """Return the options of four tools that run a program on some CPUs.

    Parameters
    ----------
    ranks
        Processes that ``srun`` starts; each gets its share of the CPUs.
    shares
        The CPUs of each rank; empty: the shares of `per_rank`.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> found = bindings(synthetic("core:4 pu:2"), CpuSet.parse("0-3,6"), ranks=2)
    >>> found.taskset, found.hwloc_bind
    ('taskset --cpu-list 0-3,6', 'hwloc-bind 0x0000004f --')
    >>> found.srun
    'srun --ntasks=2 --cpu-bind=mask_cpu:0x7,0x48'
    >>> found.omp_places, found.gomp_cpu_affinity
    ('{0,1},{2,3},{6}', '0-3 6')
    """
    masks = ",".join(f"{share.mask:#x}" for share in shares or per_rank(topology, cpus, ranks))
    cores = [CpuSet(unit & cpus.mask) for unit in topology.units if unit & cpus.mask]
    return Bindings(
        f"taskset --cpu-list {cpus}",
        f"hwloc-bind {hwloc_words(cpus)} --",
        f"srun --ntasks={ranks} --cpu-bind=mask_cpu:{masks}",
        ",".join("{" + ",".join(map(str, core)) + "}" for core in cores),
        str(cpus).replace(",", " "),
    )


def hwloc_words(cpus: CpuSet) -> str:
    """Return a set as an hwloc bitmap.

    Examples
    --------
    >>> hwloc_words(CpuSet.parse("0-3,64"))
    '0x00000001,,0x0000000f'
    """
    words, mask = [], cpus.mask
    while mask:
        words.append(mask & 0xFFFFFFFF)
        mask >>= 32
    if not words:
        return "0x0"
    return ",".join(f"0x{word:08x}" if word else "" for word in reversed(words))


def per_rank(topology: Topology, cpus: CpuSet, ranks: int) -> Sequence[CpuSet]:
    """Return the CPUs of each rank: equal parts of neighbouring CPUs.

    The first ranks get the remaining CPUs, one each. If there are more ranks than CPUs, neighbouring ranks share
    a CPU.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> [str(share) for share in per_rank(synthetic("package:2 core:2 pu:2"), CpuSet.parse("2-7"), 3)]
    ['2-3', '4-5', '6-7']
    """
    leaves = [branch.cpus for branch in topology.branch.walk() if not branch.children]
    order = [leaf.bit_length() - 1 for leaf in leaves if leaf & cpus.mask]
    if not order or ranks < 1:
        return [cpus] * max(0, ranks)
    if len(order) < ranks:
        return [CpuSet.of([order[rank * len(order) // ranks]]) for rank in range(ranks)]
    shares, at = [], 0
    for size in distribute(len(order), [0] * ranks, [len(order)] * ranks):
        shares.append(CpuSet.of(order[at : at + size]))
        at += size
    return shares
