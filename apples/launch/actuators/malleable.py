"""`MalleableActuator`: runs a schedule as a job that can shrink, grow and migrate; here or on other machines."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from apples.agent.information import InformationPool
from apples.errors import ApplicationError, LaunchError, UsageError
from apples.launch import anchored
from apples.launch.actuator import Actuator, Command, Resized
from apples.launch.execution import RunExecution
from apples.launch.hydra import Segment
from apples.launch.processes import job_name
from apples.launch.quota import Quotas
from apples.launch.remote.fitness import Finding, own_version
from apples.launch.run import STARTUP_SECONDS, Run
from apples.launch.seating import eligible, looked, seats_of_all
from apples.launch.slurm.looking import looked as nodes_looked_at
from apples.launch.slurm.looking import own_allocation
from apples.launch.starting import silence, started
from apples.launch.talk import Talk, to_stderr
from apples.launch.task import run_task
from apples.malleable.command import Command as MapCommand
from apples.malleable.command import Share
from apples.malleable.control import SECRET_BYTES
from apples.malleable.conversing import SILENCE_SECONDS, Conversation
from apples.malleable.job_file import Engine, JobFile, Place
from apples.malleable.protocol.messages import BUSY, Verdict
from apples.resources import Host
from apples.schedule import Schedule

Through = Literal["local", "ssh", "slurm"]
RESIZE_SECONDS = 60.0
"""How long a command may wait for the job before it is taken back."""


class MalleableExecution(RunExecution):
    """A malleable job. `talking` speaks with its anchor."""

    def __init__(self, run: Run, talking: Conversation, warnings: tuple[str, ...] = ()) -> None:
        super().__init__(run, warnings)
        self.talking = talking
        self._epoch = 0

    @property
    def movable(self) -> bool:
        """Whether it can be resized: yes."""
        return True

    @property
    def moved(self) -> bool:
        """Whether it said so when it was last asked."""
        return self._epoch > 0

    def position(self, seconds: float = SILENCE_SECONDS) -> Mapping[str, Any]:
        """Return where the job is, as it says itself."""
        found = self.talking.status(seconds)
        self._epoch = int(found["epoch"])
        return found

    def resize(self, schedule: Schedule, *, ordered: bool = False) -> Resized:
        """Move the job to the hosts and rows of a schedule; returns when it is there."""
        epoch = int(self.position()["epoch"])
        return resized(
            self.talking.resize(map_command(schedule, epoch + 1, ordered), RESIZE_SECONDS)
        )


def map_command(schedule: Schedule, epoch: int, ordered: bool = False) -> MapCommand:
    """Return the command that makes a job's map that of a schedule: its rows are the weights."""
    shares = tuple(Share(a.host.name, float(a.rows)) for a in schedule.allocations)
    return MapCommand(epoch, shares, ordered)


def resized(verdict: Verdict) -> Resized:
    """Return what a resize took.

    Raises
    ------
    UsageError
        Refused for what the command says: an unknown host, or the limits of the job.
    LaunchError
        Refused for the moment (busy), or tried in vain; the job goes on as it was.
    """
    if verdict.kind == "nack":
        error = LaunchError if verdict.reason in BUSY else UsageError
        raise error(f"refused: {verdict.detail} ({verdict.reason})")
    if verdict.kind == "failed":
        raise LaunchError(f"not done, the job goes on as it was: {verdict.detail}")
    return Resized(verdict.epoch, verdict.seconds, verdict.phases)


class MalleableActuator(Actuator):
    """Starts one MPI world a host through an anchor here: on this machine, over ssh, or by Slurm's steps.

    Parameters
    ----------
    output, save, talk, startup_seconds, silence_seconds
        As for `LocalActuator`.
    folder
        Where the job's secret is and where its port is announced; made for the run when None.
    job
        Name of the job.
    commits, commit_seconds
        Directory of committed states, and how often; None: none are made.
    warm
        Hosts on which a parked group may wait for a growth.
    engine
        ``merge``, ``restart``, or ``auto``.
    through
        ``local``: all hosts are played by this machine; ``ssh``: others are reached over it; ``slurm``: they
        are nodes of the allocation this process is in.

    Raises
    ------
    UsageError
        The restart engine on other machines: it starts all ranks at once, by one launcher. Or no allocation.
    """

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
        commit_seconds: float = 0.0,
        warm: Collection[str] = (),
        engine: Engine = "auto",
        through: Through = "local",
    ) -> None:
        if through != "local" and engine == "restart":
            raise UsageError(
                f"engine restart: over {through} every host has a launcher of its own; use merge"
            )
        self.allocation = own_allocation() if through == "slurm" else ""
        if through == "slurm" and not self.allocation.isdecimal():
            raise UsageError(
                "under Slurm a job is moved on the nodes of an allocation: run this inside salloc or sbatch"
            )
        self.output, self.save, self.talk = output, save, talk
        self.startup_seconds, self.silence_seconds = startup_seconds, silence_seconds
        self.folder, self.job = folder, job
        self.commits, self.commit_seconds = commits, commit_seconds
        self.warm, self.engine, self.through = warm, engine, through

    def look(self, information: InformationPool) -> InformationPool:
        """Look at every other machine: a malleable program finds its side of the job in apples there."""
        if self.through == "slurm":
            return nodes_looked_at(information, self.talk, allocation=self.allocation)
        if self.through == "local":
            return information
        information = looked(information, self.talk)
        strange = {
            name: replace(one, findings=(*one.findings, _stranger(one.apples)))
            for name, one in information.looked_at.items()
            if not one.refusal and one.apples != own_version("apples")
        }
        for name, one in strange.items():
            self.talk(f"warning: {name} cannot be used: {one.refusal}")
        return information.knowing(strange) if strange else information

    def command(self, schedule: Schedule, information: InformationPool) -> Command:
        """Return the anchor's command, with a secret of its own; quotas are left out."""
        places = self._places(segments(information), information)
        job = self._job("dry-run", places, schedule, information)
        return anchored.command(job, b"\0" * SECRET_BYTES, self.folder)

    def actuate(self, schedule: Schedule, information: InformationPool) -> MalleableExecution:
        """Start the job on this machine; returns once every rank is ready."""
        name = self.job or job_name()
        everybody = segments(information)
        quotas = Quotas.plan({} if self.through != "local" else _slower_hosts(information), name)
        for line in quotas.warnings:
            self.talk(f"warning: {line}")
        ranks = [replace(one, cgroup=quotas.joined(one.host)) for one in everybody]
        members = {a.host.name: a.ranks for a in schedule.allocations}
        secret = self._secret()
        places = self._places(ranks, information)
        order = anchored.command(
            self._job(name, places, schedule, information), secret, self.folder
        )
        quiet = self.silence_seconds or silence(schedule, information)

        def start() -> Run:
            return Run(
                order,
                [replace(one, ranks=members[one.host]) for one in _in_order(ranks, members)],
                startup_seconds=self.startup_seconds,
                silence_seconds=quiet,
                talk=self.talk,
                job=name,
                cgroups=tuple(quotas.groups.values()),
                prepare=quotas.create,
                anchored=True,
                others=[one.host for one in ranks],
            )

        run = started(start, self.talk)
        announce = (self.folder or run.directory) / anchored.ANNOUNCE_FILE
        return MalleableExecution(run, Conversation(name, secret, announce), quotas.warnings)

    def _secret(self) -> bytes:
        if self.folder is None:
            return secrets.token_bytes(SECRET_BYTES)
        return bytes.fromhex((self.folder / anchored.SECRET_FILE).read_text("ascii"))

    def _places(self, ranks: Sequence[Segment], information: InformationPool) -> list[Place]:
        """Return where the job may ever be."""
        if self.through == "slurm":
            return [self._node(one, information) for one in ranks]
        seats = seats_of_all(information) if self.through == "ssh" else []
        if not any(seat.reach for seat in seats):
            return [anchored.place(one, warm=one.host in self.warm) for one in ranks]
        return [anchored.place_among(one, warm=one.segment.host in self.warm) for one in seats]

    def _node(self, one: Segment, information: InformationPool) -> Place:
        host = information.hosts[one.host]
        python = host.python or sys.executable
        program = information.program(information.implementation(host), python)
        node = anchored.Node(self.allocation, python, host.directory or str(Path.cwd()))
        segment = replace(one, program=program, cpus=())
        return anchored.place_in_allocation(segment, node, warm=one.host in self.warm)

    def _job(
        self,
        name: str,
        places: Sequence[Place],
        schedule: Schedule,
        information: InformationPool,
    ) -> JobFile:
        if not information.template.malleable:
            what = information.template.name
            raise ApplicationError(f"{what}: its template does not say 'malleable = true'")
        limits = information.specifications.constraints
        most = min(limits.maximum_hosts or len(places), len(places))
        members = [Share(a.host.name, float(a.rows)) for a in schedule.allocations]
        return anchored.job_of(
            name,
            places,
            members,
            run_task(schedule, information, output=self.output, save=self.save),
            minimum=min(limits.minimum_hosts, len(members)),
            maximum=max(most, len(members)),
            commits=self.commits,
            commit_seconds=self.commit_seconds,
            engine=self.engine,
        )


def segments(information: InformationPool) -> list[Segment]:
    """Return every host that a job may ever be on, with all its slots."""
    rows = information.application.rows
    return [
        Segment(
            host.name,
            max(1, min(host.slots, rows)),
            information.program(information.implementation(host)),
            host.cpus,
        )
        for host in eligible(information)
    ]


def _stranger(found: str) -> Finding:
    what = f"apples {found} there" if found else "apples is not installed for its Python"
    return Finding("apples", "fail", f"{what}, a malleable job needs {own_version('apples')}")


def _in_order(ranks: Sequence[Segment], members: Mapping[str, int]) -> list[Segment]:
    by_name = {one.host: one for one in ranks}
    return [by_name[name] for name in members]


def _slower_hosts(information: InformationPool) -> dict[str, float]:
    """Return how many CPUs each host is to get that is described, not measured, as slower than this machine."""
    hosts: list[Host] = list(information.hosts)
    return {
        host.name: host.cpu * host.slots
        for host in hosts
        if host.cpu < 1 and not information.conditions.measured(host)
    }
