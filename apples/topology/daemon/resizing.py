"""Suspend, resume and resize: the verbs that change a running job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from apples.errors import LaunchError, UsageError
from apples.topology.allocator import fit
from apples.topology.cpus import NO_CPUS, CpuSet
from apples.topology.daemon.allocating import (
    Answer,
    check_quota,
    cpus_of,
    job_requirement,
    memory_nodes,
    refused,
)
from apples.topology.daemon.node import NodeLedger
from apples.topology.daemon.protocol import (
    Caller,
    CpuResizeRequest,
    ResumeRequest,
    SuspendRequest,
)
from apples.topology.daemon.releasing import Releaser
from apples.topology.daemon.resize_requests import NodeManager, ResizeReply
from apples.topology.daemon.sharing import grow, leave, shrink
from apples.topology.daemon.state import AllocationState, CpuAllocation
from apples.topology.isolation.backend import CpuContainer, IsolationError
from apples.topology.requirement import Requirement, Unsatisfied


class Resizer:
    """Changes the CPUs of running jobs.

    Parameters
    ----------
    node, manager, releasing
        The ledger of the host, its node manager, and the releaser of jobs.
    """

    def __init__(self, node: NodeLedger, manager: NodeManager, releasing: Releaser) -> None:
        self._node = node
        self._manager = manager
        self._releasing = releasing

    async def suspend(self, request: SuspendRequest) -> Answer:
        """Stop the job and free its CPUs; CPUs that it had as a guest return to their owners."""
        node, job = self._node, self._node.state.jobs[request.job]
        if job.state is AllocationState.SUSPENDED:
            return {"job": job.job, "freed": str(job.was)}
        self._in(request.job, AllocationState.RUNNING)
        container = job.name(node.mark)
        # Freeze first, then record its CPUs as free: they are never allocated while its processes could run.
        node.isolation.freeze(container)
        was = job.owns | job.holds
        asleep = job.change(state=AllocationState.SUSPENDED, was=was, owns=NO_CPUS, holds=NO_CPUS)
        others = leave(node.state.jobs, job.job)
        try:
            node.commit({job.job: asleep, **others})
        except BaseException:
            node.isolation.thaw(container)
            raise
        if job.exclusive:  # it runs nowhere now, and must not block other sets
            with contextlib.suppress(IsolationError):
                node.isolation.fit(CpuContainer(container, was, job.mems))
        node.refit(others)
        self._tell(others)
        return {"job": job.job, "freed": str(was)}

    async def resume(self, caller: Caller, request: ResumeRequest) -> Answer:
        """Resume the job: on its old CPUs if they are free, else on the best that its requirement allows."""
        node, job = self._node, self._node.state.jobs[request.job]
        if job.state is AllocationState.RUNNING:
            return {"job": job.job, "cpus": str(job.holds), "mems": str(job.mems)}
        self._in(request.job, AllocationState.SUSPENDED)
        check_quota(
            node, caller, job.job, len(job.was)
        )  # the CPUs of a suspended job do not count
        requirement = job_requirement(node, job, len(job.was))
        if job.was <= node.free:
            cpus = job.was
        elif requirement.same_cpus_on_resume:
            raise LaunchError(
                f"{job.job}: not now: CPUs {job.was - node.free} of its own are not free "
                "[RESUME_OPTION]",
                code="cpus-busy",
                job=job.job,
                field="RESUME_OPTION",
                cpus=str(job.was - node.free),
            )
        else:
            cpus = cpus_of(fit(node.topology, node.free, requirement), job.job)
        awake = job.change(
            state=AllocationState.RUNNING,
            owns=cpus,
            holds=cpus,
            was=NO_CPUS,
            mems=memory_nodes(node, requirement, cpus),
        )
        node.commit({job.job: awake})
        try:
            node.fit([job.job])
        except IsolationError:
            node.commit({job.job: job})
            raise
        try:
            node.isolation.thaw(awake.name(node.mark))
        except IsolationError as error:
            node.unfitted.add(job.job)
            node.report(str(error))
        self._releasing.guard_again(awake)
        self._manager.notify(awake)
        return {"job": job.job, "cpus": str(cpus), "mems": str(awake.mems)}

    async def resize(self, caller: Caller, request: CpuResizeRequest) -> Answer:
        """Give the job more CPUs, or make it give some up."""
        async with self._manager.lock:
            job = self._in(request.job, AllocationState.RUNNING)
            if request.count < job.least:
                raise UsageError(
                    f"{job.job}: needs at least {job.least} CPUs (requested: {request.count})",
                    code="value-range",
                    job=job.job,
                    field="count",
                    value=request.count,
                    bound=job.least,
                )
            # The ledger records the owner of a lent or borrowed CPU; a resize would lose that owner.
            if job.owns != job.holds:
                raise LaunchError(
                    f"{job.job}: not now: it shares CPUs with another job",
                    code="job-shares-cpus",
                    job=job.job,
                )
            requirement = job_requirement(self._node, job, request.count)
            cpus, heard = await self._changed(caller, job, requirement, request)
            changed = job.change(owns=cpus, holds=cpus, count=request.count)
            changed = changed.change(mems=memory_nodes(self._node, requirement, cpus))
            self._change(job, changed)
        return {
            "job": job.job,
            "cpus": str(cpus),
            "mems": str(changed.mems),
            "heard": heard,
        }

    def _change(self, job: CpuAllocation, changed: CpuAllocation) -> None:
        """Record a changed job and change its container to match; undo both if the kernel refuses."""
        node = self._node
        node.commit({job.job: changed})
        try:
            node.fit([job.job])
        except IsolationError:
            node.commit({job.job: job})
            node.refit([job.job])
            self._tell([job.job])
            raise
        self._tell([job.job])

    async def _changed(
        self,
        caller: Caller,
        job: CpuAllocation,
        requirement: Requirement,
        request: CpuResizeRequest,
    ) -> tuple[CpuSet, ResizeReply | None]:
        """Return the new CPUs of the job, and its reply if it gets fewer."""
        node = self._node
        if request.count >= len(job.holds):
            found = grow(node.topology, job, node.free, requirement)
            if isinstance(found, Unsatisfied):
                raise refused(job.job, found)
            if len(found) > len(job.holds):
                check_quota(node, caller, job.job, len(found))
            return found, None
        target = shrink(node.topology, job, requirement)
        heard = await self._manager.ask({job.job: target}, request.seconds)
        if node.state.jobs.get(job.job) is not job:
            raise LaunchError(
                f"{job.job}: it changed before it answered the request; ask again",
                code="jobs-changing",
                job=job.job,
            )
        return target, heard[job.job]

    def _in(self, name: str, state: AllocationState) -> CpuAllocation:
        job = self._node.state.jobs[name]
        if job.state is not state:
            raise LaunchError(
                f"{name}: it is {job.state}, not {state}",
                code="job-state-invalid",
                job=name,
                value=job.state.value,
                needed=state.value,
            )
        return job

    def _tell(self, names: Iterable[str]) -> None:
        for name in names:
            self._manager.notify(self._node.state.jobs[name])
