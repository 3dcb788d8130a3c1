"""`LocalActuator`: runs a schedule on this machine with the wheel's mpiexec.

A host is a set of CPUs. A host that is described as slower than the machine (``cpu`` below 1, nobody
measured it) gets a CPU quota, so that it is what it is said to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from apples.actuator import Actuator, Command, Execution, Outcome, Progress
from apples.errors import ApplesError, ApplicationError
from apples.information import InformationPool
from apples.launch import hydra
from apples.launch.processes import job_name
from apples.launch.quota import Quotas
from apples.launch.run import (
    SILENCE_SECONDS,
    STARTUP_SECONDS,
    LauncherFaultError,
    Run,
    Talk,
    to_stderr,
)
from apples.launch.task import run_task
from apples.schedule import Schedule

SILENT_ITERATIONS = 50.0
"""How many predicted iterations may pass without a line."""
SLOWEST_BYTES_PER_SECOND = 20e6
"""A result streams at least this fast; nothing is said meanwhile."""


class LocalExecution(Execution):
    """A run on this machine. A context manager: leaving it ends the run.

    Attributes
    ----------
    warnings
        What is not as planned: one line each.
    """

    def __init__(self, run: Run, warnings: tuple[str, ...] = ()) -> None:
        self.warnings = warnings
        self._run = run
        self._outcome: Outcome | None = None
        self._failure: ApplesError | None = None
        self._over = False

    def monitor(self) -> Iterator[Progress]:
        """Yield progress until the run ends; to be called from one thread at a time."""
        if self._failure:
            raise self._failure
        if self._over:
            return
        try:
            yield from self._progress()
        except ApplesError as error:
            self._failure = error
            raise
        self._over = True
        if not self._run.cancelled:
            self._run.finish()

    def _progress(self) -> Iterator[Progress]:
        for event in self._run.events():
            if isinstance(event, Progress):
                yield event
            elif isinstance(event, Outcome):
                startup = self._run.ready_after
                self._outcome = replace(event, startup_seconds=startup or event.startup_seconds)

    def outcome(self) -> Outcome | None:
        """Return what was measured, waiting for the end; the same each time."""
        for _ in self.monitor():
            pass
        if self._run.cancelled:
            raise ApplicationError("the run was cancelled")
        if self._outcome is None:
            raise ApplicationError("the program said 'done' without a 'result'")
        return self._outcome

    def cancel(self) -> None:
        """End the run."""
        self._run.cancel()

    def __enter__(self) -> LocalExecution:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the run, if it has not ended."""
        if not self._over:
            self.cancel()


class LocalActuator(Actuator):
    """Speaks to this machine, through the wheel's mpiexec.

    Parameters
    ----------
    output
        Directory the program may write its files to.
    save
        Whether it is asked to keep its result there.
    talk
        Receives the program's own talk and the warnings, line by line; default: standard error.
    startup_seconds, silence_seconds
        Deadlines for ``ready`` and for the next sign of life; the second is made from the prediction
        when None.
    """

    def __init__(
        self,
        output: Path | None = None,
        *,
        save: bool = False,
        talk: Talk = to_stderr,
        startup_seconds: float = STARTUP_SECONDS,
        silence_seconds: float | None = None,
    ) -> None:
        self.output, self.save, self.talk = output, save, talk
        self.startup_seconds, self.silence_seconds = startup_seconds, silence_seconds

    def command(self, schedule: Schedule, information: InformationPool) -> Command:
        """Return the mpiexec command, to be started where its files were written; quotas are left out."""
        return self._command(segments(schedule, information), schedule, information)

    def actuate(self, schedule: Schedule, information: InformationPool) -> LocalExecution:
        """Start the application on this machine; returns once every rank is ready."""
        job = job_name()
        quotas = Quotas.plan(_slower_hosts(schedule, information), job)
        for line in quotas.warnings:
            self.talk(f"warning: {line}")
        ranks = [replace(s, cgroup=quotas.joined(s.host)) for s in segments(schedule, information)]
        order = self._command(ranks, schedule, information)
        silence = self.silence_seconds or _silence(schedule, information)

        def start() -> Run:
            run = Run(
                order,
                ranks,
                startup_seconds=self.startup_seconds,
                silence_seconds=silence,
                talk=self.talk,
                job=job,
                cgroups=tuple(quotas.groups.values()),
                prepare=quotas.create,
            )
            run.until_ready()
            return run

        try:
            run = start()
        except LauncherFaultError as fault:
            self.talk(f"warning: {fault}; starting once more")
            run = start()
        return LocalExecution(run, quotas.warnings)

    def _command(
        self,
        ranks: Sequence[hydra.Segment],
        schedule: Schedule,
        information: InformationPool,
    ) -> Command:
        task = run_task(schedule, information, output=self.output, save=self.save)
        return hydra.command(ranks, task)


def segments(schedule: Schedule, information: InformationPool) -> list[hydra.Segment]:
    """Return the ranks of each host, in strip order."""
    return [
        hydra.Segment(a.host.name, a.ranks, information.program(a.implementation), a.host.cpus)
        for a in schedule.allocations
    ]


def _slower_hosts(schedule: Schedule, information: InformationPool) -> dict[str, float]:
    """Return how many CPUs each host is to get that is described, not measured, as slower than this machine."""
    return {
        host.name: host.cpu * host.slots
        for host in schedule.resources
        if host.cpu < 1 and not information.conditions.measured(host)
    }


def _silence(schedule: Schedule, information: InformationPool) -> float:
    """Return for how long the program may say nothing: generous, for a prediction can be wrong."""
    application = information.application
    size = application.rows * application.columns * application.element_bytes
    return max(
        SILENCE_SECONDS,
        SILENT_ITERATIONS * information.iteration_seconds(schedule),
        size / SLOWEST_BYTES_PER_SECOND,
    )
