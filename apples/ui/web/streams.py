"""Server-sent events for open pages: one poll of the data serves all browsers that show the same page.

A page receives new texts by key (``text``), or the event ``changed`` if other parts differ; then it fetches
itself again. Events are numbered, so an interrupted stream continues after its last event. A browser that missed
too many events, or has events of an earlier start of the server, receives ``changed``.
"""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Final

from sse_starlette import ServerSentEvent

from apples.errors import LaunchError
from apples.ui.web.event_log import Event, EventStreamLog

MAX_KEPT: Final = 200
MAX_READERS: Final = 128
MAX_STREAMS: Final = 64
GATHERED_SECONDS: Final = 0.5
"""Seconds for which changes are collected before they are sent to browsers."""
PING_SECONDS: Final = 15
SEND_SECONDS: Final = 60.0
"""After this time a reader that takes no data is disconnected."""
AGAIN_SECONDS: Final = 1.0
"""Seconds between two requests to an unreachable scheduler, and between two reads of a record."""


class LiveStream(ABC):
    """The changes of one page, for all its readers; used only in the event loop.

    It polls only while it has readers.
    """

    def __init__(self) -> None:
        self._log = EventStreamLog(secrets.token_hex(4), MAX_KEPT)
        self._texts: dict[str, str] = {}
        self._is_changed = False
        self._flush: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.readers = 0

    @property
    def last(self) -> str:
        """The identifier of the last event; empty without readers, because nothing is polled then."""
        return self._log.identifier(self._log.last) if self.readers else ""

    @abstractmethod
    async def look(self) -> None:
        """Poll until cancelled, and call `text` and `change`."""

    def text(self, key: str, text: str) -> None:
        """Set the text of a key."""
        self._texts[key] = text
        self._gather()

    def change(self) -> None:
        """Make the page fetch itself again."""
        self._is_changed = True
        self._gather()

    def flush(self) -> None:
        """Send the collected events at once."""
        if self._flush is not None:
            self._flush.cancel()
            self._tell()

    def close(self) -> None:
        """End every reader's stream."""
        self._log.close()

    async def follow(self, since: str) -> AsyncIterator[bytes]:
        """Yield server-sent events, after the event with an identifier."""
        self.readers += 1
        if self._task is None:
            self._log = EventStreamLog(
                secrets.token_hex(4), MAX_KEPT
            )  # events since the last reader left are unknown
            self._task = asyncio.create_task(self.look())
        log = self._log

        async def anew() -> Event:
            return Event(log.last, "changed", "{}")

        try:
            yield ServerSentEvent(comment="connected", sep="\n").encode()
            async for event in log.follow(since, anew):
                yield event
        finally:
            self.readers -= 1
            if not self.readers and self._task is not None:
                self._task.cancel()
                self._task = None

    def _gather(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(GATHERED_SECONDS, self._tell)

    def _tell(self) -> None:
        """Send the collected events."""
        self._flush = None
        if self._texts:
            self._log.put("text", self._texts)
        if self._is_changed:
            self._log.put("changed", {})
        self._texts, self._is_changed = {}, False


class Streams:
    """The streams with readers, by name; created and used in the event loop.

    Parameters
    ----------
    most_readers
        Limit of readers of all streams together.
    """

    def __init__(self, most_readers: int = MAX_READERS) -> None:
        self._streams: dict[str, LiveStream] = {}
        self._most_readers = most_readers

    @property
    def names(self) -> list[str]:
        """Names of the streams."""
        return list(self._streams)

    def last(self, name: str) -> str:
        """Return the identifier of the last event of a stream, for a new page."""
        found = self._streams.get(name)
        return "" if found is None else found.last

    def of(self, name: str, make: Callable[[], LiveStream]) -> LiveStream:
        """Return a stream.

        Raises
        ------
        LaunchError
            The limit of readers is reached. Transient.
        """
        known = self._streams
        for each in [each for each, one in known.items() if not one.readers]:
            if each != name and len(known) >= MAX_STREAMS:
                del known[each]
        readers = sum(one.readers for one in known.values())
        if readers >= self._most_readers or (name not in known and len(known) >= MAX_STREAMS):
            raise LaunchError(
                f"there are {readers} streams of events already",
                code="too-many-requests", value=readers, bound=self._most_readers,
            )  # fmt: skip
        if name not in known:
            known[name] = make()
        return known[name]

    def close(self) -> None:
        """End all streams at the end of the server."""
        for one in self._streams.values():
            one.close()
