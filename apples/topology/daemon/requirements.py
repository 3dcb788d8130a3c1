"""From a requirement as written to what the daemon needs of it."""

from __future__ import annotations

from apples.errors import ApplesError, InfeasibleError, LaunchError, UsageError
from apples.topology.cpus import CpuSet
from apples.topology.daemon.job import Job
from apples.topology.daemon.node import Node
from apples.topology.keywords import requirement_of
from apples.topology.language import DEFAULT_BROKER, Expression, merge, parse
from apples.topology.requirement import Fit, Kind, Option, Refusal, Requirement, Verdict


def read_requirement(node: Node, text: str, count: int) -> Requirement:
    """Return what a job requires, the site's requirements merged in.

    Raises
    ------
    UsageError
        It cannot be read, is for another broker, or asks for what this daemon does not do.
    """
    own = parse(text)
    if own.broker != DEFAULT_BROKER:
        raise UsageError(f"requirement: {own.broker}[...] is not for this daemon, CPUSET[...] is")
    merged = merge(_site(node.options.mandatory), own, _site(node.options.default))
    requirement = requirement_of(merged, count)
    if requirement.kind is Kind.NONE:
        raise UsageError(
            "CPUSET_TYPE=none: there is nothing to allocate; apples exec runs such a command as it is"
        )
    if requirement.kind is Kind.STATIC:
        raise UsageError(
            "CPUSET_TYPE=static: a set of the administrator's is entered by its own tools "
            "(cgexec, systemd); this daemon makes dynamic ones and keeps off the others"
        )
    return requirement


def job_requirement(node: Node, job: Job, count: int) -> Requirement:
    """Return what a running job required, for another number of CPUs."""
    return read_requirement(node, job.requirement, count)


def memory_nodes(node: Node, requirement: Requirement, cpus: CpuSet) -> CpuSet:
    """Return the memory nodes a job's pen has: a part of them only if it insists.

    Raises
    ------
    LaunchError
        None of those it insists on may be used here.
    """
    wanted = requirement.memory
    if wanted is None and Option.MEMORY_MANDATORY in requirement.options:
        wanted = node.topology.memory_of(cpus)
    if wanted is None or Option.MEMORY_MANDATORY not in requirement.options:
        return node.mems
    if not wanted & node.mems:
        raise LaunchError(f"memory nodes {wanted} are asked for, {node.mems} may be used")
    return wanted & node.mems


def preferred_nodes(node: Node, requirement: Requirement, cpus: CpuSet) -> CpuSet:
    """Return the memory nodes a job's processes are to prefer; empty for the kernel's own choice."""
    if requirement.memory is not None:
        return requirement.memory & node.mems
    if Option.MEMORY_LOCAL in requirement.options:
        return node.topology.memory_of(cpus) & node.mems
    return CpuSet()


def refused(job: str, found: Refusal) -> ApplesError:
    """Return a refusal as an error: exit code 3 for never, 4 for not now."""
    kind = InfeasibleError if found.verdict is Verdict.NEVER else LaunchError
    return kind(f"{job}: {found.verdict}: {found.reason} [{found.key}]")


def can_share(requirement: Requirement) -> bool:
    """Whether a job with this requirement may be a guest: it asks for a number of CPUs and no more."""
    plain = Requirement(requirement.count, same_cpus_on_resume=requirement.same_cpus_on_resume)
    return requirement == plain


def cpus_of(found: Fit | Refusal, job: str) -> CpuSet:
    """Return the CPUs found, or raise the refusal."""
    if isinstance(found, Refusal):
        raise refused(job, found)
    return found.cpus


def _site(text: str) -> Expression | None:
    return parse(text) if text else None
