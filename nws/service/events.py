"""Server-sent events: a bounded queue of stored measurements for each subscriber."""

import asyncio
import json
import re
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Final

from nws.errors import CodedError
from nws.memory.sqlite import Arrival
from nws.memory.summary import SeriesSummary

Event = tuple[str, bytes]
"""The name of a series, and the text of a server-sent event."""

MAX_SUBSCRIBERS: Final = 64
MAX_WAITING: Final = 10_000
MAX_AT_ONCE: Final = 1000
"""Events of one piece of a stream."""
MAX_NAMES: Final = 100_000
"""Series names whose match a subscriber remembers: series leave and begin while it reads."""
BEAT_SECONDS: Final = 15.0


class TooManyError(CodedError):
    """The number of subscribers is at its limit. Transient."""

    code = "too-many-subscribers"


class Subscriber:
    """A bounded queue of the events of matching series; further events are dropped and counted."""

    def __init__(self, match: str, most: int) -> None:
        self._matches = lru_cache(MAX_NAMES)(re.compile(translate(match)).match)
        self._most = most
        self._waiting: deque[bytes] = deque()
        self._lost = 0
        self._awake = asyncio.Event()

    def select(self, events: Iterable[Event]) -> list[bytes]:
        """Return the texts of the events of matching series; in any thread."""
        return [text for series, text in events if self._matches(series)]

    def offer(self, texts: Sequence[bytes]) -> None:
        """Queue events, none after a lost event; in the event loop's thread."""
        room = 0 if self._lost else self._most - len(self._waiting)
        self._waiting.extend(texts[:room])
        self._lost += max(0, len(texts) - room)
        self._awake.set()

    async def lines(self, beat: float = BEAT_SECONDS) -> AsyncIterator[bytes]:
        """Yield server-sent events; after a lost event the number of lost events, then end."""
        yield b": hello\n\n"
        while True:
            try:
                await asyncio.wait_for(self._awake.wait(), beat)
            except TimeoutError:
                yield b": beat\n\n"
                continue
            self._awake.clear()
            while self._waiting:
                count = min(MAX_AT_ONCE, len(self._waiting))
                yield b"".join([self._waiting.popleft() for _ in range(count)])
            if self._lost:
                yield b'event: gap\ndata: {"lost": %d}\n\n' % self._lost
                return


class EventBroker:
    """Passes stored measurements from the writer's thread to the subscribers in the event loop."""

    def __init__(self, most: int = MAX_SUBSCRIBERS, waiting: int = MAX_WAITING) -> None:
        self._most = most
        self._most_waiting = waiting
        self.subscribers: set[Subscriber] = set()

    def publish(self, arrivals: Iterable[Arrival], loop: asyncio.AbstractEventLoop) -> None:
        """Offer measurements to all subscribers of `loop`; in the writer's thread.

        Texts are made and matched here: for 64 subscribers and 5,000 events this takes .1 s, in which the event
        loop must answer requests.
        """
        subscribers = tuple(self.subscribers)
        events = [_event(*arrival) for arrival in arrivals] if subscribers else []
        for subscriber in subscribers:
            if texts := subscriber.select(events):
                loop.call_soon_threadsafe(subscriber.offer, texts)

    def subscribe(self, match: str) -> Subscriber:
        """Return a new subscriber; TooManyError if the number of subscribers is at its limit."""
        if len(self.subscribers) >= self._most:
            raise TooManyError(f"there are {self._most} subscribers already", bound=self._most)
        subscriber = Subscriber(match, self._most_waiting)
        self.subscribers.add(subscriber)
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """Remove a subscriber."""
        self.subscribers.discard(subscriber)


def _event(summary: SeriesSummary, _: int, time: float, value: float) -> Event:
    data = json.dumps({"series": summary.text, "time": time, "value": value})
    return summary.text, f"event: measurement\ndata: {data}\n\n".encode()
