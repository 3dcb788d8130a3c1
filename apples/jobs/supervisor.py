"""The supervisor of one job: plans, starts, listens, verifies, and keeps the job's record.

It is a fork of the parked interpreter in a session of its own (`apples.jobs.parked`), or, of a foreground run,
``python -m apples.jobs.supervisor FOLDER FD LOCK``. Over the first descriptor it says one JSON line, when the job
runs or why it does not; the second is the lock of the job, which it inherits. It owns the job until its end. If it
is killed, the run's own supervisor ends every process, and the next reader of the record sees the failure;
`apples.jobs.restart` starts another from the job's last commit.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import hat
from apples.agent.coordinator import Coordinator
from apples.agent.rescheduling import PerformanceMonitor, move_to_size
from apples.agent.session.results import PlanResult, verification_error
from apples.agent.session.running import prepare
from apples.agent.session.spec import JobFiles, RunSpec
from apples.errors import (
    ApplesError,
    ApplicationError,
    Failure,
    LaunchError,
    UsageError,
    failure_of,
)
from apples.io.json_lines import encode
from apples.jobs import programs
from apples.jobs.recorder import RunRecorder
from apples.jobs.records import change_text, position_record
from apples.jobs.spec import JobSpec, ProgramSpec, UnitsSpec, read
from apples.jobs.store import Record, StoredJob, attempts
from apples.launch import job_processes
from apples.launch.actuator import Execution
from apples.launch.actuators.choice import actuator_name, actuator_of
from apples.launch.events import Progress, to_stderr
from apples.launch.plan import LaunchPlan
from apples.malleable.actuator import NO_RECTANGLES

STATUS_SECONDS = 1.0
"""How often the job is asked where it is; and how long its answer is waited for."""
ANSWER_SECONDS = 0.5
GRANT_SECONDS = 10.0
"""Until a request of the job's that could not be granted is tried again."""
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class CancelledError(BaseException):
    """The user cancelled the job. No `Exception`: code that handles errors must not handle this."""


class Supervisor:
    """Owns one job.

    Parameters
    ----------
    job
        The record, which this process supervises.
    told
        Called with the news for the command that waits for the start: ``log`` with a line of what is done before
        it, any number of times, then once without.
    carry_out
        Runs the job and returns its document; None: run what the job's specification asks for.
    """

    def __init__(
        self,
        job: StoredJob,
        told: Callable[[Record], None],
        carry_out: Callable[[], Record] | None = None,
    ) -> None:
        self.job = job
        self._carry_out = carry_out or self._carried_out
        self.recorder = RunRecorder(job, to_stderr)
        self.record = self.recorder.state
        self._told = told
        self._asked = 0.0
        self._performance = PerformanceMonitor()
        self._epoch = self.record["epoch"]
        self._coordinator: Coordinator | None = None
        self._granted: Any = None
        self._scheduled = job.order().get("scheduled")
        self._tried = -GRANT_SECONDS

    def run(self) -> int:
        """Do everything; return the exit code the job ends with."""
        try:
            document = self._carry_out()
        except CancelledError:
            return self._over("cancelled")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, the record must say so
            return self._over("failed", failure_of(error))
        # A model of its own, as a master's, has told the recorder, and has raised what is wrong with the result.
        told = bool(self.recorder.document)
        if not told:
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
        wrong = None if told else verification_error(document)
        if wrong:
            return self._over("failed", failure_of(wrong))
        return self._over("finished")

    def _carried_out(self) -> Record:
        """Run what the job's specification asks for; return the ``apples.run/1`` document."""
        spec = read(self.job.order())
        os.chdir(spec.directory)
        if isinstance(spec, UnitsSpec):
            from apples.jobs.units import run_job  # noqa: PLC0415 - for such jobs only

            os.environ[job_processes.MARK] = self.job.id  # what is started here bears it
            return run_job(spec, self.job, self.recorder, lambda: self._told({}))
        return self._program(spec) if isinstance(spec, ProgramSpec) else self._application(spec)

    def _logged_and_told(self, line: str) -> None:
        """Log a line, and send it to the command that waits for the start."""
        to_stderr(line)
        self._told({"log": line})

    def _application(self, spec: JobSpec) -> Record:
        count, epoch = attempts(self.record), int(self.record["epoch"])
        files = self.job.id, self.job.folder, self.job.commits
        said = self._scheduled or {}
        job = JobFiles(*files, count, epoch, bool(said), said.get("topologyd", {}))
        if count > 1:
            to_stderr(f"attempt {count}: from iteration {self.record['iteration']} on")
        prepared = prepare(spec.run, job=job, talk=self._logged_and_told)
        coordinator = self._coordinator = prepared.coordinator
        self.recorder.state["malleable"] = coordinator.information.template.malleable

        def decided(plan: PlanResult, launch: LaunchPlan | None) -> None:
            self.recorder.planned(plan, launch)
            if launch is not None and coordinator.actuator.queues:
                self._told({})  # it may be in the queue for days

        result = prepared.execute(
            talk=to_stderr, decided=decided, follow=lambda _, run: self._following(run)
        )
        return result.document() | {"record": self.job.id}

    def _program(self, spec: ProgramSpec) -> Record:
        """Run a program that knows nothing of us; what it writes it writes to files of its own."""
        name = Path(spec.program[0]).name
        self.recorder.note(
            hosts=list(spec.on), rows=[0] * len(spec.on), name=name, iterations=1, malleable=True
        )
        execution = programs.start(spec, self.job, to_stderr)
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
        return programs.program_document(spec, outcome)

    # ------------------------------------------------------------------------ watching
    @contextmanager
    def _following(self, execution: Execution) -> Iterator[Callable[[Progress], None]]:
        """Keep the record while the job runs, to its end."""
        try:
            self.recorder.running()
            self._told({})
            with self.recorder.recording(execution) as record:

                def received(progress: Progress) -> None:
                    record(progress)
                    self._progress(execution, progress)

                yield received
        except BaseException:  # the caller ends the run: one request to end is enough
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
        """Take in where the job is; one that does not answer just now is asked again later."""
        if not (execution.movable and self.job.announce.exists()):
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
            said = change_text(news.get("last_change"))
            if said and said != change_text(self.record.get("last_change")):
                to_stderr(said)
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
        """Give a job the number of hosts that it asked for (``job.request``), from its own list.

        Where a scheduler has started it, that decides: others may have the hosts of its list.
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
                move_to_size(self._coordinator, execution, rows, seconds, fewest, most, reason)
            except ApplesError as error:
                self.recorder.warn(f"{reason}: {error}")
                if isinstance(error, LaunchError):  # a host that does not start; it is tried again
                    return
        self._granted = asked

    def _over(self, state: str, failure: Failure | None = None) -> int:
        exit_code = failure.exit_code if failure else 0
        self.recorder.over(state, failure.message if failure else "", exit_code)
        if failure:
            to_stderr(f"apples: {failure.message}")
        self._told({"failure": failure.document()} if failure else {})
        return exit_code


def _cancel_once(number: int, frame: object) -> None:
    for each in ENDING:  # one request to end is enough: what it begins is not to be broken off
        signal.signal(each, signal.SIG_IGN)
    cancel_by_signal(number, frame)


def cancel_by_signal(number: int, _frame: object) -> None:
    """Handle a signal: raise `CancelledError` with its number."""
    raise CancelledError(f"cancelled by signal {number}")


def teller(handle: int) -> Callable[[Record], None]:
    """Return a function that sends news to the command that waits: lines of a log, then the start or a failure."""

    def tell(news: Record) -> None:
        nonlocal handle
        if handle >= 0:
            with suppress(OSError):
                os.write(handle, encode(news))
            if "log" not in news:
                os.close(handle)
                handle = -1

    return tell


def checked(order: Mapping[str, Any]) -> Record:
    """Return the order of an application with its actuator named; what that actuator refuses is raised."""
    spec = JobSpec.read(order)
    through = actuator_name(spec.run.actuator, spec.run.hosts)
    if not actuator_of(through, spec.run.output, spec.run.slurm).queues:
        _refuse_rectangles(spec.run)
    return replace(spec, run=replace(spec.run, actuator=through)).document()


RECTANGULAR = {"rectangles", "strips_or_rectangles", "square_blocks"}
"""Planners, and a blueprint, whose plan may be of rectangles."""


def _refuse_rectangles(run: RunSpec) -> None:
    """Refuse what would plan rectangles for a job that can be moved: it has strips.

    Raises
    ------
    hat.DocumentError, UsageError
        What is wrong in the files of such a run; or that it is one. Permanent.
    """
    named = {run.planner, run.blueprint}
    if run.user is not None and None in named:
        wishes = hat.read(run.user, hat.UserSpecifications).preferences
        named = {run.planner or wishes.planner, run.blueprint or wishes.blueprint}
    if named & RECTANGULAR and hat.read(run.template, hat.ApplicationTemplate).malleable:
        raise UsageError(NO_RECTANGLES, code="rectangles-unsupported")


def supervise(telling: int, lock: int, folder: str) -> int:
    """Supervise the job in a folder; the others are descriptors: to tell, and the job's lock."""
    job = StoredJob(Path(folder))
    os.set_inheritable(telling, False)
    for number in ENDING:
        signal.signal(number, _cancel_once)
    with job.supervising(lock):
        return Supervisor(job, teller(telling)).run()


def main() -> int:
    """Supervise the job of the command line."""
    return supervise(int(sys.argv[2]), int(sys.argv[3]), sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
