"""The driver: runs a scheduling policy over a cluster's ledger; clock and effects are its arguments.

The simulator and a live scheduler share this loop. The driver reports events to the ledger (`submit`, `end`,
`withdraw`), asks the policy for decisions (`run_pass`) and has a back end carry out the accepted decisions. Every
refusal is kept with its reason.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from apples.errors import UsageError
from apples.scheduling.guard import GuardedPolicy
from apples.scheduling.jobs import (
    Decision,
    Hold,
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
from apples.scheduling.passes import (
    PolicyFailedError,
    PolicyFailure,
    PolicyPendingError,
    decisions_of,
    failed,
    line_of,
    name_of,
    policy_at,
    problem_of,
)
from apples.scheduling.policies.rigid import FirstComeFirstServed
from apples.scheduling.policy import ClusterState, RunningJob, SchedulingPolicy

FALLBACK = FirstComeFirstServed()
"""Decides a pass in which a user's policy failed or did not answer."""


class SchedulerBackend(ABC):
    """Carries out the decisions that the ledger accepted: the effects of a driver.

    The driver calls the back end after the ledger has entered a decision. Where resizes take time, the back end
    calls `Driver.finish_resize` when a resize ends. The simulator's `EventEngine` is a back end on virtual time.
    """

    @abstractmethod
    def start_job(self, running: RunningJob) -> None:
        """Start a job on the nodes it has."""

    @abstractmethod
    def resize_job(self, running: RunningJob, nodes_before: int) -> None:
        """Resize a running job to its new nodes."""

    @abstractmethod
    def migrate_job(self, running: RunningJob) -> None:
        """Move a running job to its new nodes; their number is the same."""

    @abstractmethod
    def update_share(self, running: RunningJob) -> None:
        """Give a job more or fewer cores of its nodes: a guest came or left, or a mate ended."""

    @abstractmethod
    def requeue_job(self, job: int) -> None:
        """Stop a running job, which loses its work and waits again."""

    @abstractmethod
    def wake_at(self, time: float) -> None:
        """Schedule the pass at a time that the policy asked for."""

    def promise_start(self, job: int, time: float) -> None:  # noqa: ARG002 - the ledger has the promise
        """Schedule a pass at the time for which a job was promised its nodes."""
        self.wake_at(time)

    def hold_job(self, job: int, reason: str) -> None:  # noqa: B027 - the ledger has the job
        """Handle a waiting job that a policy took out of the queue."""

    @abstractmethod
    def reject_job(self, job: int, reason: str) -> None:
        """Handle a job that will never run; the ledger keeps the reason, too."""

    @abstractmethod
    def policy_failed(self, failure: PolicyFailure) -> None:
        """Handle the failure of a user's policy in this pass; first-come-first-served decides instead."""

    @abstractmethod
    def refuse(self, refused: Refused) -> None:
        """Handle a decision that the ledger refused; `Driver.run_pass` returns it, too."""


class Driver:
    """Runs one policy on one cluster.

    Parameters
    ----------
    policy
        Asked in every pass.
    ledger
        The ledger of the cluster; only the driver changes it.
    clock
        Returns the time, seconds; never goes back.
    backend
        Carries out the decisions.
    settle_seconds
        Seconds that a pass waits for resizes that are under way. After that the pass runs and shows these jobs as
        rigid.
    fallback
        Whether first-come-first-served decides a pass in which the policy fails; otherwise the failure is an
        error. A guarded policy always has this fallback.

    Attributes
    ----------
    seen
        Whether the policy has decided about the events before the last pass.
    """

    def __init__(
        self,
        policy: SchedulingPolicy,
        ledger: ClusterLedger,
        clock: Callable[[], float],
        backend: SchedulerBackend,
        settle_seconds: float = 10.0,
        fallback: bool = False,
    ) -> None:
        self.policy = policy
        self.ledger = ledger
        self._guard = policy if isinstance(policy, GuardedPolicy) else None
        self._fallback = fallback or self._guard is not None
        self.seen = True
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

    def finish_resize(self, job: int) -> None:
        """Enter that a running job has completed its resize."""
        self.ledger.time = self._clock()
        self.ledger.finish_resize(job)

    def withdraw(self, job: int) -> None:
        """Take a waiting job out of the queue: it was cancelled."""
        self.ledger.time = self._clock()
        self.ledger.withdraw(job)

    def run_pass(self) -> list[Refused]:
        """Ask the policy once and carry out its decisions in their order; return the refusals.

        While resizes are under way the pass waits, for `settle_seconds` at most, so that the policy sees the
        actual state. If a policy with a fallback fails, or the ledger refuses one of its decisions,
        first-come-first-served decides the rest of the pass. A guarded policy answers in a later pass; until then
        this pass carries out nothing. Past the time limit of the guarded policy, first-come-first-served decides
        until the answer arrives.

        Raises
        ------
        PolicyFailedError
            A policy without a fallback failed. The driver carries out none of its decisions.
        """
        # Passes and resizes alternate: passes that overlapped with resizes under way gained nothing and would need
        # extra cases in every policy.
        if self.ledger.resizing and not self._may_decide():
            return []
        state = self.ledger.snapshot(self._clock())
        try:
            decisions = decisions_of(self.policy, state)
        except PolicyPendingError as pending:
            self.seen = False
            if pending.left > 0.0:
                self._backend.wake_at(state.time + pending.left)
                return []
            return self._carry_out_all(FALLBACK.decide(state), seen=False)
        except PolicyFailedError as error:
            if not self._fallback:
                raise
            return self._fall_back(error.failure, state)
        if self._fallback:
            return self._carry_out_checked(decisions, state)
        return self._carry_out_all(decisions)

    def _may_decide(self) -> bool:
        """Return whether a pass may run although resizes are under way: the oldest has lasted `settle_seconds`."""
        until = (
            min(change.since for change in self.ledger.resizing.values()) + self._settle_seconds
        )
        if self._clock() < until:
            self._backend.wake_at(until)
            return False
        return True

    def pass_instead(self, reason: str) -> list[Refused]:
        """Let first-come-first-served decide a pass, since a policy with a fallback lets jobs wait for ever."""
        state = self.ledger.snapshot(self._clock())
        if not self._fallback:
            raise UsageError(
                f"{policy_at(self.policy, state.time)}: {reason}",
                code="job-never-started", policy=name_of(self.policy), time=state.time,
            )  # fmt: skip
        failure = failed(self.policy, "idle", state.time, line_of(self.policy), reason).failure
        return self._fall_back(failure, state)

    def _fall_back(self, failure: PolicyFailure, state: ClusterState) -> list[Refused]:
        if self._guard is not None:
            self._guard.note_failure()
        self._backend.policy_failed(failure)
        return self._carry_out_all(FALLBACK.decide(state))

    def _carry_out_checked(
        self, decisions: Sequence[Decision], state: ClusterState
    ) -> list[Refused]:
        """Carry out a pass up to the first object that is not a decision or that the ledger refuses.

        An answer about an earlier state may be out of date. In that case the driver skips the decisions that no
        longer apply, and another pass shows the later events to the policy.
        """
        asked = state if self._guard is None else self._guard.asked
        is_current = asked is state or (asked is not None and _happened(asked) == _happened(state))
        refused: list[Refused] = []
        for position, decision in enumerate(decisions):
            problem, kind = problem_of(decision), "no decision"
            answer = None if problem else self.ledger.apply(decision)
            if isinstance(answer, Accepted):
                self._carry_out(decision, answer)
                continue
            if answer is not None:
                refused.append(answer)
                if answer.crosses:
                    self._backend.refuse(answer)
                    continue
                problem, kind = f"{decision}: {answer.reason}", "refused"
                if not is_current:
                    continue
            where = line_of(self.policy, asked, position)
            failure = failed(self.policy, kind, state.time, where, problem).failure
            return refused + self._fall_back(failure, self.ledger.snapshot(state.time))
        if self._guard is not None:
            self._guard.note_success()
        if not is_current:
            self._backend.wake_at(state.time)
        self._end(is_current)
        return refused

    def _end(self, seen: bool) -> None:
        self.seen = seen
        self.ledger.clear_events(seen=seen)

    def _carry_out_all(self, decisions: Iterable[Decision], *, seen: bool = True) -> list[Refused]:
        """Carry out a pass; `seen`: the policy saw the events of this pass."""
        ledger, backend = self.ledger, self._backend
        refused: list[Refused] = []
        for decision in decisions:
            answer = ledger.apply(decision)
            if isinstance(answer, Refused):
                refused.append(answer)
                backend.refuse(answer)
            else:
                self._carry_out(decision, answer)
        self._end(seen)
        return refused

    def _carry_out(self, decision: Decision, accepted: Accepted) -> None:
        backend, running = self._backend, self.ledger.running
        if accepted.later:
            return
        if isinstance(decision, Start):
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
        else:
            self._carry_out_waiting(decision)

    def _carry_out_waiting(self, decision: Decision) -> None:
        """Carry out a decision that changes no running job."""
        backend = self._backend
        if isinstance(decision, Reject):
            backend.reject_job(decision.job, decision.reason)
        elif isinstance(decision, Reserve):
            backend.promise_start(decision.job, decision.time)
        elif isinstance(decision, Hold):
            backend.hold_job(decision.job, decision.reason)
        elif isinstance(decision, Wake):
            backend.wake_at(decision.time)


def _happened(state: ClusterState) -> tuple[object, ...]:
    """Return the parts of a state that change with any event that matters to a policy."""
    return state.events, state.queue, state.held, state.free, state.nodes
