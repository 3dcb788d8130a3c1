"""`ControlServer`: the protocol in the job manager's process and loop, on a UNIX socket in the job's folder.

The responder makes all decisions. This module has the socket, the check of the peers' users, and limits on
buffered bytes. No call blocks.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
from collections.abc import Callable
from pathlib import Path

from apples.io.credentials import peer_credentials
from apples.io.json_lines import LineBuffer, LineError
from apples.io.naming import naming
from apples.io.sockets import socket_name
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
from apples.malleable.control.messages import LINE_LIMIT, Body, CommandOutcome
from apples.malleable.control.requests import (
    MAX_SESSIONS,
    CloseSession,
    HostLimits,
    ResizeLedger,
    Responder,
    ResponderEffect,
    SendToSession,
)

UNSENT_LIMIT = 1 << 18
"""Largest number of buffered bytes for a peer that does not read."""
CHUNK = 1 << 16


def open_control(job: JobFile) -> CommandSource:
    """Return the control server of a job, listening on the socket that ``job.control`` names.

    Raises
    ------
    JobFileError
        ``control`` is not the path of a socket.
    OSError
        The socket cannot be created.
    """
    if not isinstance(job.control, str) or not job.control:
        raise JobFileError(
            "control: must be the path of a socket", code="field-missing", field="control"
        )
    return ControlServer(job.job, HostLimits.of(job), Path(job.control), epoch=job.epoch)


class ControlConnection:
    """One connection: its incoming lines, and the bytes that the peer has not read yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.lines = LineBuffer(LINE_LIMIT)
        self.unsent = b""


class ControlServer(CommandSource):
    """Serves the agents of one job: processes of its own user, and of root.

    Parameters
    ----------
    path
        The socket; `close` removes it. The socket of a killed server is replaced, because a job has one supervisor
        at a time.
    epoch
        The last epoch of the earlier starts.

    Raises
    ------
    OSError
        The socket cannot be created.
    """

    def __init__(self, job: str, limits: HostLimits, path: Path, epoch: int = 0) -> None:
        self.ledger = ResizeLedger(limits, epoch)
        self.responder = Responder(job, self.ledger, self._body)
        self._path = path.absolute()
        self._peers: dict[int, ControlConnection] = {}
        self._count = 0
        self._requested: LimitsRequested | None = None
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with naming(path), socket_name(self._path) as name:
                self._listener.bind(name)
            self._path.chmod(0o600)
        except OSError:
            self._listener.close()
            raise
        self._listener.listen(MAX_SESSIONS)
        self._listener.setblocking(False)

    # ------------------------------------------------------------ for the manager's loop
    def attach(
        self, selector: selectors.BaseSelector, status: Callable[[], ManagerStatus]
    ) -> None:
        """Serve the socket from this loop."""
        self._selector, self._status = selector, status
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def poll(self) -> ResizeCommand | None:
        """Return the command to carry out next."""
        command, effects = self.responder.begin()
        self._effects(effects)
        return command

    def cancelled(self) -> bool:
        """Whether an agent has requested the end of the job."""
        return self.responder.cancelled

    def notify(self, notice: JobNotice) -> None:
        """Send the outcome in a notice to the sessions with its request."""
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

    def close(self) -> None:
        """Close every connection and the socket."""
        self._path.unlink(missing_ok=True)
        for number in list(self._peers):
            self._hang_up(number)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(self._listener)
        self._listener.close()

    # ------------------------------------------------------------------- connections
    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # the peer has closed it again, or all file descriptors are in use
            return
        # The folder keeps other users out; this also holds if its mode was changed.
        if peer_credentials(sock)[1] not in {0, os.geteuid()}:
            sock.close()
            return
        sock.setblocking(False)
        self._count += 1
        number = self._count
        self._peers[number] = ControlConnection(sock)
        self._selector.register(sock, selectors.EVENT_READ, lambda: self._exchange(number))
        self._effects(self.responder.opened(number))

    def _exchange(self, number: int) -> None:
        """Read the received bytes and write the buffered bytes."""
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
        try:
            lines = peer.lines.feed(data)
        except LineError:
            self._hang_up(number)
            return
        for line in lines:
            self._effects(self.responder.received(number, line))
            if number not in self._peers:
                return

    def _effects(self, effects: list[ResponderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendToSession) and effect.session in self._peers:
                peer = self._peers[effect.session]
                peer.unsent += effect.line
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
