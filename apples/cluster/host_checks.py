"""Probe hosts: whether they answer, and whether an attempt has left them.

Probes go over ssh to other machines, and to the topology daemons of hosts with CPUs that jobs share.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from apples.cluster.orders import LAST, HostAnswer, HostLeft, Report
from apples.cluster.topology_daemons import TopologyDaemons
from apples.errors import ApplesError
from apples.launch.remote.leftovers import remains
from apples.resources import Host, HostList

CHECKS_AT_ONCE: Final = 8
"""Hosts that are probed at the same time."""
IDLE_SECONDS: Final = 60.0
"""Interval between probes of a host that no attempt has to leave."""
AGAIN_SECONDS: Final = (0.5, 1.0, 2.0, 5.0)
"""Intervals until the next probes of a host that attempts have not left; the last repeats."""
SILENT_SECONDS: Final = (2.0, 5.0, 10.0, 20.0)
"""Intervals until the next probes of a host that did not answer; the last repeats."""
MISSED_SECONDS: Final = (0.0, 5.0, 15.0, 60.0)
"""Times for which a host that answers probes is lost after its 1st, 2nd, .. miss (`HostLooks.miss`)."""
FORGOTTEN_SECONDS: Final = 600.0
"""A miss after this time without another counts as the first."""
DAEMON_SECONDS: Final = 2.0
"""Poll interval of a topology daemon that answers; `SILENT_SECONDS` applies to a daemon that does not."""

Look = Callable[[Host, Mapping[str, bool]], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class _Leaving:
    """An attempt that has to leave a host; the name of its folder is the job tag of its processes."""

    job: int
    attempt: int
    folder: str
    epoch: int


@dataclass
class _FarHost:
    """The attempts that have to leave a host, and the time of its next probe.

    Attributes
    ----------
    tries
        Probes since the answer last changed or an attempt was added; the next interval depends on it.
    said
        Reason that the last probe failed; empty: it succeeded; None: no probe yet.
    over
        Whether the lease of the host is over; its processes ended with it.
    failed
        Whether the last probe had no answer.
    missed, missed_at, lost_until
        Number of misses although probes succeeded, time of the last miss, and end of the time for which the
        host counts as lost because of them.
    """

    host: Host
    leaving: dict[tuple[int, int], _Leaving] = field(default_factory=dict)
    due: float = 0.0
    busy: bool = False
    tries: int = 0
    said: str | None = None
    over: bool = False
    failed: bool = False
    missed: int = 0
    missed_at: float = -FORGOTTEN_SECONDS
    lost_until: float = 0.0


class HostLooks:
    """Probes hosts: one probe at a time for each host, about all attempts that have to leave it.

    Parameters
    ----------
    hosts
        The hosts to probe.
    here
        Names of hosts that are parts of this machine; they always answer.
    clock
        Monotonic, in seconds.
    say
        Receives, from any thread, a `HostAnswer` after each change, and `HostLeft`.
    look
        Probes a host: takes job tag -> whether the job is over, returns job tag -> number of processes left.
        `LaunchError`: no answer.
    every
        Poll interval of a host that answers, in seconds, also while jobs use it. None: hosts in use are not
        polled.
    """

    def __init__(
        self,
        hosts: Collection[Host],
        here: Collection[str],
        clock: Callable[[], float],
        say: Callable[[Report], None],
        look: Look,
        every: float | None = None,
    ) -> None:
        self._here = frozenset(here)
        self._clock, self._say, self._look, self._every = clock, say, look, every
        self._far = {host.name: _FarHost(host) for host in hosts}
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="look")

    @classmethod
    def over_ssh(
        cls,
        hosts: Collection[Host],
        listed: Callable[[], HostList],
        clock: Callable[[], float],
        say: Callable[[Report], None],
    ) -> HostLooks:
        """Return probes of hosts over ssh; the other hosts of the list are parts of this machine."""
        here = {host.name for host in listed()} - {host.name for host in hosts}

        def look(host: Host, jobs: Mapping[str, bool]) -> Mapping[str, int]:
            now = listed()  # the way to reach the host may have changed
            return remains(now[host.name], now, jobs)

        return cls(hosts, here, clock, say, look)

    @classmethod
    def by_daemons(
        cls,
        hosts: Collection[Host],
        daemons: TopologyDaemons,
        clock: Callable[[], float],
        say: Callable[[Report], None],
    ) -> HostLooks:
        """Return probes of the hosts' topology daemons, which take back the CPUs of attempts that leave."""
        return cls(hosts, (), clock, say, daemons.look, DAEMON_SECONDS if daemons.cpus else None)

    def join(self, host: Host, *, here: bool) -> None:
        """Probe a new host, or again a host that was over; `here`: the host is a part of this machine."""
        with self._lock:
            if here:
                self._here |= {host.name}
            else:
                one = self._far.setdefault(host.name, _FarHost(host))
                one.over, one.said, one.due = False, None, min(one.due, self._clock())
        if here:
            self._say(HostAnswer(host.name))

    def end(self, host: str) -> None:
        """Note that a host was taken back; once it does not answer, all attempts there count as gone."""
        with self._lock:
            if host in self._far:
                self._far[host].over = True

    def left(self, job: int, attempt: int, folder: str, host: str, epoch: int) -> bool:
        """Report `HostLeft` once a probe shows that an attempt has left a host; False: a part of this machine.

        Parameters
        ----------
        epoch
            Number of the order to leave; `LAST`: the attempt is over, and the probe kills its processes there.
        """
        if host in self._here:
            return False
        one = self._far.get(host)
        if one is None:
            self._say(HostAnswer(host, "it is not in the host list any more"))
            return True
        with self._lock:
            known = one.leaving.get((job, attempt))
            if known is None:
                one.tries = 0
                one.due = one.due if one.failed else min(one.due, self._clock())
            if known is None or known.epoch < epoch:
                one.leaving[job, attempt] = _Leaving(job, attempt, folder, epoch)
            return True

    def miss(self, host: str, reason: str) -> None:
        """Report a host as lost that did not answer outside of a probe, and probe it at once.

        A host that answers probes but misses again and again is lost for longer each time. Probes for attempts
        that leave it continue.
        """
        with self._lock:
            one, now = self._far[host], self._clock()
            if not one.said:
                one.missed = one.missed + 1 if now - one.missed_at < FORGOTTEN_SECONDS else 1
                one.lost_until = now + MISSED_SECONDS[min(one.missed, len(MISSED_SECONDS)) - 1]
            one.missed_at = one.due = now
            changed, one.said = reason != one.said, reason
        if changed:
            self._say(HostAnswer(host, reason))

    def used(self, hosts: Collection[str]) -> None:
        """Note that hosts answered outside of a probe; their earlier misses do not count any more."""
        with self._lock:
            for host in self._far.keys() & {*hosts}:
                self._far[host].missed = 0

    def silent(self) -> list[str]:
        """Return the hosts that failed their last probe or were taken back."""
        with self._lock:
            return [name for name, one in self._far.items() if one.said or one.over]

    def idle(self) -> bool:
        """Return whether no probe of a host is under way."""
        with self._lock:
            return not any(host.busy for host in self._far.values())

    def step(self, used: Collection[str]) -> None:
        """Start the due probes; if `every` is None, skip hosts in use that answer and that no attempt leaves."""
        now = self._clock()
        with self._lock:
            for one in self._far.values():
                if one.busy or one.due > now or (one.over and not one.leaving):
                    continue
                alone = self._every is None and one.host.name in used
                if alone and not one.leaving and one.said == "":
                    continue
                one.busy = True
                self._workers.submit(self._ask, one, dict(one.leaving))

    def close(self) -> None:
        """Start no further probe."""
        self._workers.shutdown(wait=False, cancel_futures=True)

    def _ask(self, one: _FarHost, asked: Mapping[tuple[int, int], _Leaving]) -> None:
        reason, found, begun = "", dict[str, int](), self._clock()
        try:
            jobs = {each.folder: each.epoch == LAST for each in asked.values()}
            found = dict(self._look(one.host, jobs))
        except (ApplesError, OSError) as error:
            reason = str(error).removeprefix(f"{one.host.name}: ") or type(error).__name__
        gone = bool(reason) and one.over
        empty = [key for key, each in asked.items() if gone or found.get(each.folder) == 0]
        with self._lock:
            for key in empty:
                if one.leaving.get(key) == asked[key]:
                    del one.leaving[key]
            now = self._clock()
            one.busy, one.failed = False, bool(reason)
            lost = not reason and (one.missed_at > begun or now < one.lost_until)
            changed = reason != one.said and not lost
            one.said = one.said if lost else reason
            waits = SILENT_SECONDS if reason else AGAIN_SECONDS
            one.tries = 1 if changed else one.tries + 1
            again = waits[min(one.tries, len(waits)) - 1]
            new = one.leaving.keys() - asked.keys()
            wait = again if reason or (one.leaving and not new) else 0.0 if new else IDLE_SECONDS
            one.due = now + (wait if reason or self._every is None else min(wait, self._every))
            if lost:
                one.due = min(one.due, max(now, one.lost_until))
        if changed:
            self._say(HostAnswer(one.host.name, reason))
        for key in empty:
            each = asked[key]
            self._say(HostLeft(each.job, each.attempt, one.host.name, each.epoch))
