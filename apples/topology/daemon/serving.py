"""Starts the topology daemon of this host: its directories, its isolation, and where it listens."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from apples.errors import LaunchError
from apples.io import state
from apples.io.folder import Folder, check_private
from apples.io.identity import identity_of
from apples.io.tls import Tls
from apples.topology.daemon.client import SOCKET, SYSTEM_SOCKET
from apples.topology.daemon.node import DaemonOptions, NodeLedger
from apples.topology.daemon.server import Server
from apples.topology.isolation.detection import find_backend
from apples.topology.machine import Topology


def serve(
    machine: Topology,
    backend: str,
    options: DaemonOptions,
    home: Path,
    run: Path,
    tls: Tls | None,
    talk: Callable[[str], None],
    *,
    restored: bool = False,
) -> None:
    """Serve until stopped; jobs go on when this returns.

    Parameters
    ----------
    backend
        The isolation to use, or ``auto``: the strongest that holds here.
    home, run
        Directories of the journal and of the socket.
    talk
        Hears which isolation does not hold, what is wrong, and where the daemon listens.
    restored
        Whether `home` is a copy of a directory that is gone for good, and goes on as it.
    """
    held, levels = find_backend(backend)
    for level in levels:
        if level.why_not:
            talk(f"apples topologyd: not {level.title}: {level.why_not}")
    links = os.geteuid() != 0
    with (
        Folder.open(home, links=links) as kept,
        Folder.open(made(run, 0o755), links=links) as here,
    ):
        check_private(kept)
        node = NodeLedger(machine, held, kept, identity_of(kept, restored=restored), options)

        async def main() -> None:
            server = Server(node, here, kept, tls)
            serving = asyncio.create_task(server.serve())
            ready = asyncio.create_task(server.ready.wait())
            await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
            if server.ready.is_set():
                for problem in node.problems[:20]:
                    talk(f"apples topologyd: {problem}")
                where = f" and {tls.host}:{server.port}" if tls else ""
                guarantee = levels[-1].guarantee
                talk(
                    f"apples topologyd: {run / SOCKET}{where}; CPUs {node.universe}, free "
                    f"{node.free}; {held.title}: {guarantee.value if guarantee else ''}"
                )
            ready.cancel()
            await serving

        asyncio.run(main())


def home_directory() -> Path:
    """Return where the journal is kept when nobody says."""
    given = os.environ.get("STATE_DIRECTORY")
    return Path(given) if given else state.directory() / "topologyd"


def socket_directory(home: Path) -> Path:
    """Return where the socket is made when nobody says."""
    given = os.environ.get("RUNTIME_DIRECTORY")
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return SYSTEM_SOCKET.parent
    own = os.environ.get("XDG_RUNTIME_DIR")
    return Path(own) / "apples" if own else home / "run"


def made(path: Path, mode: int = 0o700) -> Path:
    """Return a directory, made where it is missing."""
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(
            f"{path}: {error.strerror}", code="directory-unusable", file=path
        ) from None
    return path
