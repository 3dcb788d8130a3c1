"""`SlurmActuator`: runs a schedule as a Slurm job, or as a step of the agent's own allocation.

The names of the host list are node names. The run's folder is made in the directory that the host list names,
else in the agent's directory, and removed at the end. All hosts must share that directory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from apples.errors import UsageError
from apples.launch.actuator import Actuator
from apples.launch.events import Talk, to_stderr
from apples.launch.host_spec import HostSpec
from apples.launch.host_spec_builders import AllocatedNode, allocation_spec
from apples.launch.hydra import LaunchCommand, RankGroup
from apples.launch.plan import HostSurvey, LaunchPlan, ranks_of_hosts, run_task
from apples.launch.processes import job_name
from apples.launch.remote.fitness import Fitness
from apples.launch.run import Run, RunExecution
from apples.launch.slurm import client
from apples.launch.slurm.allocation import GRACE_SECONDS, QUEUE_SECONDS, nodes_looked_at
from apples.launch.slurm.follow import TIMED_OUT
from apples.launch.slurm.options import SCRIPT, START_UP_SECONDS, SlurmOptions
from apples.launch.slurm.script import SlurmTarget, slurm_command
from apples.launch.targets import eligible, eligible_groups


class SlurmActuator(Actuator):
    """Runs programs through Slurm's commands.

    Parameters
    ----------
    output
        Directory the program may write its files to, shared by all hosts.
    options
        The user's Slurm options, such as the partition.
    allocation
        Number of the allocation to run in. None: the allocation of this process, if any. "": submit a job.
    save, talk, silence_seconds
        As in `LocalActuator`.
    """

    name = "slurm"
    takes_options = True
    reaches_other_machines = True
    takes_threads = False  # a task has one CPU of the allocation

    def __init__(
        self,
        output: Path | None = None,
        *,
        save: bool = False,
        talk: Talk = to_stderr,
        options: SlurmOptions | None = None,
        allocation: str | None = None,
        silence_seconds: float | None = None,
    ) -> None:
        self.output, self.save, self.talk = output, save, talk
        self.options = options or SlurmOptions()
        self.allocation = own_allocation() if allocation is None else allocation
        self.silence_seconds = silence_seconds

    @classmethod
    def create(
        cls, output: Path | None, *, save: bool, options: Mapping[str, str] | None = None
    ) -> SlurmActuator:
        """Return an actuator with the user's Slurm options."""
        return cls(output, save=save, options=SlurmOptions.of(options or {}))

    @classmethod
    def weather(cls, asked: str) -> str:
        """Return ``static`` (values of the host list) for ``live``: a job does not share its CPUs."""
        return "static" if asked == "live" else asked

    @property
    def queues(self) -> bool:
        """Whether a job is submitted; a step of an allocation starts at once."""
        return not self.allocation

    def look(self, survey: HostSurvey) -> Mapping[str, Fitness]:
        """Check for every host without findings whether Slurm knows the node and has it in service."""
        unseen = [host for host in survey.hosts if host.name not in survey.findings]
        return nodes_looked_at(
            unseen, self.talk, partition=self.options.partition, allocation=self.allocation
        )

    def command(self, plan: LaunchPlan) -> LaunchCommand:
        """Return the command that submits and follows the job; its files include the job script."""
        return self._command(plan, job_name())

    def wait_seconds(self, plan: LaunchPlan) -> float:
        """Return the seconds that Slurm expects the job to wait; 0 in an allocation, or if Slurm gives none."""
        if self.allocation:
            return 0.0
        return client.wait_seconds(self._command(plan, job_name()).files, SCRIPT)

    def actuate(self, plan: LaunchPlan) -> RunExecution:
        """Submit the job and wait until all its ranks are ready."""
        job = job_name()
        run = Run(
            self._command(plan, job),
            [target.rank_group for target in slurm_targets(plan)],
            startup_seconds=QUEUE_SECONDS,
            silence_seconds=self.silence_seconds or plan.silence_seconds,
            talk=self.talk,
            job=job,
            grace=GRACE_SECONDS,
            limit_code=TIMED_OUT,
        )
        run.until_ready()
        held = None if self.allocation else client.held_back_seconds(f"apples-{job}")
        return RunExecution(run, queue_seconds=held)

    def check_movable(self) -> None:
        """Raise an error outside an allocation, because a job can only move among the nodes of an allocation.

        Raises
        ------
        UsageError
            This process runs outside an allocation. The nodes of a new job would be unknown until it runs.
        """
        if not self.allocation.isdecimal():
            raise UsageError(
                "under Slurm a job is moved on the nodes of an allocation: run this inside salloc or sbatch",
                code="allocation-required",
            )

    def host_specs(self, plan: LaunchPlan) -> list[HostSpec]:
        """Return every node of the list that the job may use; a step of the allocation starts ranks there."""
        return [
            allocation_spec(
                replace(one, program=program.remote, cpus=()),
                AllocatedNode(
                    self.allocation,
                    program.host.python or sys.executable,
                    program.host.directory or str(Path.cwd()),
                ),
            )
            for one, program in zip(eligible_groups(plan), eligible(plan), strict=True)
        ]

    def _command(self, plan: LaunchPlan, job: str) -> LaunchCommand:
        return slurm_command(
            slurm_targets(plan),
            run_task(plan, output=self.output, save=self.save),
            job=job,
            seconds=START_UP_SECONDS + plan.predicted_seconds,
            directory=shared_directory(plan),
            options=self.options,
            allocation=self.allocation,
        )


def slurm_targets(plan: LaunchPlan) -> list[SlurmTarget]:
    """Return the ranks of each host with its own interpreter and directory, in strip order."""
    return [
        SlurmTarget(
            RankGroup(strip.host.name, ranks, strip.program.remote),
            strip.host.python or sys.executable,
            strip.host.directory,
        )
        for strip, ranks in ranks_of_hosts(plan.strips)
    ]


def shared_directory(plan: LaunchPlan) -> Path:
    """Return the parent directory of the run's folder: that of the host list, else the agent's.

    Raises
    ------
    UsageError
        The hosts name different directories, or their directory does not exist on this machine.
    """
    named = {strip.host.directory for strip in plan.strips if strip.host.directory}
    if len(named) > 1:
        raise UsageError(
            f"Slurm needs one directory that all hosts see, the host list names {', '.join(sorted(named))}",
            code="directories-differ",
            field="directory",
            value=sorted(named),
        )
    place = Path(named.pop()).expanduser() if named else Path.cwd()
    if not place.is_dir():
        raise UsageError(
            f"{place}: not a directory on this machine; Slurm needs a directory that all hosts share",
            code="directory-missing",
            file=place,
        )
    return place


def own_allocation() -> str:
    """Return the number of this process's allocation; empty outside an allocation."""
    return os.environ.get("SLURM_JOB_ID", "")
