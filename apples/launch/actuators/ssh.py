"""`SshActuator`: runs a schedule on the hosts of the list, by hydra over the system's ssh.

Hosts of the list that are this machine take part without a connection. Before anything is started all
hosts that nobody looked at are looked at, at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from apples.errors import LaunchError
from apples.launch import job_manager, ssh
from apples.launch.actuator import Actuator, LaunchCommand
from apples.launch.events import Talk, to_stderr
from apples.launch.plan import HostSurvey, LaunchPlan, run_task
from apples.launch.processes import job_name
from apples.launch.remote.addresses import is_here
from apples.launch.remote.connection import HostConnection, HostConnections
from apples.launch.remote.fitness import Finding, Fitness
from apples.launch.run import STARTUP_SECONDS, Run, RunExecution, started
from apples.launch.slurm.nodes import allocated
from apples.launch.targets import (
    bound_targets,
    eligible_groups,
    hosts_looked_at,
    launch_targets,
    own_address,
    targets_of_all,
)
from apples.malleable.control.job_file import HostSpec
from apples.resources import Host, HostList

BEHIND_A_QUEUE = (
    "it is behind a batch queue (queue_seconds) and in no allocation that is held: --actuator slurm "
    "starts a set of its nodes alone; inside salloc or sbatch ssh takes the nodes of the allocation too"
)


def hosts_behind_a_queue(survey: HostSurvey) -> dict[str, Fitness]:
    """Return why ssh may not start anything on hosts that only a batch queue gives away, unless it was said."""
    held = allocated()
    behind = [
        host.name
        for host in survey.allowed
        if host.queue_seconds is not None and host.name not in held
    ]
    return {
        name: Fitness(name, (Finding("queue", "fail", BEHIND_A_QUEUE),))
        for name in behind
        if name not in survey.findings or not survey.findings[name].refusal
    }


class SshActuator(Actuator):
    """Speaks to other machines, by hydra over the system's ssh.

    Parameters
    ----------
    output
        Directory the program may write its files to; the first rank's host writes there.
    save, talk, startup_seconds, silence_seconds
        As of `LocalActuator`.

    Attributes
    ----------
    connections
        Through which hosts were looked at and measured: the run is started through them. Default: new ones.
    """

    name = "ssh"
    reaches_other_machines = True

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
        self.connections: HostConnections | None = None

    @classmethod
    def sensed_hosts(cls, hosts: HostList) -> tuple[Host, ...]:
        """Return all hosts that are not this machine."""
        return tuple(host for host in hosts if not is_here(host))

    def look(self, survey: HostSurvey) -> Mapping[str, Fitness]:
        """Look at every other machine the user may use and nobody has looked at.

        A host behind a batch queue is refused, but for the nodes of the allocation that this process is in.
        """
        queued = hosts_behind_a_queue(survey)
        for one in queued.values():
            self.talk(f"warning: {one.host} cannot be used: {one.refusal}")
        allowed = tuple(host for host in survey.allowed if host.name not in queued)
        return {
            **hosts_looked_at(replace(survey, allowed=allowed), self.talk, self.connections),
            **queued,
        }

    def command(self, plan: LaunchPlan) -> LaunchCommand:
        """Return the mpiexec command, to be started where its files were written."""
        placed, _ = bound_targets(launch_targets(plan), plan.findings)
        return self._command(placed, plan, job_name())

    def actuate(self, plan: LaunchPlan) -> RunExecution:
        """Start the application on the plan's hosts; returns once every rank is ready."""
        connections = self.connections or HostConnections(job_name())
        job = connections.job
        placed, unbound = bound_targets(launch_targets(plan), plan.findings)
        if unbound:
            self.talk(f"note: {unbound}")
        order = self._command(placed, plan, job)
        others = ssh.remote_hosts(placed)
        if others:
            order = ssh.relayed(order)

        def start() -> Run:
            return Run(
                order,
                [target.rank_group for target in placed],
                startup_seconds=self.startup_seconds,
                silence_seconds=self.silence_seconds or plan.silence_seconds,
                result_seconds=plan.result_seconds,
                talk=self.talk,
                job=job,
                remote=others,
                connections=_taken(connections, others, plan.hosts),
            )

        return RunExecution(started(start, self.talk))

    def check_movable(self) -> None:
        """Allow it: the job manager has a connection to each host."""

    def host_specs(self, plan: LaunchPlan) -> list[HostSpec]:
        """Return every host of the list that the job may use, each with its connection."""
        everywhere = targets_of_all(plan)
        if not any(target.reach for target in everywhere):
            return [job_manager.local_spec(one) for one in eligible_groups(plan)]
        return [job_manager.remote_spec(one) for one in everywhere]

    def _command(
        self, placed: Sequence[ssh.LaunchTarget], plan: LaunchPlan, job: str
    ) -> LaunchCommand:
        task = run_task(plan, output=self.output, save=self.save)
        here = own_address([strip.host for strip in plan.strips], plan)
        return ssh.command(placed, task, job=job, here=here, directory=Path.cwd())


def _taken(
    connections: HostConnections, names: Sequence[str], listed: HostList
) -> list[HostConnection]:
    """Return a connection to each host that waits for a program; where none does a new one is opened."""

    def taken(name: str) -> HostConnection:
        one = connections.take(name)
        if one is not None:
            try:
                one.await_program()
            except LaunchError:
                one.close()
            else:
                return one
        connections.open([listed[name]], listed)
        one = connections.take(name)
        if one is None:
            raise LaunchError(f"{name}: its connection ended")
        return one

    with ThreadPoolExecutor(max(1, len(names))) as pool:
        return list(pool.map(taken, names))
