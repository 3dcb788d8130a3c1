"""Where the daemon listens (a UNIX socket and, if asked, TLS with a token), and one connection: lines in and out.

The kernel says who is at the other end of the socket; every line is bounded in size and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
import socket
from typing import Any, Final

import nws
from apples.errors import ApplesError, LaunchError, UsageError, system_code
from apples.io.credentials import peer_credentials
from apples.io.documents import lock
from apples.io.folder import Folder, check_private
from apples.io.json_lines import MAX_LINE_BYTES, encode
from apples.io.tls import Tls, server_context
from apples.topology.daemon import protocol
from apples.topology.daemon.client import OPERATOR_SOCKET, SOCKET
from apples.topology.daemon.fairness import ConnectionTable, FairTurns
from apples.topology.daemon.handler import TopologyRequestHandler, authorise
from apples.topology.daemon.node import NodeLedger
from apples.topology.daemon.protocol import Caller
from apples.topology.daemon.resize_requests import ResizeFollower
from apples.topology.isolation.affinity import started

FIRST_SECONDS: Final = 10.0
"""Until the first line is there."""
NEXT_SECONDS: Final = 300.0
"""Between two requests of one connection."""
SEND_SECONDS: Final = 10.0
ACCEPTING: Final = 4
"""Passes of the event loop after which a connection that was accepted is in the table."""
SO_PEERPIDFD: Final = 77


class Connection:
    """Serves the requests of one caller, one after the other.

    Parameters
    ----------
    handler
        Who answers.
    turns
        Whose request is begun next, of all connections.
    reader, writer
        The streams; the reader's limit is `MAX_LINE_BYTES`.
    """

    def __init__(
        self,
        handler: TopologyRequestHandler,
        turns: FairTurns,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._handler = handler
        self._turns = turns
        self._reader = reader
        self._writer = writer

    async def serve(self, caller: Caller) -> None:
        """Answer until the caller goes, is silent for too long, or says what cannot be read.

        Waiting here is `asyncio.timeout` and never `asyncio.wait_for`: that one (Python 3.11) leaves a cycle of
        task, traceback and streams behind each connection, and may drop a cancellation. Two thousand such cycles
        took the collector 200 ms in one go, in which nobody was answered.
        """
        seconds = FIRST_SECONDS
        while line := await self._line(seconds):
            seconds = NEXT_SECONDS
            await self._turns.turn(caller)
            try:
                request = protocol.parse_request(line)
                if isinstance(request, protocol.FollowRequest):
                    await self._follow(caller, request)
                    return
                answer = {"ok": True, **await self._handler.answer(caller, request)}
            except ApplesError as error:
                answer = protocol.refusal_of(error)
            except OSError as error:
                answer = protocol.refusal_of(
                    LaunchError(
                        f"topologyd: {error}",
                        code=system_code(error),
                        file=error.filename,
                    )
                )
            except Exception as error:  # noqa: BLE001 - one request must not take the others with it
                kind = type(error).__name__
                self._handler.node.report(f"internal error: {kind}: {error}")
                answer = protocol.refusal_of(
                    LaunchError(
                        f"topologyd: internal error: {kind}", code="daemon-fault", kind=kind
                    )
                )
            if not await self._send(answer):
                return

    async def _line(self, seconds: float) -> bytes:
        """Return the next line without its end; nothing when there is none to come."""
        try:
            async with asyncio.timeout(seconds):
                line = await self._reader.readuntil(b"\n")
        except asyncio.LimitOverrunError:
            error = UsageError(
                f"a request is longer than {MAX_LINE_BYTES} bytes",
                code="message-too-long",
                bound=MAX_LINE_BYTES,
            )
            await self._send(protocol.refusal_of(error))
            return b""
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            return b""
        return line.rstrip(b"\r\n") or b" "

    async def _send(self, answer: dict[str, Any]) -> bool:
        """Write an answer; whether the caller takes it in time."""
        try:
            self._writer.write(encode(answer))
            async with asyncio.timeout(SEND_SECONDS):
                await self._writer.drain()
        except (TimeoutError, OSError):
            return False
        return True

    async def _follow(self, caller: Caller, request: protocol.FollowRequest) -> None:
        """Tell of a job's resizes, and take acknowledgements, until either side ends it."""
        authorise(self._handler.node, caller, request)
        manager = self._handler.manager
        follower = manager.follow(request.job)
        job = self._handler.node.state.jobs[request.job]
        hearing = asyncio.create_task(self._hear(follower))
        try:
            alive = await self._send({"ok": True, "job": job.job, "cpus": str(job.holds)})
            while alive and not hearing.done():
                telling = asyncio.create_task(follower.events.get())
                await asyncio.wait({telling, hearing}, return_when=asyncio.FIRST_COMPLETED)
                if not telling.done():
                    telling.cancel()
                    break
                event = telling.result()
                if event is None:
                    await self._send({"event": "ended"})
                    break
                alive = await self._send(event)
        finally:
            manager.unfollow(follower)
            hearing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await hearing

    async def _hear(self, follower: ResizeFollower) -> None:
        """Take acknowledgements until the connection ends or says anything else."""
        while line := await self._line(86_400.0):
            try:
                request = protocol.parse_request(line)
            except ApplesError as error:
                await self._send(protocol.refusal_of(error))
                return
            if not isinstance(request, protocol.AcknowledgeRequest):
                return
            self._handler.manager.acknowledge(follower, request.serial)


def peer(connection: socket.socket, operators: frozenset[int]) -> Caller:
    """Return who is at the other end of a UNIX socket, by the kernel's word.

    Raises
    ------
    OSError
        The kernel does not say.
    """
    process, user = peer_credentials(connection)
    start = started(process) if process > 0 else ""
    if not _is_still(connection):
        process, start = 0, ""
    return Caller(f"uid:{user}", user in operators, process=max(0, process), start=start)


def _is_still(connection: socket.socket) -> bool:
    """Whether the process that connected lives; True where the kernel (before 6.5) cannot say."""
    try:
        descriptor = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return not poll.poll(0)
    finally:
        os.close(descriptor)


BACKLOG: Final = 256
ACCEPTED: Final = 4
"""Connections that one pass of the event loop accepts; the others wait in the kernel."""


class Server:
    """Listens and serves until stopped.

    Parameters
    ----------
    node
        The host.
    run
        The directory of the socket: ours, and not writable by others.
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

    def __init__(
        self, node: NodeLedger, run: Folder, state: Folder, tls: Tls | None = None
    ) -> None:
        self.handler = TopologyRequestHandler(node)
        self.ready = asyncio.Event()
        self.port = 0
        self._run = run
        self._tls = tls
        self._context = server_context(tls.certificate, tls.key) if tls is not None else None
        self._tokens = nws.TokenFile(tls.tokens) if tls is not None else None
        self._operators = frozenset({0, os.geteuid()})
        self.connections = ConnectionTable[asyncio.Task[None]]()
        self._turns = FairTurns()
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
        self.handler.start()
        listening = []
        # Anybody may connect: who may do what is decided by the kernel's word on who asks. The operator has a
        # socket of his own beside it, for the queue of the other may be full of whoever connects most often.
        for name, mode in ((SOCKET, 0o666), (OPERATOR_SOCKET, 0o600)):
            bound = self._bound(name, mode)
            listening.append(
                await asyncio.start_unix_server(
                    self._unix, sock=bound, limit=MAX_LINE_BYTES, backlog=ACCEPTED
                )
            )
            bound.listen(BACKLOG)  # asyncio accepts as many at once as it lets wait
        if self._tls is not None:
            over_tls = await asyncio.start_server(
                self._remote,
                self._tls.host,
                self._tls.port,
                ssl=self._context,
                ssl_handshake_timeout=FIRST_SECONDS,
                limit=MAX_LINE_BYTES,
            )
            self.port = over_tls.sockets[0].getsockname()[1]
            listening.append(over_tls)
        self.ready.set()
        try:
            await self._watching()
        finally:
            for each in (each for server in listening for each in server.sockets):
                loop.remove_reader(each.fileno())
            for _ in range(
                ACCEPTING
            ):  # asyncio forgets what was accepted when a server is closed before that
                await asyncio.sleep(0)
            for server in listening:
                server.close()
            await self._end_connections()
            await self.handler.releasing.close()
            for name in (SOCKET, OPERATOR_SOCKET):
                self._run.remove(name)
            os.close(self._lock)

    def stop(self) -> None:
        """End `serve`."""
        self._stopping.set()

    async def _end_connections(self) -> None:
        """Cancel what serves connections until all of it has ended."""
        while tasks := self.connections.tasks():
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # a transport that was closed lets its socket go in the next pass

    async def _watching(self) -> None:
        seconds = self.handler.node.options.watch_seconds
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()
            try:
                self.handler.watch()
            except Exception as error:  # noqa: BLE001 - said, and looked at again in a second
                self.handler.node.report(f"watch: {type(error).__name__}: {error}")

    def _bound(self, name: str, mode: int) -> socket.socket:
        """Return a listening socket, made inside the open directory and not by a path."""
        place = f"/proc/self/fd/{self._run.descriptor}/{name}"
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            try:
                bound.bind(place)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or _answers(place):
                    raise
                self._run.remove(name)
                bound.bind(place)
            os.chmod(place, mode)  # noqa: PTH101 - of a descriptor's directory
            bound.listen(BACKLOG)
        except OSError as error:
            bound.close()
            raise LaunchError(
                f"{self._run.name}/{name}: {error.strerror}",
                code="socket-unusable",
                file=f"{self._run.name}/{name}",
            ) from error
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
        with contextlib.suppress(TimeoutError, OSError, asyncio.IncompleteReadError, ValueError):
            async with asyncio.timeout(FIRST_SECONDS):
                line = await reader.readuntil(b"\n")
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
        if task is None:
            raise RuntimeError("a connection is served by a task")
        if refused := self.connections.admit(caller, task):
            writer.write(
                encode(
                    protocol.refusal_of(
                        LaunchError(
                            f"topologyd: {refused}", code="too-many-connections", reason=refused
                        )
                    )
                )
            )
            writer.close()
            return
        try:
            await Connection(self.handler, self._turns, reader, writer).serve(caller)
        except asyncio.CancelledError:
            pass  # the daemon ends, or another takes its place
        finally:
            self.connections.leave(caller, task)
            writer.close()


def _locked(state: Folder) -> int:
    descriptor = state.open_file("lock", os.O_RDWR | os.O_CREAT)
    if not lock(descriptor, 0.0):
        os.close(descriptor)
        raise LaunchError(
            f"{state.name}: another apples topologyd is running on it",
            code="directory-locked",
            file=state.name,
        ) from None
    return descriptor


def _answers(place: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        trying.settimeout(1.0)
        try:
            trying.connect(place)
        except OSError:
            return False
        return True
