"""``nws top``: the series of a service, live, with their forecasts as bands."""

from __future__ import annotations

import shutil
import sys
import time
from typing import Annotated

import typer

import nws
from apples.cli.nws_ask import Certificate, Match, Over, Service, TokenPath, asking
from apples.cli.options import Json
from apples.cli.program import answers_a_terminal, repaint, show_answer
from apples.views.weather import Document, top_text

HEAD_LINES = 3


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
            found = _look(client, match, over, 10_000)
            show_answer(found, lambda: top_text(found, _width(), _blocks()), json)
            return 0
        try:
            while True:
                rows = max(1, shutil.get_terminal_size().lines - HEAD_LINES)
                text = top_text(_look(client, match, over, rows), _width(), _blocks())
                repaint(text)
                time.sleep(every)
        except KeyboardInterrupt:
            return 0


def _look(client: nws.Client, match: str, over: float | None, rows: int) -> Document:
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
