"""The lab's network as the text of the commands that make it (``ip -batch``, ``tc -batch``); and `shape`.

One Ethernet: a bridge for each site, all joined at a hub, inside a namespace of its own (the switch), so
that no firewall of this machine sees a packet. A site's link is the pair between its bridge and the hub,
shaped at both ends; a host's own link the pair between its ``eth0`` and its site. This machine is on the
hub, by one interface. `shape` gives the link of a site another rate while the lab is up.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apples.errors import UsageError
from apples.lab import execution as commands
from apples.lab.document import HEAD, LabDocument
from apples.lab.record import Lab
from apples.resources.host import NAME_PATTERN

POOL = ipaddress.ip_network("10.64.0.0/10")
"""Private addresses; a lab's network is 254 of them."""
AGENT_NUMBER, HEAD_NUMBER = 254, 253
"""Last numbers of the addresses of this machine and of the services of the lab."""
MIN_BURST = 3200
"""Two frames: with less, the shaper drops packets in place of delaying them."""
BURST_SECONDS = 5e-4
"""Seconds of the burst that passes unshaped: short enough that a border of some thousand numbers is slowed too."""
MIN_QUEUE, QUEUE_SECONDS = 1 << 18, 0.25
"""Bytes of the queue before the shaper: a shorter queue would drop packets, and a lost packet costs 0.2 s."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """The network of one lab: hosts are numbered in file order from 1."""

    network: ipaddress.IPv4Network

    def host(self, index: int) -> str:
        """Return the address of the host with that number in the file."""
        return str(self.network[index + 1])

    @property
    def agent(self) -> str:
        """This machine's own address in the lab."""
        return str(self.network[AGENT_NUMBER])

    @property
    def head(self) -> str:
        """The address of the lab's services."""
        return str(self.network[HEAD_NUMBER])

    def within(self, address: str) -> str:
        """Return an address with the length of the network's prefix."""
        return f"{address}/{self.network.prefixlen}"


def free_network(lab: str, taken: Sequence[str]) -> Addresses | None:
    """Return a network that overlaps no routed one; the search starts at a network that the identity selects.

    Parameters
    ----------
    lab
        Identity of the lab, hexadecimal.
    taken
        Networks that this machine has a route to, as ``10.0.0.0/8``.

    Examples
    --------
    >>> free_network("0001", []).host(0), free_network("0001", ["10.64.1.0/24"]).agent
    ('10.64.1.1', '10.64.2.254')
    >>> free_network("0001", ["10.0.0.0/8"]) is None
    True
    """
    others = [ipaddress.ip_network(text, strict=False) for text in taken]
    others = [one for one in others if one.version == 4 and one.prefixlen > 0]
    count = 1 << (24 - POOL.prefixlen)
    for offset in range(count):
        base = int(POOL.network_address) + ((int(lab, 16) + offset) % count << 8)
        network = ipaddress.IPv4Network((base, 24))
        if not any(network.overlaps(one) for one in others):
            return Addresses(network)
    return None


def routed(addresses: str, routes: str) -> list[str]:
    """Return the networks in the output of ``ip -j address`` and ``ip -j route show table all``."""
    found = []
    for link in json.loads(addresses or "[]"):
        found += [
            f"{a['local']}/{a['prefixlen']}" for a in link.get("addr_info", []) if "local" in a
        ]
    for route in json.loads(routes or "[]"):
        destination = route.get("dst", "default")
        if destination != "default" and route.get("type", "unicast") == "unicast":
            found.append(destination)
    return found


def names(document: LabDocument, addresses: Addresses, own: str) -> str:
    """Return the hosts' ``/etc/hosts``: all of them, the lab's services and this machine.

    Parameters
    ----------
    own
        Host name of this machine; left out if it is not a valid name.

    Examples
    --------
    >>> document = LabDocument(name="x", host=[{"name": "ada"}])
    >>> addresses = Addresses(ipaddress.IPv4Network("10.64.1.0/24"))
    >>> print(names(document, addresses, "here").splitlines()[2:])
    ['10.64.1.1 ada', '10.64.1.253 switch-of-the-lab', '10.64.1.254 here']
    """
    known = [("127.0.0.1", "localhost"), ("::1", "localhost")]
    known += [(addresses.host(i), host.name) for i, host in enumerate(document.host)]
    known.append((addresses.head, HEAD))
    if re.fullmatch(NAME_PATTERN, own):
        known.append((addresses.agent, own))
    return "".join(f"{address} {name}\n" for address, name in known)


def switch_links(
    document: LabDocument, addresses: Addresses, outer: str, agent: int, pids: Mapping[str, int]
) -> str:
    """Return the ``ip`` batch that makes bridges and links, run in the switch's namespace.

    Parameters
    ----------
    outer
        Name of this machine's interface in the lab.
    agent
        A process of this machine's own namespace.
    pids
        Host -> its first process.
    """
    lines = ["link set lo up", "link add name hub type bridge", "link set hub up"]
    lines.append(f"address add {addresses.within(addresses.head)} dev hub")
    lines.append(f"link add name agent type veth peer name {outer} netns {agent}")
    lines.append("link set agent master hub up")
    for i, _ in enumerate(document.sites):
        lines += [
            f"link add name site{i} type bridge",
            f"link set site{i} up",
            f"link add name up{i} type veth peer name down{i}",
            f"link set up{i} master site{i} up",
            f"link set down{i} master hub up",
        ]
    numbers = {site.name: i for i, site in enumerate(document.sites)}
    for i, host in enumerate(document.host):
        lines += [
            f"link add name host{i} type veth peer name eth0 netns {pids[host.name]}",
            f"link set host{i} master site{numbers[host.site]} up",
        ]
    return "\n".join(lines) + "\n"


def own_links(address: str, device: str) -> str:
    """Return the ``ip`` batch that gives one end of a pair its address."""
    return f"address add {address} dev {device}\nlink set {device} up\nlink set lo up\n"


def shaped(device: str, bandwidth: float | None, latency: float = 0.0, verb: str = "add") -> str:
    """Return the ``tc`` lines that shape the packets that leave by `device`; empty without limits.

    Parameters
    ----------
    bandwidth
        Bytes per second; None: not limited.
    latency
        Seconds by which each packet is delayed; needs netem.
    verb
        ``add``, or ``replace`` if the device is shaped already.

    Examples
    --------
    >>> print(shaped("up0", 1e6), end="")
    qdisc add dev up0 root handle 1: tbf rate 1000000bps burst 3200 limit 262144
    """
    if bandwidth is None:
        delay = f"qdisc {verb} dev {device} root handle 2: netem delay {latency * 1e6:.0f}us\n"
        return delay if latency else ""
    burst = max(MIN_BURST, round(bandwidth * BURST_SECONDS))
    queue = max(MIN_QUEUE, round(bandwidth * QUEUE_SECONDS))
    line = (
        f"qdisc {verb} dev {device} root handle 1: "
        f"tbf rate {bandwidth:.0f}bps burst {burst} limit {queue}\n"
    )
    if latency:
        line += (
            f"qdisc {verb} dev {device} parent 1:1 handle 2: netem delay {latency * 1e6:.0f}us\n"
        )
    return line


def switch_shaping(document: LabDocument, delayed: bool) -> str:
    """Return the ``tc`` batch of the switch: each site's link both ways, and each host's link towards the host."""
    lines = []
    for i, site in enumerate(document.sites):
        latency = site.latency if delayed else 0.0
        lines += [shaped(f"{end}{i}", site.bandwidth, latency) for end in ("up", "down")]
    lines += [shaped(f"host{i}", host.bandwidth) for i, host in enumerate(document.host)]
    return "".join(lines)


SLOWEST, FASTEST = 1e3, 1e11


def shape(lab: Lab, site: str, bandwidth: float) -> None:
    """Give the link between a site and all others a new rate, both ways; it is in force when this returns.

    Parameters
    ----------
    bandwidth
        Bytes per second.

    Raises
    ------
    UsageError
        The lab has no such site, or the rate is not positive.
    """
    if site not in lab.sites:
        raise UsageError(
            f"lab '{lab.name}' has no site '{site}' (it has {', '.join(lab.sites)})",
            code="site-unknown",
            lab=lab.name,
            value=site,
            known=[*lab.sites],
        )
    if not SLOWEST <= bandwidth <= FASTEST:
        raise UsageError(
            f"{bandwidth:g} bytes/s: must be from {SLOWEST:g} to {FASTEST:g}",
            code="value-range",
            field="bandwidth",
            value=bandwidth,
            bound=[SLOWEST, FASTEST],
        )
    number = lab.sites[site]
    lines = [shaped(f"{end}{number}", bandwidth, verb="replace") for end in ("up", "down")]
    commands.in_network(lab.switch.pid, ["tc", "-batch", "-"], "".join(lines))
