"""The supervisor of one job: plans, starts, monitors, verifies, and keeps the job's record.

A verb starts it as ``python -m apples.jobs.supervisor FOLDER FD LOCK``, a scheduler as a fork
(`apples.jobs.children`). It sends JSON lines to the first descriptor until the job runs or has failed; the second
descriptor is the inherited lock of the job. It owns the job until its end. If it is killed, the run's own
supervisor ends every process, and the next reader of the record sees the failure; `apples.jobs.restart` starts
another supervisor from the job's last commit.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from apples.agent.coordinator import Coordinator
from apples.agent.rescheduling import PerformanceMonitor, move_to_size
from apples.agent.session.results import PlanResult, verification_error
from apples.agent.session.running import prepare
from apples.agent.session.spec import JobFiles
from apples.errors import (
    ApplesError,
    ApplicationError,
    Failure,
    LaunchError,
    failure_of,
)
from apples.io.json_lines import encode
from apples.jobs import programs
from apples.jobs.move_planner import serving_plans
from apples.jobs.recorder import RunRecorder
from apples.jobs.records import change_text, position_record
from apples.jobs.spec import JobSpec, ProgramSpec, Spec, UnitsSpec, read
from apples.jobs.store import MAX_LOG_BYTES, Record, StoredJob, attempts
from apples.launch import job_processes
from apples.launch.actuator import Execution
from apples.launch.events import Progress, to_stderr
from apples.launch.plan import LaunchPlan

STATUS_SECONDS = 1.0
"""Poll interval of the job's status, and time limit of its answer."""
ANSWER_SECONDS = 0.5
GRANT_SECONDS = 10.0
"""Retry interval of a job's request for hosts that could not be granted."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class CancelledError(BaseException):
    """The user cancelled the job. Not an `Exception`, so that handlers of errors do not catch it."""


class Supervisor:
    """Owns one job.

    Parameters
    ----------
    job
        The record, which this process supervises.
    report
        Called with messages for the command that waits for the start: any number with a ``log`` line, then a last
        message without, when the job runs or has failed.
    carry_out
        Runs the job and returns its document; None: run the job's specification.
    max_log_bytes
        Largest size of the job's log (`StoredJob.trim_log`).
    """

    def __init__(
        self,
        job: StoredJob,
        report: Callable[[Record], None],
        carry_out: Callable[[], Record] | None = None,
        max_log_bytes: int = MAX_LOG_BYTES,
    ) -> None:
        self.job = job
        self._carry_out = carry_out or self._carried_out
        self._max_log_bytes = max_log_bytes
        self.recorder = RunRecorder(job, self.log)
        self.record = self.recorder.state
        self._report = report
        self._asked = 0.0
        self._performance = PerformanceMonitor()
        self._epoch = self.record["epoch"]
        self._coordinator: Coordinator | None = None
        self._granted: Any = None
        self._scheduled = job.order().get("scheduled")
        self._tried = -GRANT_SECONDS

    def log(self, line: str) -> None:
        """Write a line to standard error, which is the log of a job that outlives its command."""
        to_stderr(line)
        self.job.trim_log(self._max_log_bytes)

    def run(self) -> int:
        """Run the job to its end; return its exit code."""
        try:
            document = self._carry_out()
        except CancelledError:
            return self._over("cancelled")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the record must have the reason
            if _was_cancelled(error):
                self.log(f"apples: while the cancelled job ended: {error}")
                return self._over("cancelled")
            return self._over("failed", failure_of(error))
        # An application model of another kind, for example a master, has recorded its document and checked it.
        recorded = bool(self.recorder.document)
        if not recorded:
            self.recorder.verified(document)
        try:
            if not self.recorder.kept:
                self.job.write_result(document)
        except OSError as error:
            why = f"the result cannot be kept: {error.filename}: {error.strerror}"
            unwritable = LaunchError(
                why, code="result-unwritable", file=error.filename, reason=error.strerror
            )
            return self._over("failed", failure_of(unwritable))
        wrong = None if recorded else verification_error(document)
        if wrong:
            return self._over("failed", failure_of(wrong))
        return self._over("finished")

    def _carried_out(self) -> Mapping[str, Any]:
        """Run the job's specification; return the ``apples.run/1`` document."""
        spec = read(self.job.order())
        os.chdir(spec.directory)
        with serving_plans(self.job):
            return self._run_specification(spec)

    def _run_specification(self, spec: Spec) -> Mapping[str, Any]:
        """Run a job of any kind; return its document."""
        if isinstance(spec, UnitsSpec):
            from apples.jobs.units import run_job  # noqa: PLC0415 - for such jobs only

            os.environ[job_processes.MARK] = self.job.id  # the job tag of all its processes
            return run_job(spec, self.job, self.recorder, lambda: self._report({}), self.log)
        return self._program(spec) if isinstance(spec, ProgramSpec) else self._application(spec)

    def _log_and_report(self, line: str) -> None:
        """Log a line, and send it to the command that waits for the start."""
        self.log(line)
        self._report({"log": line})

    def _application(self, spec: JobSpec) -> Record:
        count, epoch = attempts(self.record), int(self.record["epoch"])
        files = self.job.id, self.job.folder, self.job.commits
        scheduled = self._scheduled or {}
        job = JobFiles(*files, count, epoch, bool(scheduled), scheduled.get("topologyd", {}))
        if count > 1:
            self.log(f"attempt {count}: from iteration {self.record['iteration']} on")
        prepared = prepare(spec.run, job=job, talk=self._log_and_report)
        coordinator = self._coordinator = prepared.coordinator
        self.recorder.state["malleable"] = coordinator.information.template.malleable

        def decided(plan: PlanResult, launch: LaunchPlan | None) -> None:
            self.recorder.planned(plan, launch)
            if launch is not None and coordinator.actuator.queues:
                self._report({})  # it may be in the queue for days

        result = prepared.execute(
            talk=self.log, program_log=self.log, decided=decided, follow=lambda _, run: self._following(run),
            verifying=self.recorder.verifying,
        )  # fmt: skip
        return {**result.document(), "record": self.job.id}

    def _program(self, spec: ProgramSpec) -> Record:
        """Run an unmodified program, which writes its output to files of its own."""
        name = Path(spec.program[0]).name
        self.recorder.note(
            hosts=list(spec.on), rows=[0] * len(spec.on), name=name, iterations=1, malleable=True
        )
        execution = programs.start(spec, self.job, self.log)
        try:
            with self._following(execution) as received:
                for progress in execution.monitor():
                    received(progress)
            outcome = execution.outcome()
        except BaseException:
            execution.cancel()
            raise
        if outcome is None:
            raise ApplicationError(
                "the program's end was not reported", code="result-missing", job=self.job.id
            )
        self.record["hosts"] = [times.host for times in outcome.hosts]
        return {**programs.program_document(spec, outcome)}

    # ------------------------------------------------------------------------ watching
    @contextmanager
    def _following(self, execution: Execution) -> Iterator[Callable[[Progress], None]]:
        """Update the record while the job runs, until its end."""
        try:
            self.recorder.running()
            self._report({})
            with self.recorder.recording(execution) as record:

                def received(progress: Progress) -> None:
                    record(progress)
                    self._progress(execution, progress)

                yield received
        except BaseException:  # the caller ends the run: ignore further requests to end
            for number in ENDING:
                signal.signal(number, signal.SIG_IGN)
            raise

    def _progress(self, execution: Execution, progress: Progress) -> None:
        now = time.monotonic()
        if self.record["epoch"] != self._epoch:
            self._epoch = self.record["epoch"]
            self._performance.hosts_changed()
        self._performance.observe(progress)
        if now - self._asked >= STATUS_SECONDS:
            self._asked = now
            self.update_position(execution)

    def update_position(self, execution: Execution) -> None:
        """Update the record with the job's status; a job that does not answer is queried again later."""
        if not (execution.movable and self.job.control_socket.exists()):
            return
        with suppress(ApplesError):
            position = execution.position(ANSWER_SECONDS)
            before = self.record.get("asks"), self.record["epoch"]
            if self._scheduled:
                limits = [position["minimum"], position["maximum"]]
                self.record["asks"] = limits if position.get("requested") else None
            else:
                self._grant(execution, position)
            news = position_record(position)
            change = change_text(news.get("last_change"))
            if change and change != change_text(self.record.get("last_change")):
                self.log(change)
            self.record.update(news)
            if before != (self.record.get("asks"), self.record["epoch"]):
                self.recorder.note()  # a scheduler reads it at once
        rate = self._performance.rate()
        if rate is not None:
            rows = dict(zip(self.record["hosts"], self.record["rows"], strict=True))
            self.record["measured"] = {
                "rows": rows,
                "iteration_seconds": rate.iteration_seconds,
                "compute_seconds": {h: s for h, s in rate.compute_seconds.items() if h in rows},
            }

    def _grant(self, execution: Execution, position: Mapping[str, Any]) -> None:
        """Give a job the number of hosts that it requested (``job.request``), from its own host list.

        For a scheduler's job, the scheduler decides instead: other jobs may have the hosts of its list.
        """
        asked, now = position.get("requested"), time.monotonic()
        if (
            self._coordinator is None
            or asked == self._granted
            or now - self._tried < GRANT_SECONDS
        ):
            return
        rows = dict(zip(position["hosts"], position["rows"], strict=True))
        fewest, most = int(position["minimum"]), int(position["maximum"])
        if position["busy"] or not rows:
            return
        self._tried = now
        if not fewest <= len(rows) <= most:
            rate = self._performance.rate()
            seconds = rate.compute_seconds if rate else {}
            reason = f"the job asked for {fewest} to {most} hosts"
            try:
                with execution.drained():
                    move_to_size(self._coordinator, execution, rows, seconds, fewest, most, reason)
            except ApplesError as error:
                self.recorder.warn(f"{reason}: {error}")
                if isinstance(
                    error, LaunchError
                ):  # a host did not start; the next retry may succeed
                    return
        self._granted = asked

    def _over(self, state: str, failure: Failure | None = None) -> int:
        exit_code = failure.exit_code if failure else 0
        self.recorder.over(state, failure.message if failure else "", exit_code)
        if failure:
            self.log(f"apples: {failure.message}")
        self._report({"failure": failure.document()} if failure else {})
        return exit_code


def _was_cancelled(error: BaseException) -> bool:
    """Return whether an error was raised while the job ended because its user cancelled it."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, CancelledError):
        cause = cause.__context__
    return cause is not None


def _cancel_once(number: int, frame: object) -> None:
    for each in ENDING:  # a second signal would interrupt the cleanup
        signal.signal(each, signal.SIG_IGN)
    cancel_by_signal(number, frame)


def cancel_by_signal(number: int, _frame: object) -> None:
    """Handle a signal: raise `CancelledError` with its number."""
    raise CancelledError(f"cancelled by signal {number}")


def reporter(handle: int) -> Callable[[Record], None]:
    """Return a function that sends messages to the waiting command: log lines, then the start or a failure."""

    def report(news: Record) -> None:
        nonlocal handle
        if handle >= 0:
            with suppress(OSError):
                os.write(handle, encode(news))
            if "log" not in news:
                os.close(handle)
                handle = -1

    return report


def supervise(report: int, lock: int, folder: str) -> int:
    """Supervise the job in a folder; return its exit code.

    Parameters
    ----------
    report
        Descriptor of the pipe to the command that waits for the start; -1: no command waits.
    lock
        Descriptor that holds the job's lock.
    """
    job = StoredJob(Path(folder))
    if report >= 0:
        os.set_inheritable(report, False)
    for number in ENDING:
        signal.signal(number, _cancel_once)
    with job.supervising(lock):
        return Supervisor(job, reporter(report)).run()


def main() -> int:
    """Supervise the job of the command line."""
    return supervise(int(sys.argv[2]), int(sys.argv[3]), sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
