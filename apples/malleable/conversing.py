"""The agent's side of the protocol on a socket: asks a job one thing and waits for its answer."""

from __future__ import annotations

import json
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from apples.errors import LaunchError
from apples.malleable.command import Command
from apples.malleable.protocol.messages import Verdict, Wish
from apples.malleable.protocol.requester import Connect, Effect, Requester
from apples.malleable.protocol.sealing import LINE_LIMIT, Body

CONNECT_SECONDS = 2.0
SILENCE_SECONDS = 10.0
"""A job that answers nothing for so long, over and over asked, counts as gone."""


class Conversation:
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

    def resize(self, command: Command, seconds: float) -> Verdict:
        """Return what became of a command; after `seconds` it is taken back, unless it has begun.

        Raises
        ------
        LaunchError
            Nobody answers any more: whether it was carried out is not known.
        """
        wish = Wish(secrets.token_hex(16), command)
        requester = self._requester(wish, self._clock() + seconds)
        self._follow(requester, None)
        if requester.verdict is None:
            raise LaunchError(f"job {self.job} gave no answer; see: apples jobs {self.job}")
        return requester.verdict

    def _requester(self, wish: Wish | Literal["status", "cancel"], deadline: float) -> Requester:
        return Requester(self.job, self._secret, wish, deadline, secrets.token_bytes)

    def _follow(self, requester: Requester, limit: float | None) -> None:
        """Carry lines and time to the machine until it is settled."""
        line = Wire(self._announce)
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


class Wire:
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

    def act(self, effects: list[Effect]) -> None:
        """Do what the machine wants done."""
        for effect in effects:
            try:
                if isinstance(effect, Connect):
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
