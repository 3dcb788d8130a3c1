"""Changes of jobs, hosts and alarms in a live scheduler, as numbered events.

An event is published when its change is durable. A stream begins with the whole queue. A reader that has missed
more events than the log keeps gets the whole queue again.
"""

from __future__ import annotations

from typing import Any, Final

from apples.cluster.answers import hosts_of, job_document
from apples.cluster.scheduler import LiveScheduler
from apples.ui.web.event_log import EventStreamLog

MAX_EVENTS: Final = 2000
MAX_AT_ONCE: Final = 500
"""Events in one turn, above which the whole queue is sent again."""
PROGRESS_SECONDS: Final = 1.0
"""Interval between events that report only the progress of jobs."""


class Announcer:
    """Publishes the changes in a scheduler as events."""

    def __init__(self, scheduler: LiveScheduler, name: str, log: EventStreamLog) -> None:
        self._scheduler, self._name, self._log = scheduler, name, log
        self._hosts: dict[str, Any] = {}
        self._alarms = 0
        self._since = 0.0

    def look(self, clock: float) -> None:
        """Publish durable changes; progress of jobs at most once in `PROGRESS_SECONDS`."""
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
        if len(touched) > MAX_AT_ONCE:
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
