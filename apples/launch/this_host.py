"""Queries about the host on which this code runs. Standard library only: it is also sent to other hosts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

SIOCGIFADDR = 0x8915
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - fixed by MPI
SHARED_BYTES_PER_RANK = 5_500_000
"""Shared memory of MPICH 5.0 for each rank: 5.39 MB, the same with 1 to 12 ranks on one machine."""
PYTHON = "{python}"
"""Placeholder in the words of a program for the interpreter of the host on which the program runs."""


def own_machine() -> str:
    """Return the boot id, which all namespaces and containers of a machine share until it restarts."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        return file.read().strip()
    return ""


def located(place: str, directory: str) -> str:
    """Return the path of a template's file on this host: the same path if it exists, else in `directory`."""
    if os.path.exists(place):  # noqa: PTH110
        return place
    own = os.path.join(directory, os.path.basename(place))  # noqa: PTH118, PTH119
    return own if os.path.exists(own) else place  # noqa: PTH110


def network(*addresses: str) -> dict[str, str]:
    """Return the variables that restrict MPI to the interfaces with these addresses; empty if unknown."""
    names = [name for name in dict.fromkeys(map(interface_of, addresses)) if name]
    if not names:
        return {}
    # UCX ignores bridges by default. A workstation with virtual machines often has its address on a bridge.
    bridge = any(os.path.isdir(f"/sys/class/net/{name}/bridge") for name in names)  # noqa: PTH112
    devices = {"UCX_NET_DEVICES": ",".join(names)}
    return {**devices, **({"UCX_TCP_BRIDGE_ENABLE": "y"} if bridge else {})}


def ssh_network() -> dict[str, str]:
    """Return the variables that restrict MPI to the network interface of this process's ssh connection."""
    server = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 4)[2]
    return network(server)


def lacking_shared_memory(ranks: int) -> str:
    """Return a message if shared memory on this host is too small for the ranks of one run; else empty."""
    try:
        found = os.statvfs(SHARED_MEMORY)
    except OSError:
        return ""
    free, need = found.f_bavail * found.f_frsize, ranks * SHARED_BYTES_PER_RANK
    if free >= need:
        return ""
    total = found.f_blocks * found.f_frsize
    return (
        f"{SHARED_MEMORY} has {free / 1e6:.0f} of {total / 1e6:.0f} MB free; "
        f"{ranks} ranks of MPI need {need / 1e6:.0f} MB"
    )


def with_python(word: str) -> str:
    """Return a word of a program with `PYTHON` replaced by the interpreter that runs this code.

    Examples
    --------
    >>> with_python("{python}") == sys.executable, with_python("--n=9")
    (True, '--n=9')
    """
    return word.replace(PYTHON, sys.executable)


def locate_programs(
    launch: dict[str, Any], home: str, local_word: Callable[[str], str] = with_python
) -> None:
    """Fill this host's paths into a launch file: its directory, and the words of each program.

    Parameters
    ----------
    home
        Working directory of the program; empty: the login directory.
    local_word
        Translates a word of a program for this host, unless the word is a file of the template's folder.
    """
    directory = launch["directory"] = os.path.expanduser(home or "~")  # noqa: PTH111
    for entry in launch["hosts"]:
        files = set(entry.pop("programs"))
        entry["program"] = [
            located(word, directory) if word in files else local_word(word)
            for word in entry["program"]
        ]


def interface_of(address: str) -> str:
    """Return the name of the interface with an address; empty if no interface has it."""
    if address.startswith("127."):
        return "lo"
    if ":" in address:
        return _interface_of_6(address.partition("%")[0])
    with contextlib.suppress(OSError):
        wanted = socket.inet_ntoa(socket.inet_aton(address))
        return next((name for name, found in _interfaces() if found == wanted), "")
    return ""


def addresses(interfaces: str = "") -> list[str]:
    """Return the IPv4 addresses of this host's interfaces, loopback last.

    Parameters
    ----------
    interfaces
        Names of interfaces, separated by commas; empty: all.
    """
    wanted = interfaces.split(",") if interfaces else []
    found = [(name, one) for name, one in _interfaces() if not wanted or name in wanted]
    return [one for _, one in sorted(found, key=lambda pair: pair[0] == "lo")]


def ipv4_beside(address: str) -> str:
    """Return the IPv4 address of the interface with a given IPv6 address; empty if it has none."""
    if ":" not in address:
        return ""
    name = interface_of(address)
    return next((found for interface, found in _interfaces() if interface == name), "")


def _interfaces() -> list[tuple[str, str]]:
    """Return every interface with an IPv4 address, and the first such address of each."""
    found = []
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                told = fcntl.ioctl(one.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()))
                found.append((name, socket.inet_ntoa(told[20:24])))
    return found


def _interface_of_6(address: str) -> str:
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as file:  # noqa: PTH123
        wanted = socket.inet_pton(socket.AF_INET6, address).hex()
        for line in file:
            words = line.split()
            if words[0] == wanted:
                return words[5]
    return ""
