"""``apples serve``: the pages on an address of this machine, until a signal asks to stop."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import nws
from apples.errors import LaunchError, UsageError, coded


def serve(
    context: typer.Context,
    listen: Annotated[str, typer.Option("--listen", help="HOST:PORT.")] = "127.0.0.1:8080",
    folder: Annotated[
        Path, typer.Option("--folder", help="Whose templates and host lists are shown.")
    ] = Path(),
    certificate: Annotated[Path | None, typer.Option("--certificate", help="For TLS.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Of the certificate.")] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A further name of this server (Host).")
    ] = None,
    scheduler: Annotated[
        list[Path] | None,
        typer.Option(
            "--scheduler",
            help="Directory of a live scheduler, besides this user's; may be repeated.",
        ),
    ] = None,
) -> int:
    """Serve pages of this user's runs, jobs, schedulers, hosts and files until stopped.

    It listens on loopback and prints a link that admits one browser, once; after that the next.
    From another machine: ssh -L 8080:127.0.0.1:8080 HOST.

    Example: apples serve; apples serve --folder ~/project --listen 127.0.0.1:8090
    """
    try:
        nws.check_installed()
        where = nws.Listen(
            *nws.address_of(listen),
            certificate and certificate.resolve(),
            key and key.resolve(),
            tuple(name or ()),
        )
        nws.check_exposure(where)
    except nws.ListenRefusedError as error:
        raise UsageError(str(error), **coded(error)) from None
    _serve(folder, where, [place.resolve() for place in scheduler or ()], context.obj["pages"])
    return 0


def _serve(
    folder: Path, listen: nws.Listen, schedulers: Sequence[Path], pages: Sequence[str]
) -> None:
    """Serve the pages, and say the link that admits a browser, whenever there is another."""
    # FastAPI and the templates: this command's help does without.
    from apples.ui.web.frame import served_style  # noqa: PLC0415
    from apples.ui.web.gate import ENTER, Sessions  # noqa: PLC0415
    from apples.ui.web.site import Site, create_app  # noqa: PLC0415

    def tell(key: str) -> None:
        typer.echo(f"apples serve: open {server.url}{ENTER}?key={key}", err=True)

    site = Site(folder, schedulers=schedulers)
    secure = listen.certificate is not None
    sessions = Sessions(tell)
    app = create_app(site, pages, sessions, listen.accepted, secure=secure)
    os.chdir(folder)  # code of the user's own is named from there, as where a command is typed
    server = nws.HttpServer(app, listen)
    server.ending = site.streams.close
    served_style()  # templates are loaded before anybody waits for a page
    server.started_well = sessions.announce
    server.run([_bound(listen)])


def _bound(listen: nws.Listen) -> socket.socket:
    """Return the socket that is listened on."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family)
    except OSError as error:
        reason = error.strerror or error
        raise LaunchError(
            f"--listen {listen.host}:{listen.port}: {reason}",
            code="address-unusable", option="--listen",
            address=f"{listen.host}:{listen.port}", reason=str(reason),
        ) from None  # fmt: skip
