"""``nws forecast | query | extract | status``: asking a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from apples.cli.program import say, show, show_json
from apples.errors import LaunchError, UsageError
from apples.storage import state
from nws import Client, ServiceError

Service = Annotated[
    str | None,
    typer.Option("--service", envvar="NWS_SERVICE", help="URL; default: yours on this machine."),
]
TokenPath = Annotated[
    Path | None, typer.Option("--token-file", envvar="NWS_TOKEN_FILE", help="File of the token.")
]
Certificate = Annotated[
    Path | None, typer.Option("--certificate", help="Authorities to trust besides the system's.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def forecast(
    series: Annotated[list[str], typer.Argument(help="resource/host or resource/host/peer ..")],
    over: Annotated[
        float | None, typer.Option("--over", min=0.001, help="Mean of the next so many seconds.")
    ] = None,
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

    Example: nws forecast availableCpu/ada --over 300
    """
    with _asking(service, token_file, certificate) as client:
        found = client.forecasts(series, over=over, level=level, criterion=criterion)
    if json:
        show_json({"schema": "nws.forecast/1", "forecasts": found})
        return 0
    for each in found:
        show(_forecast_line(each))
    unknown = [each["series"] for each in found if each["state"] == "unknown"]
    if unknown:
        say(f"{len(unknown)} unknown; see: nws query")
    return 0


def query(
    match: Annotated[
        str, typer.Argument(help="Series; * for anything, ? for one character.")
    ] = "*",
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000)] = 1000,
    service: Service = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Which series a service has, how fresh they are and what is kept of each.

    Example: nws query 'availableCpu/*'
    """
    with _asking(service, token_file, certificate) as client:
        found = client.series(match, limit)
    if json:
        show_json({"schema": "nws.query/1", **found})
        return 0
    for each in found["series"]:
        show(
            f"{each['series']}  {each['latest']:.6g}  {each['state']}, {each['age']:.0f} s old; "
            f"{each['count']} kept since {_when(each['oldest'])}"
        )
    say(f"{len(found['series'])} of {found['total']} series")
    return 0


def extract(
    series: Annotated[str, typer.Argument(help="resource/host or resource/host/peer.")],
    since: Annotated[float | None, typer.Option("--since", help="Seconds ago.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=10_000)] = 1000,
    step: Annotated[
        float | None, typer.Option("--step", min=0.001, help="A regular grid; gaps are empty.")
    ] = None,
    service: Service = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Print the measurements of a series as CSV, fit for ``nws backtest``.

    Example: nws extract availableCpu/ada --count 500 > ada.csv
    """
    start = None if since is None else datetime.now(UTC).timestamp() - since
    with _asking(service, token_file, certificate) as client:
        found = client.range(series, start=start, count=count, step=step)
    if json:
        show_json({"schema": "nws.extract/1", **found})
        return 0
    lines = ["timestamp,value"]
    for time, value in zip(found["times"], found["values"], strict=True):
        lines.append(f"{time!r},{'' if value is None else repr(value)}")
    show("\n".join(lines))
    if not found["times"]:
        say(f"nothing is kept of {series}; see: nws query")
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
    with _asking(service, token_file, certificate) as client:
        found = client.status()
        there = client.sensors()
    if json:
        show_json({"schema": "nws.status/1", **found, "registrations": there})
        return 0
    show(
        f"{found['status']}: {found['series']} series, {found['measurements']} measurements, "
        f"{len(there)} sensors, {found['backlog']} wait to be forecast from"
    )
    for each in there:
        show(f"  {each['name']} in {each['site']}, lease for {each['expires_in']:.0f} s")
    for problem in found["problems"]:
        show(f"  problem: {problem}")
    return 0


@contextmanager
def _asking(
    service: str | None, token_file: Path | None, certificate: Path | None
) -> Iterator[Client]:
    """Give a client of the service asked for; what it cannot do becomes an error of ours."""
    home = state.directory() / "nws"
    url = service or _text(
        home / "url", "no service runs here: start nws serve, or give --service"
    )
    token = _text(token_file or home / "token", "a token is wanted (--token-file)")
    try:
        with Client(url, token, certificate=certificate) as client:
            yield client
    except ServiceError as error:
        kind = UsageError if error.status in {401, 403, 422} else LaunchError
        raise kind(str(error)) from None


def _text(path: Path, otherwise: str) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        raise UsageError(f"{path}: {otherwise}") from None


def _forecast_line(each: dict[str, Any]) -> str:
    if each["value"] is None:
        return f"{each['series']}  unknown"
    error = "" if each["error"] is None else f" +- {each['error']:.3g}"
    interval = ""
    if each["lower"] is not None and each["upper"] is not None:
        interval = f" [{each['lower']:.6g}, {each['upper']:.6g}]"
    return (
        f"{each['series']}  {each['value']:.6g}{error}{interval}  {each['state']}, "
        f"{each['age']:.0f} s old; {each['method']} from {each['samples']}{_frame(each)}"
    )


def _frame(each: dict[str, Any]) -> str:
    if (each["horizon"] or 1) == 1:
        return ""
    seconds = "" if each["over"] is None else f" ({each['over']:.6g} s)"
    return f", mean of the next {each['horizon']}{seconds}"


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
