"""``nws import``: store past measurements, for example of Prometheus, so that forecasts start with a history."""

from __future__ import annotations

import time
from pathlib import Path

import nws
from apples.errors import LaunchError, UsageError, coded
from apples.ui.command_line import command, say, show_answer
from apples.ui.options import json_option
from apples.ui.parameters import FILE, Excludes, Requires, argument, number, option
from apples.weather.commands.ask import (
    asking,
    ca_option,
    service_option,
    token_path_option,
)
from apples.weather.documents import ImportDocument

KEPT_SECONDS = 400 * 86400.0
"""The service keeps no older data."""


@command(rules=(Excludes("FILE", "--prometheus"), Requires("--since", "--prometheus")))
@argument(
    "file",
    type=FILE,
    required=False,
    help="Lines of nws sense --stdout, a dump of promtool tsdb, or the JSON of query_range; may be packed.",
)
@option(
    "--prometheus", metavar="URL", help="URL of a Prometheus server to read instead of a file."
)
@option(
    "--since",
    metavar="SECONDS",
    type=number(1, KEPT_SECONDS),
    default=86400.0,
    help="With --prometheus: read the last SECONDS.",
)
@service_option
@token_path_option
@ca_option
@json_option
def import_history(
    file: Path | None,
    prometheus: str | None,
    since: float,
    service: str | None,
    token_file: Path | None,
    ca: Path | None,
    json: bool,
) -> int:
    """Store measurements from before the service started, oldest first.

    Invalid lines are skipped, counted and named; the rest is stored. A series takes measurements up
    to an hour older than its latest: import before its sensor starts. Repeating an import is safe.
    Exit code 2 if no measurement was stored, now or before.

    Example: nws import --prometheus http://prom:9090 --since 604800
    """
    if file is None and prometheus is None:
        raise UsageError(
            "FILE or --prometheus URL is required", code="argument-missing", argument="FILE"
        )
    try:
        history = _read(file) if file is not None else _ask(str(prometheus), since)
    except nws.SensorError as error:
        kind = LaunchError if error.transient else UsageError
        raise kind(str(error), **coded(error)) from None
    measurements = sorted(history.measurements, key=_moment)
    if not measurements:
        reason = "; ".join(history.reasons) or "nothing of a host's CPU, memory or disk is there"
        raise UsageError(
            f"{file or prometheus}: {reason}", code="history-empty", file=str(file or prometheus)
        )
    document: ImportDocument = {
        "schema": "nws.import/1",
        "series": len({str(one.series) for one in measurements}),
        "stored": 0,
        "duplicates": 0,
        "refused_total": 0,
        "reasons": [],
        "left_out": history.left_out,
        "left_out_reasons": history.reasons,
    }
    with asking(service, token_file, ca) as client:
        for receipt in nws.store_history(client, measurements, _wait):
            document["stored"] += receipt["stored"]
            document["duplicates"] += receipt["duplicates"]
            document["refused_total"] += receipt["refused_total"]
            document["reasons"] += [one["reason"] for one in receipt["refused"]][:1]
    document["reasons"] = document["reasons"][:5]
    show_answer(document, lambda: _text(document), json)
    return 0 if document["stored"] or document["duplicates"] else UsageError.exit_code


def _read(path: Path) -> nws.RecordedHistory:
    return nws.read_history(nws.StoredText(path, error=UsageError).lines())


def _ask(url: str, since: float) -> nws.RecordedHistory:
    reader = nws.PrometheusReader(url)
    now = time.time()
    found = nws.RecordedHistory()
    for stop, measurements in reader.history(now - since, now):
        found.measurements += measurements
        count = len(found.measurements)
        say(f"{count} measurements up to {time.strftime('%F %T', time.localtime(stop))}")
    return found


def _wait(seconds: float) -> None:
    say("the forecasters of the service are behind; waiting")
    time.sleep(seconds)


def _moment(measurement: nws.Measurement) -> float:
    return measurement.time


def _text(document: ImportDocument) -> str:
    line = (
        f"{document['stored']} measurements of {document['series']} series stored, "
        f"{document['duplicates']} were there already, {document['refused_total']} refused, "
        f"{document['left_out']} left out"
    )
    reasons = [*document["left_out_reasons"], *document["reasons"]]
    return "\n".join([line, *(f"  {reason}" for reason in reasons)])
