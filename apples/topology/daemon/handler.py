"""`TopologyRequestHandler`: answers requests of any connection; `authorise` decides who may ask for what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from apples.errors import LaunchError, UsageError
from apples.topology.allocator import fit
from apples.topology.daemon import protocol
from apples.topology.daemon.allocating import Allocator, Answer, Seal, read_requirement
from apples.topology.daemon.node import NodeLedger
from apples.topology.daemon.protocol import READING, Caller
from apples.topology.daemon.recovery import recover
from apples.topology.daemon.releasing import Releaser
from apples.topology.daemon.resize_requests import NodeManager
from apples.topology.daemon.resizing import Resizer
from apples.topology.daemon.state import (
    ANSWER_SECONDS,
    AllocationState,
    Answered,
    CpuAllocation,
    Message,
    answer_document,
    digest_of,
    message_document,
)
from apples.topology.requirement import Satisfiability, Unsatisfied

Act = Callable[[Caller, Any, Seal], Coroutine[Any, Any, Answer]]
MOST_POSTED = 4096
"""Jobs that may have messages before they are allocated."""
MOST_POSTED_OF_ONE = 256
MOST_WRITTEN_OF_ONE = 1 << 20
"""Of one principal that is not the operator: such jobs, and bytes of all its messages."""


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
            "bind": lambda caller, request, _: allocating.bind(caller, request),
            "deallocate": lambda _, request, seal: allocating.deallocate(request, seal),
            "suspend": lambda _, request, seal: resizing.suspend(request, seal),
            "resume": lambda _, request, seal: resizing.resume(request, seal),
            "resize": lambda _, request, seal: resizing.resize(request, seal),
            "post": self._post,
        }
        self._running: dict[tuple[str, str], tuple[str, asyncio.Task[Answer]]] = {}

    def start(self) -> None:
        """Recover, and watch over what was recovered; inside a running event loop."""
        recover(self.node)
        for job in list(self.node.state.jobs.values()):
            if job.state is AllocationState.RELEASING:
                self.releasing.soon(job.job)
            elif job.state is AllocationState.RUNNING:
                self.releasing.guard(job)

    def watch(self) -> None:
        """Look at everything that changes without a request, and forget old messages."""
        self.releasing.watch()
        state, old = self.node.state, self.node.clock() - ANSWER_SECONDS
        forget = [
            name
            for name, messages in state.messages.items()
            if name not in state.jobs and max(m.at for m in messages.values()) < old
        ]
        if forget:
            self.node.commit({}, forget=forget)

    async def answer(self, caller: Caller, request: Any) -> Answer:
        """Return the answer to a request; one that was answered before gets that answer again.

        Raises
        ------
        ApplesError
            The refusal. Nothing has changed.
        """
        identity = getattr(request, "request", None)
        if identity is None:
            authorise(self.node, caller, request)
            return self._current(await self._act(caller, request, _unsealed))
        key = (caller.principal, identity)
        digest = digest_of(request.model_dump())
        known = self.node.state.answered(*key, digest)
        if known is not None:
            return self._current(known)
        authorise(self.node, caller, request)

        def seal(it: Answer) -> dict[str, Any]:
            answered = Answered(digest, it, self.node.clock())
            return {"answer": answer_document(*key, answered)}

        if key not in self._running:
            task = asyncio.get_running_loop().create_task(self._act(caller, request, seal))
            self._running[key] = digest, task
            task.add_done_callback(lambda _: self._running.pop(key, None))
        running, task = self._running[key]
        if running != digest:
            raise UsageError(
                f"request {identity}: this id is in use for another request",
                code="request-id-reused",
                value=identity,
            )
        try:
            return self._current(await asyncio.shield(task))
        finally:
            del task  # the traceback of its refusal holds this frame: a cycle, with the whole connection in it

    async def _act(self, caller: Caller, request: Any, seal: Seal) -> Answer:
        act = self._acts.get(request.verb)
        return self._look(request) if act is None else await act(caller, request, seal)

    def _look(self, request: Any) -> Answer:
        """Answer what changes nothing of the jobs."""
        match request:
            case protocol.ReadRequest():
                return self._read(request)
            case protocol.SatisfiesRequest():
                return self._satisfies(request)
            case protocol.JobsRequest():
                jobs = self.node.state.jobs.values()
                return {"jobs": [self._told(j) for j in jobs if request.job in {None, j.job}]}
            case protocol.RescanRequest():
                self.watch()
                return self._status()
            case protocol.StatusRequest():
                return self._status()
        raise UsageError(
            f"{request.verb} is not to be asked here", code="verb-unknown", value=request.verb
        )

    def _current(self, answer: Answer) -> Answer:
        """Return an answer with what the isolation backend guarantees now."""
        guarantee = self.node.guarantees.get(str(answer.get("job")))
        return answer if guarantee is None else {**answer, "guarantee": guarantee.value}

    def _status(self) -> Answer:
        node = self.node
        jobs = node.state.jobs.values()
        return {
            "schema": "apples.topologyd/1",
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

    def _told(self, job: CpuAllocation) -> Answer:
        """Return what anybody may know of a job."""
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

    async def _post(self, caller: Caller, request: protocol.PostRequest, seal: Seal) -> Answer:
        state = self.node.state
        if request.job not in state.messages and len(state.messages) >= MOST_POSTED:
            raise LaunchError(
                f"{MOST_POSTED} jobs have messages already",
                code="too-many-messages",
                field="jobs",
                bound=MOST_POSTED,
            )
        if not caller.operator:
            jobs, size = state.written(caller.principal)
            if request.job not in state.posted and jobs >= MOST_POSTED_OF_ONE:
                raise LaunchError(
                    f"{jobs} jobs have messages of {caller.principal} already",
                    code="quota-exceeded",
                    job=request.job,
                    principal=caller.principal,
                    field="messages",
                    value=jobs + 1,
                    bound=MOST_POSTED_OF_ONE,
                )
            if size + len(request.text.encode()) > MOST_WRITTEN_OF_ONE:
                raise LaunchError(
                    f"{caller.principal} has messages of {size} bytes, {MOST_WRITTEN_OF_ONE} are allowed",
                    code="quota-exceeded",
                    job=request.job,
                    principal=caller.principal,
                    field="bytes",
                    value=size + len(request.text.encode()),
                    bound=MOST_WRITTEN_OF_ONE,
                )
        message = Message(request.number, request.text, caller.principal, self.node.clock())
        answer: Answer = {"job": request.job, "number": request.number}
        posts = [message_document(message)]
        self.node.commit({}, job=request.job, posts=posts, **seal(answer))
        return answer

    def _read(self, request: protocol.ReadRequest) -> Answer:
        found = self.node.state.messages.get(request.job, {})
        if request.number is not None and request.number not in found:
            raise UsageError(
                f"{request.job}: there is no message {request.number}",
                code="message-unknown",
                job=request.job,
                value=request.number,
            )
        wanted = sorted(found) if request.number is None else [request.number]
        return {"job": request.job, "messages": [message_document(found[n]) for n in wanted]}


def authorise(node: NodeLedger, caller: Caller, request: Any) -> None:
    """Let a request pass, or not: the one place where that is decided.

    Every caller that may connect may look. A job is its owner's, and its messages belong to the first that posted;
    the operator may act on all.

    Raises
    ------
    UsageError
        It is not for this caller, or there is no such job. Permanent.
    """
    if request.verb in READING:
        return
    if not caller.writes and request.verb != "read":
        raise UsageError(
            f"{request.verb}: {caller.principal} has read access only",
            code="permission-denied",
            verb=request.verb,
            principal=caller.principal,
        )
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
    owner = job.principal if job is not None else node.state.posted.get(request.job)
    if owner is None and request.verb not in {"allocate", "post"}:
        raise UsageError(
            f"{request.verb}: there is no job {request.job}",
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
    if job is None and request.verb not in {"allocate", "post", "read"}:
        raise UsageError(
            f"{request.verb}: there is no job {request.job}",
            code="job-unknown",
            verb=request.verb,
            job=request.job,
        )


def _unsealed(_: Answer) -> dict[str, Any]:
    return {}
