"""``nws import``: the past of hosts that Prometheus watched, so that forecasts begin warm."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

import nws
from apples.errors import LaunchError, UsageError, coded
from apples.ui.command_line import say, show_answer
from apples.ui.options import Json
from apples.weather.commands.ask import Certificate, Service, TokenPath, asking

KEPT_SECONDS = 400 * 86400.0
"""What is older is let go at once."""


def import_history(
    file: Annotated[
        Path | None,
        typer.Argument(help="Lines of nws sense --stdout, or of promtool tsdb dump."),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", help="URL of a server to read from instead.")
    ] = None,
    since: Annotated[
        float, typer.Option("--since", min=1, max=KEPT_SECONDS, help="Seconds ago, of a server.")
    ] = 86400.0,
    service: Service = None,
    token_file: TokenPath = None,
    certificate: Certificate = None,
    json: Json = False,
) -> int:
    """Store what was measured before the service was there, oldest first.

    What is no measurement is left out, counted and named; the rest is stored. A series that is
    measured already takes nothing that is more than an hour older than its latest: import before
    its sensor starts. Exit code 2 if nothing was stored, nor had been before.

    Example: nws import --prometheus http://prom:9090 --since 604800
    """
    if (file is None) == (prometheus is None):
        raise UsageError(
            "a FILE, or --prometheus URL: one of the two",
            code="option-conflict",
            options=["FILE", "--prometheus"],
        )
    try:
        history = _read(file) if file is not None else _ask(str(prometheus), since)
    except nws.SensorError as error:
        kind = LaunchError if error.transient else UsageError
        raise kind(str(error), **coded(error)) from None
    measurements = sorted(history.measurements, key=_moment)
    if not measurements:
        told = "; ".join(history.reasons) or "nothing of a host's CPU, memory or disk is there"
        raise UsageError(
            f"{file or prometheus}: {told}", code="history-empty", file=str(file or prometheus)
        )
    document: dict[str, Any] = {"schema": "nws.import/1", "series": 0, "stored": 0}
    document |= {"duplicates": 0, "refused_total": 0, "reasons": []}
    document |= {"left_out": history.left_out, "left_out_reasons": history.reasons}
    with asking(service, token_file, certificate) as client:
        for receipt in nws.store_history(client, measurements, _patiently):
            for key in ("stored", "duplicates", "refused_total"):
                document[key] += receipt[key]
            document["reasons"] += [one["reason"] for one in receipt["refused"]][:1]
    document["series"] = len({str(one.series) for one in measurements})
    document["reasons"] = document["reasons"][:5]
    show_answer(document, lambda: _text(document), json)
    return 0 if document["stored"] or document["duplicates"] else UsageError.exit_code


def _read(path: Path) -> nws.RecordedHistory:
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            return nws.read_history(lines)
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror}",
            code="file-missing" if isinstance(error, FileNotFoundError) else "file-unreadable",
            file=path,
        ) from None


def _ask(url: str, since: float) -> nws.RecordedHistory:
    reader = nws.PrometheusReader(url)
    now = time.time()
    found = nws.RecordedHistory()
    for stop, measurements in reader.history(now - since, now):
        found.measurements += measurements
        count = len(found.measurements)
        say(f"{count} measurements up to {time.strftime('%F %T', time.localtime(stop))}")
    return found


def _patiently(seconds: float) -> None:
    say("the service still forecasts from what it has; waiting")
    time.sleep(seconds)


def _moment(measurement: nws.Measurement) -> float:
    return measurement.time


def _text(document: dict[str, Any]) -> str:
    line = (
        f"{document['stored']} measurements of {document['series']} series stored, "
        f"{document['duplicates']} were there already, {document['refused_total']} refused, "
        f"{document['left_out']} left out"
    )
    reasons = [*document["left_out_reasons"], *document["reasons"]]
    return "\n".join([line, *(f"  {reason}" for reason in reasons)])
