"""``nws backtest``: score the forecasters on a recorded series."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import nws
from apples.errors import UsageError, coded, unwritable
from apples.io import documents
from apples.ui.command_line import command, say, show_answer
from apples.ui.parameters import FILE, argument, option
from apples.weather.text import backtest_text

if TYPE_CHECKING:
    from apples.weather.documents import BacktestedSeries

Engine = Literal["numpy", "numba"]
MANY = 20_000
"""Number of samples from which numba saves more time than it takes to load."""


@command()
@argument(
    "file", type=FILE, help="CSV of timestamp,value, npz of arrays, or an export of Prometheus."
)
@option(
    "--column", metavar="NAME", help="Header of the column of values; without headers its number."
)
@option("--plot", metavar="FOLDER", type=FILE, help="Write a picture per series into this folder.")
@option("--json", is_flag=True, help="Print nws.backtest/1.")
def backtest(file: Path, column: str | None, plot: Path | None, json: bool) -> int:
    """Run the forecasters through recorded series and print the league table of predictors.

    The first 64 samples of a series are learnt from but not scored. Rows without a value are missing samples;
    times without an offset are UTC.

    Example: nws backtest history.csv --plot pictures
    """
    try:
        recording = nws.read_recording(file, column)
    except OSError as error:
        raise UsageError(
            f"{file}: {error.strerror}",
            code="file-missing" if isinstance(error, FileNotFoundError) else "file-unreadable",
            file=file,
        ) from error
    except ValueError as error:
        raise UsageError(str(error), **coded(error, code="file-invalid")) from error
    many = sum(len(values) for values in recording.values()) > MANY
    engine: Engine = "numba" if many and find_spec("numba") else "numpy"
    reports: list[BacktestedSeries] = []
    pictures: dict[str, str] = {}
    for name, values in recording.items():
        run = nws.trace(values, engine, recording.periods.get(name))
        reports.append(cast("BacktestedSeries", nws.report(name, run)))
        if plot is not None:
            from apples.weather.pages.backtest_chart import picture  # noqa: PLC0415 - loads NumPy

            pictures[name] = picture(name, run)
    try:  # before the answer, since its reader may close the pipe; the answer comes in any case
        for name, drawn in pictures.items():
            _keep(plot or Path(), name, drawn)
    finally:
        for note in recording.notes:
            say(note)
        if recording.left_out:
            say(f"{recording.left_out} rows left out, the first: {recording.reasons[0]}")
        text = "\n".join(backtest_text(report) for report in reports)
        show_answer(nws.document(reports, recording), text, json)
    return 0


def _keep(folder: Path, name: str, picture: str) -> None:
    path = folder / (re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".") + ".svg")
    try:
        documents.put(path, picture)
    except OSError as error:
        raise unwritable(f"--plot {path}", error) from None
    say(f"wrote {path}")
