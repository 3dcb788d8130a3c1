"""``nws forecast | query | extract | status | top``: asking a service."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from apples.errors import LaunchError, UsageError, coded
from apples.io import state
from apples.ui.command_line import answers_a_terminal, repaint, say, show_answer
from apples.ui.options import Json
from apples.weather.text import (
    Document,
    forecasts_text,
    measurements_csv,
    series_text,
    service_text,
    top_text,
)
from nws import Client, SeriesName, ServiceError, read_token

Service = Annotated[
    str | None,
    typer.Option("--service", envvar="NWS_SERVICE", help="URL; default: yours on this machine."),
]
TokenPath = Annotated[
    Path | None, typer.Option("--token-file", envvar="NWS_TOKEN_FILE", help="File of the token.")
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        "--certificate",
        envvar="NWS_CERTIFICATE",
        help="Authorities to trust besides the system's.",
    ),
]
Match = Annotated[str, typer.Argument(help="Series; * for anything, ? for one character.")]
Over = Annotated[
    float | None, typer.Option("--over", min=0.001, help="Mean of the next so many seconds.")
]


def forecast(
    series: Annotated[
        list[str],
        typer.Argument(help="resource/host[/peer] ..; * for anything, ? for one character."),
    ],
    over: Over = None,
    level: Annotated[
        float | None, typer.Option("--level", min=0.01, max=0.99, help="Of the interval.")
    ] = None,
    criterion: Annotated[
        str | None, typer.Option("--criterion", help="Error to make least: absolute or squared.")
    ] = None,
    service: Service = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Forecast series of a service.

    Example: nws forecast availableCpu/ada 'latencyTcp/*' --over 300
    """
    with asking(service, token_file, certificate) as client:
        names = _named(client, series)
        found = client.forecasts(names, over=over, level=level, criterion=criterion)
    document = {"schema": "nws.forecast/1", "forecasts": found}
    show_answer(document, lambda: forecasts_text(found), json)
    unknown = sum(each["state"] == "unknown" for each in found)
    if unknown and not json:
        say(f"{unknown} unknown; see: nws query")
    return 0


def query(
    match: Match = "*",
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000)] = 1000,
    service: Service = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Which series a service has, how fresh they are and what is kept of each.

    Example: nws query 'availableCpu/*'
    """
    with asking(service, token_file, certificate) as client:
        found = client.series(match, limit)
    document = {"schema": "nws.query/1", **found}
    show_answer(document, lambda: series_text(found["series"]), json)
    if not json:
        say(f"{len(found['series'])} of {found['total']} series")
    return 0


def extract(
    series: Annotated[str, typer.Argument(help="resource/host or resource/host/peer.")],
    since: Annotated[float | None, typer.Option("--since", help="Seconds ago.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=10_000)] = 1000,
    step: Annotated[
        float | None, typer.Option("--step", min=0.001, help="A regular grid; gaps are empty.")
    ] = None,
    band: Annotated[
        bool, typer.Option("--band", help="With --step: two columns more, low and high.")
    ] = False,
    service: Service = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Print the measurements of a series as CSV, fit for ``nws backtest``.

    With --since and --step as far back as anything is kept: means of five minutes for 60 days, of
    an hour for 400.

    Example: nws extract availableCpu/ada --since 31536000 --step 3600 > ada.csv
    """
    if band and step is None:
        raise UsageError(
            "--band needs --step: a measurement has no low and high",
            code="option-missing",
            option="--step",
        )
    checked_series(series)
    start = None if since is None else datetime.now(UTC).timestamp() - since
    with asking(service, token_file, certificate) as client:
        found = client.range(series, start=start, count=count, step=step)
    document = {"schema": "nws.extract/1", **found}
    show_answer(document, lambda: measurements_csv(found, band), json)
    if not json and not found["times"]:
        say(f"nothing is kept of {series}; see: nws query")
    if not json and found.get("partial"):
        rows = ", ".join(map(repr, found["partial"]))
        say(f"measuring began or ended within {rows}: not the mean of the whole {step:g} s")
    return 0


def status(
    service: Service = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """How a service is, what it keeps, who reports to it, and what is wrong.

    Example: nws status
    """
    with asking(service, token_file, certificate) as client:
        found = client.status()
        there = client.sensors()
    document = {"schema": "nws.status/1", **found, "registrations": there}
    show_answer(document, lambda: service_text(found, there), json)
    return 0


def _named(client: Client, patterns: list[str]) -> list[str]:
    """Return the series that were named, and those that match what was named with ``*`` or ``?``."""
    names: dict[str, None] = {}
    for pattern in patterns:
        if set("*?") & set(pattern):
            found = client.series(pattern, MOST_MATCHED)
            if not found["total"]:
                say(f"no series matches {pattern}; see: nws query")
            elif found["total"] > MOST_MATCHED:
                say(f"{pattern}: the first {MOST_MATCHED} of {found['total']}")
            names |= dict.fromkeys(one["series"] for one in found["series"])
        else:
            names[checked_series(pattern)] = None
    return list(names)


def checked_series(text: str) -> str:
    """Return the name of a series; UsageError if it is none."""
    try:
        return str(SeriesName.parse(text))
    except ValueError as error:
        raise UsageError(str(error), **coded(error, code="name-invalid")) from None


MOST_MATCHED = 10_000


@contextmanager
def asking(
    service: str | None, token_file: Path | None, certificate: Path | None
) -> Iterator[Client]:
    """Give a client of the service asked for; what it cannot do becomes an error of ours."""
    home = state.directory() / "nws"
    try:
        url = service or (home / "url").read_text(errors="replace").strip()
    except OSError:
        reason = "no service runs here: start nws serve, or give --service"
        raise UsageError(
            f"{home / 'url'}: {reason}",
            code="service-missing",
            option="--service",
            file=home / "url",
        ) from None
    _check_url(url)
    try:
        token = read_token(token_file or home / "token")
    except ValueError as error:
        raise UsageError(f"{error} (--token-file)", **coded(error, code="token-invalid")) from None
    try:
        with Client(url, token, certificate=certificate) as client:
            yield client
    except ServiceError as error:
        kind = LaunchError if error.transient else UsageError  # as for the weather of a plan
        raise kind(str(error), **coded(error)) from None


def _check_url(url: str) -> None:
    """Refuse what is no address of a service."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isprintable():
        raise UsageError(
            f"{url}: not the address of a service; use http://HOST:PORT",
            code="address-invalid",
            value=url,
        )


HEAD_LINES = 3
"""Lines of `top` that are no series."""


def top(
    match: Match = "*",
    over: Over = None,
    every: Annotated[
        float, typer.Option("--every", min=0.2, max=86400, help="Seconds between two.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once and end.")] = False,
    service: Service = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Show series as they are measured: value, forecast and the band it is expected in.

    Live on a terminal until Ctrl-C; once elsewhere, with --once and with --json.

    Example: nws top 'availableCpu/*' --over 300
    """
    with asking(service, token_file, certificate) as client:
        if once or json or not answers_a_terminal():
            found = _look_at_series(client, match, over, 10_000)
            show_answer(found, lambda: top_text(found, _width(), _blocks()), json)
            return 0
        try:
            while True:
                rows = max(1, shutil.get_terminal_size().lines - HEAD_LINES)
                text = top_text(_look_at_series(client, match, over, rows), _width(), _blocks())
                repaint(text)
                time.sleep(every)
        except KeyboardInterrupt:
            return 0


def _look_at_series(client: Client, match: str, over: float | None, rows: int) -> Document:
    listed = client.series(match, rows)
    forecasts = client.forecasts([one["series"] for one in listed["series"]], over=over)
    series = [
        {**forecast, "latest": one["latest"]}
        for one, forecast in zip(listed["series"], forecasts, strict=True)
    ]
    return {"schema": "nws.top/1", "time": time.time(), "total": listed["total"], "series": series}


def _width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def _blocks() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
