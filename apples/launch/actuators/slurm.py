"""`SlurmActuator`: runs a schedule as a Slurm job, or as a step of the allocation the agent is in.

Nodes bear the names of the host list. The agent's directory, or the one the host list names, is one that
all hosts see: the run's folder is made there and removed at the end.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from apples.agent.information import InformationPool
from apples.errors import UsageError
from apples.launch.actuator import Actuator, Command
from apples.launch.execution import RunExecution
from apples.launch.hydra import Segment
from apples.launch.processes import job_name
from apples.launch.run import Run
from apples.launch.slurm import client, deadline, script
from apples.launch.slurm.looking import looked, own_allocation
from apples.launch.starting import silence
from apples.launch.talk import Talk, to_stderr
from apples.launch.task import run_task
from apples.schedule import Schedule

QUEUE_SECONDS = 7 * 24 * 3600.0
"""The longest anybody waits in a queue."""
GRACE_SECONDS = 20.0
"""From the wish to end a job to Slurm's word that it is gone."""
START_UP_SECONDS = 60.0
"""Part of the time limit beside the iterations: interpreters, data, the result."""


class SlurmActuator(Actuator):
    """Speaks to Slurm, by its own commands.

    Parameters
    ----------
    output
        Directory the program may write its files to, seen by all hosts.
    options
        What the site wants to be told.
    allocation
        Number of the allocation to run in; the environment's when None, "" submits a job in any case.
    save, talk, silence_seconds
        As of `LocalActuator`.
    """

    def __init__(
        self,
        output: Path | None = None,
        *,
        save: bool = False,
        talk: Talk = to_stderr,
        options: script.SlurmOptions | None = None,
        allocation: str | None = None,
        silence_seconds: float | None = None,
    ) -> None:
        self.output, self.save, self.talk = output, save, talk
        self.options = options or script.SlurmOptions()
        self.allocation = own_allocation() if allocation is None else allocation
        self.silence_seconds = silence_seconds

    def look(self, information: InformationPool) -> InformationPool:
        """Ask Slurm about every host nobody has looked at: does it know it, and is it in service."""
        return looked(
            information,
            self.talk,
            partition=self.options.partition,
            allocation=self.allocation,
        )

    def command(self, schedule: Schedule, information: InformationPool) -> Command:
        """Return the command that submits the job and follows it; the job's script is among its files."""
        return self._command(schedule, information, job_name())

    def wait_seconds(self, schedule: Schedule, information: InformationPool) -> float:
        """Return how long Slurm expects the job to wait; 0 in an allocation, and where Slurm does not say.

        Raises
        ------
        LaunchError
            Slurm would not take such a job.
        """
        if self.allocation:
            return 0.0
        order = self._command(schedule, information, job_name())
        with tempfile.TemporaryDirectory(prefix="apples-") as folder:
            for name in (script.SCRIPT, script.MACHINES):
                (Path(folder) / name).write_text(order.files[name], encoding="utf-8")
            return client.wait_seconds(Path(folder), script.SCRIPT) or 0.0

    def actuate(self, schedule: Schedule, information: InformationPool) -> RunExecution:
        """Submit the job and wait until every rank of it is ready."""
        job = job_name()
        run = Run(
            self._command(schedule, information, job),
            [seat.segment for seat in seats(schedule, information)],
            startup_seconds=QUEUE_SECONDS,
            silence_seconds=self.silence_seconds or silence(schedule, information),
            talk=self.talk,
            job=job,
            grace=GRACE_SECONDS,
            limit_code=deadline.TIMED_OUT,
        )
        run.until_ready()
        return RunExecution(run)

    def _command(self, schedule: Schedule, information: InformationPool, job: str) -> Command:
        iterations = information.application.iterations
        return script.command(
            seats(schedule, information),
            run_task(schedule, information, output=self.output, save=self.save),
            job=job,
            seconds=START_UP_SECONDS + iterations * information.iteration_seconds(schedule),
            directory=shared_directory(schedule),
            options=self.options,
            allocation=self.allocation,
        )


def seats(schedule: Schedule, information: InformationPool) -> list[script.Seat]:
    """Return the ranks of each host with its own interpreter and directory, in strip order."""
    found = []
    for one in schedule.allocations:
        more = (one.host.python,) if one.host.python else ()
        program = information.program(one.implementation, *more)
        segment = Segment(one.host.name, one.ranks, program)
        found.append(script.Seat(segment, one.host.python or sys.executable, one.host.directory))
    return found


def shared_directory(schedule: Schedule) -> Path:
    """Return the directory the run's folder is made in: the one the hosts name, else the agent's.

    Raises
    ------
    UsageError
        They name different ones, or one that is not here.
    """
    named = {host.directory for host in schedule.resources if host.directory}
    if len(named) > 1:
        raise UsageError(
            f"Slurm needs one directory that all hosts see, the host list names {', '.join(sorted(named))}"
        )
    place = Path(named.pop()).expanduser() if named else Path.cwd()
    if not place.is_dir():
        raise UsageError(
            f"{place}: no directory of this machine; Slurm needs one that all hosts see"
        )
    return place
