"""Server-sent events for the pages of a live scheduler, from the scheduler's own stream of events."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from apples.jobs.scheduler_client import SOCKET
from apples.jobs.text.job import iteration_text
from apples.ui.web.streams import AGAIN_SECONDS, LiveStream

AWAY_LOOKS: Final = 10
"""After so many questions that nobody answered a page says anew for how long that has been."""
SILENT_SECONDS: Final = 30.0
"""A scheduler says something every ten."""
MOST_LINE: Final = 64 << 20
MOST_SEEN: Final = 20_000


class QueueStream(LiveStream):
    """What changes in the queue of a scheduler, by its own stream of events.

    Parameters
    ----------
    directory
        Where the scheduler's socket is.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._seen: dict[str, Mapping[str, Any]] = {}

    async def look(self) -> None:
        """Take the scheduler's events; where it is away, ask again and again."""
        last, asked = "", 0
        while True:
            with suppress(OSError, ValueError, KeyError, TypeError):
                async for number, kind, data in self._said(last):
                    last = number
                    self._take(kind, data)
                    asked = 0
            if asked % AWAY_LOOKS == 0:  # it is away: the page says so, and since when
                self.change()
            asked += 1
            await asyncio.sleep(AGAIN_SECONDS)

    def _take(self, kind: str, data: str) -> None:
        """Tell how far a job is as a text, and everything else as a change."""
        if kind == "job":
            job = json.loads(data)
            name, rest = job["job"], {**job, "iteration": None, "iterations": None}
            if self._seen.get(name) == rest:
                self.text(name, iteration_text(job))
                return
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen[name] = rest
        self.change()

    async def _said(self, last: str) -> AsyncIterator[tuple[str, str, str]]:
        """Yield identifier, kind and data of the events after one."""
        place = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # by its descriptor: the path may be longer than a socket's may be
            async with asyncio.timeout(SILENT_SECONDS):
                reader, writer = await asyncio.open_unix_connection(
                    f"/proc/self/fd/{place}/{SOCKET}", limit=MOST_LINE
                )
        finally:
            os.close(place)
        try:
            resumed = f"Last-Event-ID: {last}\r\n" if last else ""
            writer.write(f"GET /v1/events HTTP/1.1\r\nHost: scheduler\r\n{resumed}\r\n".encode())
            found: dict[str, str] = {}
            async with asyncio.timeout(SILENT_SECONDS) as limit:
                if b" 200 " not in await reader.readline():
                    raise ConnectionRefusedError
                while line := await reader.readline():
                    limit.reschedule(asyncio.get_running_loop().time() + SILENT_SECONDS)
                    key, _, value = line.decode().rstrip("\r\n").partition(": ")
                    if value:
                        found[key] = value
                    elif "event" in found:
                        yield found["id"], found["event"], found["data"]
                        found = {}
        finally:
            writer.close()
