"""Looks at the host it runs on and prints what it found as one line of JSON. Standard library only.

Travels over ssh (`apples.launch.remote.bootstrap`); every look has its own short deadline, so that the whole is
never late for the one who asked. It then waits for what else its connection is for
(`apples.launch.remote.connection`), and ends with it.

Every job looks at every host, so a look loads little: what reads versions (`importlib.metadata`) and what turns a
name into an address (names as text: IDNA) would cost as much again as all the rest.
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
"""Characters of a topology; the answer as a whole is read to a megabyte."""


def main(told: dict[str, Any]) -> int:
    """Print the facts about this host that the request asks for."""
    sys.stdout.write("\n")
    sys.stdout.flush()  # a host that has begun to answer is not dead, however busy
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
    os._exit(0)  # whatever still waits for an answer is not waited for


def _word() -> bytes:
    """Return the next line, byte by byte: what follows it may be another program's. Empty at the end."""
    line = b""
    while not line.endswith(b"\n"):
        one = os.read(0, 1)
        if not one:
            return b""
        line += one
    return line[:-1]


def _sense() -> None:
    """Be a sensor process until told to leave; without what that needs here, end with the reason."""
    try:
        sensing = importlib.import_module("nws.sensing.stdio")
    except ImportError as error:
        sys.stderr.write(f"{error}\n")
        os._exit(1)
    sensing.main()


def _within(seconds: float, act: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    """Begin `act`; return what gives its value or error and the seconds it took, in time."""
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
    """Begin to connect to the asker's addresses; return what gives the first of them that can be reached.

    The address from which its ssh came, as this host sees it, comes after those of IPv4: behind a forwarded port
    it may be the only one.
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
    host: Any = address.encode()  # as text it would load IDNA
    socket.create_connection((host, port), timeout=BACK_SECONDS).close()


def _described(module: str) -> str:
    """Return what the module that came along says of this host's CPUs; nothing where none was asked."""
    if not module:
        return ""
    word: str = importlib.import_module(module).packed()
    return word if len(word) <= MAX_DESCRIBED else ""


def _beside(name: str) -> str:
    return os.path.join(os.path.dirname(sys.executable), name)  # noqa: PTH118, PTH120 - as above


def installed_version(package: str) -> str:
    """Return the version of an installed package, as its metadata has it; empty where there is none."""
    for place in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(place or "."):  # noqa: PTH208 - pathlib is slow to load
                if name.lower().startswith(f"{package}-") and name.endswith(".dist-info"):
                    return _version_line(os.path.join(place, name, "METADATA"))  # noqa: PTH118 - as above
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to load

    try:
        return version(package) or ""  # a folder without a file
    except (
        PackageNotFoundError,
        FileNotFoundError,
    ):  # the latter of newer libraries, of a folder without a file
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
    import shutil  # noqa: PLC0415 - slow to load, and most looks ask for no command

    return shutil.which(word) is not None


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _missing(place: str, directory: str) -> str:
    """Return a program's path if it is nowhere it is looked for, else nothing."""
    found = located(place, directory)
    return "" if os.access(found, os.R_OK) else place


def _directory(path: str) -> str:
    """Return what is wrong with the working directory, empty where nothing is."""
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
    """Return the bytes the whole machine has to give, whatever this login's limit; 0 where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:  # noqa: PTH123 - pathlib is slow to load
            for line in stream:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0
