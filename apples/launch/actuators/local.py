"""`LocalActuator`: runs a schedule on this machine with the wheel's mpiexec.

A host is a set of CPUs. If the host list describes a host as slower than the machine (``cpu`` below 1) and its
speed was not measured, a CPU quota makes it that slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from apples.launch import hydra
from apples.launch.actuator import Actuator
from apples.launch.binding import bound_here
from apples.launch.events import Talk, to_stderr
from apples.launch.host_spec import HostSpec
from apples.launch.host_spec_builders import local_spec
from apples.launch.hydra import LaunchCommand
from apples.launch.message_counts.counter import MessageCounts
from apples.launch.plan import LaunchPlan, ranks_of_hosts, run_task
from apples.launch.processes import job_name
from apples.launch.quota import Quotas
from apples.launch.run import STARTUP_SECONDS, Run, RunExecution, started
from apples.launch.targets import eligible_groups


class LocalActuator(Actuator):
    """Runs programs on this machine, through the wheel's mpiexec.

    Parameters
    ----------
    output
        Directory the program may write its files to.
    save
        Whether the program must save its result there.
    talk
        Receives the program's other output and the warnings, line by line; default: standard error.
    startup_seconds, silence_seconds
        Time limits for ``ready``, and from one output line to the next. If the second is None, it is derived from
        the prediction.
    """

    name = "local"

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
        self._counting: Mapping[str, str] = {}

    def count_messages(self, counts: MessageCounts) -> None:
        """Count the messages of every rank."""
        self._counting = counts.environment()

    def command(self, plan: LaunchPlan) -> LaunchCommand:
        """Return the mpiexec command, to be started in the directory of its files. It sets no quotas."""
        return self._command(bound_here(rank_groups(plan)), plan)

    def actuate(self, plan: LaunchPlan) -> RunExecution:
        """Start the application on this machine; return once every rank is ready."""
        job = self.connections.job if self.connections else job_name()
        used = {strip.host.name for strip in plan.strips}
        quotas = Quotas.plan({h: n for h, n in plan.cpu_quotas.items() if h in used}, job)
        for line in quotas.warnings:
            self.talk(f"warning: {line}")
        ranks = bound_here(rank_groups(plan))
        ranks = [replace(s, cgroup=quotas.joined(s.host)) for s in ranks]
        order = self._command(ranks, plan)

        def start() -> Run:
            return Run(
                order,
                ranks,
                startup_seconds=self.startup_seconds,
                silence_seconds=self.silence_seconds or plan.silence_seconds,
                talk=self.talk,
                job=job,
                cgroups=tuple(quotas.groups.values()),
                prepare=quotas.create,
            )

        return RunExecution(started(start, self.talk), quotas.warnings)

    def check_movable(self) -> None:
        """Raise nothing: a job can move, because all hosts are parts of this machine."""

    def host_specs(self, plan: LaunchPlan) -> list[HostSpec]:
        """Return every host of the list that the job may use, as a part of this machine."""
        found = [local_spec(one) for one in eligible_groups(plan)]
        return [replace(s, environment={**s.environment, **self._counting}) for s in found]

    def _command(self, ranks: Sequence[hydra.RankGroup], plan: LaunchPlan) -> LaunchCommand:
        command = hydra.command(ranks, run_task(plan, output=self.output, save=self.save))
        return replace(command, environment={**command.environment, **self._counting})


def rank_groups(plan: LaunchPlan) -> list[hydra.RankGroup]:
    """Return the ranks of each host, in strip order."""
    return [
        hydra.RankGroup(
            s.host.name,
            ranks,
            s.program.local,
            s.host.cpus,
            threads=max(1, s.threads),
            messages=s.messages,
        )
        for s, ranks in ranks_of_hosts(plan.strips)
    ]
