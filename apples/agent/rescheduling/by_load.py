"""`LoadRescheduling`: move one running application by a scheduling policy for the loads of hosts.

The policies are Dynamite's decider and the policy with payback (`apples.scheduling.policies.migration`), as in
a scheduler. Their input is a cluster with one job and the other hosts that it may use. Loads come from the load
monitor, without the job's own processes. A policy replaces a host by another, which takes its place in the
chain and its rows; the other hosts keep theirs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from apples.agent.coordinator import Coordinator
from apples.agent.information import refusal
from apples.agent.rescheduling.contract import IterationRate
from apples.agent.rescheduling.execution import AdaptiveExecution
from apples.errors import LaunchError, UsageError
from apples.launch.actuator import Execution
from apples.launch.events import Progress, to_stderr
from apples.launch.remote.addresses import is_here
from apples.resources import Host, HostList
from apples.resources.schedule import Allocation, Estimate, Schedule
from apples.scheduling.jobs import Job, JobKind, Migrate
from apples.scheduling.policies import POLICIES
from apples.scheduling.policy import ClusterState, NodeLoad, RunningJob, SchedulingPolicy
from apples.ui.units import amount
from apples.weather.load.monitor import LoadMonitor
from apples.weather.load.nodes import known_nodes
from apples.weather.load.remote import load_slaves
from apples.weather.load.snapshot import NodeSnapshot

EVERY_SECONDS = 2.0
"""Seconds between two snapshots of a host."""
ASKED_SECONDS = 0.5
"""Seconds between two decisions: the snapshots of hosts arrive at different times."""
ROWS_SECONDS = 10.0
"""Seconds between two queries for the rows of the same hosts: the program may balance them itself."""
THE_JOB = 1
Hear = Callable[[NodeSnapshot], None]
Watch = Callable[[HostList, Collection[Host], Hear], AbstractContextManager[Any]]
"""Monitors the hosts of a list, including the given other machines, while its context lasts."""


def watched(
    hosts: HostList, far: Collection[Host], hear: Hear
) -> AbstractContextManager[LoadMonitor]:
    """Return the load monitor of hosts; it prints failed measurements to standard error."""

    def problem(machine: str, text: str) -> None:
        if text:
            to_stderr(f"warning: {machine}: its load is not known: {text}")

    return LoadMonitor(load_slaves(hosts, far, EVERY_SECONDS), hear, problem=problem)


class LoadRescheduling:
    """Moves a running application by the loads of its hosts, and off hosts in use by their owner.

    Pass it to a `Coordinator` together with the estimate: ``coordinator.actuate(estimate,
    LoadRescheduling("migrate"))``.

    Parameters
    ----------
    policy
        ``migrate``, ``decider``, or your own policy that yields `Migrate`.
    watch
        Starts the monitor of the hosts.
    options
        Options of a built-in policy: `shorter`, `horizon`, `threshold`, ..

    Raises
    ------
    UsageError
        Unknown policy or option, or a policy that does not use loads. Permanent.

    Examples
    --------
    >>> LoadRescheduling("decider", threshold=0.5).policy.threshold
    0.5
    """

    def __init__(
        self, policy: str | SchedulingPolicy, watch: Watch = watched, **options: float
    ) -> None:
        if isinstance(policy, str):
            if policy not in POLICIES:
                raise UsageError(
                    f"policy '{policy}': unknown; known: {', '.join(sorted(POLICIES))}",
                    code="policy-unknown",
                    value=policy,
                    known=sorted(POLICIES),
                )
            try:
                policy = POLICIES[policy](**options)
            except TypeError as error:
                raise UsageError(
                    f"policy '{policy}': {error}", code="option-not-applicable", policy=policy
                ) from None
        if "loads" not in policy.looks_at:
            raise UsageError(
                f"policy {type(policy).__name__}: it does not look at loads",
                code="policy-unsuitable",
                policy=type(policy).__name__,
            )
        self.policy, self.watch = policy, watch

    def __call__(
        self, coordinator: Coordinator, execution: Execution, estimate: Estimate
    ) -> AdaptiveExecution:
        """Return the execution of an estimate; the policy moves it while it runs."""
        rescheduler = LoadRescheduler(coordinator, self.policy, execution.mark)
        information = coordinator.information
        mine = estimate.schedule.resources
        hosts = [h for h in information.hosts if h in mine or not refusal(information, h)]
        other_machines = coordinator.actuator.reaches_other_machines
        far = [host for host in hosts if other_machines and not is_here(host)]
        listed = replace(information.hosts, hosts=tuple(hosts))
        run = AdaptiveExecution.of(execution, coordinator, estimate)
        run.decider = rescheduler
        run.until_end.enter_context(self.watch(listed, far, rescheduler.hear))
        return run


class LoadRescheduler:
    """Applies a policy to one running application, after its progress messages.

    Parameters
    ----------
    mark
        Mark of the application's own processes, which do not count as other load.
    """

    def __init__(self, coordinator: Coordinator, policy: SchedulingPolicy, mark: str) -> None:
        self.coordinator = coordinator
        self.policy = policy
        self._mark = mark
        self._heard: dict[str, NodeSnapshot] = {}
        self._began = self._asked = coordinator.clock()
        self._moved = self._rows_asked = -math.inf
        self._last_rows: Mapping[str, int] = {}
        information = coordinator.information
        self._known = known_nodes(information.hosts)
        for name, speed in information.speeds.items():
            pace = information.hosts[name].cpu / speed.at(information.application.rows)
            self._known[name] = self._known[name]._replace(speed=pace)

    def hear(self, one: NodeSnapshot) -> None:
        """Store the means of a host's latest snapshots; any thread may call it."""
        self._heard[one.host] = one

    def __call__(self, run: AdaptiveExecution) -> None:
        """Ask the policy, and make the moves that it decides."""
        now, last = self.coordinator.clock(), run.performance.last
        if last is None or now - self._asked < ASKED_SECONDS:
            return
        self._asked = now
        own = [one.host for one in last.hosts]
        heard = dict(self._heard)
        if not own or not heard.keys() >= {*own}:
            return
        nodes = [*own, *(name for name in self._usable() if name in heard and name not in own)]
        rate = run.performance.rate()
        try:
            rows = self._rows(run, own, now)
        except LaunchError:  # it is between two configurations, or has just ended
            return
        messages = self._messages(run, own)
        cluster = self._cluster(nodes, rows, heard, now, last, rate, messages)
        for decision in self.policy.decide(cluster):
            if isinstance(decision, Migrate):
                self._moved = now  # also after a refusal, to delay the next move
                chosen = [nodes[number] for number in sorted(decision.nodes)]
                try:
                    self._move(run, cluster, chosen, decision.reason)
                except LaunchError:  # it is between two configurations, or has just ended
                    return

    def _rows(self, run: AdaptiveExecution, own: list[str], now: float) -> list[int]:
        """Return the rows of the application's hosts; query them after a change of hosts, and periodically."""
        if list(self._last_rows) != own or now - self._rows_asked > ROWS_SECONDS:
            self._last_rows, self._rows_asked = run.rows(), now
        return [self._last_rows.get(name, 0) for name in own]

    def _usable(self) -> list[str]:
        """Return the hosts to which the application may move."""
        coordinator = self.coordinator
        usable, _ = coordinator.selector.usable_hosts(coordinator.information)
        return [host.name for host in usable]

    def _cluster(
        self,
        nodes: list[str],
        rows: list[int],
        heard: Mapping[str, NodeSnapshot],
        now: float,
        last: Progress,
        rate: IterationRate | None,
        messages: tuple[tuple[int, int, float], ...],
    ) -> ClusterState:
        """Return the policy's input: the first nodes are the application's, with these rows."""
        count = len(rows)
        seconds = rate.iteration_seconds if rate else 0.0
        left = (last.iterations - last.iteration) * seconds if rate else math.inf
        job = Job(THE_JOB, self._began, count, left, count, count, JobKind.MALLEABLE)
        running = RunningJob(
            job, self._began, count, now + left, node_ids=frozenset(range(count)), moved=self._moved,
            iteration_seconds=seconds, messages=messages, work=tuple(enumerate(map(float, rows))),
        )  # fmt: skip
        free = tuple(range(count, len(nodes)))
        return ClusterState(
            len(nodes), time=now, free=len(free), free_node_ids=free, running={THE_JOB: running},
            loads=tuple(self._load(heard[name]) for name in nodes),
        )  # fmt: skip

    def _load(self, one: NodeSnapshot) -> NodeLoad:
        others, error = one.others({self._mark})
        known, parts = self._known[one.host], tuple(one.parts.items())
        return known._replace(cpus=one.cpus, others=others, parts=parts, error=error)

    def _messages(
        self, run: AdaptiveExecution, own: list[str]
    ) -> tuple[tuple[int, int, float], ...]:
        """Return the bytes of an iteration: as the program's arrays report, else as the template declares them."""
        counted = run.array_messages.per_iteration()
        place = {name: number for number, name in enumerate(own)}
        if counted and all({*pair} <= place.keys() for pair in counted):
            return tuple((place[a], place[b], sent) for (a, b), sent in sorted(counted.items()))
        border = self.coordinator.information.application.border_bytes
        if border <= 0:
            return ()
        pairs = [(number, number + 1) for number in range(len(own) - 1)]
        return tuple((a, b, border) for pair in pairs for a, b in (pair, pair[::-1]))

    def _move(
        self,
        run: AdaptiveExecution,
        cluster: ClusterState,
        chosen: list[str],
        reason: str,
    ) -> None:
        """Replace hosts by the newly chosen hosts, and record the move."""
        coordinator, rows = self.coordinator, run.rows()
        loads = {load.name: load for load in cluster.loads}
        pace = {name: load.speed * load.share for name, load in loads.items()}
        given = sorted(
            (name for name in rows if name not in chosen), key=rows.__getitem__, reverse=True
        )
        taken = sorted((name for name in chosen if name not in rows), key=pace.__getitem__)
        if not given or len(given) != len(taken):
            return
        instead = dict(zip(given, reversed(taken), strict=True))
        schedule = self._schedule({instead.get(name, name): n for name, n in rows.items()})
        information = coordinator.information
        before = max(n / pace[name] for name, n in rows.items())
        after = max(n / pace[instead.get(name, name)] for name, n in rows.items())
        estimate = coordinator.estimator.estimate(schedule, information)
        next_seconds = run.rate().iteration_seconds * after / before
        move = run.evaluate(estimate, reason, rows=rows, next_seconds=next_seconds)
        if move is None:
            return
        application = information.application
        going = sum(rows[name] for name in given) * application.columns * application.point_bytes
        move = replace(move, note=f"{amount(going)} of rows go to {', '.join(instead.values())}")
        if not coordinator.is_feasible(schedule):
            run.stay(move, coordinator.decision_log.rejections[-1].reason)
            return
        try:
            run.make(move)
        except (UsageError, LaunchError):
            return
        self._moved = coordinator.clock()

    def _schedule(self, rows: Mapping[str, int]) -> Schedule:
        information = self.coordinator.information
        hosts = information.hosts
        return Schedule(
            tuple(
                Allocation(hosts[name], float(n), information.implementation(hosts[name]))
                for name, n in rows.items()
            )
        )
