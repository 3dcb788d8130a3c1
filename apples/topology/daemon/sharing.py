"""Listing 3 of SD-Policy: who runs on which CPUs when malleable jobs share a node. Pure.

A job owns the CPUs it was given when it came, and holds those it runs on. A guest holds CPUs of its mates;
they go back to their owners when it ends, and a guest that outlives an owner inherits what it holds of it.
Every function returns the jobs that change, as they are afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from apples.topology.allocator import fit
from apples.topology.apart import keep_apart, nearest
from apples.topology.cpus import NO_CPUS, CpuSet
from apples.topology.daemon.job import Job, JobState
from apples.topology.distribute import distribute
from apples.topology.machine import Topology
from apples.topology.requirement import Refusal, Requirement, Verdict

Changes = dict[str, Job]


def mates_of(jobs: Mapping[str, Job], factor: float) -> list[tuple[Job, int]]:
    """Return the jobs that could give something, each with the fewest CPUs it may be left with.

    That is its ranks, and what the SharingFactor (the part of its own that may be taken) leaves it.
    """
    found = []
    for job in jobs.values():
        if job.state is not JobState.RUNNING or not job.malleable or job.exclusive:
            continue
        floor = max(job.least, ceil(len(job.owns) * (1 - factor) - 1e-9))
        if len(job.holds) > floor:
            found.append((job, floor))
    return found


def arrive(
    topology: Topology, jobs: Mapping[str, Job], guest: Job, free: CpuSet, factor: float
) -> Changes | Refusal:
    """Return the mates as they are when `guest` has its CPUs, and the guest with them.

    The guest gets what it asked for or all that can be had; what remains is divided over the mates, equally
    above their minimums (`distribute`), and nobody grows. Mates shrink so that jobs share as few sockets
    as possible (`keep_apart`): with two sockets and a factor of one half each job has a socket.
    """
    mates = mates_of(jobs, factor)
    room = len(free) + sum(len(job.holds) - floor for job, floor in mates)
    if room < guest.least:
        reason = (
            f"{room} CPUs can be had ({len(free)} free, the rest from {len(mates)} mates), "
            f"the job needs {guest.least}"
        )
        return Refusal(Verdict.NOT_NOW, reason, room, guest.least, "-n")
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
    if isinstance(found, Refusal):
        return found
    spare = given - found.cpus - free
    for name, mate in list(changes.items()):  # what the guest does not take stays where it was
        changes[name] = mate.change(holds=mate.holds | (spare & jobs[name].holds))
    own = found.cpus & free
    changes[guest.job] = guest.change(holds=found.cpus, owns=own)
    return changes


def leave(jobs: Mapping[str, Job], name: str) -> Changes:
    """Return who has what when a job has gone: owners get back theirs, guests inherit and grow."""
    gone = jobs[name]
    changes: Changes = {}
    rest = [job for job in jobs.values() if job.job != name and job.state is JobState.RUNNING]
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


def grow(topology: Topology, job: Job, free: CpuSet, count: int) -> CpuSet | Refusal:
    """Return the job's CPUs with the nearest free ones added."""
    wanted = count - len(job.holds)
    usable = list(free & topology.cpus)
    if len(usable) < wanted:
        reason = f"{len(usable)} CPUs are free, {wanted} more are asked for"
        return Refusal(Verdict.NOT_NOW, reason, len(usable), wanted, "-n")
    here = list(job.holds)
    usable.sort(key=lambda cpu: (sum(topology.hops(cpu, each) for each in here), cpu))
    return job.holds | CpuSet.of(usable[:wanted])


def shrink(topology: Topology, job: Job, count: int) -> CpuSet:
    """Return those of the job's CPUs that are nearest to each other."""
    return nearest(topology, job.holds, count)


def violations(jobs: Mapping[str, Job], universe: CpuSet) -> Sequence[str]:
    """Return what is wrong with who has what; nothing, ever.

    Every CPU has one owner and one holder at most; nobody runs on fewer CPUs than it needs; what a job owns
    and does not hold is held by another.
    """
    wrong = []
    owned = held = NO_CPUS
    for job in jobs.values():
        if job.owns & owned:
            wrong.append(f"CPUs {job.owns & owned} have two owners, {job.job} is one")
        if job.holds & held:
            wrong.append(f"CPUs {job.holds & held} are given twice, to {job.job} as well")
        held |= job.holds
        if job.state is not JobState.RUNNING:
            continue
        owned |= job.owns
        if len(job.holds) < max(1, job.least):
            wrong.append(f"{job.job} has {len(job.holds)} CPUs and needs {job.least}")
    if not (owned | held) <= universe:
        wrong.append(f"CPUs {(owned | held) - universe} are not on this machine")
    if owned - held:
        wrong.append(f"CPUs {owned - held} are owned and held by nobody")
    return wrong
