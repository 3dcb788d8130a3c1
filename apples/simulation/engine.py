"""The event engine: any scheduling policy over a workload, on a virtual clock.

The engine is the simulator's back end of `apples.scheduling.driver`. A heap of events moves the virtual clock, the
driver runs policy and ledger, and the engine changes the jobs' rates by the accepted decisions.

A job's work is counted in seconds on the processors that it asked for. When its rate changes, the engine updates
the remaining work and puts a new end into the heap. The old end stays there and is skipped later (lazy deletion).
Some built-in policies also have compiled kernels (`kernels`), with the same result bit for bit.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf, nan
from time import perf_counter

import numpy as np

from apples.errors import UsageError
from apples.scheduling.driver import Driver, SchedulerBackend
from apples.scheduling.instants import instant
from apples.scheduling.jobs import JobKind
from apples.scheduling.ledger import OVERDUE_SECONDS, ClusterLedger, Refused
from apples.scheduling.passes import PolicyFailure, name_of, policy_at
from apples.scheduling.policy import AdvanceReservation, NodeLoad, RunningJob, SchedulingPolicy
from apples.simulation.config import NodeFailure, OwnerLoad, SimulationConfig, SimulationResult
from apples.simulation.speedup import linear
from apples.simulation.workload import Workload

#: Kinds of events in their order within an instant; submissions come first.
COME, END, FAIL, REPAIR, CANCEL, SAFE_POINT, CONFIRM, ASK, WAKE, ADVANCE, OWNER = range(11)


class DecisionError(UsageError):
    """The machine or the job cannot carry out a decision of the policy. Permanent: the policy is wrong."""

    code = "decision-refused"


class Precedence:
    """The ended jobs and the jobs that wait for the end of others; all engines on one clock share it.

    Parameters
    ----------
    jobs
        All simulated jobs; a job does not wait for others than these.
    dependencies
        `dependencies` of `SimulationConfig`.

    Attributes
    ----------
    ended
        Ended job -> time of its end; for a job that never ran, time of its submission.
    """

    def __init__(
        self, jobs: Collection[int], dependencies: Mapping[int, tuple[int, float]]
    ) -> None:
        self._jobs = jobs
        self._dependencies = dependencies
        self.ended: dict[int, float] = {}
        self._after: dict[int, list[tuple[EventEngine, int]]] = {}

    def comes_at(self, engine: EventEngine, k: int) -> float:
        """Return the time at which a job that the log submits now enters the queue, after its predecessor.

        `inf` if unknown: `is_over` schedules the job when the predecessor has ended.
        """
        waits = self._dependencies.get(engine.jobs[k].id)
        if waits is None:
            return engine.now
        before, seconds = waits
        if before in self.ended:
            return max(engine.now, instant(self.ended[before] + seconds))
        if before not in self._jobs:
            return engine.now
        self._after.setdefault(before, []).append((engine, k))
        return inf

    def is_over(self, number: int, ended: float, now: float) -> None:
        """Record the end of a job; schedule its successors, each after its own delay."""
        self.ended[number] = ended
        for engine, later in self._after.pop(number, ()):
            _, seconds = self._dependencies[engine.jobs[later].id]
            engine.expect(later, instant(now + seconds))


class EventEngine(SchedulerBackend):
    """One simulation by events.

    Parameters
    ----------
    workload, policy, config
        The simulated workload, policy and configuration.
    record
        Whether to record every change of a job's cores.
    precedence
        Shared by the engines on one clock; None for a single engine.
    """

    def __init__(
        self,
        workload: Workload,
        policy: SchedulingPolicy,
        config: SimulationConfig,
        record: bool = False,
        precedence: Precedence | None = None,
    ) -> None:
        self.config = config
        self.policy = policy
        self.jobs = [
            replace(job, kind=JobKind.EVOLVING, minimum=least, maximum=config.processors)
            if job.id in config.demands
            else job
            for job, least in zip(workload.jobs(), workload.least.tolist(), strict=True)
        ]
        self.position = {job.id: k for k, job in enumerate(self.jobs)}
        if len(self.position) != len(self.jobs):
            twice = [job.id for k, job in enumerate(self.jobs) if self.position[job.id] != k]
            raise UsageError(
                f"two jobs of the log have the number {twice[0]}",
                code="job-repeated",
                job=twice[0],
            )
        #: By position: a job's work including its checkpoints, and the part that its next run has to do.
        self.whole: list[float] = workload.run.tolist()
        if config.checkpoint is not None:
            self.whole = list(map(config.checkpoint.with_checkpoints, self.whole))
        self.to_do = list(self.whole)
        self.run_times: list[float] = workload.run.tolist()
        self.ledger = ClusterLedger(
            config.nodes,
            config.cores_per_node,
            track_node_ids=bool(config.failures or config.owners)
            or getattr(policy, "needs_node_ids", False),
            overrun_guess=config.overrun_seconds,
            grace=config.grace if config.kills else None,
            usage_half_life=getattr(policy, "usage_half_life", None),
            advance=config.advance,
            resizes_take_time=config.acknowledges,
            choose=self._least_loaded if config.owners else None,
        )
        if config.owners:
            self.ledger.loads = [
                NodeLoad(
                    f"node {node}", config.cores_per_node, config.cores_per_node,
                    owner_first=config.owner_first,
                )
                for node in range(config.nodes)
            ]  # fmt: skip
        self.now = self.jobs[0].submit
        self.driver = Driver(policy, self.ledger, lambda: self.now, self, fallback=config.fallback)
        count = len(self.jobs)
        # By position in the workload. `work` is the remaining work of a job at `since`, in seconds on the
        # processors it asked for. At `rate` seconds of work per second it ends at `end`. With rate 0 the job does
        # not run.
        self.start = [nan] * count
        self.end = [nan] * count
        self.work = [0.0] * count
        self.since = [0.0] * count
        self.rate = [0.0] * count
        self.resizes = [0] * count
        self.guest = [False] * count
        self.mate = [False] * count
        self.completed = [False] * count
        self.to_kill = [False] * count  # whether the limit ends it
        self.demands_made = [0] * count
        # Events are (time, kind, order of the job's start, position of the job or number of the node).
        self.events: list[tuple[float, int, int, int]] = []
        self.order = [0] * count
        self.starts = 0
        self.changes: list[tuple[float, int, int]] | None = [] if record else None
        self.restarts = 0
        self.killed = 0
        self.work_lost = self.work_saved = 0.0
        self.passes = 0
        # By kind: the first failure of the policy, and the number of failures.
        self.policy_failures: dict[str, tuple[PolicyFailure, int]] = {}
        self.idle_passes = 0
        self.promised = False
        self.node_seconds = 0.0
        self.precedence = precedence or Precedence(self.position.keys(), config.dependencies)
        # Number of submitted jobs, and those of them that wait for the end of another job.
        self.arrived = 0
        self.to_come = set[int]()
        # Whether the policy only renews promises: nothing happens any more unless a job arrives.
        self.stalled = False
        self.reservations: list[AdvanceReservation] = []
        self.refused_starts, self.first_refused = 0, ""
        # Number of the job's start -> stall of its resize, which waits for a safe point.
        self.resizing: dict[int, float] = {}
        self.failures = {
            (instant(failure.time), failure.node): failure for failure in config.failures
        }
        self._enter_known_events()

    def run(self) -> SimulationResult:
        """Run all jobs.

        Raises
        ------
        DecisionError
            A decision of the policy cannot be carried out.
        UsageError
            The policy failed, or leaves jobs waiting for ever.
        """
        return run_on_one_clock([self])[0]

    # ---------------------------------------------------------------------------------- clock

    def next_time(self) -> float:
        """Return the time of the next event; `inf`: this engine has none."""
        self._skip_overtaken()
        now = self.events[0][0] if self.events else inf
        if self.arrived < len(self.jobs):
            return min(now, self.jobs[self.arrived].submit)
        return inf if self.stalled or self._nothing_left() else now

    def take_events(self, now: float) -> None:
        """Process all events of the instant, or one of them, by the tie rule."""
        ledger = self.ledger
        used = ledger.nodes - ledger.free - ledger.reserved
        self.node_seconds += used * (now - self.now)
        self.now = now
        one = not self.takes_all
        while self.arrived < len(self.jobs) and self.jobs[self.arrived].submit <= now:
            self._submit(self.arrived)
            self.arrived += 1
            if one:
                return
        while self.events and self.events[0][0] <= now:
            self._take_event(*heapq.heappop(self.events))
            if one:
                break

    @property
    def takes_all(self) -> bool:
        """Whether all events of an instant precede the policy's pass."""
        return self.config.ties == "instant"

    def decide(self) -> None:
        """Ask the policy once, after the events of the instant."""
        self.driver.run_pass()
        self.passes += 1
        self.stalled = self._only_promises() and not self._started_instead()

    def goes_on(self) -> bool:
        """Start jobs that the policy lets wait for ever by first-come-first-served; return whether any started."""
        return not self.stalled and self._started_instead()

    # --------------------------------------------------------------------------------- events

    def _enter_known_events(self) -> None:
        """Put the events that do not depend on the policy into the heap, except submissions."""
        for failure in self.config.failures:
            heapq.heappush(self.events, (instant(failure.time), FAIL, 0, failure.node))
        for k, one in enumerate(self.ledger.advance):
            for time in (one.begin, one.end):
                heapq.heappush(self.events, (time, ADVANCE, 0, k))
        for k, owner in enumerate(self.config.owners):
            heapq.heappush(self.events, (instant(owner.time), OWNER, 0, k))
        for number, time in self.config.cancellations.items():
            if number in self.position:
                heapq.heappush(self.events, (instant(time), CANCEL, 0, self.position[number]))

    def _skip_overtaken(self) -> None:
        """Remove the ends from the top of the heap that a change of rate has made obsolete."""
        while self.events:
            time, kind, _, k = self.events[0]
            if kind != END or (self.rate[k] > 0 and self.end[k] == time):
                return
            heapq.heappop(self.events)

    def _nothing_left(self) -> bool:
        """Return whether no job waits, is held or runs, so that later failures and repairs change nothing."""
        ledger = self.ledger
        return not (ledger.queue or ledger.running or ledger.held or self.to_come)

    def _only_promises(self) -> bool:
        """Return whether the policy keeps promising starts without starting a job.

        True if no job runs, only wake-ups remain, and more consecutive passes made a new promise than a correct
        policy needs to keep its promises one by one. (Wake-ups of replaced promises are passes, too, but their
        number is finite.)
        """
        ledger = self.ledger
        if (
            self.arrived < len(self.jobs)
            or ledger.running
            or any(e[1] != WAKE for e in self.events)
        ):
            self.idle_passes, self.promised = 0, False
            return False
        self.idle_passes += self.promised
        self.promised = False
        return self.idle_passes > 2 * len(ledger.queue) + 16

    def _started_instead(self) -> bool:
        """Run a first-come-first-served pass if the policy lets jobs wait for ever; return whether any started."""
        self.idle_passes = 0
        if not (self.config.fallback and self.ledger.queue):
            return False
        self.driver.pass_instead(never_starts(self.ledger))
        return bool(self.ledger.running)

    def _submit(self, k: int) -> None:
        """Submit a job, or wait for the end of its predecessor."""
        at = self.precedence.comes_at(self, k)
        if at <= self.now:
            self.driver.submit(self.jobs[k])
            return
        self.to_come.add(k)
        if at < inf:
            self.expect(k, at)

    def expect(self, k: int, time: float) -> None:
        """Schedule the arrival of a job that waited for its predecessor."""
        heapq.heappush(self.events, (time, COME, 0, k))
        self.stalled = False

    def _is_over(self, k: int) -> None:
        """Schedule the successors of an ended job."""
        ended = self.end[k] if self.start[k] == self.start[k] else self.jobs[k].submit
        self.precedence.is_over(self.jobs[k].id, ended, self.now)

    def _come(self, k: int) -> None:
        """Submit a job after its predecessor, unless it was cancelled; its submission counts as now."""
        if k not in self.to_come:
            return
        self.to_come.remove(k)
        self.jobs[k] = replace(self.jobs[k], submit=self.now)
        self.driver.submit(self.jobs[k])

    def _take_event(self, time: float, kind: int, order: int, k: int) -> None:
        if kind == COME:
            self._come(k)
        elif kind == END:
            self._reach_end(time, k)
        elif kind == FAIL:
            self._fail_node(self.failures[time, k])
        elif kind == REPAIR:
            self.ledger.restore_node(k)
        elif kind == CANCEL:
            self._cancel(k)
        elif kind == SAFE_POINT:
            self._reach_safe_point(order, k)
        elif kind == CONFIRM:
            self._finish_resize(order, k)
        elif kind == ASK:
            self._demand(k)
        elif kind in (ADVANCE, OWNER):
            self._change_nodes(time, kind, k)

    def _change_nodes(self, time: float, kind: int, k: int) -> None:
        """Begin or end an advance reservation, or change the load of an owner."""
        if kind == ADVANCE:
            self._keep_reserved(time)
        else:
            self._load(self.config.owners[k])

    def _load(self, owner: OwnerLoad) -> None:
        """Change the load of others on a node, and the rate of the jobs there."""
        ledger = self.ledger
        loads = list(ledger.loads)
        loads[owner.node] = loads[owner.node]._replace(others=owner.others)
        ledger.loads = tuple(loads)
        for running in ledger.running.values():
            k = self.position[running.job.id]
            if owner.node in running.node_ids and self.rate[k] > 0.0:
                self._set_rate(running, max(0.0, self.since[k] - self.now), resized=False)

    def _least_loaded(
        self,
        job: int,  # noqa: ARG002 - the same for all jobs
        nodes: Sequence[int],
        count: int,
        beside: frozenset[int],  # noqa: ARG002 - distance does not count
    ) -> frozenset[int]:
        """Return the nodes with the least load of others."""
        loads = self.ledger.loads
        return frozenset(sorted(nodes, key=lambda node: (-loads[node].share, node))[:count])

    def _reach_end(self, time: float, k: int) -> None:
        """End a job that has done its work or reached its limit, unless the event is obsolete."""
        if self.rate[k] > 0 and self.end[k] == time:
            self.killed += self.to_kill[k]
            self._end_job(k, completed=not self.to_kill[k])
            self._is_over(k)

    def _end_job(self, k: int, completed: bool) -> None:
        self._stop_job(k, completed)
        self.driver.end(self.jobs[k].id)

    def _stop_job(self, k: int, completed: bool) -> None:
        self.end[k] = self.now
        self.rate[k] = 0.0
        self.completed[k] = completed
        self._record(k, 0)

    def _cancel(self, k: int) -> None:
        number, ledger = self.jobs[k].id, self.ledger
        if self.rate[k] > 0.0:
            self._end_job(k, completed=False)
        elif number in ledger.held or any(job.id == number for job in ledger.queue):
            self.driver.withdraw(number)
        elif k in self.to_come:
            self.to_come.remove(k)
        else:
            return
        self._is_over(k)

    def _fail_node(self, failure: NodeFailure) -> None:
        """Requeue the jobs on a failed node, two if it is shared; their runs are lost."""
        while (victim := self.ledger.fail_node(failure.node)) is not None:
            k = self.position[victim]
            self._lose_run(k)
            self._end_job(k, completed=False)
            self.ledger.requeue(self.jobs[k])
        heapq.heappush(self.events, (instant(failure.repaired), REPAIR, 0, failure.node))

    def _lose_run(self, k: int) -> None:
        """Compute the lost and the saved work of a lost run."""
        left = self.work[k] - instant(max(0.0, self.now - self.since[k])) * self.rate[k]
        done, held_before = self.whole[k] - left, self.whole[k] - self.to_do[k]
        held = held_before
        if self.config.checkpoint is not None:
            held = max(held, self.config.checkpoint.saved(done, self.run_times[k]))
        self.work_saved += (held - held_before) * self.jobs[k].processors
        self.work_lost += max(0.0, done - held) * self.jobs[k].processors
        self.to_do[k] = self.whole[k] - held
        self.restarts += 1
        self.demands_made[k] = 0

    def _keep_reserved(self, time: float) -> None:
        """Begin or end advance reservations; record each that begins with its nodes."""
        self.ledger.keep_reserved(time)
        begun = {one[:4] for one in self.reservations}
        self.reservations += [
            one for one in self.ledger.advance if one.begin == time and one[:4] not in begun
        ]

    def _demand(self, k: int) -> None:
        """Enter the request of an evolving job for other processors, which the policy may grant."""
        job = self.jobs[k]
        if self.rate[k] > 0.0:
            _, processors = self.config.demands[job.id][self.demands_made[k]]
            self.demands_made[k] += 1
            self.ledger.request(job.id, self.ledger.nodes_for(max(processors, job.minimum)))
            self._await_demand(k)

    # ---------------------------------------------------------------- effects of the decisions

    def start_job(self, running: RunningJob) -> None:
        """Start the work of a job and put its end into the heap."""
        k = self.position[running.job.id]
        self.start[k] = self.since[k] = self.now
        self.order[k] = self.starts
        self.starts += 1
        self.work[k] = self.to_do[k]
        self.rate[k] = rate_of(running, self.ledger, self.config)
        self.guest[k] = bool(running.mates)
        self.end[k] = self._end_of_run(k, running)
        heapq.heappush(self.events, (self.end[k], END, self.order[k], k))
        self._record(k, cores_of(running, self.ledger) if self.changes is not None else 0)
        self._await_demand(k)

    def resize_job(self, running: RunningJob, nodes_before: int) -> None:
        """Stall a job for the cost of the resize, from its safe point on; then continue at its new rate.

        The nodes that it gives up come free at the end of the stall.
        """
        cost, k = self.config.cost, self.position[running.job.id]
        stall = cost.seconds(nodes_before, running.nodes)
        wait = cost.waiting_seconds(nodes_before, running.nodes) if running.changing else 0.0
        if wait > 0.0:
            self.resizing[self.order[k]] = stall
            at = instant(self.now + wait)
            heapq.heappush(self.events, (at, SAFE_POINT, self.order[k], k))
        else:
            self._set_rate(running, stall)
        if running.changing:
            at = instant(instant(self.now + wait) + stall)
            heapq.heappush(self.events, (at, CONFIRM, self.order[k], k))

    def _finish_resize(self, order: int, k: int) -> None:
        """Free the nodes that a job has left, unless the resized run has ended meanwhile."""
        number = self.jobs[k].id
        if self.order[k] == order and number in self.ledger.resizing:
            self.driver.finish_resize(number)

    def _reach_safe_point(self, order: int, k: int) -> None:
        """Begin a resize, unless the run has ended meanwhile."""
        stall = self.resizing.pop(order)
        if self.rate[k] > 0.0 and self.order[k] == order:
            self._set_rate(self.ledger.running[self.jobs[k].id], stall)

    def migrate_job(self, running: RunningJob) -> None:
        """Stall a job for the fixed cost of a growth; then continue at the rate of its new nodes.

        Its old nodes come free at once.
        """
        if running.changing:
            self.driver.finish_resize(running.job.id)
        self._set_rate(running, self.config.cost.expand)

    def update_share(self, running: RunningJob) -> None:
        """Continue a job at the rate of its present cores."""
        k = self.position[running.job.id]
        if running.guest is not None:
            self.mate[k] = True
        self._set_rate(running)

    def requeue_job(self, job: int) -> None:
        """Stop a job and lose its run, if it has begun."""
        k = self.position[job]
        if self.rate[k] > 0.0:
            self._lose_run(k)
            self._stop_job(k, completed=False)

    def wake_at(self, time: float) -> None:
        """Schedule a pass, unless the time is now."""
        time = instant(time)
        if time > self.now:
            heapq.heappush(self.events, (time, WAKE, 0, 0))
            self.promised = True

    def reject_job(self, job: int, reason: str) -> None:  # noqa: ARG002 - the ledger keeps the reason
        """Leave the job without a start; the result has the reason."""
        self._is_over(self.position[job])

    def policy_failed(self, failure: PolicyFailure) -> None:
        """Count the failure for the result."""
        first, count = self.policy_failures.get(failure.kind, (failure, 0))
        self.policy_failures[failure.kind] = (first, count + 1)

    def refuse(self, refused: Refused) -> None:
        """End the simulation with an error, since the policy breaks a limit.

        If the policy does not read reservations, a start that runs into a reservation is only counted.

        Raises
        ------
        DecisionError
            In all other cases, with the decision, the time and the reason.
        """
        looks = "reservations" in getattr(self.policy, "looks_at", ())
        if refused.crosses and (self.config.fallback or not looks):
            self.first_refused = self.first_refused or str(refused)
            self.refused_starts += 1
            return
        if refused.malformed:
            who = policy_at(self.policy, self.now)
            raise DecisionError(
                f"{who}: {refused.decision!r} is not a decision: {refused.reason}",
                code="decision-invalid",
                policy=name_of(self.policy),
                time=refused.time,
                value=repr(refused.decision),
                reason=refused.reason,
            )
        raise DecisionError(
            str(refused),
            code="decision-refused",
            policy=name_of(self.policy),
            time=refused.time,
            job=getattr(refused.decision, "job", None),
            value=str(refused.decision),
            reason=refused.reason,
        )

    def _set_rate(self, running: RunningJob, stall: float = 0.0, *, resized: bool = True) -> None:
        """Update the remaining work of a job; continue after a stall at its new rate."""
        k = self.position[running.job.id]
        rate = rate_of(running, self.ledger, self.config)
        if self.changes is not None:
            self._record(k, cores_of(running, self.ledger))
        if rate == self.rate[k] and stall == 0.0:
            return
        done = instant(max(0.0, self.now - self.since[k])) * self.rate[k]
        self.work[k] = max(0.0, self.work[k] - done)
        self.since[k] = instant(self.now + stall)
        self.rate[k] = rate
        self.end[k] = self._end_of_run(k, running)
        self.resizes[k] += resized
        heapq.heappush(self.events, (self.end[k], END, self.order[k], k))
        self._await_demand(k)

    def _end_of_run(self, k: int, running: RunningJob) -> float:
        """Return the time at which a job will have done its work or is killed.

        The ledger's limit decides about the kill; it moves if a job becomes a mate, not if it is resized. Once the
        grace has begun, the ledger's limit includes it.
        """
        end = instant(self.since[k] + instant(self.work[k] / self.rate[k]))
        if not self.config.kills:
            return end
        last = running.limit if running.overruns else instant(running.limit + self.config.grace)
        self.to_kill[k] = end > last + OVERDUE_SECONDS
        return max(last, self.now) if self.to_kill[k] else end

    def _await_demand(self, k: int) -> None:
        """Schedule the next request of an evolving job."""
        demands = self.config.demands.get(self.jobs[k].id, ())
        if self.demands_made[k] < len(demands):
            part, _ = demands[self.demands_made[k]]
            left = self.work[k] - (1.0 - part) * self.whole[k]
            self.events = [e for e in self.events if e[1] != ASK or e[3] != k]
            heapq.heapify(self.events)
            at = instant(self.since[k] + instant(max(0.0, left) / self.rate[k]))
            heapq.heappush(self.events, (at, ASK, 0, k))

    def _record(self, k: int, cores: int) -> None:
        """If changes are recorded, record the cores of a job from now on."""
        if self.changes is not None:
            self.changes.append((self.now, k, cores))

    def result(self, seconds: float) -> SimulationResult:
        """Return the result of a simulation that took `seconds` of wall time.

        Raises
        ------
        UsageError
            The policy left jobs waiting for ever.
        """
        check_all_done(self.policy, self.ledger)
        return SimulationResult(
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
            killed=self.killed,
            work_lost=self.work_lost,
            work_saved=self.work_saved,
            reservations=tuple(self.reservations),
            refused_starts=self.refused_starts,
            first_refused=self.first_refused,
            changes=tuple(self.changes or ()),
            rejected=self.ledger.rejected,
            held={number: self.ledger.waits[number].reason for number in self.ledger.held},
            passes=self.passes,
            failed_passes=sum(count for _, count in self.policy_failures.values()),
            failures=tuple(self.policy_failures.values()),
        )


def run_on_one_clock(engines: Sequence[EventEngine]) -> list[SimulationResult]:
    """Run engines that share a `Precedence`, each on its own machine.

    All events of an instant precede all passes, since an end on one machine may release a job on another in the
    same instant.

    Raises
    ------
    DecisionError
        A decision of a policy cannot be carried out.
    UsageError
        A policy failed, or leaves jobs waiting for ever.
    """
    began = perf_counter()
    while True:
        times = [engine.next_time() for engine in engines]
        now = min(times)
        if now == inf:
            helped = [engine.goes_on() for engine in engines]
            if any(helped):
                continue
            break
        due = [engine for engine, time in zip(engines, times, strict=True) if time == now]
        for engine in due:
            engine.take_events(now)
        if len(engines) > 1:
            while more := [
                engine
                for engine in engines
                if engine.next_time() == now and (engine not in due or engine.takes_all)
            ]:
                for engine in more:
                    engine.take_events(now)
                due += [engine for engine in more if engine not in due]
        for engine in due:
            engine.decide()
    seconds = (perf_counter() - began) / len(engines)
    return [engine.result(seconds) for engine in engines]


def rate_of(running: RunningJob, cluster: ClusterLedger, config: SimulationConfig) -> float:
    """Return a job's rate in seconds of work per second: 1 on as many nodes as it asked for, at speed 1.

    The rate is lower on shared nodes (D'Amico et al. 2019, equation 5, or 6 for the model `worst`), and is divided
    by the slowdown of the placement, if any.
    """
    rate = _rate_of(running, cluster, config) * config.speed
    if config.owners:
        rate *= min(cluster.loads[node].share for node in running.node_ids)
    return rate if config.slowdown is None else rate / config.slowdown(running)


def _rate_of(running: RunningJob, cluster: ClusterLedger, config: SimulationConfig) -> float:
    part = 1.0
    if running.guest is not None:
        part = 1.0 - cluster.running[running.guest].share
    elif running.shared and config.runtime_model == "worst":
        part = running.share
    elif running.shared:
        own = running.nodes - running.shared
        part = (own + running.share * running.shared) / running.nodes
    need = cluster.nodes_for(running.job.processors)
    if running.nodes == need and (part == 1.0 or config.speedup is linear):
        return part
    cores = config.cores_per_node
    return config.speedup(running.nodes * cores * part) / config.speedup(need * cores)


def cores_of(running: RunningJob, cluster: ClusterLedger) -> int:
    """Return the number of cores of a job now."""
    nodes = running.nodes - running.shared * (1.0 - running.share)
    if running.guest is not None:
        nodes = running.nodes * (1.0 - cluster.running[running.guest].share)
    return round(nodes * cluster.cores_per_node)


def check_all_done(policy: SchedulingPolicy, cluster: ClusterLedger) -> None:
    """Raise `UsageError` if jobs remain in the queue although no event can start them."""
    if cluster.queue:
        first = cluster.queue[0]
        raise UsageError(
            f"policy {name_of(policy)} {never_starts(cluster)}",
            code="job-never-started",
            policy=name_of(policy),
            job=first.id,
            processors=first.processors,
            waiting=len(cluster.queue),
            time=cluster.time,
        )


def never_starts(cluster: ClusterLedger) -> str:
    """Return a message that jobs wait although no event can start them."""
    first = cluster.queue[0]
    return (
        f"never starts job {first.id} ({first.processors} processors, submitted at "
        f"{first.submit:g} s): {len(cluster.queue)} jobs wait at {cluster.time:g} s and nothing runs"
    )
