"""The general engine: an event loop that asks any policy and carries out what it decides.

A job's work is kept in seconds on what it asked for. Whenever its processors change, the work is
brought up to date and its end is put into the heap anew; an end that was overtaken is skipped.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from math import inf, nan
from time import perf_counter

import numpy as np

from apples.errors import UsageError
from apples.scheduling.cluster import Cluster
from apples.scheduling.jobs import Decision, JobKind, Reserve, Resize
from apples.scheduling.policy import SchedulingPolicy
from apples.simulation.asking import asked, check_all_done
from apples.simulation.rates import cores_of, rate_of
from apples.simulation.setting import Failure, Schedule, Setting
from apples.simulation.workload import Workload

END, FAIL, REPAIR, CANCEL, ASK, WAKE = range(6)


class Engine:
    """One simulation by events.

    Parameters
    ----------
    workload, policy, setting
        What to run.
    record
        Whether to keep every change of a job's nodes.
    """

    def __init__(
        self,
        workload: Workload,
        policy: SchedulingPolicy,
        setting: Setting,
        record: bool = False,
    ) -> None:
        self.setting = setting
        self.policy = policy
        self.jobs = [
            replace(job, kind=JobKind.EVOLVING, minimum=1, maximum=setting.processors)
            if job.id in setting.demands
            else job
            for job in workload.jobs()
        ]
        self.position = {job.id: k for k, job in enumerate(self.jobs)}
        if len(self.position) != len(self.jobs):
            twice = [job.id for k, job in enumerate(self.jobs) if self.position[job.id] != k]
            raise UsageError(f"two jobs of the log have the number {twice[0]}")
        self.run_times: list[float] = workload.run.tolist()
        self.cluster = Cluster(
            setting.nodes,
            setting.cores_per_node,
            keep_places=bool(setting.failures) or getattr(policy, "needs_places", False),
        )
        count = len(self.jobs)
        self.start = [nan] * count
        self.end = [nan] * count
        self.work = [0.0] * count
        self.since = [0.0] * count
        self.rate = [0.0] * count
        self.resizes = [0] * count
        self.guest = [False] * count
        self.mate = [False] * count
        self.completed = [False] * count
        self.asked = [0] * count
        self.events: list[tuple[float, int, int, int]] = []  # time, kind, turn, which
        self.turn = [0] * count
        self.started = 0
        self.changes: list[tuple[float, int, int]] | None = [] if record else None
        self.restarts = 0
        self.promised = 0  # passes in a row that did nothing but promise
        self.node_seconds = 0.0
        for failure in setting.failures:
            heapq.heappush(self.events, (failure.time, FAIL, 0, failure.node))
        self.repairs = {(f.time, f.node): f for f in setting.failures}
        for number, time in setting.cancellations.items():
            if number in self.position:
                heapq.heappush(self.events, (time, CANCEL, 0, self.position[number]))

    def run(self) -> Schedule:
        """Run all jobs.

        Raises
        ------
        DecisionError
            The policy decided what cannot be done.
        UsageError
            The policy leaves jobs waiting for ever.
        """
        began = perf_counter()
        arrived = 0
        state = self.cluster.state
        state.time = self.jobs[0].submit
        while True:
            self._skip_overtaken()
            now = self.events[0][0] if self.events else inf
            if arrived < len(self.jobs) and self.jobs[arrived].submit <= now:
                now = self.jobs[arrived].submit
            if now == inf or (arrived == len(self.jobs) and self._nothing_left()):
                break
            self.node_seconds += (state.nodes - state.free) * (now - state.time)
            state.time = now
            state.early_release = False
            arrived = self._happen(now, arrived)
            self._pass()
            if self._only_promises(arrived):
                break
        check_all_done(self.policy, self.cluster.state)
        return self._schedule(perf_counter() - began)

    def _skip_overtaken(self) -> None:
        while self.events:
            time, kind, _, k = self.events[0]
            if kind != END or (self.rate[k] > 0 and self.end[k] == time):
                return
            heapq.heappop(self.events)

    def _nothing_left(self) -> bool:
        """Whether only failures and repairs are left to happen, which nobody would notice."""
        return not self.cluster.state.queue and not self.cluster.state.running

    def _only_promises(self, arrived: int) -> bool:
        """Whether the policy has only promised, more often than there are jobs that wait."""
        state = self.cluster.state
        if arrived < len(self.jobs) or state.running or any(e[1] != WAKE for e in self.events):
            self.promised = 0
            return False
        self.promised += 1
        return self.promised > 2 * len(state.queue) + 16

    def _happen(self, now: float, arrived: int) -> int:
        """Let the events of the instant happen, or one of them; return the jobs submitted."""
        one = self.setting.ties != "instant"
        while arrived < len(self.jobs) and self.jobs[arrived].submit <= now:
            self.cluster.submit(self.jobs[arrived])
            arrived += 1
            if one:
                return arrived
        while self.events and self.events[0][0] <= now:
            self._happens(*heapq.heappop(self.events))
            if one:
                break
        return arrived

    def _happens(self, time: float, kind: int, _: int, k: int) -> None:
        if kind == END:
            if self.rate[k] > 0 and self.end[k] == time:
                self._finish(k, completed=True)
        elif kind == FAIL:
            self._fail(self.repairs[time, k])
        elif kind == REPAIR:
            self.cluster.repair(k)
        elif kind == CANCEL:
            self._cancel(k)
        elif kind == ASK:
            self._ask(k)

    def _finish(self, k: int, completed: bool) -> None:
        now = self.cluster.state.time
        number = self.jobs[k].id
        affected = self.cluster.finish(number)
        self.end[k] = now
        self.rate[k] = 0.0
        self.completed[k] = completed
        self._note(k)
        for other in affected:
            self._set_rate(self.position[other])

    def _cancel(self, k: int) -> None:
        number = self.jobs[k].id
        if number in self.cluster.state.running:
            self._finish(k, completed=False)
        elif any(job.id == number for job in self.cluster.state.queue):
            self.cluster.withdraw(number)

    def _fail(self, failure: Failure) -> None:
        while (victim := self.cluster.lose(failure.node)) is not None:
            k = self.position[victim]
            self._finish(k, completed=False)
            self.restarts += 1
            self.asked[k] = 0
            self.cluster.requeue(self.jobs[k])
        heapq.heappush(self.events, (failure.repaired, REPAIR, 0, failure.node))

    def _ask(self, k: int) -> None:
        job = self.jobs[k]
        running = self.cluster.state.running.get(job.id)
        if running is not None:
            _, processors = self.setting.demands[job.id][self.asked[k]]
            self.asked[k] += 1
            running.wanted = self.cluster.state.nodes_for(processors)
            self._next_demand(k)

    def _pass(self) -> None:
        state = self.cluster.state
        for decision in asked(self.policy, state):
            before, affected = self._apply(decision)
            if isinstance(decision, Reserve):
                if decision.time > state.time:
                    heapq.heappush(self.events, (decision.time, WAKE, 0, 0))
                continue
            for number in affected:
                k = self.position[number]
                if number == decision.job and isinstance(decision, Resize):
                    stall = self.setting.cost.seconds(before, decision.nodes)
                    self._set_rate(k, stall)
                elif number == decision.job:
                    self._begin(k)
                else:
                    self.mate[k] = True
                    self._set_rate(k)
        self.cluster.settle()

    def _apply(self, decision: Decision) -> tuple[int, tuple[int, ...]]:
        """Carry a decision out; return the nodes its job had, and whose speed may have changed."""
        running = self.cluster.state.running
        try:
            before = running[decision.job].nodes if decision.job in running else 0
            return before, self.cluster.apply(decision)
        except (TypeError, AttributeError, LookupError, ValueError) as error:
            raise UsageError(
                f"policy {type(self.policy).__name__} at {self.cluster.state.time!r} s: "
                f"{decision!r} is no decision: {error}"
            ) from error

    def _begin(self, k: int) -> None:
        now = self.cluster.state.time
        running = self.cluster.state.running[self.jobs[k].id]
        self.start[k] = self.since[k] = now
        self.turn[k] = self.started
        self.started += 1
        self.work[k] = self.run_times[k]
        self.rate[k] = rate_of(running, self.cluster.state, self.setting)
        self.guest[k] = bool(running.mates)
        self.end[k] = now + self.work[k] / self.rate[k]
        heapq.heappush(self.events, (self.end[k], END, self.turn[k], k))
        self._note(k)
        self._next_demand(k)

    def _set_rate(self, k: int, stall: float = 0.0) -> None:
        """Bring a job's work up to date and let it go on, after a stall, at its new rate."""
        now = self.cluster.state.time
        rate = rate_of(
            self.cluster.state.running[self.jobs[k].id], self.cluster.state, self.setting
        )
        self._note(k)
        if rate == self.rate[k] and stall == 0.0:
            return
        done = max(0.0, now - self.since[k]) * self.rate[k]
        self.work[k] = max(0.0, self.work[k] - done)
        self.since[k] = now + stall
        self.rate[k] = rate
        self.end[k] = self.since[k] + self.work[k] / rate
        self.resizes[k] += 1
        heapq.heappush(self.events, (self.end[k], END, self.turn[k], k))
        self._next_demand(k)

    def _next_demand(self, k: int) -> None:
        """Put the moment into the heap at which an evolving job will ask next."""
        demands = self.setting.demands.get(self.jobs[k].id, ())
        if self.asked[k] < len(demands):
            part, _ = demands[self.asked[k]]
            left = self.work[k] - (1.0 - part) * self.run_times[k]
            self.events = [e for e in self.events if e[1] != ASK or e[3] != k]
            heapq.heapify(self.events)
            at = self.since[k] + max(0.0, left) / self.rate[k]
            heapq.heappush(self.events, (at, ASK, 0, k))

    def _note(self, k: int) -> None:
        """Record how many cores a job has from now on."""
        if self.changes is not None:
            state = self.cluster.state
            running = state.running.get(self.jobs[k].id)
            held = 0 if running is None else cores_of(running, state)
            self.changes.append((state.time, k, held))

    def _schedule(self, seconds: float) -> Schedule:
        return Schedule(
            start=np.array(self.start),
            end=np.array(self.end),
            resizes=np.array(self.resizes, dtype=np.int64),
            guest=np.array(self.guest),
            mate=np.array(self.mate),
            completed=np.array(self.completed),
            node_seconds=self.node_seconds,
            engine="events",
            seconds=seconds,
            restarts=self.restarts,
            changes=tuple(self.changes or ()),
            rejected=self.cluster.rejected,
        )
