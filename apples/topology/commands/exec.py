"""``exec``: run a command on CPUs of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apples.errors import InfeasibleError, LaunchError, UsageError
from apples.topology import CpuSet, Requirement, Satisfiability
from apples.topology.bindings import bindings
from apples.topology.daemon.client import TopologyClient, default_socket
from apples.topology.execution import (
    ExecutionPlugin,
    container_alone,
    job_name,
    run,
    run_alone,
)
from apples.topology.isolation.detection import find_backend
from apples.topology.language import parse, requirement_of
from apples.topology.requirement import CpusetType
from apples.topology.sources.this_machine import live_topology
from apples.topology.text import bindings_lines
from apples.ui.command_line import say, show


def exec_command(
    command: Annotated[list[str], typer.Argument(help="The command, after --.")],
    require: Annotated[
        str, typer.Option("--require", help="CPUSET[KEY=value;...], or KEY=value;... alone.")
    ] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="CPUs it needs.")] = 1,
    job: Annotated[str, typer.Option("--job", help="Its name; default: a fresh one.")] = "",
    least: Annotated[
        int, typer.Option("--least", min=0, help="It is malleable and can do with so few.")
    ] = 0,
    share: Annotated[
        bool, typer.Option("--share", help="Have malleable jobs make room for it.")
    ] = False,
    socket: Annotated[
        Path | None, typer.Option("--socket", help="Of the daemon; default: this host's.")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Without a daemon: nobody else will know.")
    ] = False,
    fence: Annotated[
        str, typer.Option("--fence", help="With --alone: which isolation, or auto.")
    ] = "affinity",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say where it would run, run nothing.")
    ] = False,
) -> int:
    """Run a command on CPUs of its own: chosen by its requirement, bound before it begins, freed when it ends.

    Its exit code is the command's.

    Example: apples exec -n 4 --require "CPUSET[MAX_RADIUS=1]" -- ./solver
    """
    if share and not least:
        raise UsageError(
            "--share needs --least: the smallest number of CPUs that the command can use",
            code="option-missing",
            option="--least",
        )
    requirement = requirement_of(parse(require), count)
    if requirement.kind is CpusetType.NONE:
        say("apples exec: CPUSET_TYPE=none: it runs where it likes")
        return 0 if dry_run else run(command, {})
    if alone:
        return _alone(command, requirement, fence, dry_run)
    place = socket or default_socket()
    with TopologyClient(place) as client:
        if dry_run:
            return _rehearse(client, require, count)
        plugin = ExecutionPlugin(client, place)
        more = {"least": least, "share": share}
        bound = plugin.allocate(job or job_name(), count, require, **more)
        say(f"apples exec: {bound.job} on CPUs {bound.cpus}: {bound.guarantee}")
        return plugin.run(bound, command)


def _rehearse(client: TopologyClient, require: str, count: int) -> int:
    found = client.ask("satisfies", requirement=require, count=count)
    if found["satisfies"] == Satisfiability.YES:
        _show(CpuSet.parse(found["cpus"]))
        return 0
    kind = InfeasibleError if found["satisfies"] == Satisfiability.NEVER else LaunchError
    raise kind(f"{found['satisfies']}: {found['reason']} [{found['key']}]")


def _alone(command: list[str], requirement: Requirement, title: str, dry_run: bool) -> int:
    isolation, _ = find_backend(title)
    container, prefer = container_alone(requirement, isolation, live_topology())
    if dry_run:
        _show(container.cpus)
        return 0
    where = f"on CPUs {container.cpus} by {isolation.title}"
    say(f"apples exec: {where}; no daemon keeps others off them")
    return run_alone(isolation, container, prefer, command)


def _show(cpus: CpuSet) -> None:
    show(f"CPUs {cpus}")
    topology = live_topology()
    if cpus <= topology.cpus:
        show("\n".join(bindings_lines(bindings(topology, cpus))))
