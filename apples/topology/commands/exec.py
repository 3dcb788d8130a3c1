"""``exec``: run a command on CPUs of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from apples.errors import InfeasibleError, LaunchError
from apples.topology import CpuSet, Requirement, Satisfiability
from apples.topology.bindings import bindings
from apples.topology.daemon.client import TopologyClient, default_socket
from apples.topology.execution import (
    allocate,
    container_alone,
    job_name,
    run,
    run_allocated,
    run_alone,
)
from apples.topology.isolation.detection import find_backend
from apples.topology.language import parse
from apples.topology.requirement import CPUSET, CpusetType
from apples.topology.sources.this_machine import live_topology
from apples.topology.text import bindings_lines
from apples.ui.command_line import command, say, show
from apples.ui.parameters import FILE, Excludes, Requires, argument, integer, option, reject_unused

RESERVING = ("--job", "--least", "--share")
"""Options of the request to the daemon."""


@command(
    rules=(
        *(Excludes("--alone", name) for name in (*RESERVING, "--socket")),
        *(Excludes("--dry-run", name) for name in RESERVING),
        Requires("--fence", "--alone"),
        Requires("--share", "--least"),
    )
)
@argument("command", nargs=-1, required=True, help="The command, after --.")
@option(
    "--require",
    metavar="REQUIREMENT",
    default="",
    help="CPUSET[KEY=value;...], or KEY=value;... alone.",
)
@option("--count", "-n", type=integer(1), default=1, help="CPUs it needs.")
@option("--job", metavar="NAME", default="", help="Name of the job; default: a new one.")
@option(
    "--least", type=integer(0), default=0, help="Fewest CPUs of the command, which is malleable."
)
@option("--share", is_flag=True, help="Take CPUs from malleable jobs.")
@option("--socket", type=FILE, help="Socket of the daemon; default: this host's.")
@option("--alone", is_flag=True, help="Reserve nothing: use no topology daemon.")
@option(
    "--fence", metavar="NAME", default="affinity", help="With --alone: kind of isolation, or auto."
)
@option("--dry-run", is_flag=True, help="Print the CPUs that it would get; run nothing.")
def exec_command(
    command: tuple[str, ...],
    require: str,
    count: int,
    job: str,
    least: int,
    share: bool,
    socket: Path | None,
    alone: bool,
    fence: str,
    dry_run: bool,
) -> int:
    """Run a command on CPUs of its own: chosen by its requirement, bound before it begins, freed when it ends.

    Its exit code is the command's.

    Example: apples exec -n 4 --require "CPUSET[MAX_RADIUS=1]" -- ./solver
    """
    requirement = parse(require, count, broker=CPUSET)
    if requirement.kind is CpusetType.NONE:
        reject_unused(
            click.get_current_context(), {"--require", "--count", "--dry-run"}, "CPUSET_TYPE=none"
        )
        say("apples exec: CPUSET_TYPE=none: the command may use any CPU")
        return 0 if dry_run else run(command, {})
    if alone:
        return _alone(command, requirement, fence, dry_run)
    place = socket or default_socket()
    if dry_run:
        return _rehearse(place, require, count)
    bound = allocate(place, job or job_name(), count, require, least=least, share=share)
    say(f"apples exec: {bound.job} on CPUs {bound.cpus}: {bound.guarantee}")
    return run_allocated(place, bound, command)


def _rehearse(place: Path, require: str, count: int) -> int:
    with TopologyClient(place) as client:
        found = client.ask("satisfies", requirement=require, count=count)
    if found["satisfies"] == Satisfiability.YES:
        _show(CpuSet.parse(found["cpus"]))
        return 0
    kind = InfeasibleError if found["satisfies"] == Satisfiability.NEVER else LaunchError
    raise kind(f"{found['satisfies']}: {found['reason']} [{found['key']}]")


def _alone(command: Sequence[str], requirement: Requirement, title: str, dry_run: bool) -> int:
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
