"""Ending jobs: the kill loop with its deadline, quarantine, and the watch that finds what was left.

Nothing here goes by process numbers: a container bears the number of its allocation, which is never used twice,
and every process in it is killed; a job that came later under the same name has another container.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any, Final

from apples.errors import LaunchError
from apples.io.journal import JournalError
from apples.topology.daemon.node import NodeLedger
from apples.topology.daemon.recovery import adopt_orphans
from apples.topology.daemon.resize_requests import NodeManager
from apples.topology.daemon.sharing import leave
from apples.topology.daemon.state import AllocationState, CpuAllocation, EndCondition
from apples.topology.isolation.affinity import Affinity, started
from apples.topology.isolation.backend import IsolationError
from apples.topology.isolation.freezers import signal_members

FIRST_PAUSE: Final = 0.002
LONGEST_PAUSE: Final = 0.05


class Releaser:
    """Ends jobs, at once or when what keeps them has ended.

    Parameters
    ----------
    node
        The ledger of their jobs.
    manager
        Tells owners that they have their CPUs back.

    Attributes
    ----------
    tasks
        Job -> the task that releases it; removed when the task ends.
    """

    def __init__(self, node: NodeLedger, manager: NodeManager) -> None:
        self._node = node
        self._manager = manager
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._keepers: dict[str, int] = {}
        self._claims: dict[str, asyncio.TimerHandle] = {}
        self._strays: dict[str, frozenset[int]] = {}

    async def release(
        self, name: str, grace: float = 0.0, sealed: Mapping[str, Any] | None = None
    ) -> None:
        """Kill what is left of a job and free its CPUs; a second request waits for the same end.

        `sealed` is the answer as it goes into the record that says so: what was begun is finished after a
        crash, and a client that asks again is to hear that it was done.

        Raises
        ------
        LaunchError
            Its processes cannot be killed: its CPUs are in quarantine.
        JournalError
            Nothing can be recorded now; it stays as it is.
        """
        if name not in self.tasks:
            release = self._release(name, grace, sealed or {})
            task = asyncio.get_running_loop().create_task(release)
            self.tasks[name] = task
            task.add_done_callback(lambda _: self.tasks.pop(name, None))
        elif sealed:
            self._node.commit({}, **sealed)
        await asyncio.shield(self.tasks[name])

    def soon(self, name: str) -> None:
        """Release a job without anybody waiting for it."""
        if name in self.tasks or name not in self._node.state.jobs:
            return
        task = asyncio.get_running_loop().create_task(self._release(name, 0.0, {}))
        self.tasks[name] = task

        def done(ended: asyncio.Task[None]) -> None:
            self.tasks.pop(name, None)
            if not ended.cancelled() and ended.exception() is not None:
                self._node.report(f"{name}: {ended.exception()}")

        task.add_done_callback(done)

    async def _release(self, name: str, grace: float, sealed: Mapping[str, Any]) -> None:
        job = self._node.state.jobs[name]
        container = job.name(self._node.mark)
        if job.state is AllocationState.RUNNING and grace > 0:
            signal_members(lambda: self._node.isolation.processes(container), signal.SIGTERM)
            await self._until(lambda: not self._node.isolation.processes(container), grace)
            job = self._node.state.jobs[name]
        ending = (
            job
            if job.state is AllocationState.QUARANTINED
            else job.change(state=AllocationState.RELEASING)
        )
        self._node.commit({name: ending}, **sealed)
        self._manager.ended(name)
        self.forget(name)
        if not await self._until(lambda: self._round(container), self._node.options.kill_seconds):
            self._quarantine(name, container, sealed)
        self.gone(name)

    def gone(self, name: str) -> None:
        """Record that a job whose container is gone is no more; its CPUs go where they belong."""
        node = self._node
        changes = leave(node.state.jobs, name)
        node.commit({name: None, **changes})
        node.guarantees.pop(name, None)
        node.unfitted.discard(name)
        node.refit(changes)
        for changed in changes:
            self._manager.told(node.state.jobs[changed])

    def _round(self, container: str) -> bool:
        """Remove the container, or kill who is in it; whether it is gone."""
        isolation = self._node.isolation
        if isolation.remove(container):
            return True
        with contextlib.suppress(IsolationError, OSError):
            isolation.kill(container)
        return isolation.remove(container)

    def _quarantine(self, name: str, container: str, sealed: Mapping[str, Any]) -> None:
        node = self._node
        job = node.state.jobs[name]
        answer = sealed.get("answer")
        more = {"retract": [answer["by"], answer["id"]]} if answer else {}
        node.commit({name: job.change(state=AllocationState.QUARANTINED)}, **more)
        left = sorted(node.isolation.processes(container))[:5]
        raise LaunchError(
            f"{name}: processes {left} cannot be killed; CPUs {job.taken} are in quarantine",
            code="processes-left",
            job=name,
            value=left,
            cpus=str(job.taken),
        )

    async def _until(self, done: Callable[[], bool], seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + seconds, FIRST_PAUSE
        while not done():
            if loop.time() > end:
                return False
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return True

    def guard(self, job: CpuAllocation) -> None:
        """Watch for the end of what keeps a job, and that somebody enters it in time."""
        if job.until is EndCondition.KEEPER:
            self._guard_keeper(job)
        if not self._node.isolation.processes(job.name(self._node.mark)):
            loop = asyncio.get_running_loop()
            seconds = self._node.options.claim_seconds
            self._claims[job.job] = loop.call_later(seconds, self._unclaimed, job)

    def guard_again(self, job: CpuAllocation) -> None:
        """Take in that a job has come back: whether it is watched has not changed, what is watched has."""
        self.forget(job.job)
        self.guard(job)

    def _guard_keeper(self, job: CpuAllocation) -> None:
        process, _, start = job.keeper.partition(":")
        try:
            descriptor = os.pidfd_open(int(process))
        except (OSError, ValueError):
            self.soon(job.job)
            return
        if started(int(process)) != start:
            os.close(descriptor)
            self.soon(job.job)
            return
        self._keepers[job.job] = descriptor
        loop = asyncio.get_running_loop()
        loop.add_reader(descriptor, self._keeper_ended, job)

    def _keeper_ended(self, job: CpuAllocation) -> None:
        self.forget(job.job)
        self.soon(job.job)

    def _unclaimed(self, job: CpuAllocation) -> None:
        self._claims.pop(job.job, None)
        now = self._node.state.jobs.get(job.job)
        if now is not None and now.number == job.number and now.state is AllocationState.RUNNING:
            self._node.report(f"{job.job}: nobody entered it in time: released")
            self.soon(job.job)

    def claimed(self, name: str) -> None:
        """Take in that a process has entered."""
        timer = self._claims.pop(name, None)
        if timer is not None:
            timer.cancel()

    def forget(self, name: str) -> None:
        """Watch a job no more."""
        self.claimed(name)
        self._strays.pop(name, None)
        descriptor = self._keepers.pop(name, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def watch(self) -> None:
        """Look once at everything that may have changed without anybody saying so."""
        node = self._node
        node.rescan()
        adopt_orphans(node)
        for name, job in list(node.state.jobs.items()):
            container = job.name(node.mark)
            if name in self.tasks:
                continue
            if job.state in {AllocationState.QUARANTINED, AllocationState.RELEASING}:
                if self._round(container):
                    with contextlib.suppress(JournalError):
                        self.gone(name)
            elif job.state is AllocationState.RUNNING:
                self._look_at(job, container)

    def _look_at(self, job: CpuAllocation, container: str) -> None:
        node = self._node
        inside = node.isolation.processes(container)
        if job.until is EndCondition.EMPTY and not inside and job.job not in self._claims:
            self.soon(job.job)
            return
        if job.job in node.unfitted:
            node.refit([job.job])
            with contextlib.suppress(IsolationError):
                node.isolation.thaw(container)
        strays = node.isolation.strays(job.container(node.mark)) if inside else frozenset[int]()
        if strays & self._strays.get(job.job, frozenset()):  # one on its way in is seen once only
            node.report(f"{job.job}: {len(strays)} processes were found outside CPUs {job.holds}")
        self._strays[job.job] = strays
        if (
            strays and node.isolation.title == Affinity.title
        ):  # a set that others changed is left to them
            node.refit([job.job])

    async def close(self) -> None:
        """Let go of everything that is watched; jobs go on."""
        for name in list(self._keepers.keys() | self._claims.keys()):
            self.forget(name)
        for task in list(self.tasks.values()):
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
