"""``nws backtest``: how good forecasts of a recorded series would have been."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

import nws
from apples.errors import UsageError, coded, unwritable
from apples.io import documents
from apples.ui.command_line import say, show_answer
from apples.weather.text import backtest_text

Engine = Literal["numpy", "numba"]
MANY = 20_000
"""From so many samples on numba, when it is installed, earns the seconds that it takes to load."""


def backtest(
    file: Annotated[Path, typer.Argument(help="CSV of timestamp,value, or npz of arrays.")],
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Write a picture per series into this folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print nws.backtest/1.")] = False,
) -> int:
    """Run the forecasters through recorded series and print the league table of predictors.

    The first 64 samples of a series are learnt from but not scored.

    Example: nws backtest history.csv --plot pictures
    """
    try:
        recording = nws.read_recording(file)
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
    reports, pictures = [], dict[str, str]()
    for name, values in recording.items():
        run = nws.trace(values, engine)
        reports.append(nws.report(name, run))
        if plot is not None:
            from apples.weather.pages.backtest_chart import picture  # noqa: PLC0415 - loads NumPy

            pictures[name] = picture(name, run)
    text = "\n".join(backtest_text(report) for report in reports)
    show_answer(nws.document(reports), text, json)
    for name, drawn in pictures.items():
        _keep(plot or Path(), name, drawn)
    return 0


def _keep(folder: Path, name: str, picture: str) -> None:
    path = folder / (re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".") + ".svg")
    try:
        documents.put(path, picture)
    except OSError as error:
        raise unwritable(f"--plot {path}", error) from None
    say(f"wrote {path}")
