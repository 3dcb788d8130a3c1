"""Where the ranks of a schedule run when its hosts are not all this machine: addresses, logins, networks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from apples.agent.information import InformationPool, is_here, needs_of, own_files
from apples.errors import ApplesError, LaunchError
from apples.launch import ssh
from apples.launch.binding import bound_apart
from apples.launch.hydra import Segment
from apples.launch.remote import preflight
from apples.launch.remote.ask import printable
from apples.launch.remote.look import network, own_machine
from apples.launch.remote.resolving import numbers
from apples.launch.remote.ssh import reach
from apples.launch.talk import Talk
from apples.resources import Host
from apples.schedule import Allocation, Schedule
from apples.topology.live import live_topology
from apples.topology.probed import read_packed

NO_SHORT_CUTS = {"UCX_TLS": "tcp,self"}
"""Where hosts are parts of one machine (namespaces, containers), MPI must not see through them."""


def seats(schedule: Schedule, information: InformationPool) -> list[ssh.Seat]:
    """Return where each strip's ranks run, in strip order.

    Raises
    ------
    LaunchError
        A host whose address nobody knows.
    """
    here = own_address(schedule.resources, information)
    extra = NO_SHORT_CUTS if _share_a_machine(schedule.resources, information) else {}
    return [seat(one, information, here, extra) for one in schedule.allocations]


def seat(
    one: Allocation, information: InformationPool, here: str, extra: dict[str, str]
) -> ssh.Seat:
    """Return where one strip's ranks run; `here` is this machine's address, `extra` variables for them."""
    host = one.host
    if is_here(host):
        program = information.program(one.implementation)
        segment = Segment(host.name, one.ranks, program, host.cpus)
        return ssh.Seat(segment, here, environment={**network(here), **extra})
    way = reach(host, information.hosts)
    program = information.program(one.implementation, way.python)
    return ssh.Seat(
        Segment(host.name, one.ranks, program),
        _address(host, information),
        way,
        host.directory,
        own_files(information, program),
        extra,
    )


def seats_of_all(information: InformationPool) -> list[ssh.Seat]:
    """Return where ranks run on every host that a job may ever be on, with all its slots.

    Raises
    ------
    LaunchError
        A host whose address nobody knows.
    """
    every = tuple(
        Allocation(host, information.application.rows, information.implementation(host))
        for host in eligible(information)
    )
    return seats(Schedule(every), information)


def eligible(information: InformationPool) -> list[Host]:
    """Return the hosts a job may ever be on: with an implementation, fit, and allowed by the user."""
    refused = information.specifications.constraints.refusal
    return [
        host
        for host in information.hosts
        if information.implementation(host)
        and not information.unfit(host)
        and refused(host.name, host.site) is None
    ]


def looked(information: InformationPool, talk: Talk) -> InformationPool:
    """Look at every other machine the user may use and nobody has looked at."""
    refused = information.specifications.constraints.refusal
    unseen = [
        host
        for host in information.hosts
        if host.name not in information.looked_at
        and not is_here(host)
        and refused(host.name, host.site) is None
    ]
    if not unseen:
        return information
    found = preflight.preflight(unseen, information.hosts, needs_of(information))
    for name, one in found.items():
        if one.refusal:
            talk(f"warning: {name} cannot be used: {one.refusal}")
    return information.knowing(found)


def bound_seats(
    placed: Sequence[ssh.Seat], information: InformationPool
) -> tuple[list[ssh.Seat], str]:
    """Return the seats with the CPUs of each rank, and why no rank is bound; empty where none must share.

    Every host's answer is needed: no rank is bound where one host did not say what it may use.

    Raises
    ------
    LaunchError
        A CPU that the host list names is not this process's.
    """
    parties = []
    for one in placed:
        if one.reach is None:
            parties.append((one.segment, own_machine(), live_topology("sys")))
            continue
        name = one.segment.host
        seen = information.looked_at.get(name)
        if not (seen and seen.topology and seen.machine):
            return list(placed), f"no rank is bound to CPUs: {name} did not say which it may use"
        try:
            parties.append((one.segment, seen.machine, read_packed(seen.topology, name)))
        except ApplesError as error:
            return list(placed), f"no rank is bound to CPUs: {printable(str(error))}"
    segments = bound_apart(parties)
    return [replace(one, segment=s) for one, s in zip(placed, segments, strict=True)], ""


def own_address(hosts: Iterable[Host], information: InformationPool) -> str:
    """Return this machine's address as the others reach it; loopback where there are none."""
    there = [_address(host, information) for host in hosts if not is_here(host)]
    return preflight.address_towards(there) or "127.0.0.1"


def _address(host: Host, information: InformationPool) -> str:
    """Return a host's address as a number: its own word where it was asked, else looked up."""
    seen = information.looked_at.get(host.name)
    if seen and seen.address:
        return seen.address
    number = numbers({host.name: reach(host, information.hosts)}).get(host.name)
    if number is None:
        raise LaunchError(
            f"{host.name}: no address is known for {host.reached_at!r}: give it one in the host list"
        )
    return number


def _share_a_machine(hosts: Iterable[Host], information: InformationPool) -> bool:
    """Whether two of the hosts are parts of one machine that talk over a network of their own."""
    machines = []
    for host in hosts:
        seen = information.looked_at.get(host.name)
        if is_here(host):
            machines.append(own_machine())
        elif seen and seen.machine and not seen.address.startswith("127."):
            machines.append(seen.machine)
    return len(set(machines)) < len(machines)


def seat_alone(host: Host, implementation: str, information: InformationPool) -> ssh.Seat | None:
    """Return where one process on one host runs; None where that is this machine."""
    if host.name not in information.looked_at:
        return None
    schedule = Schedule((Allocation(replace(host, slots=1), 1, implementation),))
    return seats(schedule, information)[0]
