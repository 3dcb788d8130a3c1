"""What happens in a live scheduler, for whoever looks on: numbered events that can be taken up after a cut.

An event is said when what it says is on the disk. A stream begins with the whole queue and goes on with what has
changed; who was away for longer than the events that are kept gets the whole queue again.
"""

from __future__ import annotations

import json
import re
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from apples.cluster.answers import hosts_of, job_document
from apples.cluster.scheduler import LiveScheduler

MOST_EVENTS: Final = 2000
MOST_AT_ONCE: Final = 500
"""Events in one turn, beyond which the whole queue is said anew."""
PROGRESS_SECONDS: Final = 1.0
"""Between two events that say only how far a job is."""
IDENTIFIER = re.compile(r"([0-9]{1,9})-([0-9]{1,15})")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes
    ----------
    number
        From 1 on in each life of the scheduler.
    kind
        ``queue`` (all of it), ``job``, ``hosts`` (those that changed) or ``alarm``.
    data
        As JSON.
    """

    number: int
    kind: str
    data: str


class RecentEvents:
    """The last events, for many readers; safe to be used from threads.

    Parameters
    ----------
    life
        Tells the numbers of this life of the scheduler from those of others.
    """

    def __init__(self, life: int) -> None:
        self.life = life
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._lost = 0  # the last event of which it is not kept what happened
        self._last = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._last

    def put(self, kind: str, data: Mapping[str, Any]) -> None:
        """Say that something has happened."""
        with self._changed:
            self._last += 1
            if len(self._events) == MOST_EVENTS:
                self._lost = self._events[0].number
            self._events.append(Event(self._last, kind, json.dumps(data)))
            self._changed.notify_all()

    def forget(self) -> None:
        """Have every reader take the whole queue anew."""
        with self._changed:
            self._last += 1
            self._lost = self._last
            self._events.clear()
            self._changed.notify_all()

    def after(self, number: int, seconds: float) -> list[Event] | None:
        """Return what came after an event, at least one if it comes in time; None: some of it is not kept."""
        with self._changed:
            self._changed.wait_for(lambda: self._last > number or self._closed, seconds)
            if number < self._lost or number > self._last:
                return None
            return [one for one in self._events if one.number > number]

    def number_of(self, identifier: str) -> int | None:
        """Return the number of an event by the identifier that a reader had last; None: it is of another life."""
        found = IDENTIFIER.fullmatch(identifier)
        if found is None or int(found[1]) != self.life:
            return None
        return int(found[2])

    @property
    def closed(self) -> bool:
        """Whether nothing will happen any more."""
        return self._closed

    def close(self) -> None:
        """Wake all readers for the last time."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Announcer:
    """Says what has changed in a scheduler since it looked last."""

    def __init__(self, scheduler: LiveScheduler, name: str, log: RecentEvents) -> None:
        self._scheduler, self._name, self._log = scheduler, name, log
        self._hosts: dict[str, Any] = {}
        self._alarms = 0
        self._since = 0.0

    def look(self, clock: float) -> None:
        """Say what is new and on the disk; how far jobs are not more often than `PROGRESS_SECONDS`."""
        scheduler = self._scheduler
        if scheduler.trouble:
            return
        touched = scheduler.touched
        if clock >= self._since + PROGRESS_SECONDS:
            self._since = clock
            touched |= scheduler.moved
            scheduler.moved = set()
        elif not touched:
            return
        scheduler.touched = set()
        if len(touched) > MOST_AT_ONCE:
            self._log.forget()
        else:
            for number in sorted(touched):
                if (job := scheduler.state.jobs.get(number)) is not None:
                    self._log.put("job", job_document(scheduler, self._name, job))
        hosts = {one["host"]: one for one in hosts_of(scheduler, self._name)}
        changed = [one for host, one in hosts.items() if self._hosts.get(host) != one]
        gone = sorted(self._hosts.keys() - hosts.keys())
        self._hosts = hosts
        if changed or gone:
            self._log.put("hosts", {"hosts": changed, "gone": gone})
        for at, text in scheduler.alarms_since(self._alarms):
            self._log.put("alarm", {"time": scheduler.state.wall + at, "text": text})
        self._alarms = scheduler.alarmed
