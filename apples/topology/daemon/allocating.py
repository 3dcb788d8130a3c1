"""Allocating and releasing: the verbs that begin and end a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from apples.errors import LaunchError, UsageError
from apples.topology.allocator import fit
from apples.topology.daemon.job import Job, JobState, Until
from apples.topology.daemon.node import Node
from apples.topology.daemon.node_manager import Heard, NodeManager
from apples.topology.daemon.protocol import Allocate, Bind, Caller, Deallocate
from apples.topology.daemon.releasing import Releasing
from apples.topology.daemon.requirements import (
    can_share,
    memory_nodes,
    preferred_nodes,
    read_requirement,
    refused,
)
from apples.topology.daemon.sharing import leave
from apples.topology.fence import FenceError
from apples.topology.isolation.affinity import started
from apples.topology.requirement import Option, Refusal, Requirement, Verdict

Answer = dict[str, Any]
Seal = Callable[[Answer], dict[str, Any]]
"""Answer -> how it stands in the record that makes it true."""


class Allocating:
    """Gives CPUs to jobs and takes them back.

    Parameters
    ----------
    node, manager, releasing
        The host, who shares it, and who ends jobs.
    """

    def __init__(self, node: Node, manager: NodeManager, releasing: Releasing) -> None:
        self._node = node
        self._manager = manager
        self._releasing = releasing

    async def allocate(self, caller: Caller, request: Allocate, seal: Seal) -> Answer:
        """Choose CPUs, record them, make the pen; ask mates to shrink if that is wanted."""
        node = self._node
        job, requirement = self._wanted(caller, request)
        found = fit(node.topology, node.free, requirement)
        if not isinstance(found, Refusal):
            mems = memory_nodes(node, requirement, found.cpus)
            given = job.change(owns=found.cpus, holds=found.cpus, mems=mems)
            return self._start(given, {given.job: given}, requirement, seal, {})
        sharing = request.share and job.malleable and can_share(requirement)
        if found.verdict is Verdict.NEVER or not sharing:
            raise refused(job.job, found)
        async with self._manager.lock:
            changes, heard = await self._manager.welcome(job, request.seconds)
            if job.job in node.state.jobs:
                raise UsageError(f"{job.job}: there is such a job by now")
            changes[job.job] = changes[job.job].change(number=node.state.number + 1)
            return self._start(changes[job.job], changes, requirement, seal, heard)

    def _wanted(self, caller: Caller, request: Allocate) -> tuple[Job, Requirement]:
        """Return the job without CPUs, and its requirement; everything about it that can be wrong is."""
        node, name = self._node, request.job
        if name in node.state.jobs:
            raise UsageError(f"{name}: there is such a job, {node.state.jobs[name].state}")
        if request.ends is Until.KEEPER and not caller.keeper:
            raise UsageError(f"{name}: until: a process of another host cannot be the keeper")
        if request.least > request.count:
            raise UsageError(f"{name}: least {request.least} is more than count {request.count}")
        text = request.requirement
        if request.message is not None:
            message = node.state.messages.get(name, {}).get(request.message)
            if message is None:
                raise UsageError(f"{name}: there is no message {request.message}")
            text = message.text
        requirement = read_requirement(node, text, request.count)
        self._check_quota(caller, request)
        job = Job(
            name,
            node.state.number + 1,
            caller.principal,
            mems=node.mems,
            exclusive=Option.EXCLUSIVE in requirement.options,
            least=request.least,
            requirement=text,
            count=request.count,
            until=request.ends,
            keeper=caller.keeper,
        )
        return job, requirement

    def _check_quota(self, caller: Caller, request: Allocate) -> None:
        if caller.operator:
            return
        options = self._node.options
        own = [j for j in self._node.state.jobs.values() if j.principal == caller.principal]
        if len(own) >= options.most_jobs:
            raise LaunchError(f"{request.job}: {caller.principal} has {len(own)} jobs already")
        has = sum(len(job.taken) for job in own)
        if has + request.count > options.most_cpus:
            raise LaunchError(
                f"{request.job}: {caller.principal} has {has} CPUs and asks {request.count}, "
                f"{options.most_cpus} are allowed"
            )

    def _start(
        self,
        job: Job,
        changes: dict[str, Job],
        requirement: Requirement,
        seal: Seal,
        heard: dict[str, Heard],
    ) -> Answer:
        """Record the jobs, make their pens and answer; undo all where the kernel refuses."""
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
        sealed = seal(answer)
        node.commit(changes, **sealed)
        try:
            node.fit(changes)
        except FenceError:
            self._undo(job, sealed["answer"])
            raise
        for name in changes.keys() - {job.job}:
            self._manager.told(node.state.jobs[name])
        self._releasing.guard(job)
        return answer

    def _undo(self, job: Job, answer: dict[str, Any]) -> None:
        node = self._node
        node.fence.remove(job.name(node.mark))
        back = leave(node.state.jobs, job.job)
        node.commit({job.job: None, **back}, retract=[answer["by"], answer["id"]])
        node.unfitted.discard(job.job)
        node.refit(back)
        for name in back:
            self._manager.told(node.state.jobs[name])

    async def bind(self, caller: Caller, request: Bind) -> Answer:
        """Move the process that asks into the pen of the job."""
        node = self._node
        job = node.state.jobs[request.job]
        if job.state is not JobState.RUNNING:
            raise LaunchError(f"{job.job}: it is {job.state}")
        if not caller.process:
            raise UsageError(f"{job.job}: a process of another host cannot enter it")
        if started(caller.process) != caller.start:
            raise LaunchError(f"{job.job}: the process that asked is gone")
        node.fence.admit(job.name(node.mark), caller.process)
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

    async def deallocate(self, request: Deallocate, seal: Seal) -> Answer:
        """End the job."""
        held = self._node.state.jobs[request.job].taken
        answer: Answer = {"job": request.job, "freed": str(held)}
        await self._releasing.release(request.job, request.grace, seal(answer))
        return answer
