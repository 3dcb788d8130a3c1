"""Choose the CPUs of each rank of a host, for any actuator.

`rank_cpus` handles one host with a known topology, on any machine (`apples.topology.sources.probe` reads the
topology of another machine). `bound` handles all hosts that one machine emulates, `bound_apart` the hosts of
several machines. Only CPUs of the given topology are used. Inside a container, a batch job or ``taskset``, the
topology has only the permitted CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from apples.errors import LaunchError
from apples.launch.hydra import RankGroup
from apples.topology import CpuSet, Requirement, Topology, Unsatisfied, fit
from apples.topology.bindings import per_rank
from apples.topology.message_matrix import Matrix
from apples.topology.sources.this_machine import live_topology

RankCpus = tuple[tuple[int, ...], ...]


def rank_cpus(
    host: str,
    ranks: int,
    listed: Sequence[int],
    topology: Topology,
    free: CpuSet | None = None,
    threads: int = 1,
    messages: Matrix = (),
) -> RankCpus:
    """Return the CPUs of each rank of a host; empty if ranks must share CPUs.

    Parameters
    ----------
    host
        Name of the host, for error messages.
    listed
        CPUs of the host in the host list; all are divided among the ranks. Empty: any CPUs, one for each thread of
        each rank.
    topology
        The machine, with the CPUs that this process may use.
    free
        CPUs that no other host of the list has; None: all CPUs of the topology.
    threads
        Threads of each rank.
    messages
        Bytes that each rank sends to each other rank; ranks that exchange most get the nearest CPUs. Empty: ranks
        with consecutive numbers get the nearest CPUs.

    Raises
    ------
    LaunchError
        A listed CPU is not in the topology. Permanent until the host list changes.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> machine = synthetic("package:2 core:2 pu:2")
    >>> rank_cpus("ada", 2, (), machine), rank_cpus("ada", 2, (4, 5, 6), machine)
    (((0,), (1,)), ((4, 5), (6,)))
    >>> rank_cpus("ada", 1, (), machine, threads=4)
    ((0, 1, 2, 3),)
    """
    pool = _ours(host, listed, topology)
    usable = pool if free is None else pool & free
    if len(usable) < ranks * threads:
        return ()
    found = fit(topology, usable, Requirement(len(usable) if listed else ranks * threads))
    if isinstance(found, Unsatisfied):
        return ()
    shares = per_rank(topology, found.cpus, ranks)
    if messages:
        from apples.topology.mapping import rank_order  # noqa: PLC0415 - NumPy, for runs that name messages

        shares = rank_order(topology, shares, messages).shares
    return tuple(map(tuple, shares))


def bound(rank_groups: Sequence[RankGroup], topology: Topology) -> list[RankGroup]:
    """Return the hosts that one machine emulates, with the CPUs of each of their ranks.

    No two ranks get the same CPU. If the CPUs are too few, every rank may use all CPUs that the host list gives
    its host, because the kernel then balances better than a fixed binding.

    Raises
    ------
    LaunchError
        As in `rank_cpus`.
    """
    # Bind all ranks or none: of a bound and an unbound rank on one CPU, the kernel can move only the unbound one.
    return _bound([(rank_group, topology) for rank_group in rank_groups]) or list(rank_groups)


def bound_apart(parties: Sequence[tuple[RankGroup, str, Topology]]) -> list[RankGroup]:
    """Return the hosts of several machines with the CPUs of each of their ranks: all are bound, or none.

    Parameters
    ----------
    parties
        For each host, its ranks, the name of its machine, and the topology of its permitted CPUs. Hosts that are
        parts of one machine have the same machine name and the same CPU numbers.

    Raises
    ------
    LaunchError
        As in `rank_cpus`.
    """
    found: dict[int, RankGroup] = {}
    for machine in dict.fromkeys(machine for _, machine, _ in parties):
        members = [i for i, party in enumerate(parties) if party[1] == machine]
        # Bind all hosts or none: the slowest rank limits the run, so binding only some hosts gains nothing.
        places = _bound([(parties[i][0], parties[i][2]) for i in members])
        if not places:
            return [rank_group for rank_group, _, _ in parties]
        found.update(zip(members, places, strict=True))
    return [found[i] for i in range(len(parties))]


def bound_here(rank_groups: Sequence[RankGroup]) -> list[RankGroup]:
    """Return the result of `bound` for this machine and the CPUs that this process may use."""
    return bound(rank_groups, live_topology("sys"))


def _bound(parts: Sequence[tuple[RankGroup, Topology]]) -> list[RankGroup]:
    """Return the hosts of one machine with disjoint CPUs for their ranks; empty if ranks must share CPUs."""
    rank_groups = [rank_group for rank_group, _ in parts]
    pools = [_ours(rank_group.host, rank_group.cpus, topology) for rank_group, topology in parts]
    listed = [pool for pool, rank_group in zip(pools, rank_groups, strict=True) if rank_group.cpus]
    disjoint = sum(map(len, listed)) == len({cpu for pool in listed for cpu in pool})
    taken = CpuSet()
    found: dict[int, RankGroup] = {}
    for i in sorted(range(len(parts)), key=lambda i: len(pools[i])):
        one, topology = parts[i]
        # If hosts list the same CPUs, the first host must not take all of them.
        whole = one.cpus if disjoint else ()
        free = pools[i] - taken
        places = rank_cpus(one.host, one.ranks, whole, topology, free, one.threads, one.messages)
        if not places:
            return []
        taken |= CpuSet.of(cpu for place in places for cpu in place)
        found[i] = replace(one, rank_cpus=places)
    return [found[i] for i in range(len(parts))]


def _ours(host: str, listed: Sequence[int], topology: Topology) -> CpuSet:
    foreign = [cpu for cpu in listed if cpu not in topology.cpus]
    if foreign:
        raise LaunchError(
            f"{host}: the host list names CPUs {', '.join(map(str, foreign))}, but this user may use only "
            f"{topology.cpus} of that machine",
            code="cpus-not-ours",
            host=host,
            value=foreign,
            known=list(topology.cpus),
        )
    return CpuSet.of(listed) if listed else topology.cpus
