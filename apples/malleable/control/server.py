"""`ControlServer`: the protocol in the job manager's process and loop, on sockets of the loopback interface.

Every decision is the responder's. Here are sockets, the clock, and bounds on their cost: so many connections a
second are accepted, so many bytes are kept. Nothing blocks.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from pathlib import Path

from apples.io.json_lines import LineBuffer, LineError
from apples.malleable.control.command import (
    CommandSource,
    JobEnded,
    JobNotice,
    LimitsRequested,
    ManagerStatus,
    ResizeCommand,
    ResizeDone,
    ResizeRefused,
    RolledBack,
)
from apples.malleable.control.job_file import JobFile, JobFileError
from apples.malleable.control.messages import CommandOutcome
from apples.malleable.control.requests import (
    CloseSession,
    HostLimits,
    ResizeLedger,
    Responder,
    ResponderEffect,
    SendToSession,
)
from apples.malleable.control.sealing import SECRET_BYTES, Body

LOOPBACK = "127.0.0.1"
# Further connections wait in the kernel's queue, so a flood costs a few per cent of a CPU and the
# job nothing.
ACCEPTED_A_SECOND = 250.0
ACCEPTED_AT_ONCE = 50
TICK_SECONDS = 1.0
UNSENT_LIMIT = 1 << 18
"""Bytes kept for a peer that does not read."""
CHUNK = 1 << 16


def open_control(job: JobFile) -> CommandSource:
    """Return the control server of a job, listening; its port stands in the file it announces.

    ``job.control`` has ``secret`` and ``announce``: paths, relative to where the manager was started.

    Raises
    ------
    JobFileError
        ``control`` does not say what it should, or the secret cannot be read.
    """
    try:
        secret = bytes.fromhex(Path(job.control["secret"]).read_text("ascii"))
        announce = Path(job.control["announce"])
    except (KeyError, TypeError, ValueError, OSError) as error:
        code = {KeyError: "field-missing", FileNotFoundError: "file-missing"}.get(type(error))
        raise JobFileError(
            f"control: {type(error).__name__}: {error}",
            code=code or "value-invalid",
            field="control",
        ) from None
    if len(secret) < SECRET_BYTES:
        raise JobFileError(
            f"control: a secret of {len(secret)} bytes; {SECRET_BYTES} are needed",
            code="value-range",
            field="control",
        )
    return ControlServer(job.job, secret, HostLimits.of(job), announce, epoch=job.epoch)


class ControlConnection:
    """One connection: the lines that come in, and bytes that the peer has not read yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.lines = LineBuffer()
        self.unsent = b""


class ControlServer(CommandSource):
    """Serves the agents of one job.

    Parameters
    ----------
    announce
        File that will say where the server listens; gone when it does not.
    epoch
        The last that an attempt before has taken.
    """

    def __init__(
        self,
        job: str,
        secret: bytes,
        limits: HostLimits,
        announce: Path,
        clock: Callable[[], float] = time.monotonic,
        entropy: Callable[[int], bytes] = secrets.token_bytes,
        epoch: int = 0,
    ) -> None:
        self.ledger = ResizeLedger(limits, epoch)
        self.responder = Responder(job, secret, self.ledger, entropy, self._body)
        self._clock = clock
        self._announce = announce.absolute()
        self._peers: dict[int, ControlConnection] = {}
        self._count = 0
        self._requested: LimitsRequested | None = None
        self._allowed, self._allowed_at = float(ACCEPTED_AT_ONCE), clock()
        self._listening = True
        self._due = 0.0
        self._listener = socket.create_server((LOOPBACK, 0), backlog=64)
        self._listener.setblocking(False)
        self._announce_address(job)

    def _announce_address(self, job: str) -> None:
        address, port = self._listener.getsockname()[:2]
        document = {"job": job, "address": address, "port": port}
        beside = self._announce.with_suffix(".new")
        beside.unlink(missing_ok=True)
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            json.dump(document, stream)
        beside.replace(self._announce)

    # ------------------------------------------------------------ for the manager's loop
    def attach(
        self, selector: selectors.BaseSelector, status: Callable[[], ManagerStatus]
    ) -> None:
        """Listen in this loop."""
        self._selector, self._status = selector, status
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def poll(self) -> ResizeCommand | None:
        """Return the command to carry out next."""
        command, effects = self.responder.begin()
        self._effects(effects)
        return command

    def cancelled(self) -> bool:
        """Whether an agent wants the job to end."""
        return self.responder.cancelled

    def notify(self, notice: JobNotice) -> None:
        """Send the outcome to the sessions that asked about it."""
        outcome: CommandOutcome | None = None
        if isinstance(notice, ResizeDone):
            outcome = self.ledger.done(notice.seconds, notice.phases)
        elif isinstance(notice, ResizeRefused):
            outcome = self.ledger.failed(notice.reason, notice.code)
        elif isinstance(notice, RolledBack):
            lost = f"{', '.join(notice.lost)} was lost: " if notice.lost else ""
            outcome = self.ledger.rolled_back(
                notice.epoch, f"{lost}{notice.reason}", notice.iteration, notice.code
            )
        elif isinstance(notice, LimitsRequested):
            self._requested = notice
            self.ledger.limits = self.ledger.limits.asked(notice.minimum, notice.maximum)
        elif isinstance(notice, JobEnded):
            outcome = self.ledger.end(notice.state, notice.reason, notice.code)
        self._effects(self.responder.send_outcome(outcome))

    def deadline(self) -> float | None:
        """Return when to look for silent sessions."""
        return self._due if self._peers or not self._listening else None

    def tick(self) -> None:
        """Close silent sessions, and listen again after a flood of connections."""
        self._due = self._clock() + TICK_SECONDS
        self._effects(self.responder.tick(self._clock()))
        if not self._listening and self._may_accept():
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
            self._listening = True

    def close(self) -> None:
        """Let go of every connection and of the port."""
        self._announce.unlink(missing_ok=True)
        for number in list(self._peers):
            self._hang_up(number)
        if self._listening:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self._listener)
        self._listener.close()

    # ------------------------------------------------------------------- connections
    def _may_accept(self) -> bool:
        """Whether there is room in this second's allowance, so that a flood costs the job nothing."""
        now = self._clock()
        self._allowed += (now - self._allowed_at) * ACCEPTED_A_SECOND
        self._allowed, self._allowed_at = min(self._allowed, float(ACCEPTED_AT_ONCE)), now
        return self._allowed >= 1.0

    def _accept(self) -> None:
        if not self._may_accept():
            self._selector.unregister(self._listener)
            self._listening = False
            return
        try:
            sock, _ = self._listener.accept()
        except OSError:  # it is gone again, or there are no more file descriptors
            return
        self._allowed -= 1.0
        sock.setblocking(False)
        self._count += 1
        number = self._count
        self._peers[number] = ControlConnection(sock)
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._exchange(number))
        self._effects(self.responder.opened(number, self._clock()))

    def _exchange(self, number: int) -> None:
        """Read the bytes that came and write those that wait."""
        peer = self._peers.get(number)
        if peer is None:
            return
        try:
            self._write(number, peer)
            data = peer.socket.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._hang_up(number)
            return
        self._take_in(number, peer, data)

    def _take_in(self, number: int, peer: ControlConnection, data: bytes) -> None:
        peer.lines.longest = self.responder.line_limit(number)
        try:
            lines = peer.lines.feed(data)
        except LineError:
            self._hang_up(number)
            return
        for line in lines:
            self._effects(self.responder.received(number, line, self._clock()))
            if number not in self._peers:
                return

    def _effects(self, effects: list[ResponderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendToSession) and effect.session in self._peers:
                peer = self._peers[effect.session]
                peer.unsent += effect.line + b"\n"
                self._write(effect.session, peer)
            elif isinstance(effect, CloseSession):
                self._hang_up(effect.session)

    def _write(self, number: int, peer: ControlConnection) -> None:
        try:
            while peer.unsent:
                peer.unsent = peer.unsent[peer.socket.send(peer.unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            self._hang_up(number)
            return
        if len(peer.unsent) > UNSENT_LIMIT:
            self._hang_up(number)
            return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
        key = self._selector.get_key(peer.socket)
        if key.events != wanted:
            self._selector.modify(peer.socket, wanted, key.data)

    def _hang_up(self, number: int) -> None:
        peer = self._peers.pop(number, None)
        self.responder.closed(number)
        if peer is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(peer.socket)
            peer.socket.close()

    def _body(self) -> Body:
        """Return the job's status as a body."""
        status, last, latest = self._status(), self.ledger.last, self.ledger.latest
        return {
            "job": self.responder.job, "state": status.state, "epoch": self.ledger.epoch,
            "hosts": [member.host for member in status.members],
            "rows": [member.rows for member in status.members],
            "weights": [member.weight for member in status.members],
            "iteration": status.iteration, "minimum": self.ledger.limits.minimum,
            "maximum": self.ledger.limits.maximum, "busy": self.ledger.busy is not None,
            "malleable": status.malleable, "warm": list(status.warm),
            "requested": [self._requested.minimum, self._requested.maximum]
            if self._requested else None,
            "last_resize": last.body() if last else None,
            "last_change": latest.body() if latest else None,
            "row_bytes": status.row_bytes, "block_bytes": status.block_bytes,
            "constant_bytes": status.constant_bytes, "rate": status.rate,
        }  # fmt: skip
