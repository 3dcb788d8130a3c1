"""``topologyd``: the topology daemon of this host, and the requests of its operator."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

from apples.errors import LaunchError
from apples.io import state
from apples.io.folder import Folder, check_private
from apples.io.identity import identity_of
from apples.topology import CpuSet, load_topology
from apples.topology.daemon.client import (
    SOCKET,
    SYSTEM_SOCKET,
    TopologyClient,
    default_socket,
)
from apples.topology.daemon.node import DaemonOptions, NodeLedger
from apples.topology.daemon.server import Server
from apples.topology.documents import TopologydDocument
from apples.topology.isolation.detection import BACKENDS, find_backend, probe
from apples.topology.machine import Topology
from apples.topology.sources.this_machine import live_topology
from apples.topology.text import daemon_text, fences_document, fences_text
from apples.ui.command_line import command, say, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import FILE, NUMBER, Excludes, Only, Requires, integer, option

words_option = option(
    "--ignore", metavar="PATTERN", multiple=True, help="Pattern of foreign sets."
)


@command(
    rules=(
        Excludes("--probe", "--status", "--release"),
        Only("--probe", "--json"),
        Only("--status", "--run", "--json"),
        Only("--release", "--run"),
        Requires("--json", "--probe", "--status"),
    )
)
@option("--directory", metavar="FOLDER", type=FILE, help="Where the journal is kept.")
@option("--run", metavar="FOLDER", type=FILE, help="Directory of the socket.")
@option("--fence", metavar="NAME", default="auto", help=f"auto, {', '.join(BACKENDS)}.")
@option(
    "--topology", metavar="FILE", default="", help="hwloc XML or synthetic; default: this machine."
)
@option("--reserve", metavar="CPUS", default="", help="CPUs that no job gets.")
@words_option
@option(
    "--sharing-factor",
    metavar="FRACTION",
    type=NUMBER,
    default=0.5,
    help="Largest fraction of a job's CPUs that a guest gets.",
)
@option(
    "--mandatory",
    metavar="REQUIREMENT",
    default="",
    help="The site's requirement; it overrides a job's.",
)
@option(
    "--default",
    metavar="REQUIREMENT",
    default="",
    help="The site's requirement; a job's overrides it.",
)
@option("--most-jobs", type=integer(1), default=256, help="Most jobs of one user.")
@option("--most-cpus", type=integer(1), default=65536, help="Most CPUs of one user.")
@option(
    "--restored",
    is_flag=True,
    help="The directory is a restored copy, and the original is not in use.",
)
@option(
    "--probe", "probing", is_flag=True, help="Print which kinds of isolation work here and exit."
)
@option("--status", is_flag=True, help="Print the status of the running daemon and exit.")
@option("--release", metavar="JOB", default="", help="End this job of the running daemon.")
@json_option
def topologyd(
    directory: Path | None,
    run: Path | None,
    fence: str,
    topology: str,
    reserve: str,
    ignore: tuple[str, ...],
    sharing_factor: float,
    mandatory: str,
    default: str,
    most_jobs: int,
    most_cpus: int,
    restored: bool,
    probing: bool,
    status: bool,
    release: str,
    json: bool,
) -> int:
    """Run the topology daemon of this host until stopped, or send a request to the running daemon.

    It listens on a UNIX socket, where the kernel identifies the user. Jobs continue when it stops.

    Example: apples topologyd; apples topologyd --status
    """
    if probing:
        return _probe(json)
    place = (run / SOCKET) if run else default_socket()
    if status:
        return _status(place, json)
    if release:
        with TopologyClient(place) as client:
            client.ask("deallocate", job=release)
        return 0
    home = made(directory or home_directory())
    options = DaemonOptions(
        sharing_factor=sharing_factor,
        most_jobs=most_jobs,
        most_cpus=most_cpus,
        reserved=CpuSet.parse(reserve),
        ignored=tuple(ignore or ()),
        mandatory=mandatory,
        default=default,
    )
    machine = load_topology(topology) if topology else live_topology()
    here = run or socket_directory(home)
    serve(machine, fence, options, home, here, say, restored=restored)
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
    document = cast("TopologydDocument", {**found, "jobs": jobs})
    show_answer(document, daemon_text(document), json)
    return 0


def serve(
    machine: Topology,
    backend: str,
    options: DaemonOptions,
    home: Path,
    run: Path,
    talk: Callable[[str], None],
    *,
    restored: bool = False,
) -> None:
    """Serve until stopped; jobs continue when this returns.

    Parameters
    ----------
    backend
        The isolation to use, or ``auto``: the strongest that works here.
    home, run
        Directories of the journal and of the socket.
    talk
        Prints a line: failed isolation methods, problems and the socket.
    restored
        Whether `home` is a copy of a lost directory; the daemon then continues with its state.
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
            server = Server(node, here, kept)
            serving = asyncio.create_task(server.serve())
            ready = asyncio.create_task(server.ready.wait())
            await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
            if server.ready.is_set():
                for problem in node.problems[:20]:
                    talk(f"apples topologyd: {problem}")
                guarantee = levels[-1].guarantee
                talk(
                    f"apples topologyd: {run / SOCKET}; CPUs {node.universe}, free "
                    f"{node.free}; {held.title}: {guarantee.value if guarantee else ''}"
                )
            ready.cancel()
            await serving

        asyncio.run(main())


def home_directory() -> Path:
    """Return the default directory of the journal."""
    given = os.environ.get("STATE_DIRECTORY")
    return Path(given) if given else state.directory() / "topologyd"


def socket_directory(home: Path) -> Path:
    """Return the default directory of the socket."""
    given = os.environ.get("RUNTIME_DIRECTORY")
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return SYSTEM_SOCKET.parent
    own = os.environ.get("XDG_RUNTIME_DIR")
    return Path(own) / "apples" if own else home / "run"


def made(path: Path, mode: int = 0o700) -> Path:
    """Return a directory; create it if it is missing."""
    try:
        path.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise LaunchError(
            f"{path}: {error.strerror}", code="directory-unusable", file=path
        ) from None
    return path
