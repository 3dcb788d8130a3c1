"""The job's end of the protocol, as a pure state machine: events in, effects out.

It holds no socket and reads no clock. Peers that have not proved that they know the secret cost little:
few of them are held, for a short time, with short lines, and the oldest goes when another comes. Nothing
such a peer does reaches the ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from apples.malleable.command import Command
from apples.malleable.protocol.ledger import Ledger
from apples.malleable.protocol.messages import Verdict, identifier_of, wish_of
from apples.malleable.protocol.sealing import (
    CHALLENGE_BYTES,
    LINE_LIMIT,
    UNKNOWN_LINE_LIMIT,
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

UNKNOWN_SESSIONS = 32
KNOWN_SESSIONS = 32
HANDSHAKE_SECONDS = 5.0
IDLE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Send:
    """Write a line to a session."""

    session: int
    line: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """End a session."""

    session: int
    why: str


@dataclass(frozen=True, slots=True)
class Wake:
    """The job has something to do."""


Effect = Send | Close | Wake


@dataclass(slots=True)
class Session:
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
        The job's wishes.
    cancelled
        Whether an agent wants the job to end.
    sessions
        The connections that are held, by number.
    """

    def __init__(
        self,
        job: str,
        secret: bytes,
        ledger: Ledger,
        entropy: Callable[[int], bytes],
        status: Callable[[], Body],
    ) -> None:
        self.job = job
        self.ledger = ledger
        self._secret = secret
        self._entropy = entropy
        self._status = status
        self.cancelled = False
        self.sessions: dict[int, Session] = {}
        self._strangers: dict[int, None] = {}  # in the order they came

    # ---------------------------------------------------------------- from the network
    def opened(self, session: int, now: float) -> list[Effect]:
        """Take in that somebody connected; make room for them if need be."""
        effects = self._room()
        challenge = self._entropy(CHALLENGE_BYTES).hex()
        self.sessions[session] = Session(challenge, now)
        self._strangers[session] = None
        hello = {"job": self.job, "protocol": 1, "challenge": challenge}
        return [*effects, Send(session, canonical(hello))]

    def received(self, session: int, line: bytes, now: float) -> list[Effect]:
        """Take in a line; what is not in order ends its session and does nothing else."""
        known = self.sessions.get(session)
        if known is None:
            return []
        try:
            if known.opener is None:
                return self._greet(session, known, line, now)
            body = known.opener.open(line)
            known.heard = now
            return self._answer(session, known, body)
        except ForgeryError as error:
            return self._close(session, str(error))

    def closed(self, session: int) -> None:
        """Take in that a session is over."""
        self.sessions.pop(session, None)
        self._strangers.pop(session, None)

    def tick(self, now: float) -> list[Effect]:
        """End the sessions of those who say nothing."""
        effects: list[Effect] = []
        for number, session in list(self.sessions.items()):
            limit = HANDSHAKE_SECONDS if session.opener is None else IDLE_SECONDS
            if now - session.heard > limit:
                effects += self._close(number, f"silent for {limit:g} s")
        return effects

    def line_limit(self, session: int) -> int:
        """Return how many bytes of a line are worth keeping."""
        known = self.sessions.get(session)
        return LINE_LIMIT if known and known.opener else UNKNOWN_LINE_LIMIT

    # -------------------------------------------------------------------- from the job
    def begin(self) -> tuple[Command | None, list[Effect]]:
        """Return what the job is to do now, if anything waits."""
        waiting, command = self.ledger.waiting, self.ledger.begin()
        refused = self.ledger.verdict(waiting.id) if waiting and command is None else None
        return command, self.tell(refused)

    def tell(self, verdict: Verdict | None) -> list[Effect]:
        """Send a verdict to every session that asked about it."""
        effects: list[Effect] = []
        if verdict is not None:
            for number, session in self.sessions.items():
                if verdict.id in session.asked:
                    session.asked.discard(verdict.id)
                    effects += self._say(number, verdict.body())
        return effects

    # ----------------------------------------------------------------------- sessions
    def _room(self) -> list[Effect]:
        """Close the oldest peer nobody knows, or the idlest known one, if there are too many."""
        effects: list[Effect] = []
        if len(self._strangers) >= UNKNOWN_SESSIONS:
            effects += self._close(next(iter(self._strangers)), "too many sessions")
        if len(self.sessions) - len(self._strangers) >= KNOWN_SESSIONS:
            known = [n for n in self.sessions if n not in self._strangers]
            idlest = min(known, key=lambda n: (self.sessions[n].heard, n))
            effects += self._close(idlest, "too many sessions")
        return effects

    def _close(self, session: int, why: str) -> list[Effect]:
        self.closed(session)
        return [Close(session, why)]

    def _greet(self, number: int, session: Session, line: bytes, now: float) -> list[Effect]:
        """Check a peer's answer to the challenge, and answer its own."""
        body = parse(line, UNKNOWN_LINE_LIMIT)
        proof = Proof(self._secret, self.job, session.challenge, challenge_of(body))
        if not proof.shown("requester", text_of(body, "answer")):
            raise ForgeryError("the answer to the challenge is wrong")
        session.opener = Opener(proof.key("requester"))
        session.sealer = Sealer(proof.key("responder"))
        session.heard = now
        del self._strangers[number]
        return [Send(number, canonical({"answer": proof.of("responder")}))]

    def _answer(self, number: int, session: Session, body: Body) -> list[Effect]:
        asked = body.get("ask")
        if asked == "status":
            return self._say(number, {"say": "status", **self._status()})
        if asked == "cancel":
            self.cancelled = True
            return [*self._say(number, {"say": "cancelling"}), Wake()]
        if asked == "resize":
            wish = wish_of(body)
            return self._follow(number, session, wish.id, self.ledger.submit(wish))
        if asked == "withdraw":
            identifier = identifier_of(body)
            return self._follow(number, session, identifier, self.ledger.withdraw(identifier))
        raise ForgeryError("'ask' must be status, resize, withdraw or cancel")

    def _follow(
        self, number: int, session: Session, identifier: str, verdict: Verdict | None
    ) -> list[Effect]:
        """Say what is known of a wish, and remember who wants to know."""
        session.asked.add(identifier)
        if verdict is not None:
            return self.tell(verdict)
        return [*self._say(number, {"say": "ack", "id": identifier}), Wake()]

    def _say(self, number: int, body: Body) -> list[Effect]:
        sealer = self.sessions[number].sealer
        return [Send(number, sealer.seal(body))] if sealer else []
