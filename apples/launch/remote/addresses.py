"""Addresses that are numbers, and which hosts of a list are this machine."""

from __future__ import annotations

import ipaddress
import socket

from apples.resources import Host, HostList


def is_number(address: str) -> bool:
    r"""Whether an address is one, and no name.

    Examples
    --------
    >>> is_number("10.0.0.1"), is_number("fe80::1%eth0"), is_number("ada"), is_number("10.0.0.1\n")
    (True, True, False, False)
    """
    number, _, zone = address.partition("%")
    if zone and not zone.replace("-", "").replace(".", "").isalnum():
        return False
    try:
        ipaddress.ip_address(number)
    except ValueError:
        return False
    return True


def is_here(host: Host) -> bool:
    """Whether a host of the list is this machine, or a part of it."""
    if host.cpus:
        return True
    import psutil  # noqa: PLC0415 - a decision about other machines only does not pay for it

    own = {"localhost", "localhost.localdomain", socket.gethostname()}
    own |= {a.address for addresses in psutil.net_if_addrs().values() for a in addresses}
    return host.reached_at in own


def remote_hosts(hosts: HostList) -> tuple[Host, ...]:
    """Return the hosts that the list itself says are other machines.

    By an address, a login, or an ssh configuration for all; a bare name is played here by the local
    actuator, as in the examples.
    """
    return tuple(
        host
        for host in hosts
        if (host.address or host.user or hosts.ssh_config) and not is_here(host)
    )
