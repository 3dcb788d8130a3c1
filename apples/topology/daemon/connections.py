"""One connection: who is there, lines in, lines out, each bounded in size and time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import struct
from typing import Any, Final

from apples.errors import ApplesError, LaunchError, UsageError
from apples.topology.daemon import lines, protocol
from apples.topology.daemon.desk import Desk, authorise
from apples.topology.daemon.node_manager import Follower
from apples.topology.daemon.protocol import Caller
from apples.topology.isolation.affinity import started
from apples.wire.json_lines import LONGEST_LINE, encode

FIRST_SECONDS: Final = 10.0
"""Until the first line is there."""
NEXT_SECONDS: Final = 300.0
"""Between two requests of one connection."""
SEND_SECONDS: Final = 10.0
SO_PEERPIDFD: Final = 77


class Connection:
    """Serves the requests of one caller, one after the other.

    Parameters
    ----------
    desk
        Who answers.
    reader, writer
        The streams; the reader's limit is `LONGEST_LINE`.
    """

    def __init__(
        self, desk: Desk, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._desk = desk
        self._reader = reader
        self._writer = writer

    async def serve(self, caller: Caller) -> None:
        """Answer until the caller goes, is silent for too long, or says what cannot be read."""
        seconds = FIRST_SECONDS
        while line := await self._line(seconds):
            seconds = NEXT_SECONDS
            try:
                request = protocol.parse_request(line)
                if isinstance(request, protocol.Follow):
                    await self._follow(caller, request)
                    return
                answer = {"ok": True, **await self._desk.answer(caller, request)}
            except ApplesError as error:
                answer = lines.refusal_of(error)
            except OSError as error:
                answer = lines.refusal_of(LaunchError(f"topologyd: {error}"))
            except Exception as error:  # noqa: BLE001 - one request must not take the others with it
                kind = type(error).__name__
                self._desk.node.report(f"internal error: {kind}: {error}")
                answer = lines.refusal_of(LaunchError(f"topologyd: internal error: {kind}"))
            if not await self._send(answer):
                return

    async def _line(self, seconds: float) -> bytes:
        """Return the next line without its end; nothing when there is none to come."""
        try:
            line = await asyncio.wait_for(self._reader.readuntil(b"\n"), seconds)
        except asyncio.LimitOverrunError:
            error = UsageError(f"a request is longer than {LONGEST_LINE} bytes")
            await self._send(lines.refusal_of(error))
            return b""
        except (TimeoutError, asyncio.IncompleteReadError, OSError):
            return b""
        return line.rstrip(b"\r\n") or b" "

    async def _send(self, answer: dict[str, Any]) -> bool:
        """Write an answer; whether the caller takes it in time."""
        try:
            self._writer.write(encode(answer))
            await asyncio.wait_for(self._writer.drain(), SEND_SECONDS)
        except (TimeoutError, OSError):
            return False
        return True

    async def _follow(self, caller: Caller, request: protocol.Follow) -> None:
        """Tell of a job's resizes, and take acknowledgements, until either side ends it."""
        authorise(self._desk.node, caller, request)
        manager = self._desk.manager
        follower = manager.follow(request.job)
        job = self._desk.node.state.jobs[request.job]
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

    async def _hear(self, follower: Follower) -> None:
        """Take acknowledgements until the connection ends or says anything else."""
        while line := await self._line(86_400.0):
            try:
                request = protocol.parse_request(line)
            except ApplesError as error:
                await self._send(lines.refusal_of(error))
                return
            if not isinstance(request, protocol.Acknowledge):
                return
            self._desk.manager.acknowledge(follower, request.serial)


def peer(connection: socket.socket, operators: frozenset[int]) -> Caller:
    """Return who is at the other end of a UNIX socket, by the kernel's word.

    Raises
    ------
    OSError
        The kernel does not say.
    """
    size = struct.calcsize("3i")
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, _ = struct.unpack("3i", packed)
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
