"""Looks at many hosts at once before anything is started on them."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from apples.launch.remote import bootstrap, ssh
from apples.launch.remote.addresses import is_number, numbers
from apples.launch.remote.connection import HostConnections
from apples.launch.remote.fitness import Finding, Fitness, Needs, judge
from apples.resources import Host, HostList

# ssh's own limit for a connection is 4 s. Every plan with a dead host waits this long.
LOOK_SECONDS = 5.5
"""For all hosts together, dead ones included."""
BUSY_SECONDS = 6.0
"""More for a host that has begun to answer: it is not dead but busy."""
LOOK = "apples.launch.remote.probe:main"


def preflight(
    hosts: Sequence[Host],
    listed: HostList,
    needs: Needs,
    seconds: float = LOOK_SECONDS,
    connections: HostConnections | None = None,
) -> dict[str, Fitness]:
    """Return the fitness of each host, by name; takes at most `seconds`, whatever is dead, busy ones longer.

    Parameters
    ----------
    connections
        Where there are connections already, and where those that are made stay; default: none stays.

    Raises
    ------
    UsageError
        A host whose words must not reach ssh. Permanent.
    """
    with contextlib.ExitStack() as stack:
        if connections is None:
            connections = stack.enter_context(HostConnections())
        connections.open(hosts, listed)
        reaches = {host.name: ssh.reach(host, listed) for host in hosts}
        back = _listeners(numbers(reaches), stack)
        packed = bootstrap.Program(LOOK, *([needs.probe] if needs.probe else []))
        answers = connections.look(
            {host.name: packed.parcel(_told(host, needs, back)) for host in hosts},
            seconds,
            BUSY_SECONDS,
        )
    found = {
        name: judge(name, answer, took, reaches[name].python)
        for name, (answer, took) in answers.items()
    }
    return _no_address_twice(found)


def _told(host: Host, needs: Needs, back: Mapping[str, list[object]]) -> dict[str, object]:
    return {
        "modules": list(needs.modules),
        "commands": list(needs.commands),
        "programs": list(needs.programs),
        "directory": host.directory,
        "probe": needs.probe,
        "back": back.get(host.name),
        "start": bootstrap.START,
    }


def _listeners(
    addresses: Mapping[str, str], stack: contextlib.ExitStack
) -> dict[str, list[object]]:
    """Return where each host is to connect back to: a port that is open while they look, and says nothing."""
    places: dict[str, list[object]] = {}
    own = address_towards(addresses.values())
    if not own:
        return places
    with contextlib.suppress(OSError):
        family = socket.AF_INET6 if ":" in own else socket.AF_INET
        listener = stack.enter_context(
            socket.create_server((own, 0), family=family, backlog=len(addresses) + 8)
        )
        port = listener.getsockname()[1]
        places = {name: [own, port] for name in addresses}
    return places


def address_towards(addresses: Iterable[str]) -> str:
    """Return the address of this machine on the way to most of some; empty where there is no way."""
    sources = Counter(source for address in addresses if (source := _source(address)))
    return sources.most_common(1)[0][0] if sources else ""


def _source(address: str) -> str:
    """Return the address the kernel would send from; no packet is sent and no name looked up."""
    if not is_number(address):
        return ""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as one:
        one.connect((address, 9))
        return str(one.getsockname()[0])
    return ""


def _no_address_twice(found: dict[str, Fitness]) -> dict[str, Fitness]:
    """Refuse a host that turns out to be one before it: MPI would not tell them apart."""
    first: dict[str, str] = {}
    for name, one in found.items():
        if not one.address or one.refusal:
            continue
        other = first.setdefault(one.address, name)
        if other != name:
            detail = f"its address {one.address} is that of {other}"
            twice = Finding("address", "fail", detail, "list it once, with more slots")
            found[name] = replace(one, findings=(*one.findings, twice))
    return found
