"""Probe: examine the host on which this runs, and print the findings as one line of JSON. Standard library only.

It is sent over ssh (`apples.launch.remote.bootstrap`). Every check has its own short time limit, so that the
answer arrives within the time limit of the question. Then it waits for further commands of its connection
(`apples.launch.remote.connection`), and ends with the connection.

Every job probes every host, so the probe loads few modules. `importlib.metadata`, which reads versions, and the
IDNA codec, which name lookups of text load, would double its time.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from apples.launch.this_host import ipv4_beside, lacking_shared_memory, located, own_machine

SCHEMA = "apples.look/1"
START = (sys.executable, "-I", "-S", "-c")
RESOLVE_SECONDS = 2.0
BACK_SECONDS = 2.0
DESCRIBE_SECONDS = 2.0
MAX_DESCRIBED = 1 << 19
"""Maximum characters of a topology; the reader accepts a megabyte for the whole answer."""


def main(told: dict[str, Any]) -> int:
    """Print the findings of this host that the request `told` asks for; then carry out further commands."""
    sys.stdout.write("\n")
    sys.stdout.flush()  # the beginning of an answer shows that the host is not dead, only busy
    found: dict[str, Any] = {"schema": SCHEMA}
    name = socket.gethostname()
    resolved = _within(RESOLVE_SECONDS, lambda: socket.getaddrinfo(name.encode(), None)[0][4][0])
    client, _, server = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 3)[:3]
    reached = _reached(told["back"], client) if told["back"] else None
    described = _within(DESCRIBE_SECONDS, lambda: _described(told["probe"]))
    directory = os.path.expanduser(told["directory"] or "~")  # noqa: PTH111 - pathlib is slow to load
    found |= {
        "python": list(sys.version_info[:3]),
        "packages": {one: installed_version(one) for one in ("apples", "mpich", "mpi4py")},
        "proxy": os.access(_beside("hydra_pmi_proxy"), os.X_OK),
        "machine": os.uname().machine,
        "boot": own_machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": _available_memory(),
        "address": ipv4_beside(server) or server,
        "modules": {one: _importable(one) for one in told["modules"]},
        "commands": {one: _is_command(one) for one in told["commands"]},
        "programs": [place for each in told["programs"] if (place := _missing(each, directory))],
        "asked": len(told["programs"]),
        "directory": _directory(directory),
        "disk": {place: _free(place) for place in (directory, "/tmp")},  # noqa: S108 - looked at only
        "shm": lacking_shared_memory(told["slots"]),
        "name": name,
        "resolves": resolved(),
        "back": reached() if reached else None,
        "topology": described().get("value", ""),
        "time": time.time(),
    }
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    while word := _word():
        if word == b"sense":
            _sense()
        elif word == b"next":
            os.execv(sys.executable, [*START, told["start"], *sys.argv[1:]])  # noqa: S606 - ourselves
    os._exit(0)  # does not wait for threads that still wait for an answer


def _word() -> bytes:
    """Read and return the next line byte by byte, since later bytes are for another program; empty at the end."""
    line = b""
    while not line.endswith(b"\n"):
        one = os.read(0, 1)
        if not one:
            return b""
        line += one
    return line[:-1]


def _sense() -> None:
    """Run a sensor process until the order to leave. If apples is not installed, print the reason and exit."""
    try:
        sensing = importlib.import_module("nws.sensing.stdio")
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        os._exit(1)
    sensing.main()


def _within(seconds: float, act: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    """Start `act` in a thread; return a function that waits for its value or error and its seconds, in time."""
    done: dict[str, Any] = {}
    begin = time.monotonic()

    def run() -> None:
        try:
            done["value"] = act()
        except (OSError, UnicodeError) as error:
            done["error"] = getattr(error, "strerror", None) or str(error)
        done["seconds"] = time.monotonic() - begin

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait() -> dict[str, Any]:
        thread.join(max(0.0, begin + seconds - time.monotonic()))
        return dict(done) if "seconds" in done else {"error": "no answer", "seconds": seconds}

    return wait


def _reached(back: dict[str, Any], client: str) -> Callable[[], dict[str, Any]]:
    """Start to connect to the agent's addresses; return a function that waits for the first that is reachable.

    `client`, the source address of the agent's ssh connection, comes after the IPv4 addresses. Behind a forwarded
    port it may be the only reachable address.
    """
    every = dict.fromkeys([*back["addresses"], *([client] if ":" not in client else [])])
    begun = [
        (address, _within(BACK_SECONDS, lambda address=address: _connects(address, back["port"])))  # type: ignore[misc]
        for address in sorted(filter(None, every), key=lambda address: ":" in address)
    ]

    def wait() -> dict[str, Any]:
        errors = {}
        for address, result in begun:
            found = result()
            if "error" not in found:
                return {"value": address, "seconds": found["seconds"]}
            errors[address] = found["error"]
        return {"errors": errors}

    return wait


def _connects(address: str, port: int) -> None:
    host: Any = address.encode()  # text would load the IDNA codec
    socket.create_connection((host, port), timeout=BACK_SECONDS).close()


def _described(module: str) -> str:
    """Return the description of this host's CPUs by a sent module; empty if not requested or too long."""
    if not module:
        return ""
    word: str = importlib.import_module(module).packed()
    return word if len(word) <= MAX_DESCRIBED else ""


def _beside(name: str) -> str:
    return os.path.join(os.path.dirname(sys.executable), name)  # noqa: PTH118, PTH120 - as above


def installed_version(package: str) -> str:
    """Return the version of an installed package from its metadata; empty if it is not installed."""
    for place in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(place or "."):  # noqa: PTH208 - pathlib is slow to load
                if name.lower().startswith(f"{package}-") and name.endswith(".dist-info"):
                    return _version_line(os.path.join(place, name, "METADATA"))  # noqa: PTH118 - as above
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to load

    try:
        return version(package) or ""  # None for a folder without a metadata file
    except (
        PackageNotFoundError,
        FileNotFoundError,  # newer libraries, for a folder without a metadata file
    ):
        return ""


def _version_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123 - as above
        for line in stream:
            if line.startswith("Version: "):
                return line.removeprefix("Version: ").strip()
            if not line.strip():  # the end of the headers
                break
    return ""


def _is_command(word: str) -> bool:
    import shutil  # noqa: PLC0415 - slow to load, and most probes need no command

    return shutil.which(word) is not None


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _missing(place: str, directory: str) -> str:
    """Return a program's path if the program is missing or unreadable, else empty."""
    found = located(place, directory)
    return "" if os.access(found, os.R_OK) else place


def _directory(path: str) -> str:
    """Return the defect of the working directory; empty if it is usable."""
    if not os.path.isdir(path):  # noqa: PTH112
        return "is no directory"
    return "" if os.access(path, os.W_OK | os.X_OK) else "cannot be written to"


def _free(path: str) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _available_memory() -> int:
    """Return the available bytes of memory of the whole machine, without limits of this login; 0: unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:  # noqa: PTH123 - pathlib is slow to load
            for line in stream:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0
