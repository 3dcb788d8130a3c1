"""The agent's end of the protocol, as a pure state machine: one wish, followed until its end is known.

Whatever is lost, it begins again with a new session and the same command; the job carries a command out
at most once. A deadline turns the wish into its opposite: the command is taken back, unless it has begun.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from apples.malleable.protocol.messages import Verdict, Wish, verdict_of
from apples.malleable.protocol.sealing import (
    CHALLENGE_BYTES,
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

PATIENCE_SECONDS = 2.0
"""How long an answer may take before the question is asked again."""
TRIES = 2
"""How often it is asked in one session before the session counts as lost."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a new connection; what was open is to be closed."""


@dataclass(frozen=True, slots=True)
class Transmit:
    """Write a line to the connection."""

    line: bytes


Effect = Connect | Transmit


class Requester:
    """Asks one thing of one job.

    Parameters
    ----------
    wish
        A resize; or one of the questions that have one answer.
    deadline
        When to take the command back, in the clock's seconds.

    Attributes
    ----------
    verdict
        What became of the command, once it is known.
    answer
        What the job says to a question.
    acknowledged
        Whether the job has the command.
    imposter
        Whether a peer did not know the secret.
    """

    def __init__(
        self,
        job: str,
        secret: bytes,
        wish: Wish | Literal["status", "cancel"],
        deadline: float,
        entropy: Callable[[int], bytes],
    ) -> None:
        self.job = job
        self.wish = wish
        self.deadline = deadline
        self.verdict: Verdict | None = None
        self.answer: Body | None = None
        self.acknowledged = False
        self.imposter = ""
        self._secret = secret
        self._entropy = entropy
        self._proof: Proof | None = None
        self._opener: Opener | None = None
        self._sealer: Sealer | None = None
        self._asked = 0
        self._next = 0.0

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to ask."""
        return self.verdict is not None or self.answer is not None

    @property
    def due(self) -> float:
        """When `tick` is due."""
        return self._next

    def start(self, now: float) -> list[Effect]:
        """Begin, or begin again."""
        self._proof = self._opener = self._sealer = None
        self._asked, self._next = 0, now + PATIENCE_SECONDS
        return [Connect()]

    def received(self, line: bytes, now: float) -> list[Effect]:
        """Take in a line of the connection that was asked for last."""
        if self.settled:
            return []
        try:
            if self._proof is None:
                return self._answer(parse(line, UNKNOWN_LINE_LIMIT))
            if self._opener is None:
                return self._trust(parse(line, UNKNOWN_LINE_LIMIT), now)
            self._hear(self._opener.open(line), now)
        except ForgeryError as error:
            self.imposter = str(error)
            self._lose(now)
        return []

    def closed(self, now: float) -> list[Effect]:
        """Take in that the connection is gone, or was never made; `tick` tries again."""
        self._lose(now)
        return []

    def tick(self, now: float) -> list[Effect]:
        """Ask again, or begin again, when an answer is late."""
        if self.settled or now < self._next:
            return []
        if self._sealer is None or self._asked >= TRIES:
            return self.start(now)
        return self._ask(now)

    def _lose(self, now: float) -> None:
        """Give the session up and begin again after a pause."""
        self._sealer = None
        self._next = min(self._next, now + PATIENCE_SECONDS / 8)

    def _answer(self, body: Body) -> list[Effect]:
        """Answer the job's challenge and set one."""
        if body.get("protocol") != 1 or body.get("job") != self.job:
            raise ForgeryError("the peer is another job, or speaks another protocol")
        mine = self._entropy(CHALLENGE_BYTES).hex()
        self._proof = Proof(self._secret, self.job, challenge_of(body), mine)
        answer = {"challenge": mine, "answer": self._proof.of("requester")}
        return [Transmit(canonical(answer))]

    def _trust(self, body: Body, now: float) -> list[Effect]:
        """See that the peer knows the secret too, and ask."""
        proof = self._proof
        if proof is None or not proof.shown("responder", text_of(body, "answer")):
            raise ForgeryError("the peer does not know the secret of the job")
        self._opener = Opener(proof.key("responder"))
        self._sealer = Sealer(proof.key("requester"))
        self.imposter = ""
        return self._ask(now)

    def _ask(self, now: float) -> list[Effect]:
        if self._sealer is None:
            return []
        self._asked += 1
        self._next = now + PATIENCE_SECONDS
        if not isinstance(self.wish, Wish):
            body: Body = {"ask": self.wish}
        elif now >= self.deadline:
            body = {"ask": "withdraw", "id": self.wish.id}
        else:
            body = self.wish.body()
            self._next = min(self._next, self.deadline)
        return [Transmit(self._sealer.seal(body))]

    def _hear(self, body: Body, now: float) -> None:
        """Take in what the job says."""
        said = body.get("say")
        if not isinstance(self.wish, Wish):
            self.answer = body
        elif said == "ack":
            self.acknowledged, self._asked = True, 0
            if now < self.deadline:
                self._next = min(now + PATIENCE_SECONDS, self.deadline)
        else:
            verdict = verdict_of(body)
            if verdict.id == self.wish.id:
                self.verdict = verdict
