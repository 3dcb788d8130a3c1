"""The verbs that begin and end an allocation, and what a requirement as written means to this host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apples.errors import ApplesError, InfeasibleError, LaunchError, UsageError
from apples.topology.allocator import fit
from apples.topology.cpus import CpuSet
from apples.topology.daemon.node import NodeLedger
from apples.topology.daemon.protocol import AllocateRequest, BindRequest, Caller, DeallocateRequest
from apples.topology.daemon.releasing import Releaser
from apples.topology.daemon.resize_requests import NodeManager, ResizeReply
from apples.topology.daemon.sharing import leave
from apples.topology.daemon.state import AllocationState, CpuAllocation, EndCondition
from apples.topology.isolation.affinity import started
from apples.topology.isolation.backend import IsolationError
from apples.topology.language import (
    DEFAULT_BROKER,
    RequirementExpression,
    merge,
    parse,
    requirement_of,
)
from apples.topology.requirement import (
    CpusetOption,
    CpusetType,
    Fit,
    Requirement,
    Satisfiability,
    Unsatisfied,
)


def read_requirement(node: NodeLedger, text: str, count: int) -> Requirement:
    """Return what a job requires, the site's requirements merged in.

    Raises
    ------
    UsageError
        It cannot be read, is for another broker, or asks for what this daemon does not do.
    """
    own = parse(text)
    if own.broker != DEFAULT_BROKER:
        raise UsageError(
            f"requirement: this daemon reads {DEFAULT_BROKER}[...], not {own.broker}[...]",
            code="broker-unknown",
            value=own.broker,
            known=[DEFAULT_BROKER],
        )
    merged = merge(_site(node.options.mandatory), own, _site(node.options.default))
    requirement = requirement_of(merged, count)
    if requirement.kind is CpusetType.NONE:
        raise UsageError(
            "CPUSET_TYPE=none: there is nothing to allocate; run the command with apples exec",
            code="cpuset-type-unsupported",
            field="CPUSET_TYPE",
            value="none",
        )
    if requirement.kind is CpusetType.STATIC:
        raise UsageError(
            "CPUSET_TYPE=static: this daemon makes dynamic sets only; enter an administrator's set "
            "with its own tools (cgexec, systemd)",
            code="cpuset-type-unsupported",
            field="CPUSET_TYPE",
            value="static",
        )
    return requirement


def job_requirement(node: NodeLedger, job: CpuAllocation, count: int) -> Requirement:
    """Return what a running job required, for another number of CPUs."""
    return read_requirement(node, job.requirement, count)


def memory_nodes(node: NodeLedger, requirement: Requirement, cpus: CpuSet) -> CpuSet:
    """Return the memory nodes a job's container has: a part of them only if it insists.

    Raises
    ------
    LaunchError
        None of those it insists on may be used here.
    """
    wanted = requirement.memory
    if wanted is None and CpusetOption.MEMORY_MANDATORY in requirement.options:
        wanted = node.topology.memory_of(cpus)
    if wanted is None or CpusetOption.MEMORY_MANDATORY not in requirement.options:
        return node.mems
    if not wanted & node.mems:
        raise LaunchError(
            f"MEM_LIST: memory nodes {wanted} are not available (available: {node.mems})",
            code="memory-nodes-unavailable",
            value=str(wanted),
            known=str(node.mems),
        )
    return wanted & node.mems


def preferred_nodes(node: NodeLedger, requirement: Requirement, cpus: CpuSet) -> CpuSet:
    """Return the memory nodes a job's processes are to prefer; empty for the kernel's own choice."""
    if requirement.memory is not None:
        return requirement.memory & node.mems
    if CpusetOption.MEMORY_LOCAL in requirement.options:
        return node.topology.memory_of(cpus) & node.mems
    return CpuSet()


def refused(job: str, found: Unsatisfied) -> ApplesError:
    """Return a refusal as an error: ``cpus-unsatisfied`` for never, ``cpus-busy`` for not now."""
    text = f"{job}: {found.verdict}: {found.reason} [{found.key}]"
    fields = {"job": job, "field": found.key, "value": found.found, "needed": found.needed}
    if found.verdict is Satisfiability.NEVER:
        return InfeasibleError(text, code="cpus-unsatisfied", **fields)
    return LaunchError(text, code="cpus-busy", **fields)


def can_share(requirement: Requirement) -> bool:
    """Whether a job with this requirement may be a guest: it asks for a number of CPUs and no more."""
    plain = Requirement(requirement.count, same_cpus_on_resume=requirement.same_cpus_on_resume)
    return requirement == plain


def cpus_of(found: Fit | Unsatisfied, job: str) -> CpuSet:
    """Return the CPUs found, or raise the refusal."""
    if isinstance(found, Unsatisfied):
        raise refused(job, found)
    return found.cpus


def _site(text: str) -> RequirementExpression | None:
    return parse(text) if text else None


Answer = dict[str, Any]
Seal = Callable[[Answer], dict[str, Any]]
"""Answer -> how it stands in the record that makes it true."""


class Allocator:
    """Gives CPUs to jobs and takes them back.

    Parameters
    ----------
    node, manager, releasing
        The host, who shares it, and who ends jobs.
    """

    def __init__(self, node: NodeLedger, manager: NodeManager, releasing: Releaser) -> None:
        self._node = node
        self._manager = manager
        self._releasing = releasing

    async def allocate(self, caller: Caller, request: AllocateRequest, seal: Seal) -> Answer:
        """Choose CPUs, record them, make the container; ask mates to shrink if that is wanted."""
        node = self._node
        job, requirement = self._wanted(caller, request)
        found = fit(node.topology, node.free, requirement)
        if not isinstance(found, Unsatisfied):
            mems = memory_nodes(node, requirement, found.cpus)
            given = job.change(owns=found.cpus, holds=found.cpus, mems=mems)
            return self._start(given, {given.job: given}, requirement, seal, {})
        sharing = request.share and job.malleable and can_share(requirement)
        if found.verdict is Satisfiability.NEVER or not sharing:
            raise refused(job.job, found)
        async with self._manager.lock:
            changes, heard = await self._manager.welcome(job, request.seconds)
            # The mates were waited for, and other requests ran meanwhile: what was checked is checked again.
            if job.job in node.state.jobs:
                raise UsageError(
                    f"{job.job}: a job of this name started meanwhile; use another name",
                    code="job-exists",
                    job=job.job,
                )
            changes[job.job] = changes[job.job].change(number=node.state.number + 1)
            return self._start(changes[job.job], changes, requirement, seal, heard)

    def _wanted(
        self, caller: Caller, request: AllocateRequest
    ) -> tuple[CpuAllocation, Requirement]:
        """Return the job without CPUs, and its requirement; everything about it that can be wrong is."""
        node, name = self._node, request.job
        if name in node.state.jobs:
            raise UsageError(
                f"{name}: a job of this name exists ({node.state.jobs[name].state}); use another name",
                code="job-exists",
                job=name,
                value=node.state.jobs[name].state.value,
            )
        if request.ends is EndCondition.KEEPER and not caller.keeper:
            raise UsageError(
                f"{name}: until: a process of another host cannot be the keeper",
                code="process-not-local",
                job=name,
                field="until",
            )
        if request.least > request.count:
            raise UsageError(
                f"{name}: least {request.least} is more than count {request.count}",
                code="value-range",
                job=name,
                field="least",
                value=request.least,
                bound=request.count,
            )
        text = request.requirement
        if request.message is not None:
            message = node.state.messages.get(name, {}).get(request.message)
            if message is None:
                raise UsageError(
                    f"{name}: there is no message {request.message}",
                    code="message-unknown",
                    job=name,
                    value=request.message,
                )
            text = message.text
        requirement = read_requirement(node, text, request.count)
        self._check_quota(caller, request)
        job = CpuAllocation(
            name,
            node.state.number + 1,
            caller.principal,
            mems=node.mems,
            exclusive=CpusetOption.EXCLUSIVE in requirement.options,
            least=request.least,
            requirement=text,
            count=request.count,
            until=request.ends,
            keeper=caller.keeper,
        )
        return job, requirement

    def _check_quota(self, caller: Caller, request: AllocateRequest) -> None:
        if caller.operator:
            return
        options = self._node.options
        own = [j for j in self._node.state.jobs.values() if j.principal == caller.principal]
        if len(own) >= options.most_jobs:
            raise LaunchError(
                f"{request.job}: {caller.principal} has {len(own)} jobs already",
                code="quota-exceeded",
                job=request.job,
                principal=caller.principal,
                field="jobs",
                value=len(own) + 1,
                bound=options.most_jobs,
            )
        has = sum(len(job.taken) for job in own)
        if has + request.count > options.most_cpus:
            raise LaunchError(
                f"{request.job}: {caller.principal} has {has} CPUs and asks {request.count}, "
                f"{options.most_cpus} are allowed",
                code="quota-exceeded",
                job=request.job,
                principal=caller.principal,
                field="cpus",
                value=has + request.count,
                bound=options.most_cpus,
            )

    def _start(
        self,
        job: CpuAllocation,
        changes: dict[str, CpuAllocation],
        requirement: Requirement,
        seal: Seal,
        heard: dict[str, ResizeReply],
    ) -> Answer:
        """Record the jobs, make their containers and answer; undo all where the kernel refuses."""
        node = self._node
        preferred = preferred_nodes(node, requirement, job.holds)
        answer: Answer = {
            "job": job.job,
            "number": job.number,
            "cpus": str(job.holds),
            "mems": str(job.mems),
            "prefer": str(preferred),
            "pen": job.name(node.mark),
            "mates": {name: said.value for name, said in heard.items()},
        }
        # Record, then kernel, then answer. The record holds the answer, so that a client whose connection broke,
        # or whose daemon crashed, gets the same one when it asks again.
        sealed = seal(answer)
        node.commit(changes, **sealed)
        try:
            node.fit(changes)
        except IsolationError:
            self._undo(job, sealed["answer"])
            raise
        for name in changes.keys() - {job.job}:
            self._manager.told(node.state.jobs[name])
        self._releasing.guard(job)
        return answer

    def _undo(self, job: CpuAllocation, answer: dict[str, Any]) -> None:
        node = self._node
        node.isolation.remove(job.name(node.mark))
        back = leave(node.state.jobs, job.job)
        node.commit({job.job: None, **back}, retract=[answer["by"], answer["id"]])
        node.unfitted.discard(job.job)
        node.refit(back)
        for name in back:
            self._manager.told(node.state.jobs[name])

    async def bind(self, caller: Caller, request: BindRequest) -> Answer:
        """Move the process that asks into the container of the job."""
        node = self._node
        job = node.state.jobs[request.job]
        if job.state is not AllocationState.RUNNING:
            raise LaunchError(
                f"{job.job}: it is {job.state}",
                code="job-state-invalid",
                job=job.job,
                value=job.state.value,
                needed=AllocationState.RUNNING.value,
            )
        if not caller.process:
            raise UsageError(
                f"{job.job}: a process of another host cannot enter it",
                code="process-not-local",
                job=job.job,
            )
        if started(caller.process) != caller.start:
            raise LaunchError(
                f"{job.job}: the process that asked is gone",
                code="process-lost",
                job=job.job,
                value=caller.process,
            )
        node.isolation.admit(job.name(node.mark), caller.process)
        if started(caller.process) != caller.start:
            node.report(f"{job.job}: process {caller.process} ended while it entered")
        self._releasing.claimed(job.job)
        requirement = read_requirement(node, job.requirement, job.count)
        return {
            "job": job.job,
            "cpus": str(job.holds),
            "mems": str(job.mems),
            "prefer": str(preferred_nodes(node, requirement, job.holds)),
            "pen": job.name(node.mark),
        }

    async def deallocate(self, request: DeallocateRequest, seal: Seal) -> Answer:
        """End the job."""
        held = self._node.state.jobs[request.job].taken
        answer: Answer = {"job": request.job, "freed": str(held)}
        await self._releasing.release(request.job, request.grace, seal(answer))
        return answer
