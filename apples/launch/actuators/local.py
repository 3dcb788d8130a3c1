"""`LocalActuator`: runs a schedule on this machine with the wheel's mpiexec.

A host is a set of CPUs. A host that is described as slower than the machine (``cpu`` below 1, nobody
measured it) gets a CPU quota, so that it is what it is said to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from apples.agent.information import InformationPool
from apples.launch import hydra
from apples.launch.actuator import Actuator, Command
from apples.launch.binding import bound_here
from apples.launch.execution import RunExecution
from apples.launch.processes import job_name
from apples.launch.quota import Quotas
from apples.launch.run import STARTUP_SECONDS, Run
from apples.launch.starting import segments, silence, started
from apples.launch.talk import Talk, to_stderr
from apples.launch.task import run_task
from apples.schedule import Schedule


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
        ranks = bound_here(segments(schedule, information))
        return self._command(ranks, schedule, information)

    def actuate(self, schedule: Schedule, information: InformationPool) -> RunExecution:
        """Start the application on this machine; returns once every rank is ready."""
        job = job_name()
        quotas = Quotas.plan(_slower_hosts(schedule, information), job)
        for line in quotas.warnings:
            self.talk(f"warning: {line}")
        ranks = bound_here(segments(schedule, information))
        ranks = [replace(s, cgroup=quotas.joined(s.host)) for s in ranks]
        order = self._command(ranks, schedule, information)
        quiet = self.silence_seconds or silence(schedule, information)

        def start() -> Run:
            return Run(
                order,
                ranks,
                startup_seconds=self.startup_seconds,
                silence_seconds=quiet,
                talk=self.talk,
                job=job,
                cgroups=tuple(quotas.groups.values()),
                prepare=quotas.create,
            )

        return RunExecution(started(start, self.talk), quotas.warnings)

    def _command(
        self,
        ranks: Sequence[hydra.Segment],
        schedule: Schedule,
        information: InformationPool,
    ) -> Command:
        task = run_task(schedule, information, output=self.output, save=self.save)
        return hydra.command(ranks, task)


def _slower_hosts(schedule: Schedule, information: InformationPool) -> dict[str, float]:
    """Return how many CPUs each host is to get that is described, not measured, as slower than this machine."""
    return {
        host.name: host.cpu * host.slots
        for host in schedule.resources
        if host.cpu < 1 and not information.conditions.measured(host)
    }
