"""Server-sent events: stored measurements go to each subscriber through a bounded queue."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from nws.errors import CodedError

Event = tuple[str, float, float]

MOST_SUBSCRIBERS: Final = 64
MOST_WAITING: Final = 10_000
BEAT_SECONDS: Final = 15.0


class TooManyError(CodedError):
    """There are as many subscribers as there may be. Transient."""

    code = "too-many-subscribers"


class Subscriber:
    """One who listens: a queue of what matches. What does not fit is counted, not kept."""

    def __init__(self, match: str, most: int) -> None:
        self._match = match
        self._most = most
        self._waiting: deque[Event] = deque()
        self._lost = 0
        self._awake = asyncio.Event()

    def offer(self, events: Sequence[Event]) -> None:
        """Queue what matches."""
        for event in events:
            if self._match == "*" or fnmatchcase(event[0], self._match):
                if len(self._waiting) < self._most:
                    self._waiting.append(event)
                else:
                    self._lost += 1
        self._awake.set()

    async def lines(self, beat: float = BEAT_SECONDS) -> AsyncIterator[bytes]:
        """Yield server-sent events; a reader that was too slow is told of the gap and let go."""
        yield b": hello\n\n"
        while True:
            try:
                await asyncio.wait_for(self._awake.wait(), beat)
            except TimeoutError:
                yield b": beat\n\n"
                continue
            self._awake.clear()
            events = list(self._waiting)
            self._waiting.clear()
            if events:
                yield b"".join(_event(event) for event in events)
            if self._lost:
                yield b'event: gap\ndata: {"lost": %d}\n\n' % self._lost
                return


class EventBroker:
    """Hands what was stored from the threads of the log to the subscribers of the event loop."""

    def __init__(self, most: int = MOST_SUBSCRIBERS, waiting: int = MOST_WAITING) -> None:
        self._most = most
        self._most_waiting = waiting
        self.subscribers: set[Subscriber] = set()

    def publish(self, events: Sequence[Event]) -> None:
        """Offer events to all; in the event loop's thread."""
        for subscriber in self.subscribers:
            subscriber.offer(events)

    def subscribe(self, match: str) -> Subscriber:
        """Return a new subscriber; TooManyError if there are too many."""
        if len(self.subscribers) >= self._most:
            raise TooManyError(f"there are {self._most} subscribers already", bound=self._most)
        subscriber = Subscriber(match, self._most_waiting)
        self.subscribers.add(subscriber)
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        """Forget a subscriber."""
        self.subscribers.discard(subscriber)


def _event(event: Event) -> bytes:
    series, time, value = event
    data = json.dumps({"series": series, "time": time, "value": value})
    return f"event: measurement\ndata: {data}\n\n".encode()
