"""``topology``: what a machine is made of, which CPUs a job would get, and why a host cannot."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from apples.cli.program import say, show, show_json
from apples.errors import InfeasibleError, UsageError
from apples.topology import CpuSet, Fit, Topology, Unsatisfied, fit, load_topology
from apples.topology.bindings import bindings
from apples.topology.broker import BrokerAnswer, BrokerRequest, CpusetBroker, HostCpus, broker_of
from apples.topology.cpus import MOST_CPUS
from apples.topology.language import DEFAULT_BROKER, parse, requirement_of
from apples.topology.requirement import CpusetType
from apples.topology.sources.this_machine import live_topology
from apples.views.topology import draw

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
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
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
    if json:
        show_json(_document(topology))
        return 0
    show(draw(topology))
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
            f"CPUSET_NAME={requirement.name}: only the daemon of a host knows its cpusets"
        )
    if not 1 <= ranks <= MOST_CPUS:
        raise UsageError(f"--ranks {ranks}: must be 1 to {MOST_CPUS}")
    topology = topology_of(file, live, source)
    found = fit(topology, free_of(topology, free), requirement)
    if isinstance(found, Unsatisfied):
        raise InfeasibleError(f"{file or LIVE}: {found.verdict}: {found.reason}")
    said = asdict(bindings(topology, found.cpus, ranks))
    if json:
        show_json({**_fit_document(found), "bindings": said})
        return 0
    show(f"CPUs {found.cpus}")
    show(
        f"radius {found.radius:.4g} hops from CPU {found.centre}, {found.total:.4g} over all pairs"
    )
    if found.memory:
        show(f"memory nodes {found.memory}")
    for line in (said["taskset"], said["hwloc_bind"], said["srun"]):
        show(f"  {line}")
    show(f"  OMP_PLACES='{said['omp_places']}'")
    show(f"  GOMP_CPU_AFFINITY='{said['gomp_cpu_affinity']}'")
    return 0


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
        raise UsageError("name at least one machine, or --live")
    broker = broker_of(expression, {DEFAULT_BROKER: CpusetBroker(known.get)})
    request = BrokerRequest(expression, count)
    answers = {name: broker.satisfies(name, request) for name in known}
    ranking = broker.rank(list(known), request)
    if json:
        show_json(
            {
                "schema": "apples.why/1",
                "hosts": [_answer_document(name, answer) for name, answer in answers.items()],
                "ranking": ranking,
            }
        )
    else:
        _show_answers(answers, ranking)
    return 0 if ranking else InfeasibleError.exit_code


def topology_of(file: str | None, live: bool, source: str = "") -> Topology:
    """Return the machine that the options name: a file, a synthetic string, or this one."""
    if live == (file is not None):
        raise UsageError("name a file or a synthetic string, or --live, and not both")
    if file is None:
        return live_topology(source)
    if source:
        raise UsageError("--source goes with --live")
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


def _document(topology: Topology) -> dict[str, Any]:
    return {
        "schema": "apples.topology/1",
        "pus": len(topology.cpus),
        "cores": len(topology.cores),
        "packages": len(topology.packages),
        "numa_nodes": len(topology.nodes),
        "latencies": list(topology.latencies.distinct),
        "cpus": list(topology.cpus),
        "disallowed": list(topology.disallowed),
        "offline": list(topology.offline),
        "nodes": [
            {"node": n.number, "cpus": list(CpuSet(n.cpus)), "memory": n.memory, "kind": n.kind}
            for n in topology.nodes
        ],
        "matrix": {
            "nodes": list(topology.latencies.nodes),
            "values": [list(row) for row in topology.latencies.values],
        },
    }


def _fit_document(found: Fit) -> dict[str, Any]:
    return {
        "schema": "apples.fit/1",
        "cpus": list(found.cpus),
        "radius": found.radius,
        "centre": found.centre,
        "total": found.total,
        "memory": list(found.memory),
    }


def _answer_document(name: str, answer: BrokerAnswer) -> dict[str, Any]:
    return {
        "host": name,
        "verdict": answer.verdict.value,
        "reason": answer.reason,
        "found": answer.found,
        "needed": answer.needed,
        "key": answer.key,
        "radius": answer.quality[0] if answer else None,
    }


def _show_answers(answers: dict[str, BrokerAnswer], ranking: list[str]) -> None:
    yes, all_of_them = len(ranking), len(answers)
    show(f"{yes} of {all_of_them} can" + (f"; best: {ranking[0]}" if ranking else ""))
    width = max(map(len, answers))
    for name, answer in answers.items():
        reason = f"radius {answer.quality[0]:.4g}" if answer else answer.reason
        show(f"{name:<{width}}  {answer.verdict:<7}  {reason}")
