"""Probe hosts: whether they answer, and whether an attempt has left them.

Other machines are asked over ssh, and hosts whose CPUs jobs share through their topology daemons.
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
"""Hosts that are looked at at the same time."""
IDLE_SECONDS: Final = 60.0
"""Between two looks at a host of which nothing is asked."""
AGAIN_SECONDS: Final = (0.5, 1.0, 2.0, 5.0)
"""Until a host is asked again that was not empty; the last stands for all that follow."""
SILENT_SECONDS: Final = (2.0, 5.0, 10.0, 20.0)
"""Until a host is asked again that did not answer."""
MISSED_SECONDS: Final = (0.0, 5.0, 15.0, 60.0)
"""For how long a host is lost that did not answer somebody else though it answers here, each time anew."""
FORGOTTEN_SECONDS: Final = 600.0
"""After so long without a miss the next counts as the first."""
DAEMON_SECONDS: Final = 2.0
"""Poll interval of a topology daemon that answers; `SILENT_SECONDS` applies to one that does not."""

Look = Callable[[Host, Mapping[str, bool]], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class _Leaving:
    """An attempt that is to have left a host: its folder's name is the mark of its processes."""

    job: int
    attempt: int
    folder: str
    epoch: int


@dataclass
class _FarHost:
    """What is asked of a host, and when it is asked next.

    Attributes
    ----------
    tries
        Looks since the last that answered all, or since the last that was answered.
    said
        Why it could not be asked the last time, empty: it could; None: it was not asked yet.
    over
        Whether whoever gave it has taken it back, with all that ran there.
    failed
        Whether the last look here had no answer.
    missed, missed_at, lost_until
        How often it did not answer somebody else when it had just answered here, when last, and until when it is
        lost by that, though it answers here.
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
    """Asks hosts, each by one look at a time that asks all there is to ask of it.

    Parameters
    ----------
    hosts
        Those that are looked at.
    here
        Names of those that are parts of this machine, and never silent.
    clock
        Seconds; never goes back.
    say
        Receives, from any thread, `HostAnswer` where it has changed, and `HostLeft`.
    look
        Looks at a host: job -> whether it is over; returns job -> what there is of it. `LaunchError`: no answer.
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
        """Return what looks at hosts of a list over ssh; the others of the list are parts of this machine."""
        here = {host.name for host in listed()} - {host.name for host in hosts}

        def look(host: Host, jobs: Mapping[str, bool]) -> Mapping[str, int]:
            now = listed()  # how it is reached may be new
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
        """Return what asks the topology daemons of hosts, which take back the CPUs of attempts that leave."""
        return cls(hosts, (), clock, say, daemons.look, DAEMON_SECONDS if daemons.cpus else None)

    def join(self, host: Host, *, here: bool) -> None:
        """Look at one more host, or at one again that was over; or take it for a part of this machine."""
        with self._lock:
            if here:
                self._here |= {host.name}
            else:
                one = self._far.setdefault(host.name, _FarHost(host))
                one.over, one.said, one.due = False, None, min(one.due, self._clock())
        if here:
            self._say(HostAnswer(host.name))

    def end(self, host: str) -> None:
        """Take it that a host was taken back: what was left there of jobs is gone once it cannot be asked."""
        with self._lock:
            if host in self._far:
                self._far[host].over = True

    def left(self, job: int, attempt: int, folder: str, host: str, epoch: int) -> bool:
        """Have it said that an attempt has left a host, once the host says so; False for a part of this machine.

        Parameters
        ----------
        epoch
            Of the order by which it leaves; `LAST`: the attempt is over, and what is left of it there is killed.
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
        """Take it that a host did not answer somebody else; it is looked at at once.

        One that answers here each time, and never when it is to be used, is lost for longer and longer. What is
        left of jobs there is asked meanwhile as ever.
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
        """Take it that hosts have answered somebody else: what they missed before is forgotten."""
        with self._lock:
            for host in self._far.keys() & {*hosts}:
                self._far[host].missed = 0

    def silent(self) -> list[str]:
        """Return the hosts that did not answer when they were asked last, or were taken back."""
        with self._lock:
            return [name for name, one in self._far.items() if one.said or one.over]

    def idle(self) -> bool:
        """Return whether no probe of a host is under way."""
        with self._lock:
            return not any(host.busy for host in self._far.values())

    def step(self, used: Collection[str]) -> None:
        """Begin the looks that are due; other machines that jobs use are left alone unless something is asked."""
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
        """Begin no other look."""
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
