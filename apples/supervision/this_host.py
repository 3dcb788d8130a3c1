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
    bridge = os.path.isdir(f"/sys/class/net/{name}/bridge")  # noqa: PTH112
    return {"UCX_NET_DEVICES": name, **({"UCX_TCP_BRIDGE_ENABLE": "y"} if bridge else {})}


def interface_of(address: str) -> str:
    """Return the name of the interface that bears an address, empty where none does."""
    if address.startswith("127."):
        return "lo"
    if ":" in address:
        return _interface_of_6(address.partition("%")[0])
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        wanted = socket.inet_aton(address)
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                told = fcntl.ioctl(one.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()))
                if told[20:24] == wanted:
                    return name
    return ""


def _interface_of_6(address: str) -> str:
    with contextlib.suppress(OSError), open("/proc/net/if_inet6") as file:  # noqa: PTH123
        wanted = socket.inet_pton(socket.AF_INET6, address).hex()
        for line in file:
            words = line.split()
            if words[0] == wanted:
                return words[5]
    return ""
