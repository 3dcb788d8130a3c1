"""`SweepDriver`: follows a plan on an executor, learns, plans the remaining tasks again, replicates stragglers.

It reads no clock, starts no process and uses no addresses: the executor does. An ended task is first passed to
`acknowledge`, so that a killed sweep can be resumed without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from apples.applications.parameter_sweep.costs import SweepCosts
from apples.applications.parameter_sweep.executor import (
    FileMoved,
    HostLost,
    SweepExecutor,
    TaskEnded,
)
from apples.applications.parameter_sweep.gantt import SweepProgress
from apples.applications.parameter_sweep.heuristics import HEURISTICS, Heuristic
from apples.applications.parameter_sweep.planning import SweepDecision, plan_sweep
from apples.errors import LaunchError
from apples.launch.events import Talk, unheard
from apples.ui.units import counted

LEARNING = 0.4
"""Weight of the last measurement in the factor of a host or link."""
REPLAN_RATIO = 1.25
"""A host factor that has changed by more than this ratio since the last plan starts another plan."""
REPLICA_GAIN = 0.8
"""A replica starts if it is forecast to take less than this fraction of the straggler's remaining time."""
OVERDUE_EXTRA = 0.25
"""An overdue task is expected to take this fraction of its time so far in addition."""
STRAGGLER_EXTRA = 1.0
"""The same fraction when lanes are idle: an overdue task is expected to take as long again."""
# A running task that is overdue shows a slow host early; waiting for its end would give that host
# more tasks.
SLOW_RATIO = 1.25
"""A running task that has taken this many times its forecast raises the factor of its host before its end."""

REPLAN_COST_FACTOR = 10.0
"""The time between two plans is at least this many times the time of the last planning."""
MAX_MOVES = 3
"""Attempts to move a file to a cache; after the last failure the sweep ends."""


@dataclass
class _Run:
    """A task on a lane, with its predicted seconds there before any learning."""

    task: str
    lane: int
    start: float
    base: float


@dataclass
class SweepOutcome:
    """The outcome of a sweep.

    Attributes
    ----------
    seconds
        From the first to the last action.
    done
        By name: the end of each task that has a result.
    failed, failure_codes
        Reason of each failed task, and the code of the reason.
    plans, replicas, moves
        Number of plans made, replicas started and files moved.
    decision
        The first decision.
    lost
        Hosts that were lost, with the reason.
    failing
        Hosts on which every started task failed, with the reason of the first failure.
    """

    seconds: float = 0.0
    done: dict[str, TaskEnded] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    failure_codes: dict[str, str] = field(default_factory=dict)
    plans: int = 0
    replicas: int = 0
    moves: int = 0
    decision: SweepDecision | None = None
    lost: dict[str, str] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)


class SweepDriver:
    """Runs one sweep to its end.

    Parameters
    ----------
    costs
        The initial forecasts.
    executor
        Starts the tasks and moves the files.
    acknowledge
        Called once for each task with a result; after it returns, the task is never run again.
    done
        Tasks that were acknowledged in an earlier run.
    present
        Files that caches have already.
    lost
        Hosts that could not be reached, with the reason.
    every
        Seconds between two regular plans; plans after surprises are at least a twentieth of it apart.
    attempts
        Attempts of a failing task, on other hosts if possible.
    heuristics
        Heuristics that plan; None: no plan, each free lane takes the next task of the list (a work queue).
    planned
        Called with the first plan, before any task is started.
    """

    def __init__(
        self,
        costs: SweepCosts,
        executor: SweepExecutor,
        *,
        acknowledge: Callable[[TaskEnded], None] | None = None,
        done: Mapping[str, TaskEnded] | None = None,
        present: frozenset[tuple[str, str]] = frozenset(),
        lost: Mapping[str, str] | None = None,
        every: float = 120.0,
        attempts: int = 2,
        heuristics: Mapping[str, Heuristic] | None = HEURISTICS,
        planned: Callable[[SweepDecision], None] | None = None,
        talk: Talk = unheard,
    ) -> None:
        self.outcome = SweepOutcome(done=dict(done or {}), lost=dict(lost or {}))
        self._costs, self._executor = costs, executor
        self._acknowledge, self._planned, self._talk = acknowledge, planned, talk
        self._every, self._attempts, self._heuristics = every, attempts, heuristics
        self._tasks = {task.name: number for number, task in enumerate(costs.sweep.tasks)}
        self._cache_of_lane = costs.cache_of_lane.tolist()
        numbers = {cache.name: number for number, cache in enumerate(costs.caches)}
        self._present = {(file, numbers[cache]) for file, cache in present}
        for file in costs.sweep.files:
            row = costs.missing[costs.sweep.numbers[file.name]]
            self._present |= {(file.name, int(k)) for k in np.flatnonzero(~row)}
        self._moving: dict[tuple[int, int], tuple[str, int, float]] = {}
        self._to_move: dict[tuple[int, int], list[tuple[str, int]]] = {}
        self._running: dict[int, _Run] = {}
        self._queues: dict[int, list[str]] = {}
        self._failures: dict[str, list[str]] = {}
        self._worked: set[str] = set()
        self._failed_hosts: set[str] = set()
        self._lost_moves: dict[tuple[str, int], int] = {}
        self._host_factor: dict[str, float] = {}
        self._link_factor: dict[tuple[int, int], float] = {}
        self._planned_at, self._planned_with = -math.inf, dict[str, float]()
        self._must_plan, self._took = True, 0.0

    def run(self) -> SweepOutcome:
        """Return after every task has a result or has failed in all its attempts.

        Raises
        ------
        NoFeasiblePlanError
            No cache has room for the files of a task.
        LaunchError
            All hosts are lost.
        """
        begun = self._executor.now()
        while self._unfinished():
            self._plan_if_due()
            self._start_tasks()
            self._start_moves()
            self._replicate()
            for event in self._executor.events(self._next_look()):
                self._hear(event)
        for run in self._running.values():
            self._executor.stop(run.task, run.lane)
        self.outcome.seconds = self._executor.now() - begun
        return self.outcome

    # ------------------------------------------------------------------------ plans
    def _unfinished(self) -> bool:
        return len(self.outcome.done) + len(self.outcome.failed) < len(self._tasks)

    def _waiting(self) -> Iterator[str]:
        running = {run.task for run in self._running.values()}
        over = self.outcome.done.keys() | self.outcome.failed.keys() | running
        return (name for name in self._tasks if name not in over)

    def _plan_if_due(self) -> None:
        now = self._executor.now()
        apart = now - self._planned_at
        if self._heuristics is None:
            self._take_next()
        elif next(self._waiting(), None) is not None:
            asked = self._must_plan or self._surprised()
            if apart >= max(
                self._every / 20 if asked else self._every, REPLAN_COST_FACTOR * self._took
            ):
                self._plan(now, self._heuristics)
                self._took = self._executor.now() - now

    def _plan(self, now: float, heuristics: Mapping[str, Heuristic]) -> None:
        costs = self._learned_costs(now)
        ready = {lane: self._end_of(run, now) for lane, run in self._running.items()}
        there = {(f, self._costs.caches[k].name): 0.0 for f, k in self._present}
        links = {}
        for link, (file, cache, start) in self._moving.items():
            took = costs.transfer[costs.sweep.numbers[file], cache]
            links[link] = max(start + float(took), now)
            there[file, costs.caches[cache].name] = links[link]
        settled = {run.task for run in self._running.values()} | self.outcome.done.keys()
        settled |= self.outcome.failed.keys()
        progress = SweepProgress(now, frozenset(settled), ready, there, links)
        decision = plan_sweep(costs, progress, heuristics)
        if self.outcome.decision is None:
            self.outcome.decision = decision
            if self._planned:
                self._planned(decision)
        self.outcome.plans += 1
        self._talk(
            f"plan {self.outcome.plans}: {decision.plan.heuristic}, "
            f"{counted(len(decision.plan.tasks), 'task')} to come, done at {decision.plan.makespan:.1f} s"
        )
        self._queues, self._to_move = {}, {}
        for task in decision.plan.tasks:
            self._queues.setdefault(task.lane, []).append(task.task)
        numbers = {cache.name: number for number, cache in enumerate(costs.caches)}
        for each in decision.plan.transfers:
            self._to_move.setdefault(self._link(each.file, numbers[each.cache]), []).append(
                (each.file, numbers[each.cache])
            )
        self._planned_at, self._planned_with = now, self._factors(now)
        self._must_plan = False

    def _take_next(self) -> None:
        """Give each free lane the next task of the list, and start the transfers of its files."""
        taken = {name for queue in self._queues.values() for name in queue}
        waiting = (name for name in self._waiting() if name not in taken)
        for lane in self._free_lanes():
            if not self._queues.get(lane) and (name := next(waiting, None)):
                self._queues[lane] = [name]
                cache = self._cache_of_lane[lane]
                for file in self._lacking(name, cache):
                    link = self._link(file, cache)
                    coming = self._moving.get(link, ("", -1, 0.0))[:2]
                    queue = self._to_move.setdefault(link, [])
                    if (file, cache) != coming and (file, cache) not in queue:
                        queue.append((file, cache))

    def _learned_costs(self, now: float) -> SweepCosts:
        """Return the costs with the measured factors; infinite on hosts that are lost or failed all attempts."""
        factors = self._factors(now)
        compute = self._costs.compute * np.array([factors[h] for h in self._costs.hosts])[:, None]
        for lane, host in enumerate(self._costs.hosts):
            if host in self.outcome.lost:
                compute[lane] = math.inf
        for task, hosts in self._failures.items():
            column = compute[:, self._tasks[task]]
            tried = np.array([host in hosts for host in self._costs.hosts])
            if np.isfinite(column[~tried]).any():
                column[tried] = math.inf
        transfer = self._costs.transfer.copy()
        for (source, site), factor in self._link_factor.items():
            files = [s == source for s in self._costs.source]
            transfer[np.ix_(files, [k == site for k in self._costs.site])] *= factor
        return replace(self._costs, compute=compute, transfer=transfer)

    # ------------------------------------------------------------------------ learning
    def _factors(self, now: float) -> dict[str, float]:
        """Return, by host, measured seconds of a task over the forecast; overdue tasks count before their end."""
        found = dict(self._host_factor)
        for run in self._running.values():
            host = self._costs.hosts[run.lane]
            least = (now - run.start) / run.base
            if least > SLOW_RATIO * found.get(host, 1.0):
                found[host] = least
        usual = median(self._host_factor.values()) if self._host_factor else 1.0
        return {host: found.get(host, usual) for host in dict.fromkeys(self._costs.hosts)}

    def _surprised(self) -> bool:
        now = self._factors(self._executor.now())
        return any(
            not 1 / REPLAN_RATIO <= factor / self._planned_with.get(host, 1.0) <= REPLAN_RATIO
            for host, factor in now.items()
        )

    def _end_of(self, run: _Run, now: float, overdue: float = OVERDUE_EXTRA) -> float:
        """Return the expected end of a running task."""
        host = self._costs.hosts[run.lane]
        end = run.start + run.base * self._host_factor.get(host, self._factors(now)[host])
        return end if end > now else now + overdue * (now - run.start)

    # ------------------------------------------------------------------------ actions
    def _free_lanes(self) -> list[int]:
        return [
            lane
            for lane, host in enumerate(self._costs.hosts)
            if lane not in self._running and host not in self.outcome.lost
        ]

    def _lacking(self, task: str, cache: int) -> list[str]:
        inputs = self._costs.sweep.tasks[self._tasks[task]].inputs
        return [file for file in inputs if (file, cache) not in self._present]

    def _link(self, file: str, cache: int) -> tuple[int, int]:
        return self._costs.source[self._costs.sweep.numbers[file]], self._costs.site[cache]

    def _start_tasks(self) -> None:
        """Start on each free lane the first task of its queue whose files are in the cache."""
        for lane in self._free_lanes():
            cache = self._cache_of_lane[lane]
            for task in self._queues.get(lane, ()):
                if not self._lacking(task, cache):
                    self._queues[lane].remove(task)
                    self._start(task, lane)
                    break
            else:
                self._must_plan = True  # the lane is idle; another plan may have a task for it

    def _start(self, task: str, lane: int) -> None:
        base = float(self._costs.compute[lane, self._tasks[task]])
        self._running[lane] = _Run(task, lane, self._executor.now(), base)
        self._executor.start(task, lane)

    def _start_moves(self) -> None:
        """Start on each free link the next move of its queue."""
        for link, queue in self._to_move.items():
            if queue and link not in self._moving:
                file, cache = queue.pop(0)
                self._moving[link] = (file, cache, self._executor.now())
                self._executor.move(file, self._costs.caches[cache].name)
                self.outcome.moves += 1

    def _replicate(self) -> None:
        """Start a replica of the task that is expected to end last, if a free lane would end it clearly sooner.

        A task that has failed before gets no replica, because its copies would fail in turn.
        """
        if self._heuristics is None or next(self._waiting(), None) is not None:
            return
        now = self._executor.now()
        factors = self._factors(now)
        alone = [
            run
            for run in self._running.values()
            if self._copies(run.task) == 1 and run.task not in self._failures
        ]
        for run in sorted(alone, key=lambda run: -self._end_of(run, now, STRAGGLER_EXTRA)):
            left = self._end_of(run, now, STRAGGLER_EXTRA) - now
            number = self._tasks[run.task]
            lanes = [
                (factors[self._costs.hosts[lane]] * float(self._costs.compute[lane, number]), lane)
                for lane in self._free_lanes()
                if not self._lacking(run.task, self._cache_of_lane[lane])
            ]
            if lanes and min(lanes)[0] < REPLICA_GAIN * left:
                self._start(run.task, min(lanes)[1])
                self.outcome.replicas += 1

    def _copies(self, task: str) -> int:
        return sum(run.task == task for run in self._running.values())

    def _next_look(self) -> float:
        """Return the time of the next plan, or of the moment when a running task becomes overdue."""
        now = self._executor.now()
        if self._heuristics is None:
            return now + self._every
        due = self._planned_at + (self._every / 20 if self._must_plan else self._every)
        due = max(due, self._planned_at + REPLAN_COST_FACTOR * self._took)
        if next(self._waiting(), None) is None:
            due = now + self._every
        ends = [self._end_of(run, now) for run in self._running.values()]
        overdue = [now + SLOW_RATIO * (end - now) for end in ends if end > now]
        return max(now + self._every / 1000, min([due, *overdue]))

    # ------------------------------------------------------------------------ events
    def _hear(self, event: TaskEnded | FileMoved | HostLost) -> None:
        if isinstance(event, HostLost):
            self._lose(event)
        elif isinstance(event, FileMoved):
            self._arrive(event)
        else:
            self._end(event)

    def _end(self, event: TaskEnded) -> None:
        run = self._running.get(event.lane)
        if run is None or run.task != event.task:
            return  # a replica that was stopped as it ended, or a lost host
        del self._running[event.lane]
        host = self._costs.hosts[event.lane]
        if event.failure:
            self._fail(event, host)
            return
        if self._acknowledge:
            self._acknowledge(event)
        self.outcome.done[event.task] = event
        self._worked.add(host)
        self.outcome.failing.pop(host, None)
        self.outcome.failed.pop(event.task, None)
        self.outcome.failure_codes.pop(event.task, None)
        ratio = max(1e-9, event.seconds) / run.base
        known = self._host_factor.get(host, ratio)
        self._host_factor[host] = known ** (1 - LEARNING) * ratio**LEARNING
        for other in [other for other in self._running.values() if other.task == event.task]:
            self._executor.stop(other.task, other.lane)
            del self._running[other.lane]

    def _fail(self, event: TaskEnded, host: str) -> None:
        task, words = event.task, event.failure
        tried = self._failures.setdefault(task, [])
        tried.append(host)
        self._must_plan = True
        if host not in self._failed_hosts:
            self._talk(f"{host}: its first task that failed, {task}: {words}")
            if host not in self._worked:
                self.outcome.failing[host] = words
        self._failed_hosts.add(host)
        if self._copies(task):
            return
        if len(tried) >= self._attempts:
            self.outcome.failed[task] = f"{host}: {words}"
            self.outcome.failure_codes[task] = event.code
            self._talk(f"task {task} has failed on {', '.join(tried)}: {words}")

    def _arrive(self, event: FileMoved) -> None:
        cache = next(k for k, each in enumerate(self._costs.caches) if each.name == event.cache)
        link = self._link(event.file, cache)
        self._moving.pop(link, None)
        if event.failure:
            self._must_plan = True
            self._lost_moves[event.file, cache] = self._lost_moves.get((event.file, cache), 0) + 1
            self._talk(f"{event.file} did not come to {event.cache}: {event.failure}")
            if self._lost_moves[event.file, cache] >= MAX_MOVES and self._lives(cache):
                raise LaunchError(
                    f"{event.file} to {event.cache}: {event.failure}",
                    code="file-not-copied",
                    file=event.file,
                    cache=event.cache,
                    reason=event.failure,
                )
            return
        self._present.add((event.file, cache))
        predicted = float(self._costs.transfer[self._costs.sweep.numbers[event.file], cache])
        ratio = max(1e-9, event.seconds) / predicted
        known = self._link_factor.get(link, ratio)
        self._link_factor[link] = known ** (1 - LEARNING) * ratio**LEARNING

    def _lives(self, cache: int) -> bool:
        return any(host not in self.outcome.lost for host in self._costs.caches[cache].hosts)

    def _lose(self, event: HostLost) -> None:
        self.outcome.lost[event.host] = event.reason
        self._talk(f"{event.host} is lost: {event.reason}")
        self._must_plan, self._planned_at = True, -math.inf
        for lane, host in enumerate(self._costs.hosts):
            if host == event.host:
                self._running.pop(lane, None)
                self._queues.pop(lane, None)
        if not any(host not in self.outcome.lost for host in self._costs.hosts):
            raise LaunchError(
                f"no host is left: {event.host}: {event.reason}",
                code="hosts-lost",
                host=event.host,
                reason=event.reason,
                lost=dict(self.outcome.lost),
            )
