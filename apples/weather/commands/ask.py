"""``nws forecast | query | extract | status | top``: asking a service."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import click

from apples.errors import LaunchError, UsageError, coded
from apples.io import state
from apples.ui.command_line import answers_a_terminal, command, repaint, say, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import (
    FILE,
    NUMBER,
    TYPED,
    Excludes,
    Requires,
    argument,
    integer,
    number,
    option,
)
from apples.weather.text import (
    Document,
    forecasts_text,
    measurements_csv,
    series_text,
    service_text,
    top_text,
)
from nws import Client, SeriesName, ServiceError, is_in_use, read_token

service_option = option(
    "--service", metavar="URL", envvar="NWS_SERVICE", help="URL; default: yours on this machine."
)
token_path_option = option(
    "--token-file", type=FILE, envvar="NWS_TOKEN_FILE", help="File of the token."
)
ca_option = option(
    "--ca",
    type=FILE,
    envvar="NWS_CA",
    help="File of certificate authorities to trust, beside the system's.",
)
match_argument = argument(
    "match", required=False, default="*", help="Series; * for anything, ? for one character."
)
over_option = option(
    "--over",
    metavar="SECONDS",
    type=number(0.001),
    help="Forecast the mean of this time from now on.",
)


@command()
@argument(
    "series",
    nargs=-1,
    required=True,
    help="resource/host[/peer] ..; * for anything, ? for one character.",
)
@over_option
@option("--level", metavar="FRACTION", type=number(0.01, 0.99), help="Level of the interval.")
@option("--criterion", metavar="NAME", help="Error to minimise: absolute or squared.")
@service_option
@token_path_option
@ca_option
@json_option
def forecast(
    series: tuple[str, ...],
    over: float | None,
    level: float | None,
    criterion: str | None,
    service: str | None,
    token_file: Path | None,
    ca: Path | None,
    json: bool,
) -> int:
    """Forecast series of a service.

    Example: nws forecast availableCpu/ada 'latencyTcp/*' --over 300
    """
    with asking(service, token_file, ca) as client:
        names = _named(client, series)
        found = client.forecasts(names, over=over, level=level, criterion=criterion)
    document = {"schema": "nws.forecast/1", "forecasts": found}
    show_answer(document, lambda: forecasts_text(found), json)
    unknown = sum(each["state"] == "unknown" for each in found)
    if unknown and not json:
        say(f"{unknown} unknown; see: nws query")
    return 0


@command()
@match_argument
@option("--limit", type=integer(1, 10_000), default=1000, help="Most series to print.")
@service_option
@token_path_option
@ca_option
@json_option
def query(
    match: str,
    limit: int,
    service: str | None,
    token_file: Path | None,
    ca: Path | None,
    json: bool,
) -> int:
    """List the series of a service: age of the last measurement, and stored measurements.

    Example: nws query 'availableCpu/*'
    """
    with asking(service, token_file, ca) as client:
        found = client.series(match, limit)
    document = {"schema": "nws.query/1", **found}
    show_answer(document, lambda: series_text(found["series"]), json)
    if not json:
        say(f"{len(found['series'])} of {found['total']} series")
    return 0


@command(rules=(Excludes("--band", "--json"), Requires("--band", "--step")))
@argument("series", help="resource/host or resource/host/peer.")
@option("--since", metavar="SECONDS", type=NUMBER, help="Seconds ago.")
@option("--count", type=integer(1, 10_000), default=1000, help="Most measurements to print.")
@option("--step", metavar="SECONDS", type=number(0.001), help="A regular grid; gaps are empty.")
@option("--band", is_flag=True, help="With --step: two columns more, low and high.")
@service_option
@token_path_option
@ca_option
@json_option
def extract(
    series: str,
    since: float | None,
    count: int,
    step: float | None,
    band: bool,
    service: str | None,
    token_file: Path | None,
    ca: Path | None,
    json: bool,
) -> int:
    """Print the measurements of a series as CSV, fit for ``nws backtest``.

    With --since and --step as far back as anything is kept: means of five minutes for 60 days, of
    an hour for 400.

    Example: nws extract availableCpu/ada --since 31536000 --step 3600 > ada.csv
    """
    checked_series(series)
    typed = click.get_current_context().get_parameter_source("count") is TYPED
    if typed and since is not None and step is not None:
        raise UsageError(
            "--count does not apply: --since with --step prints the whole grid",
            code="option-not-applicable",
            option="--count",
        )
    start = None if since is None else datetime.now(UTC).timestamp() - since
    with asking(service, token_file, ca) as client:
        found = client.range(series, start=start, count=count, step=step)
    document = {"schema": "nws.extract/1", **found}
    show_answer(document, lambda: measurements_csv(found, band), json)
    if not json and not found["times"]:
        say(f"the service has no measurements of {series}; see: nws query")
    if not json and found.get("partial"):
        rows = ", ".join(map(repr, found["partial"]))
        say(f"measuring began or ended within {rows}: not the mean of the whole {step:g} s")
    return 0


@command()
@service_option
@token_path_option
@ca_option
@json_option
def status(service: str | None, token_file: Path | None, ca: Path | None, json: bool) -> int:
    """Print the state of a service: its series, its sensors and its problems.

    Example: nws status
    """
    with asking(service, token_file, ca) as client:
        found = client.status()
        there = client.sensors()
    document = {"schema": "nws.status/1", **found, "registrations": there}
    show_answer(document, lambda: service_text(found, there), json)
    return 0


def _named(client: Client, patterns: tuple[str, ...]) -> list[str]:
    """Return the named series, and the series that match the patterns with ``*`` or ``?``."""
    names: dict[str, None] = {}
    for pattern in patterns:
        if set("*?") & set(pattern):
            found = client.series(pattern, MAX_MATCHED)
            if not found["total"]:
                say(f"no series matches {pattern}; see: nws query")
            elif found["total"] > MAX_MATCHED:
                say(f"{pattern}: the first {MAX_MATCHED} of {found['total']}")
            names |= dict.fromkeys(one["series"] for one in found["series"])
        else:
            names[checked_series(pattern)] = None
    return list(names)


def checked_series(text: str) -> str:
    """Return the name of a series; raise UsageError if it is invalid."""
    try:
        return str(SeriesName.parse(text))
    except ValueError as error:
        raise UsageError(str(error), **coded(error, code="name-invalid")) from None


MAX_MATCHED = 10_000


@contextmanager
def asking(service: str | None, token_file: Path | None, ca: Path | None) -> Iterator[Client]:
    """Yield a client of the service; its errors become errors of `apples`."""
    home = state.directory() / "nws"
    try:
        url = service or (home / "url").read_text(errors="replace").strip()
    except OSError:
        if is_in_use(home):
            raise LaunchError(
                f"{home}: the service is starting; ask again once nws serve prints its address",
                code="service-starting",
                file=home,
            ) from None
        reason = "no service runs here: start nws serve, or give --service"
        raise UsageError(
            f"{home / 'url'}: {reason}",
            code="service-missing",
            option="--service",
            file=home / "url",
        ) from None
    _check_url(url)
    if url.startswith("http:"):
        _reject_ca(url)
    try:
        token = read_token(token_file or home / "token")
    except ValueError as error:
        raise UsageError(f"{error} (--token-file)", **coded(error, code="token-invalid")) from None
    try:
        with Client(url, token, certificate=ca) as client:
            yield client
    except ServiceError as error:
        kind = LaunchError if error.transient else UsageError  # as for the weather of a plan
        raise kind(str(error), **coded(error)) from None


def _reject_ca(url: str) -> None:
    """Raise `UsageError` for a typed ``--ca`` and a service without TLS."""
    context = click.get_current_context()
    if context.get_parameter_source("ca") is TYPED:
        raise UsageError(
            f"--ca does not apply: {url} is without TLS",
            code="option-not-applicable",
            option="--ca",
            value=url,
        )


def _check_url(url: str) -> None:
    """Raise UsageError unless the text is the URL of a service."""
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
"""Lines of `top` above and below the series."""


@command(rules=(Excludes("--every", "--once"), Excludes("--every", "--json")))
@match_argument
@over_option
@option(
    "--every",
    metavar="SECONDS",
    type=number(0.2, 86400),
    default=2.0,
    help="Seconds between two updates.",
)
@option("--once", is_flag=True, help="Print it once and end.")
@service_option
@token_path_option
@ca_option
@json_option
def top(
    match: str,
    over: float | None,
    every: float,
    once: bool,
    service: str | None,
    token_file: Path | None,
    ca: Path | None,
    json: bool,
) -> int:
    """Show series as they are measured: value, forecast and the band it is expected in.

    Live on a terminal until Ctrl-C; once elsewhere, with --once and with --json.

    Example: nws top 'availableCpu/*' --over 300
    """
    with asking(service, token_file, ca) as client:
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
