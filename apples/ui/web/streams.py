"""Server-sent events for open pages: one look at what is shown serves every browser that shows it.

A page is told new texts by their keys (``text``), or that more than a text is another (``changed``): then it
fetches itself. What has happened is numbered, so that a stream that was cut goes on where it was; who was away for
too long, or comes from before this server was started, is told ``changed``.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from apples.errors import LaunchError

MOST_KEPT: Final = 200
MOST_READERS: Final = 128
MOST_STREAMS: Final = 64
GATHERED_SECONDS: Final = 0.5
"""For which what happens is gathered before browsers are told."""
BEAT_SECONDS: Final = 15.0
AGAIN_SECONDS: Final = 1.0
"""Before a scheduler that is away is asked again, and between two looks at a record."""
NUMBERED: Final = re.compile(r"([0-9a-f]{8})-([0-9]{1,12})")


class LiveStream(ABC):
    """What changes on one page, for all who look at it; lives in the event loop.

    It looks only while there are readers.
    """

    def __init__(self) -> None:
        self._life = secrets.token_hex(4)
        self._last = 0
        self._events: deque[tuple[int, bytes]] = deque(maxlen=MOST_KEPT)
        self._news = asyncio.Event()
        self._texts: dict[str, str] = {}
        self._is_changed = self._is_closed = False
        self._flush: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.readers = 0

    @property
    def last(self) -> str:
        """The identifier of the last event; empty while nobody looks, for then nothing is noticed."""
        return f"{self._life}-{self._last}" if self.readers else ""

    @abstractmethod
    async def look(self) -> None:
        """Look until cancelled, and tell `text` and `change`."""

    def text(self, key: str, text: str) -> None:
        """Have the text of a key be another."""
        self._texts[key] = text
        self._gather()

    def change(self) -> None:
        """Have the page fetch itself."""
        self._is_changed = True
        self._gather()

    def flush(self) -> None:
        """Send what has been gathered, without waiting for more."""
        if self._flush is not None:
            self._flush.cancel()
            self._tell()

    def close(self) -> None:
        """End every reader's stream."""
        self._is_closed = True
        self._wake()

    async def follow(self, since: str) -> AsyncIterator[bytes]:
        """Yield server-sent events, after the one of an identifier."""
        self.readers += 1
        if self._task is None:
            self._life = secrets.token_hex(
                4
            )  # what happened since the last reader left is not known
            self._task = asyncio.create_task(self.look())
        try:
            found = NUMBERED.fullmatch(since)
            last = int(found[2]) if found and found[1] == self._life else -1
            yield b": hello\n\n"
            while not self._is_closed:
                news, first = self._news, self._events[0][0] if self._events else self._last + 1
                if last > self._last or last < first - 1:
                    last = self._last
                    yield self._event(last, "changed", {})
                elif last < self._last:
                    lines = b"".join(line for number, line in self._events if number > last)
                    last = self._last
                    yield lines
                else:
                    try:
                        await asyncio.wait_for(news.wait(), BEAT_SECONDS)
                    except TimeoutError:
                        yield b": beat\n\n"
        finally:
            self.readers -= 1
            if not self.readers and self._task is not None:
                self._task.cancel()
                self._task = None

    def _gather(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(GATHERED_SECONDS, self._tell)

    def _tell(self) -> None:
        """Give what has been gathered a number, and wake the readers."""
        self._flush = None
        if self._texts:
            self._put("text", self._texts)
        if self._is_changed:
            self._put("changed", {})
        self._texts, self._is_changed = {}, False
        self._wake()

    def _put(self, kind: str, data: Mapping[str, Any]) -> None:
        self._last += 1
        self._events.append((self._last, self._event(self._last, kind, data)))

    def _event(self, number: int, kind: str, data: Mapping[str, Any]) -> bytes:
        head = f"id: {self._life}-{number}\nevent: {kind}\nretry: 1000\n"
        return f"{head}data: {json.dumps(data)}\n\n".encode()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class Streams:
    """The streams that somebody reads, by what they are of; made and used in the event loop.

    Parameters
    ----------
    most_readers
        Readers of all streams together.
    """

    def __init__(self, most_readers: int = MOST_READERS) -> None:
        self._streams: dict[str, LiveStream] = {}
        self._most_readers = most_readers

    @property
    def names(self) -> list[str]:
        """What the streams are of."""
        return list(self._streams)

    def last(self, name: str) -> str:
        """Return the identifier of the last event of a stream, for a page that is made now."""
        found = self._streams.get(name)
        return "" if found is None else found.last

    def of(self, name: str, make: Callable[[], LiveStream]) -> LiveStream:
        """Return a stream.

        Raises
        ------
        LaunchError
            There are too many readers. Transient.
        """
        known = self._streams
        for each in [each for each, one in known.items() if not one.readers]:
            if each != name and len(known) >= MOST_STREAMS:
                del known[each]
        readers = sum(one.readers for one in known.values())
        if readers >= self._most_readers or (name not in known and len(known) >= MOST_STREAMS):
            raise LaunchError(
                f"there are {readers} streams of events already",
                code="too-many-requests", value=readers, bound=self._most_readers,
            )  # fmt: skip
        if name not in known:
            known[name] = make()
        return known[name]

    def close(self) -> None:
        """End all streams: the server ends."""
        for one in self._streams.values():
            one.close()
