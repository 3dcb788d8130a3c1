"""The job's end of the control protocol: its requests (`ResizeLedger`) and its sessions (`Responder`), both pure.

Events go in, effects come out; neither holds a socket or reads a clock. The ledger knows which request waits,
which is being carried out, and the outcome of the others. The responder knows the sessions, and which requests
each asked about. The server lets in processes of the job's own user and of root only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from apples.io.json_lines import encode
from apples.launch.host_spec import HOSTS_LIMIT
from apples.malleable.control.command import ResizeCommand
from apples.malleable.control.job_file import JobFile
from apples.malleable.control.messages import (
    DETAIL_LIMIT,
    PROTOCOL,
    Body,
    CommandOutcome,
    CommandRequest,
    MessageError,
    RefusalReason,
    identifier_of,
    parse,
    request_of,
)

REMEMBERED_OUTCOMES = 256
"""Outcomes kept. An older command that was carried out is still refused, by its epoch."""


@dataclass(frozen=True, slots=True)
class HostLimits:
    """How many hosts a job runs on, and which there are.

    Attributes
    ----------
    known
        Names of the hosts it may be sent to.
    scheduled
        Whether a command may add hosts.
    """

    minimum: int
    maximum: int
    known: frozenset[str]
    scheduled: bool = False

    @classmethod
    def of(cls, job: JobFile) -> HostLimits:
        """Return the limits of a job that begins."""
        known = frozenset(place.host for place in job.hosts)
        most = HOSTS_LIMIT if job.scheduled else len(known)
        return cls(job.minimum, job.maximum or most, known, job.scheduled)

    def asked(self, minimum: int, maximum: int) -> HostLimits:
        """Return the limits that an evolving job asks for, within the hosts; a maximum of 0 is no limit."""
        there = HOSTS_LIMIT if self.scheduled else len(self.known)
        most = min(maximum or there, there)
        return replace(self, minimum=max(1, min(minimum, most)), maximum=most)

    def with_hosts_of(self, command: ResizeCommand) -> HostLimits:
        """Return the limits with the hosts that a command adds."""
        added = {place.host for place in command.places} if self.scheduled else set()
        return self if added <= self.known else replace(self, known=self.known | added)

    def refusal(self, command: ResizeCommand) -> tuple[RefusalReason, str] | None:
        """Return the reason of a refusal, in a word and a line; None if the limits allow the command."""
        known = self.with_hosts_of(command).known
        unknown = [share.host for share in command.hosts if share.host not in known]
        if unknown:
            return (
                "unknown_host",
                f"unknown host '{unknown[0]}': the job's host list has no such",
            )
        count = len(command.hosts)
        if count < self.minimum:
            return "below_minimum", f"{count} hosts, the job needs at least {self.minimum}"
        if count > self.maximum:
            return "over_maximum", f"{count} hosts, the job can use at most {self.maximum}"
        return None


class ResizeLedger:
    """Takes requests in, hands them to the job one at a time, remembers their outcomes.

    Attributes
    ----------
    epoch
        The last that was taken, by a command or by the job itself.
    limits
        May be replaced at any time: an evolving job asks for others.
    waiting
        The request that the job is to carry out next.
    begun
        The request that it is carrying out.
    last
        The last outcome ``done``.
    latest
        The last outcome of a change that the job began, by command or by itself.
    """

    def __init__(self, limits: HostLimits, epoch: int = 0) -> None:
        self.epoch = epoch
        self.limits = limits
        self.waiting: CommandRequest | None = None
        self.begun: CommandRequest | None = None
        self.last: CommandOutcome | None = None
        self.latest: CommandOutcome | None = None
        self._ended = ""
        self._outcomes: OrderedDict[str, tuple[CommandRequest, CommandOutcome]] = OrderedDict()

    @property
    def busy(self) -> CommandRequest | None:
        """The request because of which another is refused."""
        return self.begun or self.waiting

    def submit(self, request: CommandRequest) -> CommandOutcome | None:
        """Take a request in, or again; return the outcome, None while there is none."""
        if request.id in self._outcomes:
            before, outcome = self._outcomes[request.id]
            if (
                before == request or not before.command.hosts
            ):  # no hosts: withdrawn before it arrived
                return outcome
            return _refused(request, "malformed", "another command has the same id")
        if self.busy == request:
            return None
        refusal = self._refusal(request.command)
        if refusal is not None:
            return self._record(request, _refused(request, *refusal))
        self.waiting = request
        return None

    def _refusal(self, command: ResizeCommand) -> tuple[RefusalReason, str] | None:
        if self._ended:
            return "ending", f"the job is {self._ended}"
        if self.busy is not None:
            what = "being carried out" if self.begun else "waiting"
            return "busy", f"another resize is {what}"
        if command.epoch != self.epoch + 1:
            return "stale", f"made for epoch {command.epoch - 1}, the job is in {self.epoch}"
        return self.limits.refusal(command)

    def withdraw(self, identifier: str) -> CommandOutcome | None:
        """Withdraw a request that has not begun; return the outcome, None if it has begun and cannot stop.

        A request that has not arrived is refused too, even if it arrives later: otherwise its sender could not
        know its outcome.
        """
        if identifier in self._outcomes:
            return self._outcomes[identifier][1]
        if self.begun is not None and self.begun.id == identifier:
            return None
        if self.waiting is not None and self.waiting.id == identifier:
            request, self.waiting = self.waiting, None
        else:
            request = CommandRequest(identifier, ResizeCommand(0, ()))
        return self._record(request, _refused(request, "withdrawn", "withdrawn by the agent"))

    def begin(self) -> ResizeCommand | None:
        """Return the command that the job is to carry out now, if one waits, and record its begin."""
        if self.waiting is None:
            return None
        request, self.waiting = self.waiting, None
        refusal = self.limits.refusal(request.command)  # they may have changed since
        if refusal is not None:
            self._record(request, _refused(request, *refusal))
            return None
        self.limits = self.limits.with_hosts_of(request.command)
        self.begun = request
        return request.command

    def done(self, seconds: float, phases: Mapping[str, float]) -> CommandOutcome:
        """Take in that the job did it; return the outcome."""
        request = self._over()
        self.last = CommandOutcome(
            "done", request.id, request.command.epoch, seconds=seconds, phases=dict(phases)
        )
        self.latest = self.last
        return self._record(request, self.last)

    def failed(self, detail: str, code: str = "resize-failed") -> CommandOutcome:
        """Take in that the job tried and is as it was; the epoch has passed."""
        request = self._over()
        self.latest = CommandOutcome(
            "failed", request.id, request.command.epoch, detail=detail, code=code
        )
        return self._record(request, self.latest)

    def rolled_back(
        self, epoch: int, detail: str, iteration: int, code: str = "host-lost"
    ) -> CommandOutcome | None:
        """Take in that the job lost hosts; return the outcome on the request that was under way or waited."""
        self.epoch = max(self.epoch + 1, epoch)
        about = self.begun.id if self.begun else ""
        self.latest = CommandOutcome(
            "rolled_back", about, self.epoch, detail=detail, iteration=iteration, code=code
        )
        if self.begun is not None:
            return self._record(self._over(), self.latest)
        if self.waiting is None:
            return None
        request, self.waiting = self.waiting, None
        return self._record(
            request, _refused(request, "stale", "the job's hosts changed meanwhile")
        )

    def end(self, state: str, why: str = "", code: str = "") -> CommandOutcome | None:
        """Take in that the job ends; return the outcome on the request that was under way.

        `code` names why it failed, for example ``too-few-hosts-left``.
        """
        self._ended = state
        if self.begun is not None:
            request = self._over()
            detail = (f"the job is {state}" + (f": {why}" if why else ""))[:DETAIL_LIMIT]
            outcome = CommandOutcome(
                "ended", request.id, request.command.epoch, detail=detail, code=code
            )
            return self._record(request, outcome)
        if self.waiting is None:
            return None
        request, self.waiting = self.waiting, None
        return self._record(request, _refused(request, "ending", f"the job is {state}"))

    def outcome(self, identifier: str) -> CommandOutcome | None:
        """Return the outcome of a request, if it is remembered."""
        known = self._outcomes.get(identifier)
        return known[1] if known else None

    def _over(self) -> CommandRequest:
        """Return the request that was begun and end it; its epoch is used up."""
        if self.begun is None:
            raise RuntimeError("no command was begun")
        request, self.begun = self.begun, None
        self.epoch = max(self.epoch, request.command.epoch)
        return request

    def _record(self, request: CommandRequest, outcome: CommandOutcome) -> CommandOutcome:
        self._outcomes[request.id] = (request, outcome)
        # Refused commands are remembered too: a late copy must not be carried out after its agent
        # received the refusal.
        while len(self._outcomes) > REMEMBERED_OUTCOMES:
            self._outcomes.popitem(last=False)
        return outcome


def _refused(request: CommandRequest, reason: RefusalReason, detail: str) -> CommandOutcome:
    return CommandOutcome("nack", request.id, request.command.epoch, reason, detail)


MAX_SESSIONS = 64


@dataclass(frozen=True, slots=True)
class SendToSession:
    """Write a line to a session."""

    session: int
    line: bytes


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End a session."""

    session: int
    why: str


@dataclass(frozen=True, slots=True)
class WakeJob:
    """The job has something to do."""


ResponderEffect = SendToSession | CloseSession | WakeJob


class Responder:
    """Answers the agents of one job.

    Parameters
    ----------
    status
        Returns the job's status as a body.

    Attributes
    ----------
    ledger
        The job's requests.
    cancelled
        Whether an agent has asked the job to end.
    sessions
        By number of a connection: the identifiers of the requests that it asked about. The session that was silent
        for longest comes first.
    """

    def __init__(self, job: str, ledger: ResizeLedger, status: Callable[[], Body]) -> None:
        self.job = job
        self.ledger = ledger
        self._status = status
        self.cancelled = False
        self.sessions: dict[int, set[str]] = {}

    # ---------------------------------------------------------------- from the connections
    def opened(self, session: int) -> list[ResponderEffect]:
        """Greet a new session; if there are too many, close the session that was silent for longest."""
        effects = self._room()
        self.sessions[session] = set()
        return [*effects, SendToSession(session, encode({"job": self.job, "protocol": PROTOCOL}))]

    def received(self, session: int, line: bytes) -> list[ResponderEffect]:
        """Take in a line; an invalid one ends its session and does nothing else."""
        asked = self.sessions.pop(session, None)
        if asked is None:
            return []
        self.sessions[session] = asked  # the last now
        try:
            return self._answer(session, asked, parse(line))
        except MessageError as error:
            self.closed(session)
            return [CloseSession(session, str(error))]

    def closed(self, session: int) -> None:
        """Take in that a session is over."""
        self.sessions.pop(session, None)

    # -------------------------------------------------------------------- from the job
    def begin(self) -> tuple[ResizeCommand | None, list[ResponderEffect]]:
        """Return the command that the job is to carry out now, if one waits."""
        waiting, command = self.ledger.waiting, self.ledger.begin()
        refused = self.ledger.outcome(waiting.id) if waiting and command is None else None
        return command, self.send_outcome(refused)

    def send_outcome(self, outcome: CommandOutcome | None) -> list[ResponderEffect]:
        """Send an outcome to every session that asked about it."""
        effects: list[ResponderEffect] = []
        if outcome is not None:
            for number, asked in self.sessions.items():
                if outcome.id in asked:
                    asked.discard(outcome.id)
                    effects += self._reply(number, outcome.body())
        return effects

    # ----------------------------------------------------------------------- sessions
    def _room(self) -> list[ResponderEffect]:
        if len(self.sessions) < MAX_SESSIONS:
            return []
        idlest = next(iter(self.sessions))
        self.closed(idlest)
        return [CloseSession(idlest, "too many sessions")]

    def _answer(self, number: int, asked: set[str], body: Body) -> list[ResponderEffect]:
        request = body.get("request")
        if request == "status":
            return self._reply(number, {"reply": "status", **self._status()})
        if request == "cancel":
            self.cancelled = True
            return [*self._reply(number, {"reply": "cancelling"}), WakeJob()]
        if request == "resize":
            command = request_of(body)
            return self._reply_about(number, asked, command.id, self.ledger.submit(command))
        if request == "withdraw":
            identifier = identifier_of(body)
            return self._reply_about(number, asked, identifier, self.ledger.withdraw(identifier))
        raise MessageError("'request' must be status, resize, withdraw or cancel")

    def _reply_about(
        self, number: int, asked: set[str], identifier: str, outcome: CommandOutcome | None
    ) -> list[ResponderEffect]:
        """Reply with the outcome or an acknowledgement, and note that this session asked."""
        asked.add(identifier)
        if outcome is not None:
            return self.send_outcome(outcome)
        return [*self._reply(number, {"reply": "ack", "id": identifier}), WakeJob()]

    def _reply(self, number: int, body: Body) -> list[ResponderEffect]:
        return [SendToSession(number, encode(body))]
