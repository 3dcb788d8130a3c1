"""The agent's end of the control protocol: the state machine of one request, and its socket.

`Requester` is pure: its inputs are time and lines, its outputs effects. If the connection is lost, it sends the
same command on a new connection; the job carries a command out at most once. At its deadline the command is
withdrawn, unless the job has begun it. `ControlClient` gives it a socket and a clock.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from apples.errors import LaunchError, UsageError
from apples.io.json_lines import LineBuffer, LineError, encode
from apples.io.sockets import socket_name
from apples.malleable.control.command import ResizeCommand
from apples.malleable.control.messages import (
    LINE_LIMIT,
    PROTOCOL,
    TRANSIENT_REASONS,
    Body,
    CommandOutcome,
    CommandRequest,
    MessageError,
    outcome_of,
    parse,
)

ANSWER_SECONDS = 2.0
"""Time after which an unanswered request is repeated; an answer shows that the job manager is alive."""
TRIES = 2
"""Number of times that a request is sent on one connection before the connection counts as lost."""
ANSWERS = {"status": "status", "cancel": "cancelling"}
"""Request -> its reply."""


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """Open a new connection, and close the present one."""


@dataclass(frozen=True, slots=True)
class SendLine:
    """Write a line to the connection."""

    line: bytes


RequesterEffect = OpenConnection | SendLine


class Requester:
    """Sends one request to one job.

    Parameters
    ----------
    request
        A resize, or a request with a single answer: ``status`` or ``cancel``.
    deadline
        Time at which the command is withdrawn, in the clock's seconds.

    Attributes
    ----------
    outcome
        The outcome of the command, once it is known.
    answer
        The answer of the job to ``status`` or ``cancel``.
    acknowledged
        Whether the job has received the command.
    error
        The reason if the peer is another job or has another version. Permanent.
    """

    def __init__(
        self, job: str, request: CommandRequest | Literal["status", "cancel"], deadline: float
    ) -> None:
        self.job = job
        self.request = request
        self.deadline = deadline
        self.outcome: CommandOutcome | None = None
        self.answer: Body | None = None
        self.acknowledged = False
        self.error: MessageError | None = None
        self._greeted = False
        self._asked = 0
        self._next = 0.0

    @property
    def settled(self) -> bool:
        """Whether the request has its outcome, answer or error."""
        return self.outcome is not None or self.answer is not None or self.error is not None

    @property
    def due(self) -> float:
        """Time of the next call of `tick`."""
        return self._next

    def start(self, now: float, *, greeted: bool = False) -> list[RequesterEffect]:
        """Begin, or begin again; `greeted`: the job's greeting has arrived on this connection already."""
        self._asked, self._next, self._greeted = 0, now + ANSWER_SECONDS, greeted
        return self._ask(now) if greeted else [OpenConnection()]

    def received(self, line: bytes, now: float) -> list[RequesterEffect]:
        """Handle a line of the latest connection."""
        if self.settled:
            return []
        try:
            body = parse(line)
            if not self._greeted:
                return self._greet(body, now)
            self._on_reply(body, now)
        except MessageError as error:
            self.error = error
        return []

    def closed(self, now: float) -> list[RequesterEffect]:
        """Handle the loss of the connection, or its failure to open; `tick` retries."""
        self._greeted = False
        self._next = min(self._next, now + ANSWER_SECONDS / 8)
        return []

    def tick(self, now: float) -> list[RequesterEffect]:
        """If an answer is late, repeat the request or begin again on a new connection."""
        if self.settled or now < self._next:
            return []
        if not self._greeted or self._asked >= TRIES:
            return self.start(now)
        return self._ask(now)

    def _greet(self, body: Body, now: float) -> list[RequesterEffect]:
        """Check that the peer is this job, with this protocol version, and send the request."""
        if body.get("job") != self.job:
            raise MessageError("the peer is another job", code="job-differs", field="job")
        if body.get("protocol") != PROTOCOL:
            raise MessageError(
                "it was started by another version of apples",
                code="version-mismatch",
                field="protocol",
            )
        self._greeted = True
        return self._ask(now)

    def _ask(self, now: float) -> list[RequesterEffect]:
        self._asked += 1
        self._next = now + ANSWER_SECONDS
        if not isinstance(self.request, CommandRequest):
            body: Body = {"request": self.request}
        elif now >= self.deadline:
            body = {"request": "withdraw", "id": self.request.id}
        else:
            body = self.request.body()
            self._next = min(self._next, self.deadline)
        return [SendLine(encode(body))]

    def _on_reply(self, body: Body, now: float) -> None:
        """Handle a reply; ignore replies to earlier requests on this connection."""
        reply = body.get("reply")
        if not isinstance(self.request, CommandRequest):
            if reply == ANSWERS[self.request]:
                self.answer = body
        elif reply == "ack":
            self.acknowledged, self._asked = True, 0
            if now < self.deadline:
                self._next = min(now + ANSWER_SECONDS, self.deadline)
        elif reply not in ANSWERS.values():
            outcome = outcome_of(body)
            if outcome.id == self.request.id:
                self.outcome = outcome


CONNECT_SECONDS = 2.0
SILENCE_SECONDS = 10.0
"""A job that does not answer repeated requests for this time counts as gone."""
RESIZE_SECONDS = 60.0
"""Time after which a command that the job has not begun is withdrawn."""


class ControlClient:
    """Sends all requests to the control server of a job over one connection.

    It connects at the first request, and reconnects at the next request after a loss. As a context manager it
    closes the connection; the client can be used again afterwards. While one thread waits for an answer, for
    example to a resize, requests of other threads use connections of their own.

    Parameters
    ----------
    path
        The server's socket.
    over
        Returns whether the job is over, so that no answer can arrive.
    """

    def __init__(
        self,
        job: str,
        path: Path,
        over: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self._over = over
        self._clock = clock
        self._path = path
        self._connection = ClientConnection(path)
        self._in_use = threading.Lock()

    def __enter__(self) -> Self:
        """Return this client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection, if it is open."""
        self._connection.close()

    def status(self, seconds: float = SILENCE_SECONDS) -> Body:
        """Return the status of the job; wait at most `seconds` for it.

        Raises
        ------
        LaunchError
            The job does not answer. Transient, unless the job is over.
        """
        return self._question("status", seconds)

    def cancel(self, seconds: float = SILENCE_SECONDS) -> Body:
        """Request the end of the job; return when the job has received the request."""
        return self._question("cancel", seconds)

    def _question(self, ask: Literal["status", "cancel"], seconds: float) -> Body:
        requester = Requester(self.job, ask, self._clock() + seconds)
        self._follow(requester, self._clock() + seconds)
        if requester.answer is None:
            raise self._silent(requester)
        return requester.answer

    def resize(self, command: ResizeCommand, seconds: float) -> CommandOutcome:
        """Send a command and return its outcome; after `seconds`, withdraw it unless the job has begun it.

        Raises
        ------
        LaunchError
            The job does not answer any more; the outcome of the command is unknown.
        """
        request = CommandRequest(secrets.token_hex(16), command)
        requester = Requester(self.job, request, self._clock() + seconds)
        self._follow(requester, None)
        if requester.outcome is None:
            raise self._silent(requester)
        return requester.outcome

    def _silent(self, requester: Requester) -> LaunchError:
        """Return the error for a job that did not answer, with the fault of a wrong peer that did."""
        error = requester.error
        why = f": {error}" if error else ""
        return LaunchError(
            f"job {self.job} gave no answer{why}; see: apples jobs {self.job}",
            code="job-unanswered",
            job=self.job,
            reason=str(error) if error else None,
            cause=error.code if error else None,
        )

    def _follow(self, requester: Requester, limit: float | None) -> None:
        """Pass lines and time to the state machine until it is settled, or the job counts as gone.

        If a request stays unanswered, the connection is closed: a late answer must not count for the next request.
        """
        if self._in_use.acquire(blocking=False):
            try:
                self._exchange(self._connection, requester, limit)
            finally:
                self._in_use.release()
        else:
            connection = ClientConnection(self._path)
            self._exchange(connection, requester, limit)
            connection.close()

    def _exchange(
        self, connection: ClientConnection, requester: Requester, limit: float | None
    ) -> None:
        answered_at = self._clock()
        connection.act(requester.start(answered_at, greeted=connection.greeted))
        try:
            while not requester.settled:
                now = self._clock()
                if limit is not None and now > limit:
                    return
                if now - answered_at > SILENCE_SECONDS or (self._over() and not connection.open):
                    return
                for line in connection.read(max(0.01, min(requester.due - now, 0.5))):
                    answered_at = self._clock()
                    connection.act(requester.received(line, answered_at))
                if connection.lost:
                    connection.lost = False
                    connection.act(requester.closed(self._clock()))
                connection.act(requester.tick(self._clock()))
        finally:
            if not requester.settled or requester.error is not None:
                connection.close()


class ClientConnection:
    """One connection at a time to a job's socket.

    Attributes
    ----------
    lost
        Whether the connection ended, or could not be opened, since the last check.
    greeted
        Whether a line has arrived on the present connection.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self._lines = LineBuffer(LINE_LIMIT)
        self.lost = self.greeted = False

    @property
    def open(self) -> bool:
        """Whether the connection is open."""
        return self._socket is not None

    def act(self, effects: list[RequesterEffect]) -> None:
        """Carry out the effects of the state machine."""
        for effect in effects:
            try:
                if isinstance(effect, OpenConnection):
                    self._connect()
                elif self._socket is not None:
                    self._socket.sendall(effect.line)
            except OSError:
                self.close()
                self.lost = True

    def _connect(self) -> None:
        self.close()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(CONNECT_SECONDS)
        with socket_name(self._path) as name:
            self._socket.connect(name)

    def read(self, seconds: float) -> list[bytes]:
        """Return the received lines; wait at most `seconds` for the first."""
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
        self.greeted = self.greeted or bool(lines)
        return lines

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._lines, self.greeted = None, LineBuffer(LINE_LIMIT), False


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
"""`RefusalReason` -> the code of its error."""


def carried_out(outcome: CommandOutcome) -> CommandOutcome:
    """Return the outcome of a command that was carried out; raise an error for any other outcome.

    Raises
    ------
    UsageError
        The job rejected the command: it has an unknown host, or violates the job's limits.
    LaunchError
        The job is busy, or the change failed; the job continues unchanged. Or a host was lost and the job was
        rolled back, or the job is over.
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
            f"rejected; the job continues unchanged: {outcome.detail}",
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
