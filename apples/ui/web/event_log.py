"""Numbered server-sent events for many readers: a reconnected stream continues after its last event."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sse_starlette import EventSourceResponse, ServerSentEvent

RETRY_MS: Final = 1000
"""Milliseconds after which a browser reconnects an interrupted stream."""
IDENTIFIER: Final = re.compile(r"([0-9a-f]{1,16})-([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes
    ----------
    number
        From 1 after each start of the source.
    data
        A JSON text.
    """

    number: int
    kind: str
    data: str


async def _always() -> bool:
    return True


class EventStreamLog:
    """The last events of a source. Any thread may add events; readers are coroutines.

    Parameters
    ----------
    life
        Hexadecimal digits that distinguish the event numbers of different starts of the source.
    kept
        Events that are kept for readers that missed them. A reader that missed more starts again.
    """

    def __init__(self, life: str, kept: int) -> None:
        self.life = life
        self._events: deque[Event] = deque(maxlen=kept)
        self._lost = 0  # last event without stored data
        self._last = 0
        self._closed = False
        self._lock = threading.Lock()
        self._readers: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._last

    def identifier(self, number: int) -> str:
        """Return the identifier of an event."""
        return f"{self.life}-{number}"

    def put(self, kind: str, data: Mapping[str, Any]) -> None:
        """Add an event."""
        text = json.dumps(data)
        with self._lock:
            self._last += 1
            if len(self._events) == self._events.maxlen:
                self._lost = self._events[0].number
            self._events.append(Event(self._last, kind, text))
        self._wake()

    def forget(self) -> None:
        """Make every reader start again."""
        with self._lock:
            self._last += 1
            self._lost = self._last
            self._events.clear()
        self._wake()

    def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._wake()

    def after(self, number: int) -> list[Event] | None:
        """Return the events after a number; None if some of them are not stored, or the number is unknown."""
        with self._lock:
            if number < self._lost or number > self._last:
                return None
            return [event for event in self._events if event.number > number]

    async def follow(
        self,
        since: str,
        anew: Callable[[], Awaitable[Event]],
        allowed: Callable[[], Awaitable[bool]] = _always,
        check_seconds: float | None = None,
    ) -> AsyncIterator[bytes]:
        """Yield events as they are sent, until `close` or until the reader loses its permission.

        Parameters
        ----------
        since
            Identifier of the reader's last event.
        anew
            Returns the first event of a reader that has no events, or has missed some.
        allowed
            Returns whether the reader still has permission. It is called before events are sent and, during a
            pause, every `check_seconds` (None: never).
        """
        news = asyncio.Event()
        with self._lock:
            self._readers[news] = asyncio.get_running_loop()
        try:
            found = IDENTIFIER.fullmatch(since)
            last = int(found[2]) if found and found[1] == self.life else None
            while not self._closed and await allowed():
                news.clear()
                events = None if last is None else self.after(last)
                if events is None:
                    events = [await anew()]
                if events:
                    last = events[-1].number
                    yield b"".join(map(self._encoded, events))
                else:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(check_seconds):
                            await news.wait()
        finally:
            with self._lock:
                del self._readers[news]

    def _encoded(self, event: Event) -> bytes:
        name = self.identifier(event.number)
        return ServerSentEvent(
            event.data, event=event.kind, id=name, retry=RETRY_MS, sep="\n"
        ).encode()

    def _wake(self) -> None:
        with self._lock:
            readers = [*self._readers.items()]
        for news, loop in readers:
            with suppress(RuntimeError):  # its loop has ended
                loop.call_soon_threadsafe(news.set)


def event_response(
    events: AsyncIterator[bytes], ping_seconds: float, send_seconds: float
) -> EventSourceResponse:
    """Return the HTTP response that sends events until the client disconnects or stops reading.

    Parameters
    ----------
    ping_seconds
        Interval of a comment that keeps a quiet stream alive.
    send_seconds
        A client that takes no data for this time is disconnected.
    """
    return EventSourceResponse(events, ping=ping_seconds, send_timeout=send_seconds, sep="\n")


async def read_events(lines: asyncio.StreamReader) -> AsyncIterator[Mapping[str, str]]:
    """Yield the fields of each received event by name: ``id``, ``event``, ``data``."""
    fields: dict[str, str] = {}
    while line := (await lines.readline()).decode():
        name, _, value = line.rstrip("\r\n").partition(": ")
        if value:
            fields[name] = value
        elif "event" in fields:
            yield fields
            fields = {}
        else:
            yield {}  # a comment, or the end of the head: the server is alive
