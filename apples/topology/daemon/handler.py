"""`TopologyRequestHandler`: answers requests of any connection; `authorise` checks permissions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict
from typing import Any

from apples.errors import LaunchError, UsageError
from apples.topology.allocator import fit
from apples.topology.daemon import protocol
from apples.topology.daemon.allocating import Allocator, Answer, read_requirement
from apples.topology.daemon.node import NodeLedger
from apples.topology.daemon.protocol import READING, Caller
from apples.topology.daemon.recovery import recover
from apples.topology.daemon.releasing import Releaser
from apples.topology.daemon.resize_requests import NodeManager
from apples.topology.daemon.resizing import Resizer
from apples.topology.daemon.state import (
    AllocationState,
    AttachedRequirement,
    CpuAllocation,
)
from apples.topology.requirement import Satisfiability, Unsatisfied

Act = Callable[[Caller, Any], Coroutine[Any, Any, Answer]]
ATTACHED_SECONDS = 86_400.0
"""Seconds that an attached requirement waits for the allocation of its job."""
MAX_ATTACHED, MAX_ATTACHED_OF_USER = 4096, 256
"""Attached requirements of all users, and of one user except the operator."""


class TopologyRequestHandler:
    """The daemon without its sockets.

    Parameters
    ----------
    node
        The host.
    """

    def __init__(self, node: NodeLedger) -> None:
        self.node = node
        self.manager = NodeManager(node)
        self.releasing = Releaser(node, self.manager)
        allocating = Allocator(node, self.manager, self.releasing)
        resizing = Resizer(node, self.manager, self.releasing)
        self._acts: Mapping[str, Act] = {
            "allocate": allocating.allocate,
            "bind": allocating.bind,
            "deallocate": lambda _, request: allocating.deallocate(request),
            "suspend": lambda _, request: resizing.suspend(request),
            "resume": resizing.resume,
            "resize": resizing.resize,
            "attach": self._attach,
        }

    def start(self) -> None:
        """Recover the state, and watch the recovered jobs. Call it inside a running event loop."""
        recover(self.node)
        for job in list(self.node.state.jobs.values()):
            if job.state is AllocationState.RELEASING:
                self.releasing.soon(job.job)
            elif job.state is AllocationState.RUNNING:
                self.releasing.guard(job)

    def watch(self) -> None:
        """Check everything that changes without a request, and drop old attached requirements."""
        self.releasing.watch()
        old = self.node.clock() - ATTACHED_SECONDS
        forget = [name for name, it in self.node.state.attached.items() if it.at < old]
        if forget:
            self.node.commit({}, forget=forget)

    async def answer(self, caller: Caller, request: Any) -> Answer:
        """Return the answer to a request. A repeated request changes nothing more.

        Raises
        ------
        ApplesError
            The request is refused and nothing has changed.
        """
        authorise(self.node, caller, request)
        act = self._acts.get(request.verb)
        return self._current(self._query(request) if act is None else await act(caller, request))

    def _query(self, request: Any) -> Answer:
        """Answer a request that changes no job."""
        match request:
            case protocol.ReadRequest():
                return self._read(request)
            case protocol.SatisfiesRequest():
                return self._satisfies(request)
            case protocol.JobsRequest():
                jobs = self.node.state.jobs.values()
                return {
                    "jobs": [self._public_fields(j) for j in jobs if request.job in {None, j.job}]
                }
            case protocol.RescanRequest():
                self.watch()
                return self._status()
            case protocol.StatusRequest():
                return self._status()
        raise UsageError(
            f"{request.verb}: not a request for this connection",
            code="verb-unknown",
            value=request.verb,
        )

    def _current(self, answer: Answer) -> Answer:
        """Return an answer with the current guarantee of the isolation backend."""
        guarantee = self.node.guarantees.get(str(answer.get("job")))
        return answer if guarantee is None else {**answer, "guarantee": guarantee.value}

    def _status(self) -> Answer:
        node = self.node
        jobs = node.state.jobs.values()
        return {
            "schema": "apples.topologyd/1",
            "protocol": protocol.PROTOCOL,
            "fence": node.isolation.title,
            "universe": str(node.universe),
            "sharing_factor": node.options.sharing_factor,
            "free": str(node.free),
            "epoch": node.epoch,
            "version": node.version,
            "jobs": len(jobs),
            "foreign": {path: str(cpus) for path, cpus in sorted(node.foreign.items())},
            "quarantined": {
                j.job: str(j.taken) for j in jobs if j.state is AllocationState.QUARANTINED
            },
            "problems": list(node.problems),
        }

    def _public_fields(self, job: CpuAllocation) -> Answer:
        """Return the public fields of a job."""
        guarantee = self.node.guarantees.get(job.job)
        return {
            "job": job.job,
            "number": job.number,
            "principal": job.principal,
            "state": job.state.value,
            "cpus": str(job.holds),
            "owns": str(job.owns),
            "mems": str(job.mems),
            "pen": job.name(self.node.mark),
            "guarantee": None if guarantee is None else guarantee.value,
        }

    def _satisfies(self, request: protocol.SatisfiesRequest) -> Answer:
        node = self.node
        requirement = read_requirement(node, request.requirement, request.count)
        found = fit(node.topology, node.free, requirement)
        if isinstance(found, Unsatisfied):
            answer = {"reason": found.reason, "key": found.key}
            return {"satisfies": found.verdict.value, **answer, "version": node.version}
        return {
            "satisfies": Satisfiability.YES.value,
            "cpus": str(found.cpus),
            "radius": found.radius,
            "centre": found.centre,
            "total": found.total,
            "version": node.version,
        }

    async def _attach(self, caller: Caller, request: protocol.AttachRequest) -> Answer:
        node, name = self.node, request.job
        read_requirement(node, request.requirement, 1)
        if name in node.state.jobs:
            raise UsageError(
                f"{name}: the job has its CPUs already; attach a requirement before",
                code="job-exists",
                job=name,
                value=node.state.jobs[name].state.value,
            )
        others = [it for job, it in node.state.attached.items() if job != name]
        own = sum(it.principal == caller.principal for it in others)
        for field, value, bound in (
            ("attached", len(others) + 1, MAX_ATTACHED),
            ("attached", 0 if caller.operator else own + 1, MAX_ATTACHED_OF_USER),
        ):
            if value > bound:
                raise LaunchError(
                    f"{name}: {value} jobs would have requirements but no CPUs; the limit is {bound}",
                    code="quota-exceeded",
                    job=name,
                    principal=caller.principal,
                    field=field,
                    value=value,
                    bound=bound,
                )
        entry = AttachedRequirement(request.requirement, caller.principal, node.clock())
        node.commit({}, attach={name: asdict(entry)})
        return {"job": name}

    def _read(self, request: protocol.ReadRequest) -> Answer:
        state = self.node.state
        entry = state.jobs.get(request.job) or state.attached[request.job]
        return {"job": request.job, "requirement": entry.requirement}


def authorise(node: NodeLedger, caller: Caller, request: Any) -> None:
    """Check whether a caller may make a request. This is the only check of permissions.

    Every user may read the status. A job, also a future one, belongs to its owner; the operator may change all
    jobs.

    Raises
    ------
    UsageError
        The caller may not make the request, or the job does not exist. Permanent.
    """
    if request.verb in READING:
        return
    if request.verb == "rescan":
        if not caller.operator:
            raise UsageError(
                f"rescan: {caller.principal} is not the operator",
                code="permission-denied",
                verb="rescan",
                principal=caller.principal,
            )
        return
    job = node.state.jobs.get(request.job)
    entry = job or node.state.attached.get(request.job)
    owner = None if entry is None else entry.principal
    if owner is None and request.verb not in {"allocate", "attach"}:
        raise UsageError(
            f"{request.verb}: no such job: {request.job}",
            code="job-unknown",
            verb=request.verb,
            job=request.job,
        )
    if owner is not None and owner != caller.principal and not caller.operator:
        raise UsageError(
            f"{request.verb}: job {request.job} is not {caller.principal}'s",
            code="permission-denied",
            verb=request.verb,
            principal=caller.principal,
            job=request.job,
        )
    if job is None and request.verb not in {"allocate", "attach", "read"}:
        raise UsageError(
            f"{request.verb}: no such job: {request.job}",
            code="job-unknown",
            verb=request.verb,
            job=request.job,
        )
