"""The driver: runs a scheduling policy over a cluster's ledger; clock and effects are its arguments.

The driver is the loop that the simulator and a live scheduler share. It tells the ledger what happened
(`submit`, `end`, `withdraw`), asks the policy (`run_pass`) and has a back end carry out what the ledger
accepted. A policy proposes, the ledger disposes, and every refusal is kept with its reason.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf
from pathlib import Path

from apples.errors import ApplesError, UsageError
from apples.scheduling.guard import (
    GuardedPolicy,
    PolicyFailedError,
    PolicyFailure,
    guard_of,
)
from apples.scheduling.jobs import (
    Decision,
    Job,
    Migrate,
    Reject,
    Requeue,
    Reserve,
    Resize,
    Start,
    Wake,
)
from apples.scheduling.ledger import Accepted, ClusterLedger, Refused
from apples.scheduling.policies.rigid import FirstComeFirstServed
from apples.scheduling.policy import ClusterState, RunningJob, SchedulingPolicy
from apples.scheduling.proposals import Change, Proposal

FALLBACK = FirstComeFirstServed()
"""Decides a pass that a guarded policy failed in."""


class SchedulerBackend(ABC):
    """Carries out what the ledger accepted: the effects of a driver.

    The ledger shows a decision's result before the back end hears of it. A running job with a `proposal`
    number has to answer it: the back end tells the driver by `Driver.confirm` or `Driver.refuse`, later and
    as often as the answer comes. The simulator's `EventEngine` is one; its time is virtual.
    """

    @abstractmethod
    def start_job(self, running: RunningJob) -> None:
        """Start a job on the nodes it has."""

    @abstractmethod
    def resize_job(self, running: RunningJob, nodes_before: int) -> None:
        """Give a running job the nodes it now has instead of those it had."""

    @abstractmethod
    def migrate_job(self, running: RunningJob) -> None:
        """Move a running job to the nodes it now has; their number is the same."""

    @abstractmethod
    def update_share(self, running: RunningJob) -> None:
        """Give a job more or fewer cores of its nodes: a guest came or left, or a mate ended."""

    @abstractmethod
    def requeue_job(self, job: int) -> None:
        """Stop a running job, whose work is lost; it waits again."""

    @abstractmethod
    def wake_at(self, time: float) -> None:
        """See that there is a pass at a time: a job was promised its nodes, or the policy asked for it."""

    @abstractmethod
    def reject_job(self, job: int, reason: str) -> None:
        """Deal with a job that will never run; the ledger keeps the reason, too."""

    @abstractmethod
    def policy_failed(self, failure: PolicyFailure) -> None:
        """Deal with a guarded policy that failed in this pass; first-come-first-served decides instead."""

    @abstractmethod
    def refuse(self, refused: Refused) -> None:
        """Deal with a decision that the ledger refused; `Driver.run_pass` returns it, too."""


class Driver:
    """Runs one policy on one cluster.

    Parameters
    ----------
    policy
        Asked in every pass.
    ledger
        Of the cluster; nothing else changes it.
    clock
        Returns the time, seconds; never goes back.
    backend
        Carries out the decisions.
    settle_seconds
        How long a pass waits for answers that are under way; after that it is made, with the jobs that
        are slow shown as rigid ones.
    """

    def __init__(
        self,
        policy: SchedulingPolicy,
        ledger: ClusterLedger,
        clock: Callable[[], float],
        backend: SchedulerBackend,
        settle_seconds: float = 10.0,
    ) -> None:
        self.policy = policy
        self.ledger = ledger
        self._guard = guard_of(policy)
        self._clock = clock
        self._backend = backend
        self._settle_seconds = settle_seconds

    def submit(self, job: Job) -> None:
        """Put a job into the queue."""
        self.ledger.time = self._clock()
        self.ledger.submit(job)

    def end(self, job: int) -> None:
        """Take a running job off its nodes: it ended, was cancelled or was lost."""
        ledger = self.ledger
        ledger.time = self._clock()
        for number in ledger.end(job):
            self._backend.update_share(ledger.running[number])
        if ledger.proposals.open or ledger.undone:
            self._send()

    def confirm(self, proposal: int) -> bool:
        """Take a job's answer that a proposal is carried out; return whether it is the first and awaited.

        What waited for it is sent.
        """
        self.ledger.time = self._clock()
        news = self.ledger.confirm(proposal)
        self._send()
        return news

    def refuse(self, proposal: int) -> bool:
        """Take a job's answer that nothing of a proposal was done; return as `confirm`.

        What waited for it is taken back: jobs that were to start wait again.
        """
        self.ledger.time = self._clock()
        news = self.ledger.refuse(proposal)
        self._send()
        return news

    def _send(self) -> None:
        """Have the back end tell jobs what they have waited for long enough."""
        ledger, backend = self.ledger, self._backend
        while ledger.undone:
            backend.update_share(ledger.running[ledger.undone.pop()])
        for one in ledger.ready():
            self._tell(one)
            if one.deadline < inf:
                backend.wake_at(one.deadline)

    def _tell(self, one: Proposal) -> None:
        ledger, backend = self.ledger, self._backend
        running = ledger.running[one.job]
        if one.change is Change.START:
            if not ledger.is_acknowledged(Change.SHARE):
                for mate in running.mates:
                    backend.update_share(ledger.running[mate])
            backend.start_job(running)
        elif one.change is Change.MIGRATE:
            backend.migrate_job(running)
        elif one.change is Change.SHARE:
            backend.update_share(running)
        elif one.before is not None:
            backend.resize_job(running, one.before.nodes)

    def withdraw(self, job: int) -> None:
        """Take a waiting job out of the queue: it was cancelled."""
        self.ledger.time = self._clock()
        self.ledger.withdraw(job)

    def release(self, job: int) -> None:
        """Let a job wait again that a policy held back."""
        self.ledger.time = self._clock()
        self.ledger.release(job)

    def run_pass(self) -> list[Refused]:
        """Ask the policy once and carry out its decisions in their order; return those refused.

        While proposals are under way there is no pass, for `settle_seconds` at most, so that the policy
        sees what is true. A guarded policy (`guard`) that fails, or one of whose decisions the ledger would
        refuse, costs itself the pass: first-come-first-served decides instead.

        Raises
        ------
        UsageError
            A policy without a guard failed or has no end of decisions. What it decided before is not
            carried out.
        """
        # One after the other: passes that overlap with changes under way gained nothing, and each
        # would need cases in every policy.
        if self.ledger.proposals.open and not self._settled():
            return []
        state = self.ledger.snapshot(self._clock())
        try:
            decisions = decisions_of(self.policy, state)
            if self._guard is not None:
                self._check_whole(self._guard, decisions, state)
        except PolicyFailedError as error:
            return self._fall_back(error.failure, state)
        return self._carry_out_all(decisions)

    def _settled(self) -> bool:
        """Return whether a pass may be made: nothing is under way, or has been for long enough."""
        ledger, now = self.ledger, self._clock()
        ledger.expire(now)
        self._send()
        until = ledger.proposals.under_way_since + self._settle_seconds
        if now < until < inf:
            self._backend.wake_at(until)
            return False
        return True

    def pass_instead(self, reason: str) -> list[Refused]:
        """Let first-come-first-served decide where a guarded policy lets jobs wait for ever."""
        state = self.ledger.snapshot(self._clock())
        guard = self._guard
        if guard is None:
            raise UsageError(
                f"{policy_at(self.policy, state.time)}: {reason}",
                code="job-never-started", policy=name_of(self.policy), time=state.time,
            )  # fmt: skip
        return self._fall_back(guard.failed("idle", state.time, reason), state)

    def _fall_back(self, failure: PolicyFailure, state: ClusterState) -> list[Refused]:
        self._backend.policy_failed(failure)
        return self._carry_out_all(FALLBACK.decide(state))

    def _check_whole(
        self, guard: GuardedPolicy, decisions: Sequence[Decision], state: ClusterState
    ) -> None:
        """Refuse the pass of a guarded policy as a whole where one of its decisions would be refused."""
        found = self.ledger.first_refused(decisions) if decisions else None
        if found is not None:
            position, refused = found
            raise PolicyFailedError(
                guard.failed(
                    "refused",
                    state.time,
                    f"{refused.decision}: {refused.reason}",
                    guard.line_of(position),
                )
            )

    def _carry_out_all(self, decisions: Iterable[Decision]) -> list[Refused]:
        ledger, backend = self.ledger, self._backend
        refused: list[Refused] = []
        for decision in decisions:
            answer = ledger.apply(decision)
            if isinstance(answer, Refused):
                refused.append(answer)
                backend.refuse(answer)
            else:
                self._carry_out(decision, answer)
        ledger.settle()
        return refused

    def _carry_out(self, decision: Decision, accepted: Accepted) -> None:
        backend, running = self._backend, self.ledger.running
        if accepted.proposal:
            self._send()
        elif isinstance(decision, Start):
            for mate in decision.mates:
                backend.update_share(running[mate])
            backend.start_job(running[decision.job])
        elif isinstance(decision, Resize):
            backend.resize_job(running[decision.job], accepted.nodes_before)
        elif isinstance(decision, Migrate):
            backend.migrate_job(running[decision.job])
        elif isinstance(decision, Requeue):
            backend.requeue_job(decision.job)
            for number in accepted.affected:
                backend.update_share(running[number])
        elif isinstance(decision, Reject):
            backend.reject_job(decision.job, decision.reason)
        elif isinstance(decision, (Reserve, Wake)):
            backend.wake_at(decision.time)


def decisions_of(policy: SchedulingPolicy, state: ClusterState) -> list[Decision]:
    """Return the decisions of one pass; all are taken before the first is carried out.

    Raises
    ------
    UsageError
        The policy raised, ended the process, or decided more often than four times a job: names the
        policy, the time and the line of its code. Permanent.
    """
    most = 4 * (len(state.queue) + len(state.running)) + 16
    try:
        decisions = list(islice(policy.decide(state), most + 1))
    except ApplesError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}"
        raise UsageError(
            f"{policy_at(policy, state.time)}: {line}: {type(error).__name__}: {error}",
            code="policy-failed", policy=name_of(policy), kind="raises", time=state.time,
            exception=type(error).__name__,
            file=frames[-1].filename, line=frames[-1].lineno,
        ) from error  # fmt: skip
    if len(decisions) > most:
        raise UsageError(
            f"{policy_at(policy, state.time)}: more than {most} decisions in one pass, "
            f"the last of them {decisions[-1]}",
            code="policy-failed", policy=name_of(policy), kind="too many", time=state.time, bound=most,
        )  # fmt: skip
    return decisions


def name_of(policy: SchedulingPolicy) -> str:
    """Return the policy's name in messages: its class, or as the user spelled it."""
    guard = guard_of(policy)
    return type(policy).__name__ if guard is None else guard.name


def policy_at(policy: SchedulingPolicy, time: float) -> str:
    """Return the policy's name and the time, as messages begin."""
    return f"policy {name_of(policy)} at {time!r} s"
