"""``nws serve``: the service, its tokens, and where it listens."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

import nws
from apples.errors import LaunchError, UsageError, coded
from apples.io import documents, state
from apples.ui.command_line import say, show_json
from apples.ui.tokens import issue
from apples.ui.tokens import revoke as revoke_tokens
from nws import DirectoryLockedError, Retention, TokenFile, TokenFileError

PAGES = "apples.weather.pages.service"
"""What answers browsers; found by its name, as commands are: neither face of the library imports the other."""


def serve(
    listen: Annotated[str, typer.Option("--listen", help="HOST:PORT.")] = "127.0.0.1:8123",
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Where everything is kept.")
    ] = None,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="For TLS.")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="Of the certificate.")] = None,
    name: Annotated[
        list[str] | None, typer.Option("--name", help="A further name of this service (Host).")
    ] = None,
    keep: Annotated[int, typer.Option("--keep", min=10, help="Measurements per series.")] = 2000,
    age: Annotated[
        float | None, typer.Option("--age", min=1, help="Seconds; older ones are let go.")
    ] = None,
    size: Annotated[
        float, typer.Option("--size", min=1e6, help="Bytes of means of 5 minutes and an hour.")
    ] = 2e9,
    period: Annotated[
        float, typer.Option("--period", min=1, help="Of the cliques, in seconds.")
    ] = 120.0,
    profile: Annotated[
        str, typer.Option("--profile", help="Forecasters: default, classic or dynamite.")
    ] = "default",
    engine: Annotated[
        str, typer.Option("--engine", help="auto (numba if installed), numba or numpy.")
    ] = "auto",
    new_token: Annotated[
        str | None, typer.Option("--new-token", help="Make a token of this name, print it, end.")
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="read, write, probe; default read.")
    ] = None,
    expires: Annotated[
        float | None, typer.Option("--expires", min=1, help="Seconds the new token is good for.")
    ] = None,
    revoke: Annotated[
        str | None, typer.Option("--revoke", help="Make all tokens of this name worthless, end.")
    ] = None,
    tokens: Annotated[bool, typer.Option("--tokens", help="List the tokens, end.")] = False,
) -> int:
    """Run the service until stopped, or manage its tokens.

    It listens on loopback and asks everyone for a token; yours is in DIRECTORY/token.

    Example: nws serve; nws serve --new-token ada --scope write --scope probe
    """
    home = directory or state.directory() / "nws"
    known = TokenFile(home / "tokens.json")
    try:
        if tokens:
            return _list(known)
        if new_token is not None:
            return issue(known, new_token, scope or ["read"], expires)
        if revoke is not None:
            return revoke_tokens(known, revoke)
        nws.check_installed()
        return _run(
            home,
            nws.Listen(*nws.address_of(listen), certificate, key, tuple(name or ())),
            {
                "retention": Retention(
                    capacity=keep, age=float("inf") if age is None else age, size=size
                ),
                "profile": profile,
                "engine": engine,
            },
            period,
        )
    except (ValueError, TokenFileError) as error:
        raise UsageError(str(error), **coded(error, code="value-invalid")) from None
    except DirectoryLockedError as error:
        raise LaunchError(str(error), **coded(error)) from None


def _run(home: Path, listen: nws.Listen, database: dict[str, Any], period: float) -> int:
    def tell(link: str) -> None:
        if sys.stderr.isatty():  # a link admits whoever reads it: it is for eyes, not for logs
            say(f"nws serve: open {link}")

    pages = import_module(PAGES).WeatherPages(tell)
    serving = nws.Serving(
        home, listen, period=period, database=database, own_process=True, pages=pages.add
    )
    for line in [*serving.database.problems(), *serving.database.mended()][:20]:
        say(f"nws serve: {line}")
    url = home / "url"

    def started() -> None:
        documents.replace(url, f"{serving.url}\n")
        say(f"nws serve: {serving.url}, kept in {home}, token in {home / 'token'}")
        pages.announce()

    try:
        serving.run(started)
    finally:
        url.unlink(missing_ok=True)
    return 0


def _list(known: TokenFile) -> int:
    entries = [
        {"name": t.name, "scopes": list(t.scopes), "expires": t.expires, "revoked": t.revoked}
        for t in known.tokens()
    ]
    show_json({"schema": "nws.token-list/1", "tokens": entries})
    return 0
