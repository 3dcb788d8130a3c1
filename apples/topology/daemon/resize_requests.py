"""SD-Policy's node manager: it shrinks the mates, waits until they have adapted, then starts the guest.

A job that follows its resizes has until the deadline to acknowledge a request; then its CPUs are taken in any
case, so a late job is oversubscribed but not unsafe. A job that does not follow detects that its mask changed. No
job starts on CPUs that another job still has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from apples.errors import LaunchError
from apples.topology.cpus import CpuSet
from apples.topology.daemon.node import NodeLedger
from apples.topology.daemon.sharing import arrive
from apples.topology.daemon.state import CpuAllocation
from apples.topology.requirement import Unsatisfied

MAX_EVENTS: Final = 64
"""Unsent events after which a follower is dropped; it must then send its request again."""
MAX_FOLLOWERS: Final = 1024
ATTEMPTS: Final = 3


class ResizeReply(StrEnum):
    """The outcome of a request to give up CPUs."""

    ACKNOWLEDGED = "acknowledged"
    TIMEOUT = "timeout"
    NOT_REGISTERED = "not registered"


@dataclass(eq=False)
class ResizeFollower:
    """A connection that receives a job's resizes.

    Attributes
    ----------
    events
        Changes to send; None ends the connection.
    """

    job: str
    events: asyncio.Queue[dict[str, Any] | None] = field(
        default_factory=lambda: asyncio.Queue(MAX_EVENTS)
    )


class NodeManager:
    """Asks jobs to shrink, and notifies them of new CPUs.

    Parameters
    ----------
    node
        The ledger of their jobs.
    """

    def __init__(self, node: NodeLedger) -> None:
        self._node = node
        self._followers: dict[str, list[ResizeFollower]] = {}
        self._waiting: dict[int, tuple[set[ResizeFollower], asyncio.Event]] = {}
        self._serial = 0
        self.lock = asyncio.Lock()
        """Held while CPUs change hands, so that two guests cannot claim the same CPUs."""

    def follow(self, job: str) -> ResizeFollower:
        """Return a new follower of a job.

        Raises
        ------
        LaunchError
            The job has too many followers. Transient.
        """
        if sum(map(len, self._followers.values())) >= MAX_FOLLOWERS:
            raise LaunchError(
                f"{MAX_FOLLOWERS} connections follow jobs already",
                code="too-many-followers",
                job=job,
                bound=MAX_FOLLOWERS,
            )
        follower = ResizeFollower(job)
        self._followers.setdefault(job, []).append(follower)
        return follower

    def unfollow(self, follower: ResizeFollower) -> None:
        """Remove a follower, unless it was removed before."""
        rest = [f for f in self._followers.pop(follower.job, ()) if f is not follower]
        if rest:
            self._followers[follower.job] = rest
        for serial in list(self._waiting):
            self.acknowledge(follower, serial)  # it cannot acknowledge any more

    def acknowledge(self, follower: ResizeFollower, serial: int) -> bool:
        """Record that a follower has adapted, or ended; return whether a request still waits for it."""
        silent, event = self._waiting.get(serial, (set(), None))
        if event is None or follower not in silent:
            return False
        silent.discard(follower)
        if not silent:
            event.set()
        return True

    def tell(self, job: str, event: Mapping[str, Any]) -> None:
        """Queue an event for all followers of a job; drop followers that are too far behind."""
        for follower in list(self._followers.get(job, ())):
            try:
                follower.events.put_nowait(dict(event))
            except asyncio.QueueFull:
                self.unfollow(follower)
                while not follower.events.empty():
                    follower.events.get_nowait()
                follower.events.put_nowait(None)

    def notify(self, job: CpuAllocation) -> None:
        """Notify a job of its current CPUs; this needs no acknowledgement."""
        self.tell(job.job, {"event": "resized", "serial": 0, "cpus": str(job.holds)})

    def ended(self, job: str) -> None:
        """End the connections of a job's followers."""
        for follower in list(self._followers.get(job, ())):
            self.unfollow(follower)
            while not follower.events.empty():
                follower.events.get_nowait()
            follower.events.put_nowait(None)

    async def ask(self, targets: Mapping[str, CpuSet], seconds: float) -> dict[str, ResizeReply]:
        """Ask several jobs at once to adapt to fewer CPUs; return the reply of each within `seconds`."""
        return dict(
            zip(
                targets,
                await asyncio.gather(
                    *(self._ask(job, cpus, seconds) for job, cpus in targets.items())
                ),
                strict=True,
            )
        )

    async def _ask(self, job: str, cpus: CpuSet, seconds: float) -> ResizeReply:
        if job not in self._followers:
            return ResizeReply.NOT_REGISTERED
        self._serial += 1
        serial, event = self._serial, asyncio.Event()
        self._waiting[serial] = set(self._followers[job]), event
        try:
            self.tell(
                job,
                {"event": "resize", "serial": serial, "cpus": str(cpus), "seconds": seconds},
            )
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return ResizeReply.TIMEOUT
        finally:
            del self._waiting[serial]
        return ResizeReply.ACKNOWLEDGED

    async def welcome(
        self, guest: CpuAllocation, seconds: float
    ) -> tuple[dict[str, CpuAllocation], dict[str, ResizeReply]]:
        """Ask the mates of a guest to shrink; return the jobs as they are with the guest among them.

        This records nothing. The caller must do so before it awaits anything.

        Raises
        ------
        LaunchError
            Not now: the mates cannot give enough CPUs, or jobs came and went too often.
        """
        heard: dict[str, ResizeReply] = {}
        asked: dict[str, CpuSet] = {}
        found = None
        try:
            # Jobs come and go while the mates are asked, so the plan is made again afterwards. It is valid if it
            # asks no mate for CPUs that the mate was not asked for before.
            for _ in range(ATTEMPTS):
                plan = self._plan(guest)
                mates = {n: job.holds for n, job in plan.items() if n != guest.job}
                targets = {n: cpus for n, cpus in mates.items() if asked.get(n) != cpus}
                if not targets:
                    found = plan
                    return found, heard
                heard |= await self.ask(targets, seconds)
                asked |= targets
        finally:
            if found is None:  # the mates that were asked left no room
                for name in asked.keys() & self._node.state.jobs.keys():
                    self.notify(self._node.state.jobs[name])
        raise LaunchError(
            f"{guest.job}: not now: the jobs here kept changing; ask again",
            code="jobs-changing",
            job=guest.job,
        )

    def _plan(self, guest: CpuAllocation) -> dict[str, CpuAllocation]:
        node = self._node
        factor = node.options.sharing_factor
        found = arrive(node.topology, node.state.jobs, guest, node.free, factor)
        if isinstance(found, Unsatisfied):
            raise LaunchError(
                f"{guest.job}: {found.verdict}: {found.reason}",
                code="cpus-busy",
                job=guest.job,
                field=found.key,
                value=found.found,
                needed=found.needed,
            )
        return found
