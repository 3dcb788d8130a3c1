"""Build the launch targets of a schedule with other machines: addresses, logins and networks of its ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from apples.errors import ApplesError, ApplicationError, LaunchError
from apples.launch import ssh
from apples.launch.binding import bound_apart
from apples.launch.events import Talk
from apples.launch.hydra import RankGroup
from apples.launch.plan import HostProgram, HostSurvey, LaunchPlan, ranks_of_hosts
from apples.launch.remote import preflight
from apples.launch.remote.addresses import is_here, is_ipv4, numbers
from apples.launch.remote.ask import printable
from apples.launch.remote.connection import HostConnections
from apples.launch.remote.fitness import Finding, Fitness, own_version
from apples.launch.remote.ssh import reach
from apples.launch.this_host import network, own_machine
from apples.resources import Host
from apples.resources.schedule import Allocation
from apples.topology.sources.sysfs import read_packed
from apples.topology.sources.this_machine import live_topology

NO_SHORT_CUTS = {"UCX_TLS": "tcp,self"}
"""Transport for hosts that are parts of one machine (namespaces, containers): MPI must use their network."""


def launch_targets(plan: LaunchPlan) -> list[ssh.LaunchTarget]:
    """Return the launch target of each host, in strip order.

    Raises
    ------
    LaunchError
        The address of a host is unknown.
    """
    hosts = ranks_of_hosts(plan.strips)
    targets = _targets([(strip.program, ranks) for strip, ranks in hosts], plan)
    return [
        replace(
            one,
            rank_group=replace(
                one.rank_group, threads=max(1, strip.threads), messages=strip.messages
            ),
        )
        for one, (strip, _) in zip(targets, hosts, strict=True)
    ]


def targets_of_all(plan: LaunchPlan) -> list[ssh.LaunchTarget]:
    """Return a launch target for every host that a malleable job may ever use, with all its slots.

    Raises
    ------
    LaunchError
        The address of a host is unknown.
    """
    return _targets([(one, _most_ranks(one, plan)) for one in eligible(plan)], plan)


def first_target(plan: LaunchPlan) -> ssh.LaunchTarget:
    """Return the launch target of a plan's first host."""
    return launch_targets(plan)[0]


def _targets(
    parties: Sequence[tuple[HostProgram, int]], plan: LaunchPlan
) -> list[ssh.LaunchTarget]:
    hosts = [program.host for program, _ in parties]
    here = own_address(hosts, plan)
    # Otherwise UCX uses shared memory and bypasses the shaped links between namespaces.
    extra = NO_SHORT_CUTS if _share_a_machine(hosts, plan.findings) else {}
    return [_target(program, ranks, plan, here, extra) for program, ranks in parties]


def _target(
    program: HostProgram, ranks: int, plan: LaunchPlan, here: str, extra: Mapping[str, str]
) -> ssh.LaunchTarget:
    """Return the launch target of one host; `here` is this machine's address, `extra` variables of its ranks."""
    host = program.host
    if is_here(host):
        rank_group = RankGroup(host.name, ranks, program.local, host.cpus)
        ways = (one.back for one in plan.findings.values() if one.back and not one.refusal)
        return ssh.LaunchTarget(rank_group, here, environment={**network(here, *ways), **extra})
    return ssh.LaunchTarget(
        RankGroup(host.name, ranks, program.remote),
        _address(host, plan),
        reach(host, plan.hosts),
        host.directory,
        program.files,
        extra,
        plan.findings[host.name].back if host.name in plan.findings else "",
    )


def eligible(plan: LaunchPlan) -> tuple[HostProgram, ...]:
    """Return the program's command lines on every host that a malleable job may ever use.

    Raises
    ------
    ApplicationError
        The program is not malleable. Permanent.
    """
    if plan.malleable is None:
        raise ApplicationError(
            f"{plan.application}: its template lacks 'malleable = true'",
            code="template-not-malleable",
            template=plan.application,
        )
    return plan.malleable.programs


def eligible_groups(plan: LaunchPlan) -> list[RankGroup]:
    """Return the ranks of every host that a malleable job may ever use, as parts of this machine."""
    return [
        RankGroup(one.host.name, _most_ranks(one, plan), one.local, one.host.cpus)
        for one in eligible(plan)
    ]


def _most_ranks(program: HostProgram, plan: LaunchPlan) -> int:
    """Return the number of ranks of a host if it had all rows."""
    return Allocation(program.host, plan.rows).ranks


def hosts_looked_at(
    survey: HostSurvey, talk: Talk, connections: HostConnections | None = None
) -> dict[str, Fitness]:
    """Check every allowed host on another machine that has no findings; return the new findings.

    For a malleable job, also reject every host without this version of apples, even if it was checked earlier: the
    program imports its part of the protocol from apples there.
    """
    unseen = [host for host in survey.unseen if not is_here(host)]
    found: dict[str, Fitness] = {}
    if unseen:
        found = preflight.preflight(unseen, survey.hosts, survey.needs, connections=connections)
    refused = {name: one for name, one in found.items() if one.refusal}
    if survey.malleable:
        strangers = {
            name: replace(one, findings=(*one.findings, _stranger(one.apples)))
            for name, one in {**survey.findings, **found}.items()
            if not one.refusal and one.apples != own_version("apples")
        }
        found |= strangers
        refused |= strangers
    for name, one in refused.items():
        talk(f"warning: {name} cannot be used: {one.refusal}")
    return found


def _stranger(found: str) -> Finding:
    what = f"apples {found} there" if found else "apples is not installed for its Python"
    return Finding("apples", "fail", f"{what}, a malleable job needs {own_version('apples')}")


def bound_targets(
    placed: Sequence[ssh.LaunchTarget], findings: Mapping[str, Fitness]
) -> tuple[list[ssh.LaunchTarget], str]:
    """Return the targets with the CPUs of each rank, and the reason if no rank could be bound, else empty.

    If the permitted CPUs of one host are unknown, no rank is bound on any host.

    Raises
    ------
    LaunchError
        The host list names a CPU that this process may not use.
    """
    parties = []
    for one in placed:
        if one.reach is None:
            parties.append((one.rank_group, own_machine(), live_topology("sys")))
            continue
        name = one.rank_group.host
        seen = findings.get(name)
        if not (seen and seen.topology and seen.machine):
            return list(
                placed
            ), f"no rank is bound to CPUs: {name} did not report which it may use"
        try:
            parties.append((one.rank_group, seen.machine, read_packed(seen.topology, name)))
        except ApplesError as error:
            return list(placed), f"no rank is bound to CPUs: {printable(str(error))}"
    rank_groups = bound_apart(parties)
    return [replace(one, rank_group=s) for one, s in zip(placed, rank_groups, strict=True)], ""


def own_address(hosts: Iterable[Host], plan: LaunchPlan) -> str:
    """Return this machine's address as the other hosts reach it; loopback without other hosts."""
    others = [host for host in hosts if not is_here(host)]
    seen = [plan.findings[host.name].back for host in others if host.name in plan.findings]
    if known := Counter(address for address in seen if is_ipv4(address)):
        return known.most_common(1)[0][0]
    return preflight.address_towards(_address(host, plan) for host in others) or "127.0.0.1"


def _address(host: Host, plan: LaunchPlan) -> str:
    """Return the IP address of a host, from its own report if it was checked, else by a lookup."""
    seen = plan.findings.get(host.name)
    if seen and seen.address:
        return seen.address
    number = numbers({host.name: reach(host, plan.hosts)}).get(host.name)
    if number is None:
        raise LaunchError(
            f"{host.name}: no address is known for {host.reached_at!r}: give it one in the host list",
            code="address-unknown",
            host=host.name,
            value=host.reached_at,
        )
    return number


def _share_a_machine(hosts: Iterable[Host], findings: Mapping[str, Fitness]) -> bool:
    """Whether two hosts are parts of one machine and reach each other over a network other than loopback."""
    machines = []
    for host in hosts:
        seen = findings.get(host.name)
        if is_here(host):
            machines.append(own_machine())
        elif seen and seen.machine and not seen.address.startswith("127."):
            machines.append(seen.machine)
    return len(set(machines)) < len(machines)
