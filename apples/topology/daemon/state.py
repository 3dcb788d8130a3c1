"""What the daemon knows, as records make it: pure, so that replaying the journal gives the same again.

A record holds the allocations it changes as they are afterwards. A record that is lost is therefore made
good by the next one about the same job.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

from apples.errors import UsageError
from apples.topology.cpus import NO_CPUS, CpuSet
from apples.topology.isolation.backend import CpuContainer


class AllocationState(StrEnum):
    """Where an allocation is in its life."""

    RUNNING = "running"
    """It has its CPUs and its container."""
    SUSPENDED = "suspended"
    """Its processes are stopped and its CPUs are given back."""
    RELEASING = "releasing"
    """Its processes are being killed; its CPUs are not free yet."""
    QUARANTINED = "quarantined"
    """They could not be killed: its CPUs stay out of use until they are gone."""


class EndCondition(StrEnum):
    """What ends an allocation that is not deallocated."""

    KEEPER = "keeper"
    """The end of the process that asked for it."""
    EMPTY = "empty"
    """The end of the last process in it."""
    TOLD = "told"
    """Nothing."""


@dataclass(frozen=True, slots=True)
class CpuAllocation:
    """One allocation.

    Attributes
    ----------
    job
        The name its owner chose.
    number
        Of the allocation: never used twice, so that a job of the same name is another.
    principal
        Its owner: ``uid:1000`` or ``token:ada``.
    state
        Where it is in its life.
    owns
        The CPUs it was given: what it has while it shares with no other job.
    holds
        The CPUs it runs on now: less while a guest has some, and what is borrowed.
    mems
        Memory nodes.
    exclusive
        CPUSET_CPU_EXCLUSIVE: never shared.
    least
        CPUs it cannot do without; 0: it cannot be resized (not malleable).
    requirement
        As it was given, for the resume.
    count
        CPUs asked for.
    until, keeper
        What ends it, and the process (number and start) that asked for it.
    was
        While suspended: the CPUs it owned.
    """

    job: str
    number: int
    principal: str
    state: AllocationState = AllocationState.RUNNING
    owns: CpuSet = NO_CPUS
    holds: CpuSet = NO_CPUS
    mems: CpuSet = NO_CPUS
    exclusive: bool = False
    least: int = 0
    requirement: str = ""
    count: int = 1
    until: EndCondition = EndCondition.TOLD
    keeper: str = ""
    was: CpuSet = NO_CPUS

    def container(self, mark: str) -> CpuContainer:
        """Return where its processes may run."""
        return CpuContainer(self.name(mark), self.holds, self.mems, self.exclusive)

    def name(self, mark: str) -> str:
        """Return the name of its container."""
        return f"topologyd-{mark}-{self.job}-{self.number}"

    @property
    def malleable(self) -> bool:
        """Whether it can be resized while it runs."""
        return self.least > 0

    @property
    def taken(self) -> CpuSet:
        """What is not free because of it."""
        return self.owns | self.holds

    def change(self, **changes: Any) -> CpuAllocation:
        """Return it with some attributes changed."""
        return replace(self, **changes)

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        found: dict[str, Any] = {}
        for each in fields(self):
            value = getattr(self, each.name)
            found[each.name] = str(value) if isinstance(value, CpuSet) else value
        return found

    @staticmethod
    def parse(document: dict[str, Any]) -> CpuAllocation:
        """Return the job of a `document`.

        Raises
        ------
        ValueError, KeyError, TypeError, UsageError
            It is none.
        """
        sets = {name: CpuSet.parse(document[name]) for name in ("owns", "holds", "mems", "was")}
        rest = {
            **document,
            **sets,
            "state": AllocationState(document["state"]),
            "until": EndCondition(document["until"]),
        }
        return CpuAllocation(**rest)


MOST_ANSWERS: Final = 10_000
MOST_ANSWERS_OF_ONE: Final = 1000
"""Of one principal: whoever asks more often forgets the own ones first, and nobody else's."""
ANSWER_SECONDS: Final = 86_400.0
"""How long a request may be repeated and gets its first answer again; the oldest go first."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One text attached to a job, under its number."""

    number: int
    text: str
    by: str
    at: float


@dataclass(frozen=True, slots=True)
class Answered:
    """What a request was answered with."""

    digest: str
    answer: dict[str, Any]
    at: float


@dataclass
class NodeState:
    """Jobs, messages and answers.

    Attributes
    ----------
    jobs
        Name -> `CpuAllocation`.
    messages
        Name of the job -> number -> `Message`.
    posted
        Name of the job -> owner of its messages: the principal that posted the first.
    answers
        Principal -> request id -> `Answered`, oldest first.
    number
        The highest number of an allocation so far.
    boot
        Of the machine, when the jobs were started.
    """

    jobs: dict[str, CpuAllocation] = field(default_factory=dict)
    messages: dict[str, dict[int, Message]] = field(default_factory=dict)
    posted: dict[str, str] = field(default_factory=dict)
    answers: dict[str, OrderedDict[str, Answered]] = field(default_factory=dict)
    number: int = 0
    boot: str = ""

    def apply(self, record: Record) -> None:
        """Take in a record.

        Raises
        ------
        ValueError, KeyError, TypeError, UsageError
            It is none of ours; nothing was taken in.
        """
        jobs = {name: _job(name, document) for name, document in record.get("jobs", {}).items()}
        posts = [Message(**entry) for entry in record.get("posts", ())]
        answer = record.get("answer")
        answered = (
            None if answer is None else Answered(answer["digest"], answer["it"], answer["at"])
        )
        for name, job in jobs.items():
            if job is None:
                self.jobs.pop(name, None)
                self.messages.pop(name, None)
                self.posted.pop(name, None)
            else:
                self.jobs[name] = job
                self.number = max(self.number, job.number)
        self.number = max(self.number, record.get("number", 0))
        self.boot = str(record.get("boot", self.boot))
        if "retract" in record:
            by, request = record["retract"]
            self._forget(by, request)
        for message in posts:
            self.messages.setdefault(record["job"], {})[message.number] = message
            self.posted.setdefault(record["job"], message.by)
        for name in record.get("forget", ()):
            self.messages.pop(name, None)
            self.posted.pop(name, None)
        if answer is not None and answered is not None:
            self._remember(answer["by"], answer["id"], answered)

    def records(self) -> list[Record]:
        """Return records that make this state from nothing."""
        found: list[Record] = [{"do": "boot", "boot": self.boot, "number": self.number}]
        found += [{"do": "jobs", "jobs": {n: j.document()}} for n, j in self.jobs.items()]
        for job, messages in self.messages.items():
            posts = [message_document(m) for m in messages.values()]
            found += [{"do": "post", "job": job, "posts": [post]} for post in posts]
        for by, own in self.answers.items():
            for request, answered in own.items():
                document = answer_document(by, request, answered)
                found.append({"do": "answer", "answer": document})
        return found

    def answered(self, principal: str, request: str, digest: str) -> dict[str, Any] | None:
        """Return what this request was answered with, if it was.

        Raises
        ------
        UsageError
            The id was used for another request. Permanent.
        """
        own = self.answers.get(principal)
        found = None if own is None else own.get(request)
        if found is None:
            return None
        if found.digest != digest:
            raise UsageError(
                f"request {request}: this id was used for another request",
                code="request-id-reused",
                value=request,
            )
        return found.answer

    def written(self, principal: str) -> tuple[int, int]:
        """Return how many jobs have messages that the principal began, and the bytes of all that it posted."""
        texts = (m for messages in self.messages.values() for m in messages.values())
        began = sum(by == principal for by in self.posted.values())
        return began, sum(len(m.text.encode()) for m in texts if m.by == principal)

    def _remember(self, by: str, request: str, answered: Answered) -> None:
        self._forget(by, request)
        own = self.answers.setdefault(by, OrderedDict())
        own[request] = answered
        while len(own) > MOST_ANSWERS_OF_ONE or (
            next(iter(own.values())).at < answered.at - ANSWER_SECONDS
        ):
            own.popitem(last=False)
        while sum(map(len, self.answers.values())) > MOST_ANSWERS:
            most = max(self.answers, key=lambda one: len(self.answers[one]))
            self._forget(most, next(iter(self.answers[most])))

    def _forget(self, by: str, request: str) -> None:
        own = self.answers.get(by)
        if own is not None:
            own.pop(request, None)
            if not own:
                del self.answers[by]


def taken(jobs: Iterable[CpuAllocation]) -> CpuSet:
    """Return the CPUs that are not free because of some jobs."""
    found = NO_CPUS
    for job in jobs:
        found |= job.taken
    return found


def digest_of(request: Mapping[str, Any]) -> str:
    """Return by what two requests of the same id are told apart."""
    return sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:32]


def answer_document(by: str, request: str, answered: Answered) -> dict[str, Any]:
    """Return an answer as it stands in a record."""
    return {
        "by": by,
        "id": request,
        "digest": answered.digest,
        "it": answered.answer,
        "at": answered.at,
    }


def message_document(message: Message) -> dict[str, Any]:
    """Return a message as JSON."""
    return {"number": message.number, "text": message.text, "by": message.by, "at": message.at}


def _job(name: str, document: dict[str, Any] | None) -> CpuAllocation | None:
    if document is None:
        return None
    job = CpuAllocation.parse(document)
    if job.job != name:
        raise ValueError(f"a record of {job.job} under the name {name}")
    return job
