"""The end of jobs: the kill loop with its deadline, quarantine, and the watch for remaining processes.

Processes are found by their container, never by stored process numbers. A container's name includes the number of
its allocation, which is never reused, and every process in it is killed. A later job of the same name has another
container.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final

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
MAX_PAUSE: Final = 0.05


class Releaser:
    """Ends jobs, at once or at their end condition.

    Parameters
    ----------
    node
        The ledger of their jobs.
    manager
        Notifies owners of returned CPUs.

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

    async def release(self, name: str, grace: float = 0.0) -> None:
        """Kill the processes of a job and free its CPUs; a second call waits for the same end.

        Raises
        ------
        LaunchError
            Its processes cannot be killed, so its CPUs are in quarantine.
        JournalError
            The journal cannot be written now; the job is unchanged.
        """
        if name not in self.tasks:
            release = self._release(name, grace)
            task = asyncio.get_running_loop().create_task(release)
            self.tasks[name] = task
            task.add_done_callback(lambda _: self.tasks.pop(name, None))
        await asyncio.shield(self.tasks[name])

    def soon(self, name: str) -> None:
        """Start to release a job, and return at once."""
        if name in self.tasks or name not in self._node.state.jobs:
            return
        task = asyncio.get_running_loop().create_task(self._release(name, 0.0))
        self.tasks[name] = task

        def done(ended: asyncio.Task[None]) -> None:
            self.tasks.pop(name, None)
            if not ended.cancelled() and ended.exception() is not None:
                self._node.report(f"{name}: {ended.exception()}")

        task.add_done_callback(done)

    async def _release(self, name: str, grace: float) -> None:
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
        self._node.commit({name: ending})
        self._manager.ended(name)
        self.forget(name)
        if not await self._until(lambda: self._round(container), self._node.options.kill_seconds):
            self._quarantine(name, container)
        self.gone(name)

    def gone(self, name: str) -> None:
        """Record the end of a job after its container was removed, and return lent CPUs to their owners."""
        node = self._node
        changes = leave(node.state.jobs, name)
        node.commit({name: None, **changes})
        node.guarantees.pop(name, None)
        node.unfitted.discard(name)
        node.refit(changes)
        for changed in changes:
            self._manager.notify(node.state.jobs[changed])

    def _round(self, container: str) -> bool:
        """Remove the container or kill its processes; return whether it is removed."""
        isolation = self._node.isolation
        if isolation.remove(container):
            return True
        with contextlib.suppress(IsolationError, OSError):
            isolation.kill(container)
        return isolation.remove(container)

    def _quarantine(self, name: str, container: str) -> None:
        node = self._node
        job = node.state.jobs[name]
        node.commit({name: job.change(state=AllocationState.QUARANTINED)})
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
            pause = min(2 * pause, MAX_PAUSE)
        return True

    def guard(self, job: CpuAllocation) -> None:
        """Watch the owner process of a job, and release the job if no process enters it in time."""
        if job.until is EndCondition.KEEPER:
            self._guard_keeper(job)
        if not self._node.isolation.processes(job.name(self._node.mark)):
            self._await_claim(job)

    def _await_claim(self, job: CpuAllocation) -> None:
        """Release a job unless a process enters it in time."""
        loop = asyncio.get_running_loop()
        seconds = self._node.options.claim_seconds
        self._claims[job.job] = loop.call_later(seconds, self._unclaimed, job)

    def renew_claim(self, job: CpuAllocation) -> None:
        """Restart the claim time of a job that waits for its first process."""
        if job.job in self._claims:
            self.claimed(job.job)
            self._await_claim(job)

    def guard_again(self, job: CpuAllocation) -> None:
        """Watch a resumed job again."""
        self.forget(job.job)
        self.guard(job)

    def _guard_keeper(self, job: CpuAllocation) -> None:
        """Watch the owner process of a job; if this is impossible now, `watch` retries."""
        number, _, start = job.keeper.partition(":")
        ended, descriptor = True, -1
        try:
            if number.isdigit() and started(int(number)) == start:
                descriptor = os.pidfd_open(int(number))
                ended = (
                    started(int(number)) != start
                )  # the number may belong to another process by now
        except ProcessLookupError:
            pass
        except OSError as error:  # too few descriptors, or a kernel without this call
            self._node.report(f"{job.job}: its owner process {number} is only polled: {error}")
            if descriptor >= 0:
                os.close(descriptor)
            return
        if ended:
            if descriptor >= 0:
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
            self._node.report(f"{job.job}: no process entered it in time: released")
            self.soon(job.job)

    def claimed(self, name: str) -> None:
        """Record that a process has entered the job."""
        timer = self._claims.pop(name, None)
        if timer is not None:
            timer.cancel()

    def forget(self, name: str) -> None:
        """Stop watching a job."""
        self.claimed(name)
        self._strays.pop(name, None)
        descriptor = self._keepers.pop(name, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def watch(self) -> None:
        """Check everything that may change without a request."""
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
                self._check_running(job, container)

    def _check_running(self, job: CpuAllocation, container: str) -> None:
        node = self._node
        if job.until is EndCondition.KEEPER and job.job not in self._keepers:
            self._guard_keeper(job)
        inside = node.isolation.processes(container)
        if job.until is EndCondition.EMPTY and not inside and job.job not in self._claims:
            self.soon(job.job)
            return
        if job.until is EndCondition.IDLE:
            if inside:
                self.claimed(job.job)
            elif job.job not in self._claims:
                self._await_claim(job)
        if job.job in node.unfitted:
            node.refit([job.job])
            with contextlib.suppress(IsolationError):
                node.isolation.thaw(container)
        strays = node.isolation.strays(job.container(node.mark)) if inside else frozenset[int]()
        if strays & self._strays.get(
            job.job, frozenset()
        ):  # a process that is just entering is seen only once
            node.report(f"{job.job}: {len(strays)} processes were found outside CPUs {job.holds}")
        self._strays[job.job] = strays
        if (
            strays and node.isolation.title == Affinity.title
        ):  # a set that other programs changed is not corrected
            node.refit([job.job])

    async def close(self) -> None:
        """Stop all watching; jobs continue."""
        for name in list(self._keepers.keys() | self._claims.keys()):
            self.forget(name)
        for task in list(self.tasks.values()):
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
