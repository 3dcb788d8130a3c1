"""``topology``: show a machine, choose CPUs for a job, and explain why a host is unsuitable."""

from __future__ import annotations

from apples.errors import InfeasibleError, UsageError
from apples.topology import CpuSet, Topology, Unsatisfied, fit, load_topology
from apples.topology.bindings import RankOrder, bindings, per_rank
from apples.topology.broker import BrokerRequest, CpusetBroker, HostCpus
from apples.topology.commands.options import messages_option
from apples.topology.cpus import MAX_CPUS
from apples.topology.language import parse
from apples.topology.requirement import CPUSET
from apples.topology.sources.this_machine import live_topology
from apples.topology.text import (
    draw,
    fit_document,
    fit_text,
    topology_document,
    why_document,
    why_text,
)
from apples.ui.command_line import CommandGroup, say, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import INTEGER, Excludes, Requires, argument, option

LIVE = "this machine"

commands = CommandGroup()
MACHINE_RULES = (Excludes("FILE", "--live"), Requires("--source", "--live"))

file_argument = argument(
    "file",
    required=False,
    help="hwloc XML, or a synthetic string such as 'package:2 core:8 pu:2'.",
)
live_option = option(
    "--live", is_flag=True, help="This machine: the CPUs that this process may use."
)
source_option = option(
    "--source",
    metavar="NAME",
    default="",
    help="With --live: lstopo or sys; default: the first that is there.",
)
count_option = option("--count", "-n", type=INTEGER, default=1, help="CPUs the job needs.")
free_option = option(
    "--free", metavar="CPUS", help="Free CPUs, as 0-3,8 (OS numbers); default: all."
)
require_option = option(
    "--require",
    metavar="REQUIREMENT",
    default="",
    help="CPUSET[KEY=value;...], or KEY=value;... alone.",
)


@commands.command("show", rules=MACHINE_RULES)
@file_argument
@live_option
@source_option
@json_option
def show_topology(file: str | None, live: bool, source: str, json: bool) -> int:
    """Show the parts of a machine: packages, caches, cores and CPUs.

    Example: apples topology show 'package:2 core:4 pu:2'
    """
    topology = topology_of(file, live, source)
    show_answer(topology_document(topology), lambda: draw(topology), json)
    if not json:
        named = "--live" if live else f"'{file}'"
        say(f"next: apples topology fit {named} --count {min(4, len(topology.cpus))}")
    return 0


@commands.command("fit", rules=MACHINE_RULES)
@file_argument
@count_option
@free_option
@require_option
@option("--ranks", type=INTEGER, default=1, help="Processes to bind, for srun.")
@messages_option
@live_option
@source_option
@json_option
def fit_job(
    file: str | None,
    count: int,
    free: str | None,
    require: str,
    ranks: int,
    messages: str | None,
    live: bool,
    source: str,
    json: bool,
) -> int:
    """Print the free CPUs that a job would get, and the options that bind it to them; reserve nothing.

    Example: apples topology fit machine.xml --count 8 --free 0-31 --require "MAX_RADIUS=1"
    """
    requirement = parse(require, count, broker=CPUSET)
    if not 1 <= ranks <= MAX_CPUS:
        raise UsageError(
            f"--ranks {ranks}: must be 1 to {MAX_CPUS}",
            code="value-range",
            option="--ranks",
            value=ranks,
            bound=MAX_CPUS,
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
    """Return the CPUs of each rank, chosen by the bytes between ranks."""
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
@argument(
    "hosts",
    nargs=-1,
    required=False,
    help="Machines, each with its free CPUs if not all are: FILE or FILE=0-3.",
)
@count_option
@require_option
@live_option
@json_option
def why(hosts: tuple[str, ...], count: int, require: str, live: bool, json: bool) -> int:
    """Print for each machine whether it can run a job (yes, not now or never) and the reason.

    Example: apples topology why a.xml b.xml=0-7 --count 16 --require "MAX_RADIUS=1"
    """
    requirement = parse(require, count, broker=CPUSET)
    known = dict(_host(word) for word in hosts or ())
    if live:
        here = live_topology()
        known[LIVE] = HostCpus(here, here.cpus)
    if not known:
        raise UsageError(
            "name at least one machine, or --live", code="option-missing", option="--live"
        )
    broker = CpusetBroker(known.get)
    request = BrokerRequest(requirement, count)
    answers = {name: broker.satisfies(name, request) for name in known}
    ranking = broker.rank(list(known), request)
    show_answer(why_document(answers, ranking), why_text(answers, ranking), json)
    return 0 if ranking else InfeasibleError.exit_code


def topology_of(file: str | None, live: bool, source: str = "") -> Topology:
    """Return the machine that the options name: a file, a synthetic string, or this machine."""
    if live:
        return live_topology(source)
    if file is None:
        raise UsageError(
            "FILE or --live is required: a file, a synthetic string, or this machine",
            code="argument-missing",
            argument="FILE",
        )
    return load_topology(file)


def free_of(topology: Topology, text: str | None) -> CpuSet:
    """Return the free CPUs that an option names, by default all; warn of CPUs that the machine lacks."""
    if text is None:
        return topology.cpus
    free = CpuSet.parse(text)
    if not free <= topology.cpus:
        say(f"note: CPUs {free - topology.cpus} are left out: this process may not use them")
    return free & topology.cpus


def _host(word: str) -> tuple[str, HostCpus]:
    name, equals, free = word.rpartition("=")
    if not equals:
        name, free = word, ""
    topology = load_topology(name)
    return word, HostCpus(topology, free_of(topology, free or None))
