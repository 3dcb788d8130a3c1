"""`run_master_worker`: from a file and a host list to a master, its workers and the verified total.

The agent starts the master and the workers, and reads the master's progress. Workers join or leave by their
measured rates, or by the orders of a scheduler. At its end the agent ends all processes that it started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from apples.applications.master_worker.adaptation import (
    LEAVE_TOLERANCE,
    hosts_to_ask_for,
    joining,
    leaving,
    measured_rates,
)
from apples.applications.master_worker.host_provider import HostProvider, RunStatus
from apples.applications.master_worker.messages import EXIT_MASTER_LOST, host_of
from apples.applications.master_worker.planning import (
    MasterWorkerOutcome,
    MasterWorkerPlan,
    MasterWorkerResult,
    MasterWorkerSpec,
    prepare,
)
from apples.applications.master_worker.processes import END_SECONDS, MASTER, RoleEnd, RunProcesses
from apples.applications.master_worker.verification import choose_sample, verify
from apples.applications.workers import host_workers, last_line, result_of
from apples.errors import ApplicationError, LaunchError
from apples.launch.events import Talk, unheard

START_SECONDS = 30.0
"""Time limit for the master to listen."""
POLL_SECONDS = 0.25
MIN_ASK_SECONDS, MAX_ASK_SECONDS = 60.0, 3600.0
"""First and longest time for which a run that gave a host back requests no more; it doubles each time."""
STATUS_SECONDS = 1.0
"""Interval of the status reports to the provider of the hosts."""


def run_master_worker(
    spec: MasterWorkerSpec,
    talk: Talk = unheard,
    began: Callable[[MasterWorkerResult], None] | None = None,
    provider: HostProvider | None = None,
) -> MasterWorkerResult:
    """Return the verified total of all units, without those that failed (see `MasterWorkerResult.check`).

    Parameters
    ----------
    began
        Receives the plan before anything is started.
    provider
        Gives the run its hosts, and receives its status.

    Raises
    ------
    hat.DocumentError, UsageError
        The files are invalid.
    InfeasibleError
        None of the run's hosts may be the master, or work.
    LaunchError
        The master, or the last worker, cannot be reached or is lost.
    ApplicationError
        The program fails: `MAX_FAILED_UNITS` units in all their attempts, or one of its functions in the master.
    VerificationError
        The repetition of a unit gives another result.
    """
    run = prepare(spec)
    if began:
        began(run.result())
    with ExitStack() as stack:
        workers = stack.enter_context(host_workers())
        workers.hosts = run.hosts
        processes = RunProcesses(run, workers)
        stack.callback(processes.close)
        outcome = _Agent(run, processes, talk, provider).run()
    return run.result(outcome)


class _Agent:
    """The agent of one run."""

    def __init__(
        self,
        run: MasterWorkerPlan,
        processes: RunProcesses,
        talk: Talk,
        provider: HostProvider | None,
    ) -> None:
        self._run, self._processes, self._talk, self._provider = run, processes, talk, provider
        self._hosts = run.hosts
        self._master = run.hosts[run.choice.master]
        self._outcome = MasterWorkerOutcome()
        self._sample = choose_sample(run)
        self._warned: set[str] = set()
        """Lost hosts that the user was warned of."""
        self._crashed: list[str] = []
        """Hosts of workers whose processes ended, in the order of the ends."""
        self._done_at_restart, self._restarts = 0, 0
        self._reported, self._reported_at = frozenset[str](), 0.0
        self._order: tuple[str, ...] = ()
        """The order of the provider that is being carried out."""
        self._spare: set[str] = set()
        """Hosts that the provider gave and that have no process, until the next adaptation."""
        self._asks: tuple[int, int] | None = None
        self._ask_after, self._ask_pause = 0.0, MIN_ASK_SECONDS

    def run(self) -> MasterWorkerOutcome:
        """Return the outcome."""
        processes = self._processes
        self._start_master()
        self._outcome.lost.update(processes.join_all(self._run.choice.workers))
        adapted = time.monotonic()
        while True:
            self._serve_provider()
            # Without any worker, wait only for the end of the master, which may be the cause of theirs.
            ended = processes.next_end(POLL_SECONDS if processes.lanes else END_SECONDS)
            if ended:
                if ended.role == MASTER:
                    return self._finish(ended)
                self._lane_ended(ended)
                continue
            self._warn_of_losses()
            if not processes.lanes and not self._restart():
                reason = next(reversed(self._outcome.lost.values()), "none could be started")
                raise LaunchError(
                    f"no worker is left: {reason}",
                    code="hosts-lost",
                    reason=reason,
                    lost=dict(self._outcome.lost),
                )
            due = time.monotonic() - adapted >= self._run.document.every
            if due and not self._run.spec.workers:
                adapted = time.monotonic()
                self._adapt()

    def _start_master(self) -> None:
        name, deadline = self._master.name, time.monotonic() + START_SECONDS
        self._processes.start_master(self._sample)
        while not self._processes.find_port():
            if ended := self._processes.next_end(0.05):
                self._finish(ended)
            if time.monotonic() > deadline:
                raise LaunchError(
                    f"master {name}: does not listen within {START_SECONDS:g} s",
                    code="master-silent",
                    host=name,
                    seconds=START_SECONDS,
                )

    # ------------------------------------------------------------------------ lost workers
    def _lane_ended(self, ended: RoleEnd) -> None:
        name, end = host_of(ended.role), ended.end
        if ended.role in self._processes.leaving or (end and end.code == 0):
            return
        if end is None:
            self._outcome.lost[name] = ended.error
        elif end.code == EXIT_MASTER_LOST:
            self._outcome.lost[name] = "its connection to the master ended"
        else:
            self._crashed.append(name)
            self._outcome.lost[name] = end.fault.text

    def _warn_of_losses(self) -> None:
        """Warn of lost workers, unless a role has just ended: workers that end with the master are not lost."""
        for host in self._outcome.lost.keys() - self._warned:
            self._talk(f"warning: worker {host} is lost: {self._outcome.lost[host]}")
        self._warned |= self._outcome.lost.keys()

    def _restart(self) -> bool:
        """Restart a worker on the host of the last crash, because one unit may have ended all workers.

        Return whether a worker runs. It is repeated while units are done or fail meanwhile.
        """
        done = int(self._processes.progress().get("done", 0))
        self._restarts = 1 if done > self._done_at_restart else self._restarts + 1
        self._done_at_restart = done
        living = self._restartable()
        if not living or self._restarts > self._run.document.attempts + 1:
            return False
        name = living[-1]
        self._talk(f"no worker is left; {name} begins again")
        self._outcome.lost.pop(name, None)
        rate = self._run.rates.together(self._master, [self._hosts[name]]).rate
        self._outcome.lost.update(self._processes.join_all({name: rate}))
        return bool(self._processes.lanes)

    def _restartable(self) -> list[str]:
        """Return the hosts of crashed workers that are connected and that the run keeps."""
        connected = self._processes.connected
        kept = set(self._order) or connected
        return [name for name in self._crashed if name in connected and name in kept]

    # ------------------------------------------------------------------------ the provider of the hosts
    def _serve_provider(self) -> None:
        """Carry out the provider's order, report the status, and close the connections to the hosts left."""
        if self._provider is None:
            return
        if not self._order and (order := self._provider.order()):
            if refusal := self._begin_order(order):
                self._provider.answer(self._status(), refusal)
            else:
                self._order = order
        hosts = self._held()
        self._processes.keep_only(hosts)
        if self._order and hosts <= set(self._order):
            self._spare = set(self._order) - self._processes.occupied
            self._order = ()
            self._provider.answer(self._status())
        elif hosts != self._reported or time.monotonic() >= self._reported_at + STATUS_SECONDS:
            self._provider.report(self._status())

    def _begin_order(self, order: tuple[str, ...]) -> str:
        """Start an order: workers join and leave; return the reason of a refusal, else an empty text."""
        if self._master.name not in order:
            return f"{self._master.name} is the master's host, and the results are there"
        able = {host.name for host in self._run.working}.intersection(order)
        if not able:
            return "none of these hosts may work"
        occupied = self._processes.occupied
        new = [name for name in order if name in able and name not in occupied]
        lost = self._processes.join_all({name: self._rate_of(name) for name in new})
        if lost:
            self._outcome.lost.update(lost)
            for name in new:
                self._processes.leave(name)
            name, reason = next(iter(lost.items()))
            return f"{name}: {reason}"
        self._outcome.joined += new
        for name in self._processes.occupied - set(order):
            self._talk(f"{name} leaves: its scheduler gives it to others")
            self._outcome.left.append(name)
            self._processes.leave(name)
        for name in new:
            self._talk(f"{name} joins: its scheduler gives it")
            self._outcome.lost.pop(name, None)
        return ""

    def _rate_of(self, name: str) -> float:
        """Return the expected units a second of a host, beside the current workers."""
        hosts = [self._hosts[each] for each in {*map(host_of, self._processes.lanes), name}]
        return self._run.rates.together(self._master, hosts).workers[name]

    def _held(self) -> frozenset[str]:
        """Return the hosts of the run: with a process, with a pending restart, and given just now."""
        restart = () if self._processes.lanes else self._restartable()[-1:]
        return frozenset((*self._processes.occupied, *restart, *self._spare))

    def _status(self) -> RunStatus:
        hosts = self._held()
        self._reported, self._reported_at = hosts, time.monotonic()
        progress: dict[str, Any] = {}
        with suppress(LaunchError):  # the end of the master's process follows
            progress = self._processes.progress()
        rates: dict[str, float] = {}
        for lane, report in progress.get("lanes", {}).items():
            if lane in self._processes.lanes:
                rates[host_of(lane)] = rates.get(host_of(lane), 0.0) + float(report["rate"])
        listed = tuple(host for host in self._run.names if host in hosts)
        done = int(progress.get("done", 0))
        return RunStatus(self._master.name, listed, done, self._run.count, rates, self._asks)

    # ------------------------------------------------------------------------ adaptation
    def _adapt(self) -> None:
        """Let workers join or leave by the measured rates."""
        processes, master = self._processes, self._master
        if not (progress := processes.progress()):
            return
        rates = measured_rates(self._run.rates, progress)
        working = {host_of(lane) for lane in processes.lanes if lane not in processes.leaving}
        able = self._run.usable if self._provider is None else self._run.working
        free = [h for h in able if h.name in working or h.name not in self._outcome.lost]
        now = rates.together(master, [self._hosts[name] for name in working])
        best = rates.best_workers(master, free, LEAVE_TOLERANCE)
        self._spare = set()
        may_ask = time.monotonic() >= self._ask_after
        self._asks = hosts_to_ask_for(rates, master, working, free, best, may_ask=may_ask)
        new = {} if self._provider else joining(now, best, working)
        for name in new:
            self._talk(f"{name} joins: {best.rate:.3g} units a second in place of {now.rate:.3g}")
        self._outcome.joined += new
        self._outcome.lost.update(processes.join_all(new))
        for name in () if new else leaving(rates, master, now):
            self._talk(f"{name} leaves: the others do {now.rate:.3g} units a second without it")
            self._outcome.left.append(name)
            processes.leave(name)
            self._ask_after = time.monotonic() + self._ask_pause
            self._ask_pause = min(2 * self._ask_pause, MAX_ASK_SECONDS)

    # ------------------------------------------------------------------------ the end
    def _finish(self, ended: RoleEnd) -> MasterWorkerOutcome:
        """Return the outcome that the master reports at its end, verified."""
        found = self._answer_of(ended)
        outcome = self._outcome
        outcome.seconds, outcome.total = float(found["seconds"]), found["total"]
        outcome.service_seconds = float(found["service_seconds"])
        outcome.failed = {int(unit): str(reason) for unit, reason in found["failed"].items()}
        for lane, count in found["lanes"].items():
            outcome.hosts[host_of(lane)] = outcome.hosts.get(host_of(lane), 0) + count
        for lane, reason in found["lost"].items():
            if lane in self._processes.lanes:
                outcome.lost.setdefault(host_of(lane), reason)
        outcome.verified = verify(self._run, self._sample, found["samples"], outcome)
        return outcome

    def _answer_of(self, ended: RoleEnd) -> Mapping[str, Any]:
        name, end = self._master.name, ended.end
        if end is None or end.killed:
            reason = ended.error if end is None else end.fault.text
            raise LaunchError(
                f"master {name} is lost, and with it all results: {reason}",
                code="master-lost",
                host=name,
                reason=reason,
            )
        if end.code:
            reason = last_line(end.output)
            raise ApplicationError(
                f"master {name}: {reason}", code="program-failed", host=name, reason=reason
            )
        found, fault = result_of(end.output)
        if fault:
            raise ApplicationError(
                f"master {name}: {fault.text}", code="result-invalid", host=name, reason=fault.text
            )
        return found
