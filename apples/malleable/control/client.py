"""The agent's side of the protocol on a socket: asks a job one thing and waits for its answer."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from apples.errors import LaunchError
from apples.malleable.control.command import ResizeCommand
from apples.malleable.control.messages import ResizeOutcome, ResizeRequest, outcome_of
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

ANSWER_SECONDS = 2.0
"""How long an answer may take before the question is asked again."""
TRIES = 2
"""How often it is asked in one session before the session counts as lost."""


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """Open a new connection; what was open is to be closed."""


@dataclass(frozen=True, slots=True)
class SendLine:
    """Write a line to the connection."""

    line: bytes


RequesterEffect = OpenConnection | SendLine


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
        wish: ResizeRequest | Literal["status", "cancel"],
        deadline: float,
        entropy: Callable[[int], bytes],
    ) -> None:
        self.job = job
        self.wish = wish
        self.deadline = deadline
        self.verdict: ResizeOutcome | None = None
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

    def start(self, now: float) -> list[RequesterEffect]:
        """Begin, or begin again."""
        self._proof = self._opener = self._sealer = None
        self._asked, self._next = 0, now + ANSWER_SECONDS
        return [OpenConnection()]

    def received(self, line: bytes, now: float) -> list[RequesterEffect]:
        """Take in a line of the connection that was asked for last."""
        if self.settled:
            return []
        try:
            if self._proof is None:
                return self._answer(parse(line, UNAUTHENTICATED_LINE_LIMIT))
            if self._opener is None:
                return self._trust(parse(line, UNAUTHENTICATED_LINE_LIMIT), now)
            self._hear(self._opener.open(line), now)
        except ForgeryError as error:
            self.imposter = str(error)
            self._lose(now)
        return []

    def closed(self, now: float) -> list[RequesterEffect]:
        """Take in that the connection is gone, or was never made; `tick` tries again."""
        self._lose(now)
        return []

    def tick(self, now: float) -> list[RequesterEffect]:
        """Ask again, or begin again, when an answer is late."""
        if self.settled or now < self._next:
            return []
        if self._sealer is None or self._asked >= TRIES:
            return self.start(now)
        return self._ask(now)

    def _lose(self, now: float) -> None:
        """Give the session up and begin again after a pause."""
        self._sealer = None
        self._next = min(self._next, now + ANSWER_SECONDS / 8)

    def _answer(self, body: Body) -> list[RequesterEffect]:
        """Answer the job's challenge and set one."""
        if body.get("protocol") != 1 or body.get("job") != self.job:
            raise ForgeryError("the peer is another job, or speaks another protocol")
        mine = self._entropy(CHALLENGE_BYTES).hex()
        self._proof = Proof(self._secret, self.job, challenge_of(body), mine)
        answer = {"challenge": mine, "answer": self._proof.of("requester")}
        return [SendLine(canonical(answer))]

    def _trust(self, body: Body, now: float) -> list[RequesterEffect]:
        """See that the peer knows the secret too, and ask."""
        proof = self._proof
        if proof is None or not proof.shown("responder", text_of(body, "answer")):
            raise ForgeryError("the peer does not know the secret of the job")
        self._opener = Opener(proof.key("responder"))
        self._sealer = Sealer(proof.key("requester"))
        self.imposter = ""
        return self._ask(now)

    def _ask(self, now: float) -> list[RequesterEffect]:
        if self._sealer is None:
            return []
        self._asked += 1
        self._next = now + ANSWER_SECONDS
        if not isinstance(self.wish, ResizeRequest):
            body: Body = {"ask": self.wish}
        elif now >= self.deadline:
            body = {"ask": "withdraw", "id": self.wish.id}
        else:
            body = self.wish.body()
            self._next = min(self._next, self.deadline)
        return [SendLine(self._sealer.seal(body))]

    def _hear(self, body: Body, now: float) -> None:
        """Take in what the job says."""
        said = body.get("say")
        if not isinstance(self.wish, ResizeRequest):
            self.answer = body
        elif said == "ack":
            self.acknowledged, self._asked = True, 0
            if now < self.deadline:
                self._next = min(now + ANSWER_SECONDS, self.deadline)
        else:
            verdict = outcome_of(body)
            if verdict.id == self.wish.id:
                self.verdict = verdict


CONNECT_SECONDS = 2.0
SILENCE_SECONDS = 10.0
"""A job that answers nothing for so long, over and over asked, counts as gone."""


class ControlClient:
    """Speaks with the control server that a file announces.

    Parameters
    ----------
    announce
        The file; read again for every connection.
    over
        Says whether the job is over, so that nobody waits for an answer that cannot come.
    """

    def __init__(
        self,
        job: str,
        secret: bytes,
        announce: Path,
        over: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self._secret = secret
        self._announce = announce
        self._over = over
        self._clock = clock

    def status(self, seconds: float = SILENCE_SECONDS) -> Body:
        """Return what the job says of itself, asked for at most `seconds`.

        Raises
        ------
        LaunchError
            Nobody who knows the secret answers. Transient, unless the job is over.
        """
        return self._question("status", seconds)

    def cancel(self, seconds: float = SILENCE_SECONDS) -> Body:
        """Ask the job to end; it has heard so when this returns."""
        return self._question("cancel", seconds)

    def _question(self, ask: Literal["status", "cancel"], seconds: float) -> Body:
        requester = self._requester(ask, self._clock() + seconds)
        self._follow(requester, self._clock() + seconds)
        if requester.answer is None:
            raise LaunchError(f"job {self.job} gave no answer; see: apples jobs {self.job}")
        return requester.answer

    def resize(self, command: ResizeCommand, seconds: float) -> ResizeOutcome:
        """Return what became of a command; after `seconds` it is taken back, unless it has begun.

        Raises
        ------
        LaunchError
            Nobody answers any more: whether it was carried out is not known.
        """
        wish = ResizeRequest(secrets.token_hex(16), command)
        requester = self._requester(wish, self._clock() + seconds)
        self._follow(requester, None)
        if requester.verdict is None:
            raise LaunchError(f"job {self.job} gave no answer; see: apples jobs {self.job}")
        return requester.verdict

    def _requester(
        self, wish: ResizeRequest | Literal["status", "cancel"], deadline: float
    ) -> Requester:
        return Requester(self.job, self._secret, wish, deadline, secrets.token_bytes)

    def _follow(self, requester: Requester, limit: float | None) -> None:
        """Carry lines and time to the machine until it is settled."""
        line = ClientConnection(self._announce)
        heard = self._clock()
        try:
            line.act(requester.start(heard))
            while not requester.settled:
                now = self._clock()
                if limit is not None and now > limit:
                    return
                if now - heard > SILENCE_SECONDS or (self._over() and not line.open):
                    why = f" ({requester.imposter})" if requester.imposter else ""
                    raise LaunchError(f"job {self.job} does not answer{why}")
                for came in line.read(max(0.01, min(requester.due - now, 0.5))):
                    heard = self._clock()
                    line.act(requester.received(came, heard))
                if line.lost:
                    line.lost = False
                    line.act(requester.closed(self._clock()))
                line.act(requester.tick(self._clock()))
        finally:
            line.close()


class ClientConnection:
    """One connection at a time, to wherever the file says just now.

    Attributes
    ----------
    lost
        Whether the connection ended, or could not be made, since one looked.
    """

    def __init__(self, announce: Path) -> None:
        self._announce = announce
        self._socket: socket.socket | None = None
        self._came = b""
        self.lost = False

    @property
    def open(self) -> bool:
        """Whether there is a connection."""
        return self._socket is not None

    def act(self, effects: list[RequesterEffect]) -> None:
        """Do what the machine wants done."""
        for effect in effects:
            try:
                if isinstance(effect, OpenConnection):
                    self._connect()
                elif self._socket is not None:
                    self._socket.sendall(effect.line + b"\n")
            except (OSError, ValueError, KeyError, TypeError):
                self.close()
                self.lost = True

    def _connect(self) -> None:
        self.close()
        where = json.loads(self._announce.read_text("ascii"))
        address = (str(where["address"]), int(where["port"]))
        self._socket = socket.create_connection(address, timeout=CONNECT_SECONDS)

    def read(self, seconds: float) -> list[bytes]:
        """Return the lines that came, waiting at most `seconds` for the first."""
        if self._socket is None:
            time.sleep(min(seconds, 0.05))
            return []
        self._socket.settimeout(seconds)
        try:
            data = self._socket.recv(LINE_LIMIT)
        except TimeoutError:
            return []
        except OSError:
            data = b""
        if not data or len(self._came) > LINE_LIMIT:
            self.close()
            self.lost = True
            return []
        self._socket.settimeout(CONNECT_SECONDS)
        *lines, self._came = (self._came + data).split(b"\n")
        return lines

    def close(self) -> None:
        """Let go of the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._came = None, b""
