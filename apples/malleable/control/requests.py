"""The job's end of the control protocol: its requests (`ResizeLedger`) and its sessions (`Responder`), both pure.

Events go in, effects come out; neither holds a socket or reads a clock. The ledger knows which request is waiting,
which is being carried out, and the outcome of the others. The responder knows the peers: those that have not yet
proved that they know the secret cost little, for few of them are held, for a short time, with short lines, and
the oldest goes when another comes. Nothing such a peer sends reaches the ledger.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from apples.launch.host_spec import HOSTS_LIMIT
from apples.malleable.control.command import ResizeCommand
from apples.malleable.control.job_file import JobFile
from apples.malleable.control.messages import (
    DETAIL_LIMIT,
    PROTOCOL,
    CommandOutcome,
    CommandRequest,
    RefusalReason,
    identifier_of,
    request_of,
)
from apples.malleable.control.sealing import (
    CHALLENGE_BYTES,
    LINE_LIMIT,
    UNAUTHENTICATED_LINE_LIMIT,
    Body,
    ForgeryError,
    Opener,
    Proof,
    Sealer,
    canonical,
    challenge_of,
    parse,
    text_of,
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
        Whether a command may say of others how they are reached.
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
        """Return the limits that an evolving job asks for, as far as there are hosts; a maximum of 0 is none."""
        there = HOSTS_LIMIT if self.scheduled else len(self.known)
        most = min(maximum or there, there)
        return replace(self, minimum=max(1, min(minimum, most)), maximum=most)

    def told(self, command: ResizeCommand) -> HostLimits:
        """Return the limits with what a command says of hosts."""
        told = {place.host for place in command.places} if self.scheduled else set()
        return self if told <= self.known else replace(self, known=self.known | told)

    def refusal(self, command: ResizeCommand) -> tuple[RefusalReason, str] | None:
        """Return why the limits refuse a command, in a word and a line; None if they do not."""
        known = self.told(command).known
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
        The last outcome of what the job began, or began by itself.
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
        """The request that stands in the way of another."""
        return self.begun or self.waiting

    def submit(self, request: CommandRequest) -> CommandOutcome | None:
        """Take a request in, or again; return the outcome, None while there is none."""
        if request.id in self._outcomes:
            before, outcome = self._outcomes[request.id]
            if before == request or not before.command.hosts:  # none: taken back before it came
                return outcome
            return _refused(request, "malformed", "another command has the same id")
        if self.busy == request:
            return None
        refusal = self._refusal(request.command)
        if refusal is not None:
            return self._settle(request, _refused(request, *refusal))
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
        """Take a request back if it has not begun; return the outcome, None if it must run its course.

        One that has not come is refused too, and stays so should it come late: otherwise its sender could not
        know.
        """
        if identifier in self._outcomes:
            return self._outcomes[identifier][1]
        if self.begun is not None and self.begun.id == identifier:
            return None
        if self.waiting is not None and self.waiting.id == identifier:
            request, self.waiting = self.waiting, None
        else:
            request = CommandRequest(identifier, ResizeCommand(0, ()))
        return self._settle(request, _refused(request, "withdrawn", "the agent took it back"))

    def begin(self) -> ResizeCommand | None:
        """Return what the job is to do now, if anything waits; it has begun then."""
        if self.waiting is None:
            return None
        request, self.waiting = self.waiting, None
        refusal = self.limits.refusal(request.command)  # they may have changed since
        if refusal is not None:
            self._settle(request, _refused(request, *refusal))
            return None
        self.limits = self.limits.told(request.command)
        self.begun = request
        return request.command

    def done(self, seconds: float, phases: Mapping[str, float]) -> CommandOutcome:
        """Take in that the job did it; return the outcome."""
        request = self._over()
        self.last = CommandOutcome(
            "done", request.id, request.command.epoch, seconds=seconds, phases=dict(phases)
        )
        self.latest = self.last
        return self._settle(request, self.last)

    def failed(self, detail: str, code: str = "resize-failed") -> CommandOutcome:
        """Take in that the job tried and is as it was; the epoch has passed."""
        request = self._over()
        self.latest = CommandOutcome(
            "failed", request.id, request.command.epoch, detail=detail, code=code
        )
        return self._settle(request, self.latest)

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
            return self._settle(self._over(), self.latest)
        if self.waiting is None:
            return None
        request, self.waiting = self.waiting, None
        return self._settle(
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
            return self._settle(request, outcome)
        if self.waiting is None:
            return None
        request, self.waiting = self.waiting, None
        return self._settle(request, _refused(request, "ending", f"the job is {state}"))

    def outcome(self, identifier: str) -> CommandOutcome | None:
        """Return the outcome of a request, if it is remembered."""
        known = self._outcomes.get(identifier)
        return known[1] if known else None

    def _over(self) -> CommandRequest:
        """Return what was begun, over now; its epoch is taken."""
        if self.begun is None:
            raise RuntimeError("no command was begun")
        request, self.begun = self.begun, None
        self.epoch = max(self.epoch, request.command.epoch)
        return request

    def _settle(self, request: CommandRequest, outcome: CommandOutcome) -> CommandOutcome:
        self._outcomes[request.id] = (request, outcome)
        # Refused commands are remembered too: a late copy must not be carried out after its agent
        # received the refusal.
        while len(self._outcomes) > REMEMBERED_OUTCOMES:
            self._outcomes.popitem(last=False)
        return outcome


def _refused(request: CommandRequest, reason: RefusalReason, detail: str) -> CommandOutcome:
    return CommandOutcome("nack", request.id, request.command.epoch, reason, detail)


UNAUTHENTICATED_SESSIONS = 32
AUTHENTICATED_SESSIONS = 32
HANDSHAKE_SECONDS = 5.0
IDLE_SECONDS = 120.0


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


@dataclass(slots=True)
class ControlSession:
    """One connection. `sealer` and `opener` are there once the peer is known."""

    challenge: str
    heard: float
    sealer: Sealer | None = None
    opener: Opener | None = None
    asked: set[str] = field(default_factory=set)


class Responder:
    """Answers the agents of one job.

    Parameters
    ----------
    entropy
        Returns so many random bytes.
    status
        Returns what the job says of itself.

    Attributes
    ----------
    ledger
        The job's requests.
    cancelled
        Whether an agent wants the job to end.
    sessions
        The connections that are held, by number.
    """

    def __init__(
        self,
        job: str,
        secret: bytes,
        ledger: ResizeLedger,
        entropy: Callable[[int], bytes],
        status: Callable[[], Body],
    ) -> None:
        self.job = job
        self.ledger = ledger
        self._secret = secret
        self._entropy = entropy
        self._status = status
        self.cancelled = False
        self.sessions: dict[int, ControlSession] = {}
        self._unauthenticated: dict[int, None] = {}  # in the order they came

    # ---------------------------------------------------------------- from the network
    def opened(self, session: int, now: float) -> list[ResponderEffect]:
        """Take in that somebody connected; make room for them if need be."""
        effects = self._room()
        challenge = self._entropy(CHALLENGE_BYTES).hex()
        self.sessions[session] = ControlSession(challenge, now)
        self._unauthenticated[session] = None
        hello = {"job": self.job, "protocol": PROTOCOL, "challenge": challenge}
        return [*effects, SendToSession(session, canonical(hello))]

    def received(self, session: int, line: bytes, now: float) -> list[ResponderEffect]:
        """Take in a line; what is not in order ends its session and does nothing else."""
        known = self.sessions.get(session)
        if known is None:
            return []
        try:
            if known.opener is None:
                return self._authenticate(session, known, line, now)
            body = known.opener.open(line)
            known.heard = now
            return self._answer(session, known, body)
        except ForgeryError as error:
            return self._close(session, str(error))

    def closed(self, session: int) -> None:
        """Take in that a session is over."""
        self.sessions.pop(session, None)
        self._unauthenticated.pop(session, None)

    def tick(self, now: float) -> list[ResponderEffect]:
        """End the sessions that are silent for too long."""
        effects: list[ResponderEffect] = []
        for number, session in list(self.sessions.items()):
            limit = HANDSHAKE_SECONDS if session.opener is None else IDLE_SECONDS
            if now - session.heard > limit:
                effects += self._close(number, f"silent for {limit:g} s")
        return effects

    def line_limit(self, session: int) -> int:
        """Return how many bytes of a line are worth keeping."""
        known = self.sessions.get(session)
        return LINE_LIMIT if known and known.opener else UNAUTHENTICATED_LINE_LIMIT

    # -------------------------------------------------------------------- from the job
    def begin(self) -> tuple[ResizeCommand | None, list[ResponderEffect]]:
        """Return what the job is to do now, if anything waits."""
        waiting, command = self.ledger.waiting, self.ledger.begin()
        refused = self.ledger.outcome(waiting.id) if waiting and command is None else None
        return command, self.send_outcome(refused)

    def send_outcome(self, outcome: CommandOutcome | None) -> list[ResponderEffect]:
        """Send a outcome to every session that asked about it."""
        effects: list[ResponderEffect] = []
        if outcome is not None:
            for number, session in self.sessions.items():
                if outcome.id in session.asked:
                    session.asked.discard(outcome.id)
                    effects += self._reply(number, outcome.body())
        return effects

    # ----------------------------------------------------------------------- sessions
    def _room(self) -> list[ResponderEffect]:
        """Close the oldest unauthenticated session, or the idlest other one, if there are too many."""
        effects: list[ResponderEffect] = []
        if len(self._unauthenticated) >= UNAUTHENTICATED_SESSIONS:
            effects += self._close(next(iter(self._unauthenticated)), "too many sessions")
        if len(self.sessions) - len(self._unauthenticated) >= AUTHENTICATED_SESSIONS:
            known = [n for n in self.sessions if n not in self._unauthenticated]
            idlest = min(known, key=lambda n: (self.sessions[n].heard, n))
            effects += self._close(idlest, "too many sessions")
        return effects

    def _close(self, session: int, why: str) -> list[ResponderEffect]:
        self.closed(session)
        return [CloseSession(session, why)]

    def _authenticate(
        self, number: int, session: ControlSession, line: bytes, now: float
    ) -> list[ResponderEffect]:
        """Check a peer's answer to the challenge, and answer its own."""
        body = parse(line, UNAUTHENTICATED_LINE_LIMIT)
        proof = Proof(self._secret, self.job, session.challenge, challenge_of(body))
        if not proof.shown("requester", text_of(body, "answer")):
            raise ForgeryError("the answer to the challenge is wrong")
        session.opener = Opener(proof.key("requester"))
        session.sealer = Sealer(proof.key("responder"))
        session.heard = now
        del self._unauthenticated[number]
        return [SendToSession(number, canonical({"answer": proof.of("responder")}))]

    def _answer(self, number: int, session: ControlSession, body: Body) -> list[ResponderEffect]:
        asked = body.get("request")
        if asked == "status":
            return self._reply(number, {"reply": "status", **self._status()})
        if asked == "cancel":
            self.cancelled = True
            return [*self._reply(number, {"reply": "cancelling"}), WakeJob()]
        if asked == "resize":
            request = request_of(body)
            return self._reply_about(number, session, request.id, self.ledger.submit(request))
        if asked == "withdraw":
            identifier = identifier_of(body)
            return self._reply_about(number, session, identifier, self.ledger.withdraw(identifier))
        raise ForgeryError("'request' must be status, resize, withdraw or cancel")

    def _reply_about(
        self, number: int, session: ControlSession, identifier: str, outcome: CommandOutcome | None
    ) -> list[ResponderEffect]:
        """Reply with the outcome or an acknowledgement, and remember that this session asked."""
        session.asked.add(identifier)
        if outcome is not None:
            return self.send_outcome(outcome)
        return [*self._reply(number, {"reply": "ack", "id": identifier}), WakeJob()]

    def _reply(self, number: int, body: Body) -> list[ResponderEffect]:
        sealer = self.sessions[number].sealer
        return [SendToSession(number, sealer.seal(body))] if sealer else []
