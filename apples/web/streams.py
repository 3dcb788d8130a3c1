"""Server-sent events for open pages: one look at what is shown serves every browser that shows it.

A page is told new texts by their keys (``text``), or that more than a text is another (``changed``): then it
fetches itself. What has happened is numbered, so that a stream that was cut goes on where it was; who was away for
too long, or comes from before this server was started, is told ``changed``.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import secrets
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from apples.errors import ApplesError, LaunchError
from apples.jobs import store
from apples.scheduling.server.client import SOCKET
from apples.views.job import iteration_text, live_texts

MOST_KEPT: Final = 200
MOST_READERS: Final = 128
MOST_STREAMS: Final = 64
GATHERED_SECONDS: Final = 0.5
"""For which what happens is gathered before browsers are told."""
BEAT_SECONDS: Final = 15.0
AGAIN_SECONDS: Final = 1.0
"""Before a scheduler that is away is asked again, and between two looks at a record."""
AWAY_LOOKS: Final = 10
"""After so many questions that nobody answered a page says anew for how long that has been."""
SILENT_SECONDS: Final = 30.0
"""A scheduler says something every ten."""
MOST_LINE: Final = 64 << 20
MOST_SEEN: Final = 20_000
TAIL_BYTES: Final = 4 << 10
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


REDRAWN_SECONDS, REDRAWN_SHARE = 10.0, 0.02
"""A run that goes on is drawn anew after so long, or after so much of the time that it has taken: a column."""


def drawing_number(seconds: float) -> int:
    """Return which drawing of a run is to be shown so many seconds after its start.

    Examples
    --------
    >>> [drawing_number(after) for after in (0.0, 9.9, 10.0, 500.0, 509.0, 510.0, 3600.0)]
    [0, 0, 1, 50, 50, 51, 149]
    """
    steady = REDRAWN_SECONDS / REDRAWN_SHARE
    if seconds < steady:
        return max(0, int(seconds / REDRAWN_SECONDS))
    return int(1 / REDRAWN_SHARE + math.log(seconds / steady) / math.log1p(REDRAWN_SHARE))


class RecordStream(LiveStream):
    """What changes in the record of a run or job; its drawings grow while it goes on.

    Parameters
    ----------
    identifier
        Of the record.
    """

    def __init__(self, identifier: str) -> None:
        super().__init__()
        self._identifier = identifier
        self._shape = ""
        self._shown: dict[str, str] = {}

    async def look(self) -> None:
        """Look at the record every second."""
        while True:
            shape, texts = await asyncio.to_thread(self._found)
            for key, text in texts.items():
                if self._shown.get(key) != text:
                    self.text(key, text)
            if shape != self._shape:
                self.change()
            self._shape, self._shown = shape, texts
            await asyncio.sleep(AGAIN_SECONDS)

    def _found(self) -> tuple[str, dict[str, str]]:
        """Return what of the record is no text, and its texts; why it cannot be read where it was removed."""
        try:
            one = store.record(self._identifier)
            record = one.record()
        except (OSError, ApplesError) as error:
            return str(error), {}
        keys = ("state", "attempt", "epoch", "hosts", "rows", "last_resize", "last_change")
        going = record.get("state") not in store.OVER and record.get("submitted")
        drawn = drawing_number(time.time() - record["submitted"]) if going else 0
        shape = json.dumps([drawn, *(record.get(key) for key in keys)])
        return shape, live_texts(one.summary(record), log_end(one, TAIL_BYTES), time.time())


def log_end(one: store.StoredJob, most: int) -> str:
    """Return the end of a record's log; empty where there is none."""
    try:
        with one.log.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - most))
            return stream.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


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
