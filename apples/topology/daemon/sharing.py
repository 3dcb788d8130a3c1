"""Listing 3 of SD-Policy (D'Amico et al. 2019): the CPUs of each job when malleable jobs share a node. Pure.

A job owns the CPUs of its allocation, and holds the CPUs it runs on. A guest holds CPUs of its mates. These
return to their owners when the guest ends; if an owner ends first, the guest inherits the CPUs it holds of that
owner. The CPUs that a mate keeps are chosen so that jobs share as few sockets as possible (section 3.3: "cores
distribution keeps jobs in separate sockets to improve data locality and reduce interference between jobs"). Every
function returns the changed allocations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import ceil, prod
from sys import byteorder

from apples.topology.allocator import choice, fit, refusal
from apples.topology.cpus import NO_CPUS, CpuSet
from apples.topology.daemon.state import AllocationState, CpuAllocation
from apples.topology.distribute import distribute
from apples.topology.machine import Topology
from apples.topology.requirement import Requirement, Satisfiability, Unsatisfied
from apples.topology.selection import rules_of, usable_cpus

MAX_TRIED = 512
"""Combinations of ways to shrink that are compared. With more, every job keeps the CPUs nearest to each other."""
SOCKETS_TRIED = 8
"""Sockets of a job that are compared."""


def sockets_of(topology: Topology) -> Sequence[CpuSet]:
    """Return the packages that have CPUs; on a machine with one package, the memory nodes' CPUs."""
    packages = [package for package in topology.packages if package]
    return packages if len(packages) > 1 else [CpuSet(mask) for mask in topology.node_cpus]


def keep_apart(
    topology: Topology,
    holds: Sequence[CpuSet],
    shares: Sequence[int],
    free: CpuSet,
    newcomer: int,
) -> list[CpuSet]:
    """Return the CPUs that each job keeps, so that the fewest sockets have two jobs, the newcomer included.

    Parameters
    ----------
    holds, shares
        Of each shrinking job: its CPUs, and the number that it keeps.
    free, newcomer
        Free CPUs, and the number of CPUs that the newcomer takes of those and of the CPUs given up.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> node = synthetic("package:2 core:4 pu:1")
    >>> mates = [CpuSet.parse("0-1,4,7"), CpuSet.parse("2-3,5-6")]
    >>> [str(kept) for kept in keep_apart(node, mates, [2, 2], CpuSet(), 4)]
    ['0-1', '2-3']
    """
    sockets = sockets_of(topology)
    ways: list[Sequence[CpuSet]] = []
    for held, share in zip(holds, shares, strict=True):
        ways.append(_ways(topology, held, share, sockets))
        if prod(map(len, ways)) > MAX_TRIED:  # then the other jobs' ways are not needed
            rest = list(zip(holds, shares, strict=True))[len(ways) :]
            return [*(each[0] for each in ways), *(nearest(topology, *one) for one in rest)]
    given = free
    for held in holds:
        given |= held
    return _least_shared(ways, [socket.mask for socket in sockets], given.mask, newcomer)


# One integer for all sockets: set operations for each way and socket took a second of CPU time for 32 mates on
# 64 sockets, and meanwhile the daemon answered no request.
COUNT_BITS = 16
"""Bits for the count of one socket. The counts of all sockets form one integer, so one addition adds them all."""


def _least_shared(
    ways: Sequence[Sequence[CpuSet]], sockets: Sequence[int], given: int, newcomer: int
) -> list[CpuSet]:
    """Return one way of each job that minimises the number of sockets, summed over all jobs and the newcomer."""

    def counts(cpus: int) -> int:
        return sum(
            (cpus & socket).bit_count() << number * COUNT_BITS
            for number, socket in enumerate(sockets)
        )

    def entered(kept: CpuSet) -> int:
        return sum(1 for socket in sockets if kept.mask & socket)

    choices = [[(entered(kept), counts(kept.mask), kept) for kept in each] for each in ways]
    room = counts(given) - sum(each[0][1] for each in choices if len(each) == 1)
    size = len(sockets) * COUNT_BITS // 8

    def shared(chosen: tuple[tuple[int, int, CpuSet], ...]) -> int:
        """Return the number of sockets of each job, summed over the jobs that have a choice."""
        left = (room - sum(taken for _, taken, _ in chosen)).to_bytes(size, byteorder)
        others = sum(number for number, _, _ in chosen)
        return others + _needed(memoryview(left).cast("H"), newcomer)

    combinations: Iterable[tuple[tuple[int, int, CpuSet], ...]] = product(
        *(each for each in choices if len(each) > 1)
    )
    best = min(combinations, key=shared)
    rest = iter(best)
    return [each[0] if len(each) == 1 else next(rest)[2] for each in ways]


def _ways(
    topology: Topology, held: CpuSet, share: int, sockets: Sequence[CpuSet]
) -> Sequence[CpuSet]:
    """Return possible sets of CPUs for a job to keep: nearest to each other, or most of one socket.

    The sockets tried are those with most of the job's CPUs.
    """
    if share >= len(held):
        return [held]
    ways = [nearest(topology, held, share)]
    entered = [inside for inside in (held & socket for socket in sockets) if inside]
    largest = sorted(range(len(entered)), key=lambda number: -len(entered[number]))
    for inside in (entered[number] for number in sorted(largest[:SOCKETS_TRIED])):
        if inside == held:
            break
        kept = nearest(topology, inside, min(share, len(inside)))
        kept |= nearest(topology, held - inside, share - len(kept))
        if kept not in ways:
            ways.append(kept)
    return ways


def nearest(topology: Topology, held: CpuSet, count: int) -> CpuSet:
    """Return `count` of some CPUs that are nearest to each other."""
    if count <= 0 or count >= len(held):
        return held if count > 0 else CpuSet()
    found = choice(topology, held.mask, Requirement(count), starts=2)
    if isinstance(found, Unsatisfied):  # the topology lacks some of the CPUs
        return CpuSet.of(list(held)[:count])
    return CpuSet(found)


def _needed(room: Sequence[int], count: int) -> int:
    """Return the least number of sockets that hold `count` CPUs."""
    used = 0
    for most in sorted(room, reverse=True):
        if count <= 0:
            break
        count -= most
        used += 1
    return used


Changes = dict[str, CpuAllocation]


def mates_of(jobs: Mapping[str, CpuAllocation], factor: float) -> list[tuple[CpuAllocation, int]]:
    """Return the jobs that could give up CPUs, each with its minimum number of CPUs.

    The minimum is the larger of its ranks and the part that the sharing factor leaves to it.
    """
    found = []
    for job in jobs.values():
        if job.state is not AllocationState.RUNNING or not job.malleable or job.exclusive:
            continue
        floor = max(job.least, ceil(len(job.owns) * (1 - factor) - 1e-9))
        if len(job.holds) > floor:
            found.append((job, floor))
    return found


def arrive(
    topology: Topology,
    jobs: Mapping[str, CpuAllocation],
    guest: CpuAllocation,
    free: CpuSet,
    factor: float,
) -> Changes | Unsatisfied:
    """Return the mates and `guest` as they are when the guest has its CPUs.

    The guest gets the number it asked for, or all CPUs available to it. The remaining CPUs are divided over the
    mates, equally above their minimums (`distribute`), and no mate grows. Mates shrink so that jobs share as few
    sockets as possible (`keep_apart`). For example, with two sockets and a factor of 0.5, each job has a socket.
    """
    mates = mates_of(jobs, factor)
    room = len(free) + sum(len(job.holds) - floor for job, floor in mates)
    if room < guest.least:
        reason = (
            f"{room} CPUs can be had ({len(free)} free, the rest from {len(mates)} mates), "
            f"the job needs {guest.least}"
        )
        return Unsatisfied(Satisfiability.NOT_NOW, reason, room, guest.least, "-n")
    # Listing 3 (distribute_cpu): the guest gets its number of CPUs within the limit of the sharing factor; the
    # mates divide the rest.
    wanted = min(room, max(guest.least, guest.count))
    least = [floor for _, floor in mates]
    most = [len(job.holds) for job, _ in mates]
    shares = distribute(len(free) + sum(most) - wanted, least, most)
    changes: Changes = {}
    given = free
    keeps = keep_apart(topology, [job.holds for job, _ in mates], shares, free, wanted)
    for (job, _), kept in zip(mates, keeps, strict=True):
        if kept != job.holds:
            changes[job.job] = job.change(holds=kept)
            given |= job.holds - kept
    found = fit(topology, given, Requirement(wanted))
    if isinstance(found, Unsatisfied):
        return found
    spare = given - found.cpus - free
    for name, mate in list(changes.items()):  # mates keep the CPUs that the guest does not take
        changes[name] = mate.change(holds=mate.holds | (spare & jobs[name].holds))
    own = found.cpus & free
    changes[guest.job] = guest.change(holds=found.cpus, owns=own)
    return changes


def leave(jobs: Mapping[str, CpuAllocation], name: str) -> Changes:
    """Return the changed jobs after a job ended: owners get their CPUs back, guests inherit and grow."""
    gone = jobs[name]
    changes: Changes = {}
    rest = [
        job for job in jobs.values() if job.job != name and job.state is AllocationState.RUNNING
    ]
    for job in rest:
        back = gone.holds & job.owns
        heir = gone.owns & job.holds
        if back or heir:
            changes[job.job] = job.change(holds=job.holds | back, owns=job.owns | heir)
    left = gone.owns & gone.holds
    for job in [job for job in changes.values() if gone.owns & job.holds]:
        wanted = max(0, job.count - len(job.holds))
        more = CpuSet.of(list(left)[:wanted])
        if more:
            left -= more
            changes[job.job] = job.change(holds=job.holds | more, owns=job.owns | more)
    return changes


def grow(
    topology: Topology, job: CpuAllocation, free: CpuSet, requirement: Requirement
) -> CpuSet | Unsatisfied:
    """Return the job's CPUs and the nearest free CPUs that a requirement for the new number admits."""
    here, count = job.holds, requirement.count
    refused = refusal(topology, (free | here).mask, requirement)
    if refused is not None:
        return refused
    rules = rules_of(topology, requirement)
    usable = usable_cpus(topology, (free | here).mask, requirement)
    units = topology.units if rules.whole else [1 << cpu for cpu in CpuSet(usable)]
    more = [unit & ~here.mask for unit in units if not unit & ~usable and unit & ~here.mask]
    most: CpuSet = here
    for within in _balls(topology, here.mask, usable, requirement.max_radius):
        found = here.mask
        for unit in sorted((u for u in more if not u & ~within), key=_far_from(topology, here)):
            if found.bit_count() >= count:
                break
            caps = ((cpus, cap) for cpus, cap in rules.caps.items() if unit & cpus)
            if all(((found | unit) & cpus).bit_count() <= cap for cpus, cap in caps):
                found |= unit
        if found.bit_count() >= count:
            return CpuSet(found)
        most = max(most, CpuSet(found), key=len)
    have, wanted = len(most) - len(here), count - len(here)
    reason = f"{have} free CPUs can be added to CPUs {here}, {wanted} more are asked for"
    return Unsatisfied(Satisfiability.NOT_NOW, reason, have, wanted, "-n")


def _balls(topology: Topology, here: int, usable: int, limit: float | None) -> Iterable[int]:
    """Yield the usable CPUs within MAX_RADIUS of each possible centre of a set that includes `here`."""
    if limit is None:
        return [usable]
    balls = [balls for balls in topology.hops.balls if balls.radius <= limit][-1:]
    around = (ball for each in balls for ball in each.members)
    return [
        usable & mask for mask, centres in around if not here & ~mask and centres & usable & mask
    ]


def _far_from(topology: Topology, here: CpuSet) -> Callable[[int], tuple[float, int]]:
    def far(unit: int) -> tuple[float, int]:
        cpu = (unit & -unit).bit_length() - 1
        return sum(topology.hops(cpu, each) for each in here), cpu

    return far


def shrink(topology: Topology, job: CpuAllocation, requirement: Requirement) -> CpuSet:
    """Return the job's CPUs that best satisfy a requirement for fewer CPUs."""
    found = choice(topology, job.holds.mask, requirement)
    if isinstance(
        found, Unsatisfied
    ):  # the site's requirement has changed since; keep the nearest CPUs
        return nearest(topology, job.holds, requirement.count)
    return CpuSet(found)


def violations(jobs: Mapping[str, CpuAllocation], universe: CpuSet) -> Sequence[str]:
    """Return the violated invariants of owners and holders; always empty unless the code is wrong.

    Every CPU has at most one owner and one holder. No job has fewer CPUs than its minimum. If a job owns a CPU
    but does not hold it, another job holds it.
    """
    wrong = []
    owned = held = NO_CPUS
    for job in jobs.values():
        if job.owns & owned:
            wrong.append(f"CPUs {job.owns & owned} have two owners, {job.job} is one")
        if job.holds & held:
            wrong.append(f"CPUs {job.holds & held} are given twice, to {job.job} as well")
        held |= job.holds
        if job.state is not AllocationState.RUNNING:
            continue
        owned |= job.owns
        if len(job.holds) < max(1, job.least):
            wrong.append(f"{job.job} has {len(job.holds)} CPUs and needs {job.least}")
    if not (owned | held) <= universe:
        wrong.append(f"CPUs {(owned | held) - universe} are not on this machine")
    if owned - held:
        wrong.append(f"CPUs {owned - held} have an owner and no holder")
    return wrong
