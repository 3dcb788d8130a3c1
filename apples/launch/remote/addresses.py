"""Resolve host addresses to IP addresses, and find the hosts of a list that are this machine.

In this module a *number* is an IP address, and an *address* is an IP address or a name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from apples.resources import Host, HostList

if TYPE_CHECKING:
    from apples.launch.remote.ssh import Reach

LOOKUP_SECONDS = 2.0
"""Time limit of ssh's configuration and of the resolver, each; a name that takes longer counts as unknown."""


def is_number(address: str) -> bool:
    r"""Whether an address is an IP address, not a name.

    Examples
    --------
    >>> is_number("10.0.0.1"), is_number("fe80::1%eth0"), is_number("ada"), is_number("10.0.0.1\n")
    (True, True, False, False)
    """
    import ipaddress  # noqa: PLC0415 - slow to load, and many host lists have no addresses

    number, _, zone = address.partition("%")
    if zone and not zone.replace("-", "").replace(".", "").isalnum():
        return False
    try:
        ipaddress.ip_address(number)
    except ValueError:
        return False
    return True


def is_here(host: Host) -> bool:
    """Whether a host of the list is this machine or a part of it.

    The address decides, or the name if it has no address. A host with CPUs but without address and login is a part
    of this machine.
    """
    if host.cpus and not (host.address or host.user):
        return True
    name = host.reached_at.lower().rstrip(".")
    numbers_here = _own_numbers()
    if is_number(name):
        return _canonical(name) in numbers_here
    import socket  # noqa: PLC0415 - slow to load, as above

    own = socket.gethostname().lower()
    names = {"localhost", "localhost.localdomain", own, own.partition(".")[0]}
    with contextlib.suppress(OSError):
        names |= names_in(Path("/etc/hosts").read_text(errors="replace"), numbers_here)
    if name in names:
        return True
    # Only the resolver may know the full name of this machine. Other names are not looked up: a list may have
    # hundreds of them.
    same = name.partition(".")[0] == own.partition(".")[0]
    return same and _canonical(_looked_up({name: name}).get(name, "")) in numbers_here


def names_in(text: str, numbers: Collection[str]) -> set[str]:
    r"""Return the names of these IP addresses in the text of a hosts file.

    Examples
    --------
    >>> sorted(names_in("127.0.1.1 ada.example.org ada\n10.0.0.7 bob", {"127.0.1.1"}))
    ['ada', 'ada.example.org']
    """
    lines = [line.partition("#")[0].lower().split() for line in text.splitlines()]
    known = (words for words in lines if words and _canonical(words[0]) in numbers)
    return {name for _, *names in known for name in names}


def _canonical(number: str) -> str:
    """Return an IP address in canonical form, an IPv4-mapped IPv6 address as IPv4; empty if invalid."""
    import ipaddress  # noqa: PLC0415 - as above

    try:
        address = ipaddress.ip_address(number)
    except ValueError:
        return ""
    inner = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(inner or address)


def _own_numbers() -> set[str]:
    """Return the IP addresses of this machine's interfaces, and 127.0.1.1, Debian's address of its host name."""
    import psutil  # noqa: PLC0415 - as above

    listed = (one.address for found in psutil.net_if_addrs().values() for one in found)
    return {"127.0.0.1", "127.0.1.1", "::1", *map(_canonical, listed)} - {""}


def is_own(address: str) -> bool:
    """Whether an IP address belongs to an interface of this machine."""
    return _canonical(address) in _own_numbers()


def own_ipv4() -> list[str]:
    """Return the IPv4 addresses of this machine's interfaces, without loopback addresses."""
    import socket  # noqa: PLC0415 - as above

    import psutil  # noqa: PLC0415 - as above

    listed = (one for found in psutil.net_if_addrs().values() for one in found)
    found = [one.address for one in listed if one.family == socket.AF_INET]
    return [address for address in found if not address.startswith("127.")]


def is_ipv4(address: str) -> bool:
    """Whether an address is an IPv4 address.

    Examples
    --------
    >>> is_ipv4("10.0.0.1"), is_ipv4("fe80::1"), is_ipv4("ada")
    (True, False, False)
    """
    return is_number(address) and ":" not in address


def remote_hosts(hosts: HostList) -> tuple[Host, ...]:
    """Return the hosts that are other machines by the host list alone.

    These have an address or a login, or the list has an ssh configuration. The local actuator emulates a host with
    only a name on this machine, as in the examples.
    """
    return tuple(
        host
        for host in hosts
        if (host.address or host.user or hosts.ssh_config) and not is_here(host)
    )


def numbers(reaches: Mapping[str, Reach]) -> dict[str, str]:
    """Return the IP address of each host by name, except for unknown addresses; takes at most 4 s.

    ssh's configuration is read first, then the resolver is queried.
    """
    from apples.launch.remote import ssh  # noqa: PLC0415 - for names only
    from apples.launch.remote.ask import RemoteQuestion, ask  # noqa: PLC0415

    found = {name: one.address for name, one in reaches.items() if is_number(one.address)}
    named = {name: one for name, one in reaches.items() if name not in found}
    if not named:
        return found
    answers = ask(
        {n: RemoteQuestion(ssh.configured(one), b"") for n, one in named.items()}, LOOKUP_SECONDS
    )
    meant = {name: _hostname(answer.output) for name, answer in answers.items()}
    found |= {name: word for name, word in meant.items() if is_number(word)}
    return found | _looked_up({n: word for n, word in meant.items() if word and n not in found})


def _hostname(output: bytes) -> str:
    """Return the ``hostname`` in the output of ``ssh -G``."""
    for line in output.decode(errors="replace").splitlines():
        if line.startswith("hostname "):
            return line.removeprefix("hostname ").strip()
    return ""


def _looked_up(named: Mapping[str, str]) -> dict[str, str]:
    """Return the IP addresses that the resolver finds in time; threads that still wait end with the process."""
    from concurrent.futures import Future, ThreadPoolExecutor, wait  # noqa: PLC0415 - as above

    pool = ThreadPoolExecutor(max(1, min(32, len(named))))
    asked: dict[Future[str], str] = {pool.submit(_number, w): name for name, w in named.items()}
    done, _ = wait(asked, LOOKUP_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return {asked[one]: number for one in done if (number := one.result())}


def _number(name: str) -> str:
    """Return an IP address of a name, preferably IPv4: mpiexec listens only on IPv4; empty if unknown."""
    import socket  # noqa: PLC0415 - as above

    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ""
    return str(next((one for one in found if one[0] == socket.AF_INET), found[0])[4][0])
