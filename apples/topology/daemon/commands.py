"""``topologyd``: the topology daemon of this host, and what its operator asks it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

import nws
from apples.errors import LaunchError
from apples.io import state
from apples.io.folder import Folder, check_private
from apples.io.identity import identity_of
from apples.io.tls import Tls, tls_of
from apples.topology import CpuSet, load_topology
from apples.topology.daemon.client import (
    SOCKET,
    SYSTEM_SOCKET,
    TopologyClient,
    default_socket,
    fresh_id,
)
from apples.topology.daemon.node import DaemonOptions, NodeLedger
from apples.topology.daemon.server import Server
from apples.topology.isolation.detection import BACKENDS, find_backend, probe
from apples.topology.machine import Topology
from apples.topology.sources.this_machine import live_topology
from apples.topology.text import daemon_text, fences_document, fences_text
from apples.ui.command_line import say, show_answer
from apples.ui.options import Json
from apples.ui.tokens import issue

Words = Annotated[list[str] | None, typer.Option("--ignore", help="Pattern of foreign sets.")]


def topologyd(
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Where the journal is kept.")
    ] = None,
    run: Annotated[Path | None, typer.Option("--run", help="Directory of the socket.")] = None,
    fence: Annotated[str, typer.Option("--fence", help=f"auto, {', '.join(BACKENDS)}.")] = "auto",
    topology: Annotated[
        str, typer.Option("--topology", help="hwloc XML or synthetic; default: this machine.")
    ] = "",
    reserve: Annotated[str, typer.Option("--reserve", help="CPUs that are never given.")] = "",
    ignore: Words = None,
    sharing_factor: Annotated[
        float, typer.Option("--sharing-factor", help="Part that may be taken from a mate.")
    ] = 0.5,
    mandatory: Annotated[
        str, typer.Option("--mandatory", help="The site's requirement; wins over a job's.")
    ] = "",
    default: Annotated[
        str, typer.Option("--default", help="The site's requirement; a job's wins over it.")
    ] = "",
    most_jobs: Annotated[int, typer.Option("--most-jobs", min=1, help="Of one user.")] = 256,
    most_cpus: Annotated[int, typer.Option("--most-cpus", min=1, help="Of one user.")] = 65536,
    listen: Annotated[str, typer.Option("--listen", help="HOST:PORT for TLS as well.")] = "",
    certificate: Annotated[Path | None, typer.Option("--certificate", help="For TLS.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Of the certificate.")] = None,
    restored: Annotated[
        bool,
        typer.Option(
            "--restored", help="The directory is a copy; what it was copied from is gone."
        ),
    ] = False,
    new_token: Annotated[
        str, typer.Option("--new-token", help="Make a token of this name, print it, end.")
    ] = "",
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="read, write; default read.")
    ] = None,
    probing: Annotated[bool, typer.Option("--probe", help="Try the ladder here, end.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Ask the running daemon, end.")] = False,
    release: Annotated[
        str, typer.Option("--release", help="End this job of the running daemon.")
    ] = "",
    json: Json = False,
) -> int:
    """Run the topology daemon of this host until stopped, or ask the one that runs.

    It listens on a UNIX socket and knows by the kernel who asks; jobs go on when it stops.

    Example: apples topologyd; apples topologyd --status
    """
    if probing:
        return _probe(json)
    place = (run / SOCKET) if run else default_socket()
    if status:
        return _status(place, json)
    if release:
        with TopologyClient(place) as client:
            client.ask("deallocate", request=fresh_id(), job=release)
        return 0
    home = made(directory or home_directory())
    tokens = home / "tokens.json"
    if new_token:
        return issue(nws.TokenFile(tokens), new_token, scope or ["read"])
    options = DaemonOptions(
        sharing_factor=sharing_factor,
        most_jobs=most_jobs,
        most_cpus=most_cpus,
        reserved=CpuSet.parse(reserve),
        ignored=tuple(ignore or ()),
        mandatory=mandatory,
        default=default,
    )
    tls = tls_of(listen, certificate, key, tokens)
    machine = load_topology(topology) if topology else live_topology()
    here = run or socket_directory(home)
    serve(machine, fence, options, home, here, tls, say, restored=restored)
    return 0


def _probe(json: bool) -> int:
    levels = [probe(title) for title in BACKENDS]
    document = fences_document(levels)
    show_answer(document, fences_text(document), json)
    return 0


def _status(place: Path, json: bool) -> int:
    with TopologyClient(place) as client:
        found, jobs = client.ask("status"), client.ask("jobs")["jobs"]
    found.pop("ok")
    document = {**found, "jobs": jobs}
    show_answer(document, daemon_text(document), json)
    return 0


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
