"""Which number a host's address stands for, and which hosts of a list are this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from apples.resources import Host, HostList

if TYPE_CHECKING:
    from apples.launch.remote.ssh import Reach

LOOKUP_SECONDS = 2.0
"""For ssh's configuration and for the resolver each; a name that takes longer is not known."""


def is_number(address: str) -> bool:
    r"""Whether an address is one, and no name.

    Examples
    --------
    >>> is_number("10.0.0.1"), is_number("fe80::1%eth0"), is_number("ada"), is_number("10.0.0.1\n")
    (True, True, False, False)
    """
    import ipaddress  # noqa: PLC0415 - a list without addresses does not pay for it

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
    import socket  # noqa: PLC0415 - a list without addresses does not pay for them

    import psutil  # noqa: PLC0415

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


def numbers(reaches: Mapping[str, Reach]) -> dict[str, str]:
    """Return the number of each host that one is known for, by name; takes at most 4 s.

    ssh's configuration is asked first, then the resolver.
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
    """Return the ``hostname`` of what ``ssh -G`` prints."""
    for line in output.decode(errors="replace").splitlines():
        if line.startswith("hostname "):
            return line.removeprefix("hostname ").strip()
    return ""


def _looked_up(named: Mapping[str, str]) -> dict[str, str]:
    """Return what the resolver says in time; threads that still wait end with the process."""
    from concurrent.futures import Future, ThreadPoolExecutor, wait  # noqa: PLC0415 - as above

    pool = ThreadPoolExecutor(max(1, min(32, len(named))))
    asked: dict[Future[str], str] = {pool.submit(_number, w): name for name, w in named.items()}
    done, _ = wait(asked, LOOKUP_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return {asked[one]: number for one in done if (number := one.result())}


def _number(name: str) -> str:
    import socket  # noqa: PLC0415 - as above

    try:
        return str(socket.getaddrinfo(name, None)[0][4][0])
    except (OSError, UnicodeError):
        return ""
