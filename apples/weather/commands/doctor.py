"""``nws doctor``: diagnose a service."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import nws
from apples.errors import ApplesError
from apples.io import state
from apples.launch.remote.fitness import Finding
from apples.launch.text import checks_document, checks_text
from apples.ui.command_line import command, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import FILE, option
from apples.ui.units import amount, duration
from apples.weather.commands.ask import (
    asking,
    ca_option,
    service_option,
    token_path_option,
)

UNFIT = 4
LITTLE_ROOM = 1 << 30
NO_ROOM = 100 << 20
SOON = 14 * 86400.0
"""Seconds before the expiry of a certificate or token at which the warnings begin."""
NAMED = 5
"""Maximum number of series in a finding; the others are counted."""


@command()
@option("--directory", metavar="FOLDER", type=FILE, help="Of a service on this machine.")
@service_option
@token_path_option
@ca_option
@json_option
def doctor(
    directory: Path | None,
    service: str | None,
    token_file: Path | None,
    ca: Path | None,
    json: bool,
) -> int:
    """Check a service: its directory, its tokens, its answers and its status.

    Example: nws doctor
    """
    home = directory or state.directory() / "nws"
    findings = [*_here(home, service, directory), *_there(service, token_file, ca)]
    document = {**checks_document(findings), "schema": "nws.doctor/1"}
    show_answer(document, checks_text(findings), json)
    return UNFIT if any(finding.status == "fail" for finding in findings) else 0


def _here(home: Path, service: str | None, directory: Path | None) -> Iterator[Finding]:
    """Yield the findings in the directory of a service on this machine."""
    if service is not None and directory is None:
        return  # the service runs on another machine
    if not home.is_dir():
        yield Finding("directory", "warn", f"{home} is not there", "nws serve makes it")
        return
    try:
        nws.check_owned(home, home.stat())
        yield Finding("directory", "ok", f"{home}, ours alone")
    except nws.NotPrivateError as error:
        yield Finding("directory", "fail", str(error))
    free = shutil.disk_usage(home).free
    room = Finding("room", "ok", f"{amount(free)} free", "a full disk is answered 507")
    if free < LITTLE_ROOM:
        room = replace(room, status="fail" if free < NO_ROOM else "warn")
    yield room
    yield _tokens(home / "tokens.json")
    fast = importlib.util.find_spec("numba") is not None
    yield Finding(
        "engine",
        _unless(not fast),
        "numba" if fast else "numpy: an update takes 1 ms in place of 20 us",
        "pip install 'apples[service]'",
    )


def _tokens(path: Path) -> Finding:
    try:
        tokens = nws.TokenFile(path).tokens()
    except nws.TokenFileError as error:
        return Finding("tokens", "fail", str(error))
    good = [token for token in tokens if not token.revoked]
    ending = [t.name for t in good if t.expires is not None and t.expires < time.time() + SOON]
    if ending:
        told = f"{', '.join(ending[:NAMED])}: expired, or will be within {SOON / 86400:.0f} days"
        return Finding("tokens", "warn", told, "nws serve --new-token NAME --scope ..")
    return Finding("tokens", "ok", f"{len(good)} that are good")


def _there(service: str | None, token_file: Path | None, ca: Path | None) -> Iterator[Finding]:
    """Yield the findings in the answers of a service."""
    try:
        with asking(service, token_file, ca) as client:
            found = client.status()
            yield Finding("service", "ok", f"{client.url} answers, version {found['version']}")
            yield from _tls(client.url, ca)
            yield _clock(client)
            yield from _problems(found)
            yield _sensors(client.sensors())
            yield from _series(client)
    except ApplesError as error:
        yield Finding("service", "fail", str(error), "nws serve, or --service URL")


def _tls(url: str, ca: Path | None) -> Iterator[Finding]:
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.hostname is None:
        return
    try:
        context = ssl.create_default_context(cafile=ca)
        with (
            socket.create_connection((parts.hostname, parts.port or 443), timeout=10) as raw,
            context.wrap_socket(raw, server_hostname=parts.hostname) as secured,
        ):
            told: Any = secured.getpeercert()
    except OSError as error:
        yield Finding(
            "certificate",
            "warn",
            f"cannot be looked at: {error}",
            "give its authority by --ca FILE",
        )
        return
    left = ssl.cert_time_to_seconds(str(told["notAfter"])) - time.time()
    yield Finding(
        "certificate", _unless(left < SOON), f"ends in {left / 86400:.0f} days", "make another"
    )


def _clock(client: nws.Client) -> Finding:
    before = time.time()
    theirs = client.time()
    after = time.time()
    off = max(before - theirs, theirs - after, 0.0)
    if off < 1.0:
        return Finding("clock", "ok", "within a second of the service's")
    cure = "keep both in step (chrony, ntpd); stamps may be 60 s ahead, no more"
    return Finding("clock", "warn", f"{duration(off)} off the service's", cure)


def _problems(found: dict[str, Any]) -> Iterator[Finding]:
    for problem in found["problems"]:
        yield Finding("problem", "fail", problem)
    for mended in found.get("mended", ()):
        yield Finding("mended", "ok", mended)
    waiting = found["backlog"]
    yield Finding(
        "backlog", _unless(waiting > 100_000), f"{waiting} measurements wait to be forecast from"
    )


def _sensors(there: list[dict[str, Any]]) -> Finding:
    if not there:
        return Finding("sensors", "warn", "none is registered", "nws sense --service URL")
    return Finding("sensors", "ok", f"{len(there)} are registered")


def _series(client: nws.Client) -> Iterator[Finding]:
    found = client.series("*", 10_000)
    stale = [one["series"] for one in found["series"] if one["state"] == "stale"]
    if stale:
        cure = "is the sensor of that host still running?"
        yield Finding("stale", "warn", _some(stale), cure)
    else:
        yield Finding("series", "ok", f"{found['total']}, all current")
    names = [one["series"] for one in found["series"]]
    odd = [one["series"] for one in client.forecasts(names) if one["late"] or one["ahead"]]
    if odd:
        cure = "check the clock of the sender: nws forecast shows the skipped measurements"
        yield Finding("order", "warn", _some(odd), cure)


def _unless(wrong: bool) -> Literal["ok", "warn"]:
    return "warn" if wrong else "ok"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
