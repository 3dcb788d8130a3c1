"""What a program of ours must know of the host it runs on. Standard library only; travels over connections."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct

SIOCGIFADDR = 0x8915


def own_machine() -> str:
    """Return what is the same for all namespaces and containers of one machine until it starts again."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:  # noqa: PTH123
        return file.read().strip()
    return ""


def located(place: str, directory: str) -> str:
    """Return where a file of the template's folder is here: the same path, else in the working directory."""
    if os.path.exists(place):  # noqa: PTH110
        return place
    own = os.path.join(directory, os.path.basename(place))  # noqa: PTH118, PTH119
    return own if os.path.exists(own) else place  # noqa: PTH110


def network(address: str) -> dict[str, str]:
    """Return the variables that keep MPI on the interface which bears an address; none where nobody knows."""
    name = interface_of(address)
    if not name:
        return {}
    # UCX ignores bridges unless asked; a workstation with virtual machines often has its address on
    # one.
    bridge = os.path.isdir(f"/sys/class/net/{name}/bridge")  # noqa: PTH112
    return {"UCX_NET_DEVICES": name, **({"UCX_TCP_BRIDGE_ENABLE": "y"} if bridge else {})}


def interface_of(address: str) -> str:
    """Return the name of the interface that bears an address, empty where none does."""
    if address.startswith("127."):
        return "lo"
    if ":" in address:
        return _interface_of_6(address.partition("%")[0])
    with contextlib.suppress(OSError):
        wanted = socket.inet_ntoa(socket.inet_aton(address))
        return next((name for name, found in _interfaces() if found == wanted), "")
    return ""


def addresses(interfaces: str = "") -> list[str]:
    """Return the addresses (IPv4) of this host: of these interfaces, or of all, loopback last.

    Parameters
    ----------
    interfaces
        Names with commas between; empty: all.
    """
    wanted = interfaces.split(",") if interfaces else []
    found = [(name, one) for name, one in _interfaces() if not wanted or name in wanted]
    return [one for _, one in sorted(found, key=lambda pair: pair[0] == "lo")]


def _interfaces() -> list[tuple[str, str]]:
    """Return every interface that has an address (IPv4), with the first one."""
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
