"""Where the daemon listens: a UNIX socket, and, if asked, TLS with a token."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import nws
from apples.errors import LaunchError, UsageError
from apples.storage.documents import lock
from apples.storage.folder import Folder
from apples.topology.daemon.connections import FIRST_SECONDS, Connection, peer
from apples.topology.daemon.desk import Desk
from apples.topology.daemon.node import Node
from apples.topology.daemon.protocol import Caller
from apples.wire.json_lines import LONGEST_LINE

MOST_CONNECTIONS: Final = 512
MOST_OF_ONE: Final = 256
"""Connections of one principal, the operator's not counted."""
SOCKET: Final = "topologyd.sock"
BACKLOG: Final = 256


@dataclass(frozen=True, slots=True)
class Tls:
    """Where to listen for other hosts, and what to show them.

    Attributes
    ----------
    host, port
        The address; port 0 lets the system choose.
    certificate, key
        Files of the certificate and its key.
    tokens
        The file of tokens, as `nws serve` has them: ``write`` may change its own jobs.
    """

    host: str
    port: int
    certificate: Path
    key: Path
    tokens: Path


class Server:
    """Listens and serves until stopped.

    Parameters
    ----------
    node
        The host.
    run
        The directory of the socket, ours, and nobody else's to write to.
    state
        The directory of the journal: locked, so that there is one daemon for it.
    tls
        Where else to listen.

    Raises
    ------
    LaunchError
        Another daemon has the state; the socket cannot be made. Often transient.
    UsageError
        A directory that others can write to. Permanent.
    """

    def __init__(self, node: Node, run: Folder, state: Folder, tls: Tls | None = None) -> None:
        self.desk = Desk(node)
        self.ready = asyncio.Event()
        self.port = 0
        self._run = run
        self._tls = tls
        self._context = _context(tls) if tls is not None else None
        self._tokens = nws.TokenFile(tls.tokens) if tls is not None else None
        self._operators = frozenset({0, os.geteuid()})
        self._open: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        check_private(run)
        check_private(state)
        self._lock = _locked(state)

    async def serve(self) -> None:
        """Recover, listen, watch; return when a signal or `stop` ends it. Jobs go on."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
                loop.add_signal_handler(number, self.stop)
        self.desk.start()
        listening = [
            await asyncio.start_unix_server(self._unix, sock=self._bound(), limit=LONGEST_LINE)
        ]
        if self._tls is not None:
            over_tls = await asyncio.start_server(
                self._remote,
                self._tls.host,
                self._tls.port,
                ssl=self._context,
                ssl_handshake_timeout=FIRST_SECONDS,
                limit=LONGEST_LINE,
            )
            self.port = over_tls.sockets[0].getsockname()[1]
            listening.append(over_tls)
        self.ready.set()
        try:
            await self._watching()
        finally:
            for server in listening:
                server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.desk.releasing.close()
            self._run.remove(SOCKET)
            os.close(self._lock)

    def stop(self) -> None:
        """End `serve`."""
        self._stopping.set()

    async def _watching(self) -> None:
        seconds = self.desk.node.options.watch_seconds
        while not self._stopping.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), seconds)
            try:
                self.desk.watch()
            except Exception as error:  # noqa: BLE001 - said, and looked at again in a second
                self.desk.node.report(f"watch: {type(error).__name__}: {error}")

    def _bound(self) -> socket.socket:
        """Return the listening socket, made inside the open directory and not by a path."""
        place = f"/proc/self/fd/{self._run.descriptor}/{SOCKET}"
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            try:
                bound.bind(place)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or _answers(place):
                    raise
                self._run.remove(SOCKET)
                bound.bind(place)
            # Anybody may connect: who may do what is decided by the kernel's word on who asks.
            os.chmod(place, 0o666)  # noqa: S103, PTH101
            bound.listen(BACKLOG)
        except OSError as error:
            bound.close()
            raise LaunchError(f"{self._run.name}/{SOCKET}: {error.strerror}") from error
        return bound

    async def _unix(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            caller = peer(writer.get_extra_info("socket"), self._operators)
        except OSError:
            writer.close()
            return
        await self._served(caller, reader, writer)

    async def _remote(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller = None
        with contextlib.suppress(
            asyncio.TimeoutError, OSError, asyncio.IncompleteReadError, ValueError
        ):
            line = await asyncio.wait_for(reader.readuntil(b"\n"), FIRST_SECONDS)
            caller = self._bearer(line.strip().decode("ascii"))
        if caller is None:
            writer.close()
            return
        await self._served(caller, reader, writer)

    def _bearer(self, secret: str) -> Caller | None:
        token = self._tokens.find(secret) if self._tokens is not None else None
        if token is None:
            return None
        return Caller(f"token:{token.name}", writes="write" in token.scopes)

    async def _served(
        self, caller: Caller, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        here = self._open.get(caller.principal, 0)
        full = here >= MOST_OF_ONE and not caller.operator
        if full or sum(self._open.values()) >= MOST_CONNECTIONS or task is None:
            writer.close()
            return
        self._tasks.add(task)
        self._open[caller.principal] = here + 1
        try:
            await Connection(self.desk, reader, writer).serve(caller)
        except asyncio.CancelledError:
            pass  # the daemon ends
        finally:
            self._tasks.discard(task)
            left = self._open[caller.principal] - 1
            if left:
                self._open[caller.principal] = left
            else:
                del self._open[caller.principal]
            writer.close()


def check_private(folder: Folder) -> None:
    """Raise UsageError unless a directory is ours and nobody else can write to it."""
    found = os.fstat(folder.descriptor)
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise UsageError(
            f"{folder.name}: has owner {found.st_uid} and mode {found.st_mode & 0o7777:o}; it must be "
            "ours and not writable by others (chmod go-w)"
        )


def _locked(state: Folder) -> int:
    descriptor = state.open_file("lock", os.O_RDWR | os.O_CREAT)
    if not lock(descriptor, 0.0):
        os.close(descriptor)
        raise LaunchError(f"{state.name}: another apples topologyd is running on it") from None
    return descriptor


def _answers(place: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        trying.settimeout(1.0)
        try:
            trying.connect(place)
        except OSError:
            return False
        return True


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{tls.certificate}, {tls.key}: {error.strerror or error}") from None
    return context
