"""`AdaptiveExecution`: a running application, its measured rate, and its moves.

A decider, such as `Rescheduler` or `LoadRescheduler`, or the blueprint itself chooses an estimate. `evaluate`
makes a `Move` of it, and `make` performs the move. Each evaluated move is recorded as a `ReschedulingDecision`,
made or not.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from apples.agent.coordinator import Coordinator
from apples.agent.information import InformationPool
from apples.agent.rescheduling.contract import (
    IterationRate,
    PerformanceContract,
    PerformanceMonitor,
)
from apples.agent.rescheduling.evaluation import Move, estimate_of, evaluate_move
from apples.agent.slow_hosts import SlowHost, SlowHostDetector, planned_hosts
from apples.errors import ApplesError, LaunchError, UsageError
from apples.io.log import discard
from apples.launch.actuator import Bandwidth, Execution, Resized
from apples.launch.events import HostsChanged, Outcome, Progress, RowDigests
from apples.launch.message_counts.arrays import ArrayMessages
from apples.resources.schedule import Estimate, Schedule

if TYPE_CHECKING:
    from apples.agent.documents import Redistribution

ANSWER_SECONDS = 1.0
KEPT_DECISIONS = 100
IDLE_SECONDS = 0.5
"""Seconds without a call of `monitor` before another thread reads progress, soon enough for a display."""
POLL_SECONDS = 0.2
PATIENCE_SECONDS = 2.0
LEAVE_SECONDS = 30.0
"""Time limit for the end of the reading thread: longer than a run needs to end after its last message."""
MAX_UNREAD = 1000
"""Messages kept for a blueprint that does not call `monitor`: some minutes of progress; the oldest are dropped."""
NO_REASON = "its blueprint moves it"
JOB_ENDED = "the job finished first"
CHOSEN_HOSTS = "this run cannot be resized by its blueprint: a scheduler chooses its hosts"


@dataclass(frozen=True, slots=True)
class ReschedulingDecision:
    """An evaluated move, whether it was made, and the reason."""

    iteration: int
    moved: bool
    explanation: str
    move: Move
    seconds: float | None = None

    def document(self) -> Redistribution:
        """Return the record as JSON."""
        move, payback = self.move, self.move.payback
        schedule = move.estimate.schedule
        return {
            "iteration": self.iteration, "moved": self.moved, "explanation": self.explanation,
            "breach": move.violation, "hosts": [a.host.name for a in schedule.allocations],
            "rows": [int(a.rows) for a in schedule.allocations],
            "iteration_seconds": move.iteration_seconds, "predicted_seconds": move.next_seconds,
            "remaining": move.remaining, "error": move.error, "gain_seconds": move.gain, "cost_seconds": move.cost,
            "payback_seconds": payback if payback < float("inf") else None,
            "resize_seconds": self.seconds, "probed": dict(move.probed),
        }  # fmt: skip


Decider = Callable[["AdaptiveExecution"], None]
"""Called after each progress message; it may `make` a move of the execution."""


@dataclass
class AdaptiveExecution(Execution):
    """An execution that is compared with a performance contract and may move while it runs.

    Attributes
    ----------
    execution
        The running application.
    coordinator
        Coordinator that started the application. Moves are estimated under its pool.
    contract
        The present expected times.
    performance
        The measured times.
    slow_hosts
        Detector of slow hosts.
    decider
        Decides about moves; None: only the blueprint moves the application.
    on_progress
        Called with each progress message, after the decider and before the message is yielded.
    on_decision, on_slow_host
        Called with each recorded decision, and with each host found to be slow.
    started_by
        Name of the blueprint that started it, for messages.
    on_unattended_end
        Called once with a warning if the application has ended and `monitor` is not called.
    patience_seconds
        Seconds that a blueprint may continue after the application's end before that warning.
    decisions
        The evaluated moves; the last `KEPT_DECISIONS`.
    costs
        Measured seconds of each move made.
    fixed
        Whether another program, such as a scheduler, chooses its hosts: then moves are refused.
    until_end
        Contexts that are closed when the run ends.
    """

    execution: Execution
    coordinator: Coordinator
    contract: PerformanceContract
    performance: PerformanceMonitor = field(default_factory=PerformanceMonitor)
    slow_hosts: SlowHostDetector = field(default_factory=lambda: SlowHostDetector({}))
    decider: Decider | None = None
    on_progress: Callable[[Progress], object] = discard
    on_decision: Callable[[ReschedulingDecision], object] = discard
    on_slow_host: Callable[[SlowHost], object] = discard
    started_by: str = "its blueprint"
    on_unattended_end: Callable[[str], object] = discard
    patience_seconds: float = PATIENCE_SECONDS
    decisions: list[ReschedulingDecision] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    fixed: bool = False
    until_end: ExitStack = field(default_factory=ExitStack)
    _messages: Iterator[Progress] | None = None
    _epoch: int = 0
    _ended: bool = False
    _failure: Exception | None = None
    _unread: deque[Progress] = field(default_factory=lambda: deque(maxlen=MAX_UNREAD))
    _idle_since: float | None = None
    _reading: threading.RLock = field(default_factory=threading.RLock, compare=False, repr=False)
    _closed: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)
    _attendant: threading.Thread | None = None

    @classmethod
    def of(
        cls, execution: Execution, coordinator: Coordinator, estimate: Estimate
    ) -> AdaptiveExecution:
        """Wrap the execution of an estimate; return an adaptive execution unchanged."""
        if isinstance(execution, AdaptiveExecution):
            return execution
        return cls(
            execution,
            coordinator,
            PerformanceContract.of(estimate),
            PerformanceMonitor(clock=coordinator.clock),
            SlowHostDetector(planned_hosts(estimate, coordinator.information.conditions)),
        )

    # ------------------------------------------------------------------ of the application itself
    @property
    def moved(self) -> bool:
        """Whether the application moved since its start."""
        return self.execution.moved or bool(self.costs)

    @property
    def movable(self) -> bool:
        """Whether the application can move."""
        return self.execution.movable

    @property
    def mark(self) -> str:
        """The mark of its processes."""
        return self.execution.mark

    @property
    def queue_seconds(self) -> float | None:
        """Seconds of its wait in the queue."""
        return self.execution.queue_seconds

    @property
    def row_digests(self) -> Sequence[RowDigests]:
        """Digests of the rows of its result, as the program reports them."""
        return self.execution.row_digests

    @property
    def changes(self) -> Sequence[HostsChanged]:
        """The latest changes of its hosts or rows, made by this agent or by another program."""
        return self.execution.changes

    @property
    def array_messages(self) -> ArrayMessages:
        """The messages between the ranks, collected from the program's events."""
        return self.execution.array_messages

    def position(self, seconds: float = 10.0) -> Mapping[str, Any]:
        """Return the application's present hosts, rows and epoch; it must answer within `seconds`."""
        return self.execution.position(seconds)

    @contextmanager
    def drained(self) -> Iterator[None]:
        """Read the program's output meanwhile."""
        with self.execution.drained():
            yield

    def outcome(self) -> Outcome | None:
        """Wait for the end, with the decider active, and return the measured outcome."""
        for _ in self.monitor():
            pass
        return self.execution.outcome()

    def cancel(self) -> None:
        """End the run."""
        self._stop_attending()
        with self.until_end:
            self.execution.cancel()

    # ------------------------------------------------------------------ its pace
    def monitor(self) -> Iterator[Progress]:
        """Yield progress until the run ends.

        A caller may leave the loop and call it again: it continues with the next message.
        """
        while True:
            self._idle_since = None
            try:
                if not self._monitor_next():
                    break
                assert self.performance.last is not None  # noqa: S101 - for the type checker: it was observed
                message = self.performance.last
            finally:
                self._idle_since = time.monotonic()
            yield message
        self.until_end.close()

    def _monitor_next(self) -> bool:
        """Observe the next message; return False at the end."""
        with self._reading:
            read = bool(self._unread)
            progress = self._unread.popleft() if read else self._next_message()
        if progress is None:
            return False
        self._observe(progress)
        if not read:  # else the reading thread has already passed it on
            self.on_progress(progress)
        return True

    def _next_message(self) -> Progress | None:
        """Return the next progress message; None at the end. It may be called again after the end."""
        if self._failure is not None:
            raise self._failure
        if self._messages is None:
            self._messages = iter(self.execution.monitor())
        try:
            return next(self._messages)
        except BaseException as end:
            self._messages = None
            self._ended |= isinstance(end, StopIteration | ApplesError)
            if isinstance(end, StopIteration):
                return None
            raise

    @contextmanager
    def attended(self) -> Iterator[None]:
        """Read progress in a separate thread while `monitor` is not called, so that it is recorded and shown.

        The thread passes messages to `on_progress` at once and keeps them for the next call of `monitor`.
        """
        self._idle_since = time.monotonic()
        self._attendant = threading.Thread(target=self._attend, name="progress", daemon=True)
        self._attendant.start()
        try:
            yield
        finally:
            self._stop_attending()

    def _attend(self) -> None:
        while not (self._ended or self._closed.wait(POLL_SECONDS)):
            if self._idle_seconds() >= IDLE_SECONDS and self._reading.acquire(blocking=False):
                try:
                    unattended = self._read_ahead(0.0)
                finally:
                    self._reading.release()
                if unattended:
                    self._warn_of_end()
                    return

    def _warn_of_end(self) -> None:
        """Wait for a call of `monitor`, or for the end of this context; warn once if neither comes."""
        ended = time.monotonic()
        while min(time.monotonic() - ended, self._idle_seconds()) < self.patience_seconds:
            if self._idle_since is None or self._closed.wait(POLL_SECONDS):
                return
        failed = f" ({self._failure})" if self._failure else ""
        self.on_unattended_end(f"the application has ended{failed}; {self.started_by} still runs")

    def _idle_seconds(self) -> float:
        """Return the seconds since the last use of `monitor`; 0 while it waits for a message."""
        since = self._idle_since
        return 0.0 if since is None else time.monotonic() - since

    def _read_ahead(self, seconds: float) -> bool:
        """Read the available messages, waiting at most `seconds` for each; return whether the run has ended.

        The next call of `monitor` raises any error.
        """
        try:
            while not (self._ended or self._closed.is_set()):
                if not self.execution.has_progress(seconds):
                    break
                message = self._next_message()
                if message is not None:
                    self._unread.append(message)
                    self.on_progress(message)
        except Exception as error:  # noqa: BLE001 - `monitor` raises it
            self._failure, self._ended = error, True
        return self._ended

    def _stop_attending(self) -> None:
        """End the thread of `attended`."""
        self._closed.set()
        thread = self._attendant
        if thread is not None and thread is not threading.current_thread():
            thread.join(LEAVE_SECONDS)

    def _observe(self, progress: Progress) -> None:
        """Update the measurements with a progress message, then call the decider."""
        self.performance.observe(progress)
        changes = self.execution.changes
        if changes and changes[-1].epoch > self._epoch:
            self._epoch = changes[-1].epoch
            self.slow_hosts.rescale(dict(changes[-1].members))
        for slow in self.slow_hosts.observe(progress):
            self.on_slow_host(slow)
        if self.decider is not None:
            with self.execution.drained():
                self.decider(self)

    def rate(self) -> IterationRate:
        """Return the measured rate; before a measurement the promised rate, with a relative error of 1."""
        promised = self.contract
        return self.performance.rate() or IterationRate(
            promised.iteration_seconds, promised.compute_seconds, 0.0, 0, error=1.0
        )

    def violation(self) -> str:
        """Return the violation of the contract in words, with the host; empty without a violation."""
        rate = self.performance.rate()
        return "" if rate is None else self.contract.violation(rate)

    def rows(self) -> dict[str, int]:
        """Return the present rows of each host, in strip order.

        Raises
        ------
        LaunchError
            The application has ended, does not answer, or is between two configurations.
        """
        with self._told_of_end():
            at = self.position(ANSWER_SECONDS)
        if not at["hosts"]:
            raise LaunchError("the job is between two configurations; try again", code="job-busy")
        return dict(zip(at["hosts"], at["rows"], strict=True))

    @contextmanager
    def _told_of_end(self) -> Iterator[None]:
        """Raise ``job-ended`` instead of ``job-unanswered`` if the application has ended."""
        ended = LaunchError(JOB_ENDED, code="job-ended", job=self.mark or None)
        if self._ended:
            raise ended
        try:
            yield
        except LaunchError as error:
            if error.code == "job-unanswered":
                with self._reading:
                    over = self._read_ahead(ANSWER_SECONDS)
                if over:
                    raise ended from None
            raise

    # ------------------------------------------------------------------ its moves
    def evaluate(
        self,
        estimate: Estimate,
        reason: str,
        *,
        information: InformationPool | None = None,
        rows: Mapping[str, int] | None = None,
        next_seconds: float | None = None,
        probed: Mapping[str, float] | None = None,
    ) -> Move | None:
        """Return gain and cost of moving to an estimate; None if hosts and rows are the same.

        Parameters
        ----------
        information
            Pool of the evaluation; default: the coordinator's pool.
        rows
            Present rows of each host; default: ask the application.
        next_seconds, probed
            As in `evaluate_move`.
        """
        last = self.performance.last
        slow = (host.reason for host in self.slow_hosts.slow_now)
        return evaluate_move(
            estimate,
            self.rows() if rows is None else rows,
            self.rate(),
            max(0, last.iterations - last.iteration) if last else estimate.iterations,
            information or self.coordinator.information,
            self.coordinator.estimator,
            costs=self.costs,
            violation="; ".join(one for one in (reason, *slow) if one),
            next_seconds=next_seconds,
            probed=probed,
        )

    def make(self, move: Move) -> Resized:
        """Make a move and record it; a refusal of the application is recorded and raised.

        Raises
        ------
        UsageError, LaunchError
            The application continues unchanged.
        """
        estimate, conditions = move.estimate, move.information.conditions
        try:
            resized = self.resize(estimate.schedule, bandwidth=conditions.bandwidth)
        except (UsageError, LaunchError) as refusal:
            self.stay(move, str(refusal))
            raise
        # The new contract includes the measured effects that the model leaves out.
        contract = PerformanceContract.of(estimate)
        factor = move.next_seconds / estimate.iteration_seconds
        self.contract = replace(contract, iteration_seconds=contract.iteration_seconds * factor)
        self.slow_hosts.replan(planned_hosts(estimate, conditions))
        self._record(move, f"moves: {move.explanation()}", resized)
        return resized

    def stay(self, move: Move, refusal: str = "") -> None:
        """Record a move that is not made because it does not pay or was refused."""
        why = move.explanation()
        self._record(move, f"stays, though {why}: {refusal}" if refusal else f"stays: {why}")

    def _record(self, move: Move, explanation: str, resized: Resized | None = None) -> None:
        last = self.performance.last
        decision = ReschedulingDecision(
            last.iteration if last else 0,
            resized is not None,
            explanation,
            move,
            resized.seconds if resized else None,
        )
        self.decisions = [*self.decisions, decision][-KEPT_DECISIONS:]
        self.on_decision(decision)

    def move(
        self, coordinator: Coordinator, estimate: Estimate, reason: str, worth: float
    ) -> Resized:
        """Move to the hosts and rows of an estimate, and record it with its reason.

        The application stays if it already has these hosts and rows, or if the move is not worth its cost. The
        predicted iteration is the measured iteration times the ratio of the estimates, so effects that the
        model leaves out everywhere cancel.
        """
        rows, information = self.rows(), coordinator.information
        staying = estimate_of(rows, information, coordinator.estimator)
        shorter = estimate.iteration_seconds / staying.iteration_seconds
        move = self.evaluate(
            estimate,
            reason or NO_REASON,
            information=information,
            rows=rows,
            next_seconds=self.rate().iteration_seconds * shorter,
        )
        if move is not None and (worth == 0 or move.gain > worth * move.cost):
            return self.make(move)
        if move is not None:
            self.stay(move)
        with self._told_of_end():
            return Resized(int(self.position(ANSWER_SECONDS)["epoch"]), 0.0, {})

    def resize(
        self, schedule: Schedule, *, ordered: bool = False, bandwidth: Bandwidth | None = None
    ) -> Resized:
        """Move the application and begin a new measurement window; `make` also records the move."""
        if self.fixed:
            raise LaunchError(CHOSEN_HOSTS, code="run-not-resizable")
        with self._told_of_end():
            resized = self.execution.resize(schedule, ordered=ordered, bandwidth=bandwidth)
        self.costs.append(resized.seconds)
        self.performance.hosts_changed()
        return resized
