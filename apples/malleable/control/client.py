"""The agent's end of the control protocol: the state machine of one request, and the socket it works over.

`Requester` is pure: time and lines go in, effects come out. Whatever is lost, it begins again with a new session
and the same command, for the job carries a command out at most once. A deadline turns the request into its
opposite: the command is withdrawn, unless it has begun. `ControlClient` gives it a socket and a clock.
"""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from apples.errors import LaunchError, UsageError
from apples.io.json_lines import LineBuffer, LineError
from apples.malleable.control.command import ResizeCommand
from apples.malleable.control.messages import (
    PROTOCOL,
    TRANSIENT_REASONS,
    CommandOutcome,
    CommandRequest,
    outcome_of,
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

ANSWER_SECONDS = 2.0
"""How long an answer may take before the question is asked again."""
TRIES = 2
"""How often it is asked in one session before the session counts as lost."""


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """Open a new connection, in place of one that is open."""


@dataclass(frozen=True, slots=True)
class SendLine:
    """Write a line to the connection."""

    line: bytes


RequesterEffect = OpenConnection | SendLine


class Requester:
    """Asks one thing of one job.

    Parameters
    ----------
    request
        A resize; or one of the questions that have one answer.
    deadline
        When to take the command back, in the clock's seconds.

    Attributes
    ----------
    outcome
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
        request: CommandRequest | Literal["status", "cancel"],
        deadline: float,
        entropy: Callable[[int], bytes],
    ) -> None:
        self.job = job
        self.request = request
        self.deadline = deadline
        self.outcome: CommandOutcome | None = None
        self.answer: Body | None = None
        self.acknowledged = False
        self.imposter = self.imposter_code = ""
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
        return self.outcome is not None or self.answer is not None

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
                return self._answer_challenge(parse(line, UNAUTHENTICATED_LINE_LIMIT))
            if self._opener is None:
                return self._authenticate(parse(line, UNAUTHENTICATED_LINE_LIMIT), now)
            self._on_reply(self._opener.open(line), now)
        except ForgeryError as error:
            self.imposter, self.imposter_code = str(error), error.code
            self._on_session_lost(now)
        return []

    def closed(self, now: float) -> list[RequesterEffect]:
        """Take in that the connection is gone, or was never made; `tick` tries again."""
        self._on_session_lost(now)
        return []

    def tick(self, now: float) -> list[RequesterEffect]:
        """Ask again, or begin again, when an answer is late."""
        if self.settled or now < self._next:
            return []
        if self._sealer is None or self._asked >= TRIES:
            return self.start(now)
        return self._ask(now)

    def _on_session_lost(self, now: float) -> None:
        """Give the session up and begin again after a pause."""
        self._sealer = None
        self._next = min(self._next, now + ANSWER_SECONDS / 8)

    def _answer_challenge(self, body: Body) -> list[RequesterEffect]:
        """Answer the job's challenge and set one."""
        if body.get("job") != self.job:
            raise ForgeryError("the peer is another job", code="job-differs", field="job")
        if body.get("protocol") != PROTOCOL:
            raise ForgeryError(
                "it was started by another version of apples",
                code="version-mismatch",
                field="protocol",
            )
        mine = self._entropy(CHALLENGE_BYTES).hex()
        self._proof = Proof(self._secret, self.job, challenge_of(body), mine)
        answer = {"challenge": mine, "answer": self._proof.of("requester")}
        return [SendLine(canonical(answer))]

    def _authenticate(self, body: Body, now: float) -> list[RequesterEffect]:
        """See that the peer knows the secret too, and ask."""
        proof = self._proof
        if proof is None or not proof.shown("responder", text_of(body, "answer")):
            raise ForgeryError(
                "the peer does not know the secret of the job",
                code="secret-unknown",
                field="answer",
            )
        self._opener = Opener(proof.key("responder"))
        self._sealer = Sealer(proof.key("requester"))
        self.imposter = self.imposter_code = ""
        return self._ask(now)

    def _ask(self, now: float) -> list[RequesterEffect]:
        if self._sealer is None:
            return []
        self._asked += 1
        self._next = now + ANSWER_SECONDS
        if not isinstance(self.request, CommandRequest):
            body: Body = {"request": self.request}
        elif now >= self.deadline:
            body = {"request": "withdraw", "id": self.request.id}
        else:
            body = self.request.body()
            self._next = min(self._next, self.deadline)
        return [SendLine(self._sealer.seal(body))]

    def _on_reply(self, body: Body, now: float) -> None:
        """Take in what the job says."""
        said = body.get("reply")
        if not isinstance(self.request, CommandRequest):
            self.answer = body
        elif said == "ack":
            self.acknowledged, self._asked = True, 0
            if now < self.deadline:
                self._next = min(now + ANSWER_SECONDS, self.deadline)
        else:
            outcome = outcome_of(body)
            if outcome.id == self.request.id:
                self.outcome = outcome


CONNECT_SECONDS = 2.0
SILENCE_SECONDS = 10.0
"""A job that answers nothing for so long, over and over asked, counts as gone."""
RESIZE_SECONDS = 60.0
"""How long a command may wait for the job before it is taken back."""


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
            raise self._silent(requester)
        return requester.answer

    def resize(self, command: ResizeCommand, seconds: float) -> CommandOutcome:
        """Return what became of a command; after `seconds` it is taken back, unless it has begun.

        Raises
        ------
        LaunchError
            Nobody answers any more: whether it was carried out is not known.
        """
        request = CommandRequest(secrets.token_hex(16), command)
        requester = self._requester(request, self._clock() + seconds)
        self._follow(requester, None)
        if requester.outcome is None:
            raise self._silent(requester)
        return requester.outcome

    def _silent(self, requester: Requester) -> LaunchError:
        """Return the error of a job that gave no answer, with what was wrong with who did answer."""
        why = f": {requester.imposter}" if requester.imposter else ""
        return LaunchError(
            f"job {self.job} gave no answer{why}; see: apples jobs {self.job}",
            code="job-unanswered",
            job=self.job,
            reason=requester.imposter or None,
            cause=requester.imposter_code or None,
        )

    def _requester(
        self, request: CommandRequest | Literal["status", "cancel"], deadline: float
    ) -> Requester:
        return Requester(self.job, self._secret, request, deadline, secrets.token_bytes)

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
                    raise LaunchError(
                        f"job {self.job} does not answer{why}",
                        code="job-unanswered",
                        job=self.job,
                        reason=requester.imposter or None,
                        cause=requester.imposter_code or None,
                    )
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
        self._lines = LineBuffer(LINE_LIMIT)
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
        try:
            lines = self._lines.feed(data)
        except LineError:
            data, lines = b"", []
        if not data:
            self.close()
            self.lost = True
            return []
        self._socket.settimeout(CONNECT_SECONDS)
        return lines

    def close(self) -> None:
        """Let go of the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._lines = None, LineBuffer(LINE_LIMIT)


REFUSAL_CODES: Mapping[str, str] = {
    "below_minimum": "hosts-below-minimum",
    "over_maximum": "hosts-above-maximum",
    "unknown_host": "host-unknown",
    "busy": "job-busy",
    "stale": "request-stale",
    "malformed": "request-malformed",
    "withdrawn": "request-withdrawn",
    "ending": "job-ending",
}
"""The code of the error of each `RefusalReason`."""


def carried_out(outcome: CommandOutcome) -> CommandOutcome:
    """Return the outcome of a command that was carried out.

    Raises
    ------
    UsageError
        Refused for what the command says: an unknown host, or the limits of the job.
    LaunchError
        Refused for the moment (busy), or tried in vain: the job goes on as it was. Or a host was lost and the job
        was rolled back, or it is over.
    """
    if outcome.kind == "nack":
        error = LaunchError if outcome.reason in TRANSIENT_REASONS else UsageError
        raise error(
            f"refused: {outcome.detail} ({outcome.reason})",
            code=REFUSAL_CODES.get(outcome.reason, "command-refused"),
            reason=outcome.detail,
        )
    if outcome.kind == "failed":
        error = UsageError if outcome.code == "host-unknown" else LaunchError
        raise error(
            f"refused, the job goes on as it was: {outcome.detail}",
            code=outcome.code or "resize-failed",
            reason=outcome.detail,
        )
    if outcome.kind == "rolled_back":
        raise LaunchError(
            f"rolled back to iteration {outcome.iteration}: {outcome.detail}",
            code="job-rolled-back",
            cause=outcome.code or None,
            iteration=outcome.iteration,
            reason=outcome.detail,
        )
    if outcome.kind == "ended":
        raise LaunchError(
            f"not done: {outcome.detail}",
            code="job-ended",
            cause=outcome.code or None,
            reason=outcome.detail,
        )
    return outcome
