"""``nws serve``: the service, its tokens, and where it listens."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import nws
from apples.errors import LaunchError, UsageError, coded
from apples.io import documents, state
from apples.ui.command_line import command, say, show_json
from apples.ui.parameters import FILE, Excludes, Only, Requires, integer, number, option
from apples.ui.tokens import issue
from apples.ui.tokens import revoke as revoke_tokens
from apples.weather.documents import TokenEntry, TokensDocument
from nws import (
    AddressUnusableError,
    DirectoryLockedError,
    Retention,
    StorageError,
    TokenFile,
    TokenFileError,
    is_in_use,
)

PAGES = "apples.weather.pages.service"
"""The module that answers browsers, named like a command: neither front end of the library imports the other."""
KEPT_SECONDS = 400 * 86400.0
"""Default of ``--age``: the age up to which the service stores hourly means."""


@command(
    rules=(
        Excludes("--new-token", "--revoke", "--list-tokens"),
        Only("--new-token", "--directory", "--scope", "--expires"),
        Only("--revoke", "--directory"),
        Only("--list-tokens", "--directory"),
        Requires("--scope", "--new-token"),
        Requires("--expires", "--new-token"),
    )
)
@option("--listen", metavar="HOST:PORT", default="127.0.0.1:8123", help="HOST:PORT.")
@option("--directory", metavar="FOLDER", type=FILE, help="Directory of the service's data.")
@option("--certificate", type=FILE, help="File of the TLS certificate.")
@option("--key", type=FILE, help="File of the certificate's private key.")
@option(
    "--server-name",
    "names",
    metavar="NAME",
    multiple=True,
    help="A further host name by which clients reach this service.",
)
@option(
    "--keep",
    type=integer(10),
    default=2000,
    help="Measurements per series that are kept one by one.",
)
@option(
    "--age",
    metavar="SECONDS",
    type=number(1),
    default=KEPT_SECONDS,
    help="Seconds after which a series without new measurements is removed.",
)
@option(
    "--size",
    metavar="BYTES",
    type=number(1e6),
    default=2e9,
    help="Bytes for archived means of 5 minutes and of an hour.",
)
@option(
    "--period",
    metavar="SECONDS",
    type=number(1),
    default=120.0,
    help="Seconds between two turns of a host to probe its links.",
)
@option(
    "--profile",
    metavar="NAME",
    default="default",
    help="Forecasters: default or classic.",
)
@option(
    "--engine", metavar="NAME", default="auto", help="auto (numba if installed), numba or numpy."
)
@option("--new-token", metavar="NAME", help="Make a token of this name, print it and exit.")
@option("--scope", metavar="SCOPE", multiple=True, help="read, write, probe; default read.")
@option(
    "--expires",
    metavar="SECONDS",
    type=number(1),
    help="Seconds for which the new token is valid.",
)
@option("--revoke", metavar="NAME", help="Revoke all tokens of this name and exit.")
@option("--list-tokens", is_flag=True, help="List the tokens and exit.")
def serve(
    listen: str,
    directory: Path | None,
    certificate: Path | None,
    key: Path | None,
    names: tuple[str, ...],
    keep: int,
    age: float,
    size: float,
    period: float,
    profile: str,
    engine: str,
    new_token: str | None,
    scope: tuple[str, ...],
    expires: float | None,
    revoke: str | None,
    list_tokens: bool,
) -> int:
    """Run the service until stopped, or manage its tokens.

    It listens on loopback and requires a token; the own user's token is in DIRECTORY/token.

    Example: nws serve; nws serve --new-token ada --scope write --scope probe
    """
    home = directory or state.directory() / "nws"
    known = TokenFile(home / "tokens.json")
    try:
        if list_tokens:
            return _list(known)
        if new_token is not None:
            return issue(known, new_token, scope or ["read"], expires)
        if revoke is not None:
            return revoke_tokens(known, revoke)
        nws.check_installed()
        return _run(
            home,
            nws.Listen(*nws.address_of(listen), certificate, key, names),
            {
                "retention": Retention(capacity=keep, age=age, size=size),
                "profile": profile,
                "engine": engine,
            },
            period,
        )
    except (ValueError, TokenFileError) as error:
        raise UsageError(str(error), **coded(error, code="value-invalid")) from None
    except (AddressUnusableError, DirectoryLockedError, StorageError) as error:
        raise LaunchError(str(error), **coded(error)) from None


def _run(home: Path, listen: nws.Listen, database: dict[str, Any], period: float) -> int:
    def tell(link: str) -> None:
        if sys.stderr.isatty():  # a link admits any reader, so it must not get into a log
            say(f"nws serve: open {link}")

    pages = import_module(PAGES).WeatherPages(tell)
    if database["profile"] == "default" and database["engine"] != "numpy":
        say(
            "nws serve: loading the forecasters (the first start on a machine compiles for about a minute)"
        )
    url = home / "url"
    if not is_in_use(home):
        with suppress(OSError):  # left by a killed service
            url.unlink()
    serving = nws.Serving(
        home, listen, period=period, database=database, own_process=True, pages=pages.add
    )
    for line in [*serving.database.problems(), *serving.database.mended][:20]:
        say(f"nws serve: {line}")

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
    entries: list[TokenEntry] = [
        {"name": t.name, "scopes": list(t.scopes), "expires": t.expires, "revoked": t.revoked}
        for t in known.tokens()
    ]
    document: TokensDocument = {"schema": "nws.token-list/1", "tokens": entries}
    show_json(document)
    return 0
