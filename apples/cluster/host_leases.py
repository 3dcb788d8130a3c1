"""The leases of hosts that a scheduler has for a limited time, such as the nodes of an allocation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from math import inf, nan
from typing import Final

from apples.cluster.live_job import LiveJob
from apples.cluster.orders import HostLease
from apples.scheduling.jobs import JobKind

NOTED_SECONDS: Final = 2.0
"""A smaller change of the end is ignored."""
GIVEN_ON_SECONDS: Final = 10.0
"""Time in which another allocation may get a host that was taken back; until then its processes may continue."""
MOVABLE: Final = (JobKind.MALLEABLE, JobKind.EVOLVING)
"""Kinds of jobs that can leave a host while they run."""


class HostLeases:
    """The leases of hosts. They are not recorded, because they are reported again after a restart.

    Parameters
    ----------
    vacate_seconds
        Time before the end of a lease in which the host gets no job.

    Attributes
    ----------
    ending
        Hosts that get no job any more, because their lease ends soon.
    too_short
        Jobs that wait because the leases of the free hosts were too short.
    """

    def __init__(self, vacate_seconds: float) -> None:
        self._vacate_seconds = vacate_seconds
        self._leases: dict[str, tuple[float, str]] = {}
        self._ends: list[float] = []
        self._over_since: dict[str, float] = {}
        self.ending: set[str] = set()
        self.too_short: set[int] = set()

    def __bool__(self) -> bool:
        """Whether there is a lease."""
        return bool(self._leases)

    def renew(self, lease: HostLease, now: float) -> bool:
        """Take in a lease; return whether it differs from the last one of its host."""
        end = now + lease.seconds if lease.seconds > 0 else -inf
        before, source = self._leases.get(lease.host, (nan, ""))
        if source == lease.source and (before == end or abs(before - end) < NOTED_SECONDS):
            return False
        if lease.seconds > 0:
            self._over_since.pop(lease.host, None)
        else:
            self._over_since.setdefault(lease.host, now)
        self._put(self._leases | {lease.host: (end, lease.source)})
        self.too_short.clear()
        self.ending = self.about_to_end(now)
        return True

    def forget(self, hosts: Iterable[str]) -> None:
        """Forget hosts that are gone."""
        gone = {*hosts}
        for host in gone:
            self._over_since.pop(host, None)
        self._put({host: lease for host, lease in self._leases.items() if host not in gone})
        self.ending -= gone

    def _put(self, leases: Mapping[str, tuple[float, str]]) -> None:
        self._leases = dict(leases)
        self._ends = sorted(end for end, _ in leases.values())

    def about_to_end(self, now: float) -> set[str]:
        """Return the hosts that get no job any more: their lease ends soon."""
        soon = now + self._vacate_seconds
        return {host for host, (end, _) in self._leases.items() if end <= soon}

    def is_over(self, host: str) -> bool:
        """Whether a host was reported as taken back."""
        return self._leases.get(host, (inf, ""))[0] == -inf

    def is_lost(self, host: str, now: float) -> bool:
        """Whether a host was taken back `GIVEN_ON_SECONDS` ago, and no other allocation has it by now."""
        return now >= self._over_since.get(host, inf) + GIVEN_ON_SECONDS

    def lasts(self, host: str, job: LiveJob, now: float) -> bool:
        """Whether a host can be used until a job would end if it started now."""
        return now + job.requested <= self._leases.get(host, (inf, ""))[0]

    def lasting(self, job: LiveJob, hosts: int, now: float) -> tuple[int, int]:
        """Return the fewest hosts on which a job can start, and the number of `hosts` that stay until its end."""
        one = job.submission
        needs = one.maximum if one.kind is JobKind.RIGID else one.minimum
        return needs, hosts - bisect_left(self._ends, now + job.requested)

    def is_too_short(self, job: LiveJob, hosts: int, now: float) -> bool:
        """Whether a waiting job is hidden from the policy, because too few hosts stay long enough for it."""
        if not self._leases or job.submission.kind in MOVABLE:
            return False
        needs, lasting = self.lasting(job, hosts, now)
        return lasting < needs or job.number in self.too_short

    def wait_reason(self, job: LiveJob, hosts: int, now: float) -> str:
        """Return the reason that a job waits for longer leases; empty: it does not."""
        if not self.is_too_short(job, hosts, now):
            return ""
        needs, lasting = self.lasting(job, hosts, now)
        free = "too few of the free hosts" if lasting >= needs else f"{lasting} of {needs} hosts"
        end, source = min(self._leases.values())
        return (
            f"{free} stay for the {job.requested:g} s that it is estimated to run, and it cannot be moved: "
            f"{source} ends in {max(0.0, end - now):.0f} s"
        )

    def ending_reason(self, host: str, now: float) -> str:
        """Return the end of the lease that keeps jobs off a host, as text; empty: the host gets jobs."""
        if host not in self.ending:
            return ""
        end, source = self._leases[host]
        return f"{source} ends in {end - now:.0f} s" if end > now else f"{source} is over"

    def vacate_reason(self, host: str, now: float) -> str:
        """Return the reason that a job has to leave a host with a lease that ends soon."""
        end, source = self._leases[host]
        return f"{source} ends in {max(0.0, end - now):.0f} s"
