"""Check many hosts at the same time, before a program is started on them."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from apples.launch.remote import bootstrap, ssh
from apples.launch.remote.addresses import is_ipv4, is_number, is_own, numbers, own_ipv4
from apples.launch.remote.connection import HostConnections
from apples.launch.remote.fitness import Finding, Fitness, Needs, judge
from apples.launch.this_host import own_machine
from apples.resources import Host, HostList

# More than ssh's own time limit of 4 s for a connection. Every plan with a dead host waits this long.
LOOK_SECONDS = 5.5
"""Time limit for all hosts together, including dead hosts."""
MAX_WAYS = 8
"""Maximum number of this machine's addresses to which a host tries to connect back."""
BUSY_SECONDS = 6.0
"""Extension of the time limit for a host that has begun to answer: it is busy, not dead."""
LOOK = "apples.launch.remote.probe:main"


def preflight(
    hosts: Sequence[Host],
    listed: HostList,
    needs: Needs,
    seconds: float = LOOK_SECONDS,
    connections: HostConnections | None = None,
) -> dict[str, Fitness]:
    """Return the fitness of each host by name; takes at most `seconds` even with dead hosts, busy hosts longer.

    Parameters
    ----------
    connections
        Existing connections to use; new connections are added and stay open. None: close all connections at the
        end.

    Raises
    ------
    UsageError
        A field of a host is unsafe for ssh (`ssh.Reach`). Permanent.
    """
    with contextlib.ExitStack() as stack:
        if connections is None:
            connections = stack.enter_context(HostConnections())
        connections.open(hosts, listed)
        reaches = {host.name: ssh.reach(host, listed) for host in hosts}
        back = _ways_back(numbers(reaches), _listen(stack, len(hosts)), needs)
        packed = bootstrap.Program(LOOK, *([needs.probe] if needs.probe else []))
        answers = connections.look(
            {host.name: packed.parcel(_told(host, needs, back)) for host in hosts},
            seconds,
            BUSY_SECONDS,
        )
    found = {
        name: judge(name, answer, took, reaches[name].python, ssh.login(reaches[name]))
        for name, (answer, took) in answers.items()
    }
    return _no_loopback_beside_others(_no_address_twice(found))


def _told(host: Host, needs: Needs, back: Callable[[str], object]) -> dict[str, object]:
    return {
        "modules": list(needs.modules),
        "commands": list(needs.commands),
        "programs": list(needs.programs),
        "directory": host.directory,
        "probe": needs.probe,
        "slots": host.slots,
        "back": back(host.name),
        "start": bootstrap.START,
    }


def _listen(stack: contextlib.ExitStack, hosts: int) -> int:
    """Return a port that is open on all addresses during the checks; 0 if none could be opened."""
    with contextlib.suppress(OSError):
        both = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both else socket.AF_INET
        listener = stack.enter_context(
            socket.create_server(
                ("", 0), family=family, backlog=MAX_WAYS * hosts + 8, dualstack_ipv6=both
            )
        )
        return int(listener.getsockname()[1])
    return 0


def _ways_back(
    addresses: Mapping[str, str], port: int, needs: Needs
) -> Callable[[str], dict[str, object] | None]:
    """Return a function from host name to the addresses of this machine to which the host must connect back.

    The address on the way to the host comes first.
    """
    own = own_ipv4()

    def ways(name: str) -> dict[str, object] | None:
        source = _source(addresses.get(name, ""))
        first = [source] if is_ipv4(source) else []
        last = [source] if source and needs.ipv6 and not first else []
        every = [*list(dict.fromkeys((*first, *own)))[:MAX_WAYS], *last]
        return {"addresses": every, "port": port} if port else None

    return ways


def address_towards(addresses: Iterable[str]) -> str:
    """Return the address of this machine on the way to most of `addresses`; empty without a route."""
    sources = Counter(source for address in addresses if (source := _source(address)))
    return sources.most_common(1)[0][0] if sources else ""


def _source(address: str) -> str:
    """Return the kernel's source address for packets to an IP address; sends no packet, looks up no name."""
    if not is_number(address):
        return ""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as one:
        one.connect((address, 9))
        return str(one.getsockname()[0])
    return ""


def _no_address_twice(found: dict[str, Fitness]) -> dict[str, Fitness]:
    """Reject a host with the address of an earlier host or of this machine: MPI needs distinct addresses."""
    first: dict[str, str] = {}
    for name, one in found.items():
        if not one.address or one.refusal:
            continue
        other = first.setdefault(one.address, name)
        if other != name:
            same = one.machine == found[other].machine
            cure = "list it once, with more slots" if same else "give each an address of its own"
            found[name] = _unfit(one, f"its address {one.address} is that of {other}", cure)
        elif one.machine == own_machine() and is_own(one.address):
            detail = f"its address {one.address} is this machine's own"
            found[name] = _unfit(one, detail, "list this machine as localhost")
    return found


def _no_loopback_beside_others(found: dict[str, Fitness]) -> dict[str, Fitness]:
    """Reject hosts with a loopback address if other hosts have none: the others cannot connect to them."""
    fit = {name: one for name, one in found.items() if one.address and not one.refusal}
    loopback = {name: one for name, one in fit.items() if one.address.startswith("127.")}
    if len(loopback) < len(fit):
        for name, one in loopback.items():
            detail = (
                f"its address {one.address} is loopback, to which the other hosts cannot connect"
            )
            cure = "list the address by which the others reach it; this machine is localhost"
            found[name] = _unfit(one, detail, cure)
    return found


def _unfit(one: Fitness, detail: str, cure: str) -> Fitness:
    return replace(one, findings=(*one.findings, Finding("address", "fail", detail, cure)))
