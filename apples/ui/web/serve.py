"""``apples serve``: serve the pages on an address of this machine until a signal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

import nws
from apples.errors import LaunchError, UsageError, coded
from apples.ui.command_line import command
from apples.ui.parameters import FILE, option


@command()
@option("--listen", metavar="HOST:PORT", default="127.0.0.1:8080", help="HOST:PORT.")
@option(
    "--folder",
    metavar="FOLDER",
    type=FILE,
    default=Path(),
    help="Folder of the templates and host lists that the pages show.",
)
@option("--certificate", type=FILE, help="File of the TLS certificate.")
@option("--key", type=FILE, help="File of the certificate's private key.")
@option(
    "--server-name",
    "names",
    metavar="NAME",
    multiple=True,
    help="A further host name by which browsers reach this server.",
)
@option(
    "--scheduler",
    metavar="FOLDER",
    type=FILE,
    multiple=True,
    help="Directory of a live scheduler, besides this user's; may be repeated.",
)
@click.pass_context
def serve(
    context: click.Context,
    listen: str,
    folder: Path,
    certificate: Path | None,
    key: Path | None,
    names: tuple[str, ...],
    scheduler: tuple[Path, ...],
) -> int:
    """Serve pages of this user's runs, jobs, schedulers, hosts and files until stopped.

    It listens on loopback. Each printed link admits one browser once; then it prints the next link.
    From another machine: ssh -L 8080:127.0.0.1:8080 HOST.

    Example: apples serve; apples serve --folder ~/project --listen 127.0.0.1:8090
    """
    try:
        nws.check_installed()
        where = nws.Listen(
            *nws.address_of(listen),
            certificate and certificate.resolve(),
            key and key.resolve(),
            names,
        )
        nws.check_exposure(where)
    except nws.ListenRefusedError as error:
        raise UsageError(str(error), **coded(error)) from None
    _serve(folder, where, [place.resolve() for place in scheduler or ()], context.obj["pages"])
    return 0


def _serve(
    folder: Path, listen: nws.Listen, schedulers: Sequence[Path], pages: Sequence[str]
) -> None:
    """Serve the pages; print each new link that admits a browser."""
    # The help of this command needs neither FastAPI nor the templates.
    from apples.ui.web.frame import served_style  # noqa: PLC0415
    from apples.ui.web.gate import ENTER, Sessions  # noqa: PLC0415
    from apples.ui.web.site import Site, create_app  # noqa: PLC0415

    def tell(key: str) -> None:
        click.echo(f"apples serve: open {server.url}{ENTER}?key={key}", err=True)

    site = Site(folder, schedulers=schedulers)
    secure = listen.certificate is not None
    sessions = Sessions(tell)
    app = create_app(site, pages, sessions, listen.accepted, secure=secure)
    os.chdir(folder)  # names of users' code are relative to it, as for a command
    try:
        sockets = nws.bound_sockets(listen)
        server = nws.HttpServer(app, listen)
        server.ending = site.streams.close
        served_style()  # load the templates before the first request
        server.started_well = sessions.announce
        server.run(sockets)
    except nws.AddressUnusableError as error:  # or another program listens first
        raise LaunchError(str(error), **coded(error)) from None
