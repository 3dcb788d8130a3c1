"""`MalleableActuator`: runs a schedule as a job that can shrink, grow and migrate, here or on other machines."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from apples.errors import LaunchError, UsageError, coded
from apples.launch.actuator import Actuator, Bandwidth, Resized
from apples.launch.actuators.local import LocalActuator
from apples.launch.events import Talk, to_stderr
from apples.launch.host_spec import HOSTS_LIMIT, HostSpec
from apples.launch.host_spec_builders import local_spec
from apples.launch.hydra import LaunchCommand, RankGroup
from apples.launch.message_counts.counter import MessageCounts
from apples.launch.plan import HostSurvey, LaunchPlan, run_task
from apples.launch.processes import job_name
from apples.launch.quota import Quotas
from apples.launch.remote import ssh
from apples.launch.remote.addresses import remote_hosts
from apples.launch.remote.fitness import Fitness
from apples.launch.run import STARTUP_SECONDS, Run, RunExecution, started
from apples.malleable import job_start as job_manager
from apples.malleable.control.change_cost import expected_cost
from apples.malleable.control.client import (
    RESIZE_SECONDS,
    SILENCE_SECONDS,
    ControlClient,
    carried_out,
)
from apples.malleable.control.command import HostShare, ResizeCommand
from apples.malleable.control.job_file import RUN_FILE, JobFile
from apples.malleable.migration.ranks import (
    RANKS_FOLDER,
    NoLibrary,
    build_library,
)
from apples.resources import Host, HostList
from apples.resources.schedule import Schedule
from apples.topology import starter
from apples.topology.daemon.client import JOB_VARIABLE, SOCKET_VARIABLE

NOWHERE: Mapping[str, str] = MappingProxyType({})


class MalleableExecution(RunExecution):
    """A malleable job. `control` is the client of its job manager, over one connection until the job ends."""

    def __init__(
        self, run: Run, control: ControlClient, warnings: tuple[str, ...] = (), epoch: int = 0
    ) -> None:
        super().__init__(run, warnings, on_end=control.close)
        self.control = control
        self._epoch = epoch

    @property
    def movable(self) -> bool:
        """Whether the job can be resized: always."""
        return True

    @property
    def mark(self) -> str:
        """The job's name."""
        return self.control.job

    @property
    def moved(self) -> bool:
        """Whether the last status of the job reported a resize."""
        return self._epoch > 0

    def position(self, seconds: float = SILENCE_SECONDS) -> Mapping[str, Any]:
        """Return the status of the job."""
        with self.drained():
            status = self.control.status(seconds)
        self._epoch = int(status["epoch"])
        return status

    def resize(
        self, schedule: Schedule, *, ordered: bool = False, bandwidth: Bandwidth | None = None
    ) -> Resized:
        """Move the job to the hosts and rows of a schedule; return when the move is complete."""
        command = resize_command(schedule, self.position(), ordered, bandwidth)
        with self.drained():
            done = carried_out(self.control.resize(command, RESIZE_SECONDS))
        return Resized(done.epoch, done.seconds, done.phases)


NO_RECTANGLES = (
    "a job that can be moved has strips of whole rows: the plan is of rectangles, or might be; they run in the "
    "foreground (without --detach and without redistribute)"
)


def resize_command(
    schedule: Schedule,
    position: Mapping[str, Any],
    ordered: bool = False,
    bandwidth: Bandwidth | None = None,
) -> ResizeCommand:
    """Return the command that moves a job from its position to exactly the rows of a schedule.

    Raises
    ------
    UsageError
        The schedule has rectangles. Permanent.
    """
    if schedule.rectangles:
        raise UsageError(NO_RECTANGLES, code="rectangles-unsupported")
    shares = tuple(HostShare.planned(a.host.name, a.rows) for a in schedule.allocations)
    rate = 0.0
    if bandwidth is not None:
        rate = expected_cost(position, shares, bandwidth, ordered=ordered).rate
    return ResizeCommand(int(position["epoch"]) + 1, shares, ordered, rate)


class MalleableActuator(Actuator):
    """Starts an MPI world on each host, through a job manager on this machine and the launcher of the hosts.

    Parameters
    ----------
    output, save, talk, startup_seconds, silence_seconds
        As for `LocalActuator`.
    folder
        Folder of the job's control socket; None: the run's own directory.
    job
        Name of the job.
    commits, commit_seconds
        Directory of commits, and their interval; None: no commits on disk, and an interval that costs little.
    warm
        Hosts on which a parked group may wait for a growth.
    attempt, epoch
        Number of this start of the job, from 1, and the last epoch before it. From the second start on, the job
        begins with its last commit.
    scheduled
        Whether a scheduler decides the job's hosts, also hosts that the job does not know yet.
    topologyd
        Host -> the socket of the topology daemon that gave the job CPUs there: the ranks start on these CPUs and
        follow each change of them.
    through
        The actuator of the launcher that reaches the hosts; None: an actuator for this machine. It surveys hosts
        and supplies the commands that start ranks; it starts nothing itself.

    Raises
    ------
    UsageError
        The launcher cannot move a job.
    """

    movable = True
    takes_threads = False

    def __init__(
        self,
        output: Path | None = None,
        *,
        save: bool = False,
        talk: Talk = to_stderr,
        startup_seconds: float = STARTUP_SECONDS,
        silence_seconds: float | None = None,
        folder: Path | None = None,
        job: str = "",
        commits: Path | None = None,
        commit_seconds: float | None = None,
        warm: Collection[str] = (),
        attempt: int = 1,
        epoch: int = 0,
        scheduled: bool = False,
        topologyd: Mapping[str, str] = NOWHERE,
        through: Actuator | None = None,
    ) -> None:
        through = through or LocalActuator()
        through.check_movable()
        self.output, self.save, self.talk = output, save, talk
        self.startup_seconds, self.silence_seconds = startup_seconds, silence_seconds
        self.folder, self.job = folder, job
        self.commits, self.commit_seconds = commits, commit_seconds
        self.warm, self.through = warm, through
        self.attempt, self.epoch, self.scheduled = attempt, epoch, scheduled
        self.topologyd = topologyd

    @property
    def reaches_other_machines(self) -> bool:  # type: ignore[override] # of a class elsewhere
        """Whether the launcher reaches other machines."""
        return self.through.reaches_other_machines

    def count_messages(self, counts: MessageCounts) -> None:
        """Let the ranks count messages; only if all hosts are parts of this machine."""
        if self.reaches_other_machines:
            raise UsageError(
                f"--count-messages: not with --actuator {self.through.name} for a program that can be moved: its "
                "declared arrays contain the message sizes (apples help count-messages)",
                code="option-conflict",
                options=["--count-messages", "--actuator"],
                value=self.through.name,
            )
        self.through.count_messages(counts)

    @property
    def queues(self) -> bool:
        """Whether the launcher queues jobs."""
        return self.through.queues

    def waited_for(self, hosts: Iterable[Host]) -> tuple[Host, ...]:
        """Return the hosts for which the launcher waits."""
        return self.through.waited_for(hosts)

    def wait_seconds(self, plan: LaunchPlan) -> float:
        """Return the launcher's expected waiting time in seconds."""
        return self.through.wait_seconds(plan)

    def look(self, survey: HostSurvey) -> Mapping[str, Fitness]:
        """Survey hosts with the launcher's actuator, for a job that can be moved."""
        return self.through.look(replace(survey, malleable=True))

    def command(self, plan: LaunchPlan) -> LaunchCommand:
        """Return the command that starts the job manager; quotas are left out."""
        job = self._job("dry-run", self._host_specs(plan), plan)
        return job_manager.command(job, self.folder)

    def actuate(self, plan: LaunchPlan) -> MalleableExecution:
        """Start the job; return once every rank is ready."""
        if any(strip.columns for strip in plan.strips):
            raise UsageError(NO_RECTANGLES, code="rectangles-unsupported")
        name = self.job or job_name()
        quotas = Quotas.plan({} if self.through.reaches_other_machines else plan.cpu_quotas, name)
        for line in quotas.warnings:
            self.talk(f"warning: {line}")
        places = [replace(one, cgroup=quotas.joined(one.host)) for one in self._host_specs(plan)]
        order = job_manager.command(self._job(name, places, plan), self.folder)

        def start() -> Run:
            run = Run(
                order,
                [RankGroup(one.host.name, one.ranks, one.program.local) for one in plan.strips],
                startup_seconds=self.startup_seconds,
                silence_seconds=self.silence_seconds or plan.silence_seconds,
                talk=self.talk,
                job=name,
                cgroups=tuple(quotas.groups.values()),
                prepare=quotas.create,
                managed=True,
                others=None if self.scheduled else [one.host for one in places],
                resumes=self.attempt > 1,
            )
            self._note(run.directory)
            return run

        run = started(start, self.talk)
        control = (self.folder or run.directory) / job_manager.CONTROL_SOCKET
        epoch = self.epoch + (self.attempt > 1)  # a restart from a commit takes an epoch
        return MalleableExecution(run, ControlClient(name, control), quotas.warnings, epoch)

    def _note(self, directory: Path) -> None:
        """Write the path of the run's folder into the job's folder; a full disk loses only this note."""
        if self.folder is not None:
            with suppress(OSError):
                (self.folder / RUN_FILE).write_text(str(directory), "utf-8")

    def _host_specs(self, plan: LaunchPlan) -> list[HostSpec]:
        """Return the specifications of all hosts that the job may use."""
        found = [replace(one, warm=one.host in self.warm) for one in self.through.host_specs(plan)]
        return [self._among_its_cpus(one) for one in found]

    def _among_its_cpus(self, one: HostSpec) -> HostSpec:
        """Return a host with the command that starts its ranks on the CPUs from a topology daemon."""
        daemon = self.topologyd.get(one.host)
        if daemon is None:
            return one
        named = {SOCKET_VARIABLE: daemon, JOB_VARIABLE: self.job}
        # On another machine, the node supervisor replaces the words in braces.
        far = bool(one.reach)
        python, file = (
            ("{python}", f"{{{starter.__name__}}}") if far else (sys.executable, starter.__file__)
        )
        return replace(
            one,
            enter=(python, "-I", "-S", file, daemon, self.job),
            environment={**one.environment, **named},
        )

    def _job(self, name: str, places: Sequence[HostSpec], plan: LaunchPlan) -> JobFile:
        assert plan.malleable is not None  # noqa: S101 - for the type checker: its places were found
        minimum, most = plan.malleable.minimum, plan.malleable.maximum
        members = [HostShare.planned(strip.host.name, strip.rows) for strip in plan.strips]
        there = HOSTS_LIMIT if self.scheduled else len(places)
        return job_manager.describe_job(
            name,
            places,
            members,
            run_task(plan, output=self.output, save=self.save),
            minimum=min(minimum, len(members)),
            maximum=max(min(most or there, there), len(members)),
            commits=self.commits,
            commit_seconds=self.commit_seconds,
            attempt=self.attempt,
            epoch=self.epoch,
            scheduled=self.scheduled,
        )


QUIET_SECONDS = 5.0
"""Timeout of messages from the job manager, which sends a sign of life each second."""


class ProgramExecution(RunExecution):
    """An unmodified program. `control` is the client of its job manager, over one connection until its end."""

    def __init__(self, run: Run, control: ControlClient) -> None:
        super().__init__(run, on_end=control.close)
        self.control = control

    @property
    def movable(self) -> bool:
        """Whether the program's position can be queried: always."""
        return True

    def position(self, seconds: float = SILENCE_SECONDS) -> Mapping[str, Any]:
        """Return the status of the program, with its hosts."""
        return self.control.status(seconds)


def start_program(
    argv: Sequence[str],
    hosts: HostList,
    first: Sequence[str],
    folder: Path,
    shared: Path,
    job: str,
    *,
    signal: str = "USR1",
    signal_seconds: float = 1.0,
    output: Path | None = None,
    talk: Talk = to_stderr,
) -> ProgramExecution:
    """Start a program on the host `first`, an MPI program on several hosts; return once it runs.

    Parameters
    ----------
    first
        The host of each rank.
    folder
        Folder of its control socket.
    shared
        Folder for its output and checkpoints, at the same path on every host to which it may move.
    signal, signal_seconds
        Signal sent before a checkpoint, if the program catches it, and the seconds that it gets to stop itself.
    output
        Folder of its files ``output`` and ``errors``; None: `shared`.

    Raises
    ------
    LaunchError
        The program cannot be started.
    """
    others = {host.name: ssh.command(ssh.reach(host, hosts)) for host in remote_hosts(hosts)}
    places = [_placed(host, tuple(argv), others.get(host.name, ())) for host in hosts]
    files = {name: str((output or shared) / name) for name in ("output", "errors")}
    task = {"program": {"signal": signal, "signal_seconds": signal_seconds, **files}}
    if len(first) > 1:
        _prepare_ranks(shared)
        task["program"]["addresses"] = _addresses(hosts)
    members = [HostShare(host) for host in first]
    many = len(first)
    made = job_manager.describe_job(
        job, places, members, task, minimum=many, maximum=many, commits=shared
    )
    order = job_manager.command(made, folder, job_manager.PROGRAM_MANAGER)
    names = [host.name for host in hosts]
    run = Run(
        replace(order, environment={}),
        [RankGroup(host, 1, tuple(argv)) for host in first],
        startup_seconds=STARTUP_SECONDS,
        silence_seconds=QUIET_SECONDS,
        talk=talk,
        job=job,
        managed=True,
        others=names,
    )
    run.until_ready()
    return ProgramExecution(run, ControlClient(job, folder / job_manager.CONTROL_SOCKET))


def _prepare_ranks(shared: Path) -> None:
    """Build the MPI library that can close its connections in the folder that all hosts share."""
    folder = shared / RANKS_FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        build_library(folder)
    except NoLibrary as error:
        raise LaunchError(str(error), **coded(error, code="library-not-built")) from None


def _addresses(hosts: HostList) -> dict[str, str]:
    """Return the IPv4 address at which other ranks reach the ranks of each host.

    For parts of this machine, it is the loopback address, or the address of this machine for other machines.
    """
    elsewhere = {host.name: host for host in remote_hosts(hosts)}
    try:
        there = {name: socket.gethostbyname(host.reached_at) for name, host in elsewhere.items()}
        here = "127.0.0.1"
        if there:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                one.connect(
                    (next(iter(there.values())), 9)
                )  # sends nothing, but selects the route
                here = one.getsockname()[0]
    except OSError as error:
        raise LaunchError(
            f"a host has no address: {error}", code="address-unknown", reason=str(error)
        ) from None
    return {host.name: there.get(host.name, here) for host in hosts}


def _placed(host: Host, program: tuple[str, ...], way: Sequence[str]) -> HostSpec:
    """Return the specification of a host for the program; the environment stays the user's own."""
    rank_group = RankGroup(host.name, 1, program, host.cpus)
    return replace(local_spec(rank_group), reach=tuple(way), environment={})
