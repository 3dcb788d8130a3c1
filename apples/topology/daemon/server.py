"""`Server` listens on UNIX sockets; a `Connection` serves one client, line by line.

The kernel identifies the user of the client. The size and the time of every line are limited.
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

from apples.errors import ApplesError, LaunchError, UsageError, system_code
from apples.io.credentials import peer_credentials
from apples.io.documents import lock
from apples.io.folder import Folder, check_private
from apples.io.json_lines import MAX_LINE_BYTES, encode
from apples.topology.daemon import protocol
from apples.topology.daemon.client import OPERATOR_SOCKET, SOCKET
from apples.topology.daemon.fairness import ConnectionTable, Turns
from apples.topology.daemon.handler import TopologyRequestHandler, authorise
from apples.topology.daemon.node import NodeLedger
from apples.topology.daemon.protocol import Caller
from apples.topology.daemon.resize_requests import ResizeFollower
from apples.topology.isolation.affinity import started

FIRST_SECONDS: Final = 10.0
"""Time limit of the first line."""
NEXT_SECONDS: Final = 300.0
"""Time limit between two requests of a connection."""
SEND_SECONDS: Final = 10.0
ACCEPTING: Final = 4
"""Passes of the event loop after which an accepted connection is in the table."""
SO_PEERPIDFD: Final = 77


class Connection:
    """Serves the requests of one caller, one after the other.

    Parameters
    ----------
    handler
        Answers requests.
    turns
        The turns of all connections.
    reader, writer
        The streams; the reader's limit is `MAX_LINE_BYTES`.
    """

    def __init__(
        self,
        handler: TopologyRequestHandler,
        turns: Turns,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._handler = handler
        self._turns = turns
        self._reader = reader
        self._writer = writer

    async def serve(self, caller: Caller) -> None:
        """Answer until the client ends, sends nothing for too long, or sends an invalid line.

        This waits with `asyncio.timeout`, never with `asyncio.wait_for`: the latter (Python 3.11) leaves a cycle
        of task, traceback and streams behind each connection, and may drop a cancellation. Collecting two
        thousand such cycles took 200 ms at once, during which the daemon answered no request.
        """
        seconds = FIRST_SECONDS
        while line := await self._line(seconds):
            seconds = NEXT_SECONDS
            await self._turns.wait(caller)
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
        """Return the next line without its end; empty at the end of the connection."""
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
        """Write an answer; return whether the client takes it in time."""
        try:
            self._writer.write(encode(answer))
            async with asyncio.timeout(SEND_SECONDS):
                await self._writer.drain()
        except (TimeoutError, OSError):
            return False
        return True

    async def _follow(self, caller: Caller, request: protocol.FollowRequest) -> None:
        """Send a job's resizes and receive acknowledgements, until either side ends the connection."""
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
        """Read acknowledgements until the connection ends or the client sends another request."""
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
    """Return the client of a UNIX socket, as the kernel identifies it.

    Raises
    ------
    OSError
        The kernel does not identify the client.
    """
    process, user = peer_credentials(connection)
    start = started(process) if process > 0 else ""
    if not _is_still(connection):
        process, start = 0, ""
    return Caller(f"uid:{user}", user in operators, process=max(0, process), start=start)


def _is_still(connection: socket.socket) -> bool:
    """Return whether the process that connected is alive; True on a kernel before 6.5."""
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
ACCEPTED: Final = 1
"""Connections that one pass of the event loop accepts; the others wait in the kernel's queue.

With 4, a user that connects in a loop doubles the response time for root.
"""


class Server:
    """Listens and serves until stopped.

    Parameters
    ----------
    node
        The host.
    run
        The directory of the socket: owned by this user, and not writable by others.
    state
        The directory of the journal: locked, so that only one daemon uses it.

    Raises
    ------
    LaunchError
        Another daemon has locked the state, or the socket cannot be made. Often transient.
    UsageError
        Others can write to a directory. Permanent.
    """

    def __init__(self, node: NodeLedger, run: Folder, state: Folder) -> None:
        self.handler = TopologyRequestHandler(node)
        self.ready = asyncio.Event()
        self._run = run
        self._operators = frozenset({0, os.geteuid()})
        self.connections = ConnectionTable[asyncio.Task[None]]()
        self._turns = Turns()
        self._stopping = asyncio.Event()
        check_private(run)
        check_private(state)
        self._lock = _locked(state)

    async def serve(self) -> None:
        """Recover, listen and watch; return after a signal or `stop`. Jobs continue."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
                loop.add_signal_handler(number, self.stop)
        self.handler.start()
        listening = []
        # Any user may connect; the kernel identifies the user of each connection. The operator has a separate
        # socket, because a user that connects in a loop keeps the queue of the public socket full.
        for name, mode in ((SOCKET, 0o666), (OPERATOR_SOCKET, 0o600)):
            bound = self._bound(name, mode)
            listening.append(
                await asyncio.start_unix_server(
                    self._unix, sock=bound, limit=MAX_LINE_BYTES, backlog=ACCEPTED
                )
            )
            bound.listen(BACKLOG)  # asyncio accepts as many connections at once as its backlog
        self.ready.set()
        try:
            await self._watching()
        finally:
            for each in (each for server in listening for each in server.sockets):
                loop.remove_reader(each.fileno())
            for _ in range(
                ACCEPTING
            ):  # asyncio loses accepted connections if the server is closed before this
                await asyncio.sleep(0)
            for server in listening:
                server.close()
            await self._end_connections()
            await self.handler.releasing.close()
            for name in (SOCKET, OPERATOR_SOCKET):
                self._run.remove(name)
            os.close(self._lock)

    def stop(self) -> None:
        """Make `serve` return."""
        self._stopping.set()

    async def _end_connections(self) -> None:
        """Cancel all tasks of connections until they have ended."""
        while tasks := self.connections.tasks():
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await asyncio.sleep(0)  # the next pass releases the socket of a closed transport

    async def _watching(self) -> None:
        seconds = self.handler.node.options.watch_seconds
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopping.wait()
            try:
                self.handler.watch()
            except Exception as error:  # noqa: BLE001 - reported, and checked again in a second
                self.handler.node.report(f"watch: {type(error).__name__}: {error}")

    def _bound(self, name: str, mode: int) -> socket.socket:
        """Return a listening socket, created relative to the open directory instead of by a path."""
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
            pass  # the daemon ended, or another one has replaced it
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
