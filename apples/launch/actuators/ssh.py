"""`SshActuator`: runs a schedule on the hosts of the list, by hydra over the system's ssh.

Hosts of the list that are this machine take part without a connection. Before the start, all hosts without
findings are checked at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from apples.errors import LaunchError, ManagerUnreachableError, UsageError
from apples.launch import processes, ssh
from apples.launch.actuator import Actuator
from apples.launch.events import Talk, to_stderr
from apples.launch.host_spec import HostSpec
from apples.launch.host_spec_builders import local_spec, remote_spec
from apples.launch.hydra import LaunchCommand
from apples.launch.message_counts.counter import MessageCounts
from apples.launch.plan import HostSurvey, LaunchPlan, run_task
from apples.launch.processes import job_name
from apples.launch.remote.addresses import is_here
from apples.launch.remote.connection import HostConnection, HostConnections
from apples.launch.remote.fitness import Finding, Fitness
from apples.launch.remote.preflight import preflight
from apples.launch.run import STARTUP_SECONDS, Run, RunExecution, started
from apples.launch.slurm import client
from apples.launch.slurm.allocation import (
    GRACE_SECONDS,
    HOLDING,
    NodeAllocation,
    holding_files,
    nodes_looked_at,
    within,
)
from apples.launch.slurm.follow import TIMED_OUT
from apples.launch.slurm.nodes import behind_a_queue
from apples.launch.slurm.options import START_UP_SECONDS, SlurmOptions
from apples.launch.targets import (
    bound_targets,
    eligible_groups,
    hosts_looked_at,
    launch_targets,
    own_address,
    targets_of_all,
)
from apples.resources import Host, HostList

NO_MOVES = (
    "it is behind a batch queue (queue_seconds) and in no allocation that is held: a job that moves while it "
    "runs waits for no host; run it inside salloc or sbatch"
)


class SshActuator(Actuator):
    """Runs programs on other machines, by hydra over the system's ssh.

    Hosts behind a batch queue take part too: a Slurm job holds them while the run lasts. The actuator logs in
    to them once they are allocated.

    Parameters
    ----------
    output
        Directory the program may write its files to; the first rank's host writes there.
    save, talk, startup_seconds, silence_seconds
        As in `LocalActuator`.
    options
        The user's Slurm options for the job that holds nodes.
    """

    name = "ssh"
    takes_options = True
    reaches_other_machines = True

    def __init__(
        self,
        output: Path | None = None,
        *,
        save: bool = False,
        talk: Talk = to_stderr,
        startup_seconds: float = STARTUP_SECONDS,
        silence_seconds: float | None = None,
        options: SlurmOptions | None = None,
    ) -> None:
        self.output, self.save, self.talk = output, save, talk
        self.startup_seconds, self.silence_seconds = startup_seconds, silence_seconds
        self.options = options or SlurmOptions()
        self._counts: MessageCounts | None = None

    def count_messages(self, counts: MessageCounts) -> None:
        """Count the messages of every rank; counts of other machines arrive over the run's connections."""
        self._counts = counts

    @classmethod
    def create(
        cls, output: Path | None, *, save: bool, options: Mapping[str, str] | None = None
    ) -> SshActuator:
        """Return an actuator with the user's Slurm options."""
        return cls(output, save=save, options=SlurmOptions.of(options or {}))

    @classmethod
    def sensed_hosts(cls, hosts: HostList) -> tuple[Host, ...]:
        """Return all hosts that are not this machine."""
        return tuple(host for host in hosts if not is_here(host))

    def waited_for(self, hosts: Iterable[Host]) -> tuple[Host, ...]:
        """Return the hosts behind a batch queue, except the nodes of this process's own allocation."""
        return behind_a_queue(hosts)

    def wait_seconds(self, plan: LaunchPlan) -> float:
        """Return the seconds that Slurm expects until the plan's nodes are free; 0 if Slurm gives none."""
        queued = self._queued(plan)
        if not queued:
            return 0.0
        return client.wait_seconds(self._holding(queued, plan, job_name()), HOLDING)

    def look(self, survey: HostSurvey) -> Mapping[str, Fitness]:
        """Check every allowed host on another machine that has no findings.

        For a host behind a batch queue, only ask Slurm whether it is in service. `actuate` logs in to it once it
        is allocated.
        """
        queued = behind_a_queue(survey.allowed)
        if self.options != SlurmOptions() and not behind_a_queue(survey.hosts):
            raise UsageError(
                "--slurm: no host of the list is waited for in a queue (queue_seconds)",
                code="option-not-applicable",
                option="--slurm",
            )
        allowed = tuple(host for host in survey.allowed if host not in queued)
        found = hosts_looked_at(replace(survey, allowed=allowed), self.talk, self.connections)
        fit = [
            host
            for host in queued
            if host.name not in survey.findings or not survey.findings[host.name].refusal
        ]
        if survey.malleable:
            return {**found, **self._refused(fit, NO_MOVES)}
        unseen = [host for host in fit if host.name not in survey.findings]
        try:
            known = nodes_looked_at(unseen, self.talk, partition=self.options.partition)
        except ManagerUnreachableError as error:
            known = self._refused(unseen, f"it is behind a batch queue (queue_seconds): {error}")
        return {**found, **known}

    def _refused(self, hosts: Sequence[Host], reason: str) -> dict[str, Fitness]:
        """Print a warning that hosts cannot be used; return it as their fitness."""
        if hosts:
            self.talk(
                f"warning: {', '.join(host.name for host in hosts)} cannot be used: {reason}"
            )
        finding = Finding("queue", "fail", reason)
        return {host.name: Fitness(host.name, (finding,)) for host in hosts}

    def command(self, plan: LaunchPlan) -> LaunchCommand:
        """Return the mpiexec command, to be started in the directory of its files.

        If hosts are behind a queue, the files include the script of the job that holds them, and the command
        ends with that job.
        """
        job, queued = job_name(), self._queued(plan)
        placed, _ = bound_targets(launch_targets(plan), plan.findings)
        order = self._command(placed, plan, job)
        if not queued:
            return order
        order = replace(order, files={**order.files, **self._holding(queued, plan, job)})
        return within(f"apples-{job}", order)

    def actuate(self, plan: LaunchPlan) -> RunExecution:
        """Start the application on the plan's hosts; return once every rank is ready.

        Wait for hosts behind a queue first, and hold them until the run is over.
        """
        connections = self.connections or HostConnections(job_name())
        queued = self._queued(plan)
        if not queued:
            return RunExecution(self._started(plan, connections))
        names = [host.name for host in queued]
        allocation = NodeAllocation(
            names, connections.job, _seconds(plan), self.options, self.talk
        )
        try:
            plan = _looked_into(queued, plan, connections)
            run = self._started(plan, connections, f"apples-{connections.job}")
        except BaseException:
            allocation.release()
            raise
        return RunExecution(run, queue_seconds=allocation.queue_seconds, on_end=allocation.release)

    def _started(self, plan: LaunchPlan, connections: HostConnections, held: str = "") -> Run:
        """Return the run once every rank is ready; it ends with the job named `held`, if that is not empty."""
        job = connections.job
        placed, unbound = bound_targets(launch_targets(plan), plan.findings)
        if unbound:
            self.talk(f"note: {unbound}")
        order = self._command(placed, plan, job)
        others = ssh.remote_hosts(placed)
        if held:
            order = within(held, order)

        def start() -> Run:
            return Run(
                order,
                [target.rank_group for target in placed],
                startup_seconds=self.startup_seconds,
                silence_seconds=self.silence_seconds or plan.silence_seconds,
                talk=self.talk,
                job=job,
                grace=GRACE_SECONDS if held else processes.GRACE_SECONDS,
                limit_code=TIMED_OUT if held else None,
                connections=_taken(connections, others, plan.hosts),
                counted=self._counts.take if self._counts else lambda _: None,
            )

        return started(start, self.talk)

    def _queued(self, plan: LaunchPlan) -> tuple[Host, ...]:
        """Return the hosts of the plan that must be awaited in a queue."""
        return self.waited_for(strip.host for strip in plan.strips)

    def _holding(self, queued: Sequence[Host], plan: LaunchPlan, job: str) -> dict[str, str]:
        """Return the files of the job that holds nodes."""
        return holding_files([host.name for host in queued], job, _seconds(plan), self.options)

    def check_movable(self) -> None:
        """Raise nothing: a job can move, because the job manager has a connection to each host."""

    def host_specs(self, plan: LaunchPlan) -> list[HostSpec]:
        """Return every host of the list that the job may use, with the command to reach it."""
        everywhere = targets_of_all(plan)
        if not any(target.reach for target in everywhere):
            return [local_spec(one) for one in eligible_groups(plan)]
        return [remote_spec(one) for one in everywhere]

    def _command(
        self, placed: Sequence[ssh.LaunchTarget], plan: LaunchPlan, job: str
    ) -> LaunchCommand:
        task = run_task(plan, output=self.output, save=self.save)
        here = own_address([strip.host for strip in plan.strips], plan)
        counts = self._counts
        if counts is not None:
            own = counts.environment()
            placed = [
                one if one.reach else replace(one, environment={**one.environment, **own})
                for one in placed
            ]
        carried = counts.carried() if counts else None
        return ssh.command(
            placed, task, job=job, here=here, directory=Path.cwd(), counting=carried
        )


def _looked_into(
    given: Sequence[Host], plan: LaunchPlan, connections: HostConnections
) -> LaunchPlan:
    """Check the hosts that the queue allocated; return the plan with the findings.

    Raises
    ------
    LaunchError
        A host cannot be used.
    """
    found = preflight(given, plan.hosts, plan.needs, connections=connections)
    for name, one in found.items():
        if one.refusal:
            raise LaunchError(
                f"{name}, which Slurm gave, cannot be used: {one.refusal}",
                code="host-unfit",
                host=name,
                reason=one.refusal,
            )
    return replace(plan, findings={**plan.findings, **found})


def _seconds(plan: LaunchPlan) -> float:
    """Return the predicted seconds for which a run needs its nodes."""
    return START_UP_SECONDS + plan.predicted_seconds


def _taken(
    connections: HostConnections, names: Sequence[str], listed: HostList
) -> list[HostConnection]:
    """Return a connection to each host that waits for a program: a kept connection, else a new one."""

    def taken(name: str) -> HostConnection:
        one = connections.take(name)
        if one is not None:
            try:
                one.await_program()
            except LaunchError:
                one.close()
            else:
                return one
        return connections.login(listed[name], listed)

    with ThreadPoolExecutor(max(1, len(names))) as pool:
        return list(pool.map(taken, names))
