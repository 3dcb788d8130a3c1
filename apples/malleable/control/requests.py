"""The job's end of the control protocol: its requests (`ResizeLedger`) and its sessions (`Responder`), both pure.

Their inputs are events, their outputs effects; neither holds a socket or reads a clock. The ledger has the waiting
request, the request in progress, and the outcomes of the others. The responder has the sessions and the requests
of each. The server admits only processes of the job's own user and of root.
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
"""Number of stored outcomes. A repetition of an older command is still rejected, by its epoch."""


@dataclass(frozen=True, slots=True)
class HostLimits:
    """The limits on the number of a job's hosts, and the known hosts.

    Attributes
    ----------
    known
        Names of the hosts that the job may use.
    scheduled
        Whether a command may add hosts.
    """

    minimum: int
    maximum: int
    known: frozenset[str]
    scheduled: bool = False

    @classmethod
    def of(cls, job: JobFile) -> HostLimits:
        """Return the limits of a job at its start."""
        known = frozenset(place.host for place in job.hosts)
        most = HOSTS_LIMIT if job.scheduled else len(known)
        return cls(job.minimum, job.maximum or most, known, job.scheduled)

    def asked(self, minimum: int, maximum: int) -> HostLimits:
        """Return the limits that an evolving job requests, bounded by the hosts; a maximum of 0: no limit."""
        there = HOSTS_LIMIT if self.scheduled else len(self.known)
        most = min(maximum or there, there)
        return replace(self, minimum=max(1, min(minimum, most)), maximum=most)

    def with_hosts_of(self, command: ResizeCommand) -> HostLimits:
        """Return the limits with a command's new hosts."""
        added = {place.host for place in command.places} if self.scheduled else set()
        return self if added <= self.known else replace(self, known=self.known | added)

    def refusal(self, command: ResizeCommand) -> tuple[RefusalReason, str] | None:
        """Return the reason to reject a command, in a word and a line; None if the limits permit it."""
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
    """Accepts requests, passes them to the job one at a time, and stores their outcomes.

    Attributes
    ----------
    epoch
        The last epoch that was used, by a command or by the job itself.
    limits
        The present limits, which an evolving job may replace at any time.
    waiting
        The next request for the job.
    begun
        The request in progress.
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
        """The request that makes the job busy: in progress or waiting."""
        return self.begun or self.waiting

    def submit(self, request: CommandRequest) -> CommandOutcome | None:
        """Accept a request or its repetition; return its outcome, None until it is known."""
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
        """Withdraw a request that has not begun; return the outcome, None if it has begun.

        A request that has not arrived is rejected too, also if it arrives later: otherwise its sender could not
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
        """Return the waiting command, if any, and mark it as begun."""
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
        """Record that the job completed the command; return the outcome."""
        request = self._over()
        self.last = CommandOutcome(
            "done", request.id, request.command.epoch, seconds=seconds, phases=dict(phases)
        )
        self.latest = self.last
        return self._record(request, self.last)

    def failed(self, detail: str, code: str = "resize-failed") -> CommandOutcome:
        """Record that the change failed and the job is unchanged; the epoch is used up."""
        request = self._over()
        self.latest = CommandOutcome(
            "failed", request.id, request.command.epoch, detail=detail, code=code
        )
        return self._record(request, self.latest)

    def rolled_back(
        self, epoch: int, detail: str, iteration: int, code: str = "host-lost"
    ) -> CommandOutcome | None:
        """Record that the job lost hosts; return the outcome of the request that was in progress or waiting."""
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
        """Record that the job ends; return the outcome of the request in progress.

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
        """Return the outcome of a request, if it is stored."""
        known = self._outcomes.get(identifier)
        return known[1] if known else None

    def _over(self) -> CommandRequest:
        """End the request in progress and return it; its epoch is used up."""
        if self.begun is None:
            raise RuntimeError("no command was begun")
        request, self.begun = self.begun, None
        self.epoch = max(self.epoch, request.command.epoch)
        return request

    def _record(self, request: CommandRequest, outcome: CommandOutcome) -> CommandOutcome:
        self._outcomes[request.id] = (request, outcome)
        # Outcomes of rejected commands are stored too: a late copy must not be carried out after its agent
        # received the refusal.
        while len(self._outcomes) > REMEMBERED_OUTCOMES:
            self._outcomes.popitem(last=False)
        return outcome


def _refused(request: CommandRequest, reason: RefusalReason, detail: str) -> CommandOutcome:
    return CommandOutcome("nack", request.id, request.command.epoch, reason, detail)


MAX_SESSIONS = 64


@dataclass(frozen=True, slots=True)
class SendToSession:
    """Send a line to a session."""

    session: int
    line: bytes


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Close a session."""

    session: int
    why: str


@dataclass(frozen=True, slots=True)
class WakeJob:
    """Wake the job's loop: a request waits."""


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
        Whether an agent has requested the end of the job.
    sessions
        Number of a session -> the identifiers of its requests. The session with the oldest last line is first.
    """

    def __init__(self, job: str, ledger: ResizeLedger, status: Callable[[], Body]) -> None:
        self.job = job
        self.ledger = ledger
        self._status = status
        self.cancelled = False
        self.sessions: dict[int, set[str]] = {}

    # ---------------------------------------------------------------- from the connections
    def opened(self, session: int) -> list[ResponderEffect]:
        """Greet a new session; if there are too many, close the session with the oldest last line."""
        effects = self._room()
        self.sessions[session] = set()
        return [*effects, SendToSession(session, encode({"job": self.job, "protocol": PROTOCOL}))]

    def received(self, session: int, line: bytes) -> list[ResponderEffect]:
        """Handle a line; an invalid line only closes its session."""
        asked = self.sessions.pop(session, None)
        if asked is None:
            return []
        self.sessions[session] = asked  # moved to the end, as the most recent session
        try:
            return self._answer(session, asked, parse(line))
        except MessageError as error:
            self.closed(session)
            return [CloseSession(session, str(error))]

    def closed(self, session: int) -> None:
        """Forget a session that was closed."""
        self.sessions.pop(session, None)

    # -------------------------------------------------------------------- from the job
    def begin(self) -> tuple[ResizeCommand | None, list[ResponderEffect]]:
        """Return the waiting command, if any, with the effects of its begin."""
        waiting, command = self.ledger.waiting, self.ledger.begin()
        refused = self.ledger.outcome(waiting.id) if waiting and command is None else None
        return command, self.send_outcome(refused)

    def send_outcome(self, outcome: CommandOutcome | None) -> list[ResponderEffect]:
        """Send an outcome to all sessions with its request."""
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
        """Reply with the outcome or an acknowledgement, and add the request to this session."""
        asked.add(identifier)
        if outcome is not None:
            return self.send_outcome(outcome)
        return [*self._reply(number, {"reply": "ack", "id": identifier}), WakeJob()]

    def _reply(self, number: int, body: Body) -> list[ResponderEffect]:
        return [SendToSession(number, encode(body))]
