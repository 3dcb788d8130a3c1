"""`SshActuator`: runs a schedule on the hosts of the list, by hydra over the system's ssh.

Hosts of the list that are this machine take part without a connection. Before anything is started all
hosts that nobody looked at are looked at, at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from apples.agent.information import InformationPool
from apples.launch import ssh
from apples.launch.actuator import Actuator, Command
from apples.launch.execution import RunExecution
from apples.launch.processes import job_name
from apples.launch.run import STARTUP_SECONDS, Run
from apples.launch.seating import bound_seats, looked, own_address, seats
from apples.launch.starting import silence, started
from apples.launch.talk import Talk, to_stderr
from apples.launch.task import run_task
from apples.schedule import Schedule


class SshActuator(Actuator):
    """Speaks to other machines, by hydra over the system's ssh.

    Parameters
    ----------
    output
        Directory the program may write its files to; the first rank's host writes there.
    save, talk, startup_seconds, silence_seconds
        As of `LocalActuator`.
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

    def look(self, information: InformationPool) -> InformationPool:
        """Look at every other machine the user may use and nobody has looked at."""
        return looked(information, self.talk)

    def command(self, schedule: Schedule, information: InformationPool) -> Command:
        """Return the mpiexec command, to be started where its files were written."""
        placed, _ = bound_seats(seats(schedule, information), information)
        return self._command(placed, schedule, information, job_name())

    def actuate(self, schedule: Schedule, information: InformationPool) -> RunExecution:
        """Start the application on the schedule's hosts; returns once every rank is ready."""
        job = job_name()
        placed, unbound = bound_seats(seats(schedule, information), information)
        if unbound:
            self.talk(f"note: {unbound}")
        order = self._command(placed, schedule, information, job)
        quiet = self.silence_seconds or silence(schedule, information)

        def start() -> Run:
            return Run(
                order,
                [seat.segment for seat in placed],
                startup_seconds=self.startup_seconds,
                silence_seconds=quiet,
                talk=self.talk,
                job=job,
                remote=ssh.remote_hosts(placed),
            )

        return RunExecution(started(start, self.talk))

    def _command(
        self,
        placed: Sequence[ssh.Seat],
        schedule: Schedule,
        information: InformationPool,
        job: str,
    ) -> Command:
        task = run_task(schedule, information, output=self.output, save=self.save)
        here = own_address(schedule.resources, information)
        return ssh.command(placed, task, job=job, here=here, directory=Path.cwd())
