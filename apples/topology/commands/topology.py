"""``topology``: what a machine is made of, which CPUs a job would get, and why a host cannot."""

from __future__ import annotations

from typing import Annotated

import typer

from apples.errors import InfeasibleError, UsageError
from apples.topology import CpuSet, Topology, Unsatisfied, fit, load_topology
from apples.topology.bindings import RankOrder, bindings, per_rank
from apples.topology.broker import BrokerRequest, CpusetBroker, HostCpus, broker_of
from apples.topology.cpus import MOST_CPUS
from apples.topology.language import DEFAULT_BROKER, parse, requirement_of
from apples.topology.options import Messages
from apples.topology.requirement import CpusetType
from apples.topology.sources.this_machine import live_topology
from apples.topology.text import (
    draw,
    fit_document,
    fit_text,
    topology_document,
    why_document,
    why_text,
)
from apples.ui.command_line import say, show_answer
from apples.ui.options import Json

LIVE = "this machine"

commands = typer.Typer(rich_markup_mode=None, no_args_is_help=True)

File = Annotated[
    str | None,
    typer.Argument(help="hwloc XML, or a synthetic string such as 'package:2 core:8 pu:2'."),
]
Live = Annotated[bool, typer.Option("--live", help="This machine, as far as it is ours.")]
Source = Annotated[
    str, typer.Option("--source", help="With --live: lstopo, pyhwloc or sys; default: the first.")
]
Count = Annotated[int, typer.Option("--count", "-n", help="CPUs the job needs.")]
Free = Annotated[
    str | None, typer.Option("--free", help="Free CPUs, as 0-3,8 (OS numbers); default: all.")
]
Require = Annotated[
    str, typer.Option("--require", help="CPUSET[KEY=value;...], or KEY=value;... alone.")
]


@commands.command("show")
def show_topology(
    file: File = None, live: Live = False, source: Source = "", json: Json = False
) -> int:
    """Show what a machine is made of.

    Example: apples topology show 'package:2 core:4 pu:2'
    """
    topology = topology_of(file, live, source)
    show_answer(topology_document(topology), lambda: draw(topology), json)
    if not json:
        named = "--live" if live else f"'{file}'"
        say(f"next: apples topology fit {named} --count {min(4, len(topology.cpus))}")
    return 0


@commands.command("fit")
def fit_job(
    file: File = None,
    count: Count = 1,
    free: Free = None,
    require: Require = "",
    ranks: Annotated[int, typer.Option("--ranks", help="Processes to bind, for srun.")] = 1,
    messages: Messages = None,
    live: Live = False,
    source: Source = "",
    json: Json = False,
) -> int:
    """Say which free CPUs a job would get, and how to bind it to them; books nothing.

    Example: apples topology fit machine.xml --count 8 --free 0-31 --require "MAX_RADIUS=1"
    """
    requirement = requirement_of(parse(require), count)
    if requirement.kind is CpusetType.STATIC:
        raise UsageError(
            f"CPUSET_NAME={requirement.name}: its CPUs are known to the topology daemon of a host only",
            code="cpuset-unknown",
            value=requirement.name,
        )
    if not 1 <= ranks <= MOST_CPUS:
        raise UsageError(
            f"--ranks {ranks}: must be 1 to {MOST_CPUS}",
            code="value-range",
            option="--ranks",
            value=ranks,
            bound=MOST_CPUS,
        )
    topology = topology_of(file, live, source)
    found = fit(topology, free_of(topology, free), requirement)
    if isinstance(found, Unsatisfied):
        raise InfeasibleError(
            f"{file or LIVE}: {found.verdict}: {found.reason}",
            code="cpus-unsatisfied",
            file=file or LIVE,
            value=found.verdict,
            reason=found.reason,
        )
    order = None if messages is None else _order(topology, found.cpus, ranks, messages)
    bound = bindings(topology, found.cpus, ranks, order.shares if order else ())
    show_answer(fit_document(found, bound, order), fit_text(found, bound, order), json)
    return 0


def _order(topology: Topology, cpus: CpuSet, ranks: int, messages: str) -> RankOrder:
    """Return the CPUs of each rank by who sends whom how much."""
    from apples.topology.mapping import rank_order  # noqa: PLC0415 - likewise
    from apples.topology.message_matrix import MessageMatrix, messages_of  # noqa: PLC0415 - for this option only

    known = MessageMatrix.of_run(messages_of(messages))
    if len(known.ranks) != ranks:
        raise UsageError(
            f"--messages: {messages}: is of {len(known.ranks)} ranks, --ranks is {ranks}",
            code="matrix-size-invalid",
            option="--messages",
            value=len(known.ranks),
            bound=ranks,
        )
    return rank_order(topology, per_rank(topology, cpus, ranks), known.bytes)


@commands.command("why")
def why(
    hosts: Annotated[
        list[str] | None,
        typer.Argument(help="Machines, each with its free CPUs if not all are: FILE or FILE=0-3."),
    ] = None,
    count: Count = 1,
    require: Require = "",
    live: Live = False,
    json: Json = False,
) -> int:
    """Say of each machine whether it can hold a job: yes, not now or never, with the one reason.

    Example: apples topology why a.xml b.xml=0-7 --count 16 --require "MAX_RADIUS=1"
    """
    expression = parse(require)
    known = dict(_host(word) for word in hosts or ())
    if live:
        here = live_topology()
        known[LIVE] = HostCpus(here, here.cpus)
    if not known:
        raise UsageError(
            "name at least one machine, or --live", code="option-missing", option="--live"
        )
    broker = broker_of(expression, {DEFAULT_BROKER: CpusetBroker(known.get)})
    request = BrokerRequest(expression, count)
    answers = {name: broker.satisfies(name, request) for name in known}
    ranking = broker.rank(list(known), request)
    show_answer(why_document(answers, ranking), why_text(answers, ranking), json)
    return 0 if ranking else InfeasibleError.exit_code


def topology_of(file: str | None, live: bool, source: str = "") -> Topology:
    """Return the machine that the options name: a file, a synthetic string, or this one."""
    if live == (file is not None):
        raise UsageError(
            "name a file or a synthetic string, or --live, and not both",
            code="option-conflict" if live else "option-missing",
            option="--live",
        )
    if file is None:
        return live_topology(source)
    if source:
        raise UsageError("--source goes with --live", code="option-missing", option="--live")
    return load_topology(file)


def free_of(topology: Topology, text: str | None) -> CpuSet:
    """Return the free CPUs that an option names, all when it names none; says which are not there."""
    if text is None:
        return topology.cpus
    free = CpuSet.parse(text)
    if not free <= topology.cpus:
        say(f"note: CPUs {free - topology.cpus} are not on this machine, or not ours")
    return free & topology.cpus


def _host(word: str) -> tuple[str, HostCpus]:
    name, equals, free = word.rpartition("=")
    if not equals:
        name, free = word, ""
    topology = load_topology(name)
    return word, HostCpus(topology, free_of(topology, free or None))
