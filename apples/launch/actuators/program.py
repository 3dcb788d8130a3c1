"""`start_program`: an unmodified sequential program as a job that can migrate (Dynamite's task migration)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from apples.launch import anchored
from apples.launch.execution import RunExecution
from apples.launch.hydra import Segment
from apples.launch.remote import ssh
from apples.launch.remote.addresses import remote_hosts
from apples.launch.run import STARTUP_SECONDS, Run
from apples.launch.talk import Talk, to_stderr
from apples.malleable.control.client import SILENCE_SECONDS, ControlClient
from apples.malleable.control.command import HostWeight
from apples.malleable.control.job_file import HostSpec
from apples.resources import Host, HostList

QUIET_SECONDS = 5.0
"""Of the anchor, which says every second that it is there."""


class ProgramExecution(RunExecution):
    """An unmodified program. `talking` speaks with its anchor."""

    def __init__(self, run: Run, talking: ControlClient) -> None:
        super().__init__(run)
        self.talking = talking

    @property
    def movable(self) -> bool:
        """Whether it can be asked where it is: yes."""
        return True

    def position(self, seconds: float = SILENCE_SECONDS) -> Mapping[str, Any]:
        """Return where the program is."""
        return self.talking.status(seconds)


def start_program(
    argv: Sequence[str],
    hosts: HostList,
    first: str,
    folder: Path,
    shared: Path,
    job: str,
    secret: bytes,
    *,
    signal: str = "USR1",
    signal_seconds: float = 1.0,
    output: Path | None = None,
    talk: Talk = to_stderr,
) -> ProgramExecution:
    """Start a program on the host `first`; returns once it runs.

    Parameters
    ----------
    folder
        Where its port is announced and its secret is.
    shared
        A folder that every host it may move to sees under the same path: for its output and checkpoints.
    signal, signal_seconds
        Sent to it before a checkpoint, if it catches it; how long it may take to stop itself then.
    output
        Where its files ``output`` and ``errors`` go; `shared` when None.

    Raises
    ------
    LaunchError
        It cannot be started.
    """
    others = {host.name: ssh.command(ssh.reach(host, hosts)) for host in remote_hosts(hosts)}
    places = [_placed(host, tuple(argv), others.get(host.name, ())) for host in hosts]
    files = {name: str((output or shared) / name) for name in ("output", "errors")}
    task = {"program": {"signal": signal, "signal_seconds": signal_seconds, **files}}
    made = anchored.job_of(
        job, places, [HostWeight(first)], task, minimum=1, maximum=1, commits=shared
    )
    order = anchored.command(made, secret, folder, anchored.PROGRAM_ANCHOR)
    names = [host.name for host in hosts]
    run = Run(
        replace(order, environment={}),
        [Segment(first, 1, tuple(argv))],
        startup_seconds=STARTUP_SECONDS,
        silence_seconds=QUIET_SECONDS,
        talk=talk,
        job=job,
        anchored=True,
        others=names,
    )
    run.until_ready()
    return ProgramExecution(run, ControlClient(job, secret, folder / anchored.ANNOUNCE_FILE))


def _placed(host: Host, program: tuple[str, ...], way: Sequence[str]) -> HostSpec:
    """Return where the program may run; its environment stays the user's own."""
    segment = Segment(host.name, 1, program, host.cpus)
    return replace(anchored.place(segment), reach=tuple(way), environment={})
