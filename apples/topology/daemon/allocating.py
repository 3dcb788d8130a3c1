"""The verbs that begin and end an allocation, and the interpretation of a requirement on this host."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from apples.errors import ApplesError, InfeasibleError, LaunchError, UsageError
from apples.topology.allocator import fit
from apples.topology.cpus import CpuSet
from apples.topology.daemon.node import NodeLedger
from apples.topology.daemon.protocol import AllocateRequest, BindRequest, Caller, DeallocateRequest
from apples.topology.daemon.releasing import Releaser
from apples.topology.daemon.resize_requests import NodeManager, ResizeReply
from apples.topology.daemon.sharing import leave
from apples.topology.daemon.state import (
    AllocationState,
    AttachedRequirement,
    CpuAllocation,
    EndCondition,
)
from apples.topology.isolation.affinity import started
from apples.topology.isolation.backend import IsolationError
from apples.topology.language import merge, parse
from apples.topology.requirement import (
    CPUSET,
    CpusetOption,
    CpusetType,
    Fit,
    Requirement,
    Satisfiability,
    Unsatisfied,
)


def read_requirement(node: NodeLedger, text: str, count: int) -> Requirement:
    """Return the requirement of a job, merged with those of the site.

    Raises
    ------
    UsageError
        The requirement is invalid, for another broker, or needs a feature that this daemon lacks. Permanent.
    """
    site = (_site(node.options.mandatory), _site(node.options.default))
    requirement = merge(site[0], parse(text, count, broker=CPUSET), site[1])
    if requirement.kind is CpusetType.NONE:
        raise UsageError(
            "CPUSET_TYPE=none: there is nothing to allocate; run the command with apples exec",
            code="cpuset-type-unsupported",
            field="CPUSET_TYPE",
            value="none",
        )
    return requirement


def job_requirement(node: NodeLedger, job: CpuAllocation, count: int) -> Requirement:
    """Return the requirement of a running job for another number of CPUs."""
    return read_requirement(node, job.requirement, count)


def memory_nodes(node: NodeLedger, requirement: Requirement, cpus: CpuSet) -> CpuSet:
    """Return the memory nodes of a job's container: all, unless the job requires some of them.

    Raises
    ------
    LaunchError
        This process may use none of the required nodes.
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
    """Return the memory nodes that a job's processes should prefer; empty: the kernel's choice."""
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
    """Whether a job with this requirement may be a guest: it requires a number of CPUs and nothing else."""
    plain = Requirement(requirement.count, same_cpus_on_resume=requirement.same_cpus_on_resume)
    return requirement == plain


def cpus_of(found: Fit | Unsatisfied, job: str) -> CpuSet:
    """Return the CPUs of a fit, or raise the refusal."""
    if isinstance(found, Unsatisfied):
        raise refused(job, found)
    return found.cpus


def check_quota(node: NodeLedger, caller: Caller, name: str, cpus: int) -> None:
    """Raise an error if a job would exceed its user's quota. The operator has no quota.

    Raises
    ------
    LaunchError
        The caller would have more jobs or CPUs than one user may have.
    """
    if caller.operator:
        return
    options = node.options
    own = [
        job
        for job in node.state.jobs.values()
        if job.principal == caller.principal and job.job != name
    ]
    has = sum(len(job.taken) for job in own)
    for field, value, bound in (
        ("jobs", len(own) + 1, options.most_jobs),
        ("cpus", has + cpus, options.most_cpus),
    ):
        if value > bound:
            raise LaunchError(
                f"{name}: {caller.principal} would have {value} {field.replace('cpus', 'CPUs')}; "
                f"the limit is {bound}",
                code="quota-exceeded",
                job=name,
                principal=caller.principal,
                field=field,
                value=value,
                bound=bound,
            )


def _site(text: str) -> Requirement | None:
    return parse(text) if text else None


Answer = dict[str, Any]


class Allocator:
    """Allocates CPUs to jobs and releases them.

    Parameters
    ----------
    node, manager, releasing
        The ledger of the host, its node manager, and the releaser of jobs.
    """

    def __init__(self, node: NodeLedger, manager: NodeManager, releasing: Releaser) -> None:
        self._node = node
        self._manager = manager
        self._releasing = releasing

    async def allocate(self, caller: Caller, request: AllocateRequest) -> Answer:
        """Choose CPUs, record them and make the container; ask mates to shrink if the request allows sharing.

        If the job has CPUs from an equal request, the answer repeats them. So a client can repeat a request after
        its connection broke or its daemon was killed.
        """
        node = self._node
        job, requirement = self._wanted(caller, request)
        if job.job in node.state.jobs:
            return self._repeated(job, requirement)
        found = fit(node.topology, node.free, requirement)
        if not isinstance(found, Unsatisfied):
            check_quota(
                node, caller, job.job, len(found.cpus)
            )  # whole cores may be more CPUs than requested
            mems = memory_nodes(node, requirement, found.cpus)
            given = job.change(owns=found.cpus, holds=found.cpus, mems=mems)
            return self._start(given, {given.job: given}, requirement, {})
        sharing = request.share and job.malleable and can_share(requirement)
        if found.verdict is Satisfiability.NEVER or not sharing:
            raise refused(job.job, found)
        async with self._manager.lock:
            if job.job in node.state.jobs:  # an equal request was served before this one
                return self._repeated(job, requirement)
            changes, heard = await self._manager.welcome(job, request.seconds)
            # Other requests ran while the mates adapted, so the name is checked again.
            if job.job in node.state.jobs:
                for name in heard.keys() & node.state.jobs.keys():
                    self._manager.notify(node.state.jobs[name])
                return self._repeated(job, requirement)
            changes[job.job] = changes[job.job].change(number=node.state.number + 1)
            return self._start(changes[job.job], changes, requirement, heard)

    def _repeated(self, wanted: CpuAllocation, requirement: Requirement) -> Answer:
        """Answer a repeated request for an existing job.

        Raises
        ------
        UsageError
            The job has another requirement or owner process, or is not running. Permanent.
        """
        job = self._node.state.jobs[wanted.job]
        if job.state is not AllocationState.RUNNING or not job.is_repeated_by(wanted):
            raise UsageError(
                f"{job.job}: a job of this name exists ({job.state}); use another name",
                code="job-exists",
                job=job.job,
                value=job.state.value,
            )
        self._releasing.renew_claim(job)
        return self._answer(job, requirement, {})

    def _wanted(
        self, caller: Caller, request: AllocateRequest
    ) -> tuple[CpuAllocation, Requirement]:
        """Return the job without CPUs, and its requirement; reject an invalid request."""
        node, name = self._node, request.job
        if request.ends is EndCondition.KEEPER and not caller.keeper:
            raise LaunchError(
                f"{name}: the process that asked has ended",
                code="process-lost",
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
        text, attached = request.requirement, node.state.attached.get(name)
        if name in node.state.jobs:
            text = text or node.state.jobs[name].requirement
        elif attached is not None:
            text = text or attached.requirement
        requirement = read_requirement(node, text, request.count)
        check_quota(node, caller, name, request.count)
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

    def _start(
        self,
        job: CpuAllocation,
        changes: dict[str, CpuAllocation],
        requirement: Requirement,
        heard: dict[str, ResizeReply],
    ) -> Answer:
        """Record the jobs, make their containers and answer; undo everything if the kernel refuses."""
        node = self._node
        answer = self._answer(job, requirement, heard)
        attached = node.state.attached.get(job.job)
        node.commit(changes)
        try:
            node.fit(changes)
        except IsolationError:
            self._undo(job, attached)
            raise
        for name in changes.keys() - {job.job}:
            self._manager.notify(node.state.jobs[name])
        self._releasing.guard(job)
        return answer

    def _answer(
        self, job: CpuAllocation, requirement: Requirement, heard: dict[str, ResizeReply]
    ) -> Answer:
        node = self._node
        return {
            "job": job.job,
            "number": job.number,
            "cpus": str(job.holds),
            "mems": str(job.mems),
            "prefer": str(preferred_nodes(node, requirement, job.holds)),
            "pen": job.name(node.mark),
            "mates": {name: reply.value for name, reply in heard.items()},
        }

    def _undo(self, job: CpuAllocation, attached: AttachedRequirement | None) -> None:
        node = self._node
        node.isolation.remove(job.name(node.mark))
        back = leave(node.state.jobs, job.job)
        attach = {} if attached is None else {job.job: asdict(attached)}
        node.commit({job.job: None, **back}, attach=attach)
        node.unfitted.discard(job.job)
        node.refit(back)
        for name in back:
            self._manager.notify(node.state.jobs[name])

    async def bind(self, caller: Caller, request: BindRequest) -> Answer:
        """Move the process that sent the request into the job's container."""
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
        if not caller.keeper or started(caller.process) != caller.start:
            raise LaunchError(
                f"{job.job}: the process that asked is gone",
                code="process-lost",
                job=job.job,
                value=caller.process,
            )
        node.isolation.admit(job.name(node.mark), caller.process)
        if started(caller.process) != caller.start:
            node.report(f"{job.job}: process {caller.process} ended while it joined the job")
        self._releasing.claimed(job.job)
        requirement = read_requirement(node, job.requirement, job.count)
        return {
            "job": job.job,
            "cpus": str(job.holds),
            "mems": str(job.mems),
            "prefer": str(preferred_nodes(node, requirement, job.holds)),
            "pen": job.name(node.mark),
        }

    async def deallocate(self, request: DeallocateRequest) -> Answer:
        """End the job.

        Raises
        ------
        UsageError
            The number differs from the request's: that allocation has ended, and a later one has its name.
        """
        job = self._node.state.jobs[request.job]
        if request.number not in {None, job.number}:
            raise UsageError(
                f"deallocate: {job.job} has number {job.number}, not {request.number}",
                code="job-unknown",
                verb="deallocate",
                job=job.job,
            )
        await self._releasing.release(request.job, request.grace)
        return {"job": request.job, "freed": str(job.taken)}
