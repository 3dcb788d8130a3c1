"""``nws backtest``: how good forecasts of a recorded series would have been."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

import nws
from apples.cli.program import say, show, show_json
from apples.errors import UsageError

Engine = Literal["numpy", "numba"]
MANY = 20_000
"""From so many samples on numba, when it is installed, earns the seconds that it takes to load."""
SHOWN = 5


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
        raise UsageError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(str(error)) from error
    many = sum(len(values) for values in recording.values()) > MANY
    engine: Engine = "numba" if many and find_spec("numba") else "numpy"
    reports = []
    for name, values in recording.items():
        run = nws.trace(values, engine)
        reports.append(nws.report(name, run))
        if plot is not None:
            _draw(plot, name, run)
    if json:
        show_json(nws.document(reports))
    else:
        show("\n".join(line for report in reports for line in table(report)))
    return 0


def table(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of a report on one series."""
    classic, last, interval = report["classic"], report["last_value"], report["interval"]
    width = _number(interval["width_ratio"])
    lines = [
        f"{report['name']}: {_against(report['mae'], classic['mae'])} ({report['n']} samples)",
        f"  {'predictor':<24} {'MAE':>12} {'RMSE':>12}",
        _row("default profile", report),
        _row("classic profile (NWS 2.x)", classic),
        _row("last value", last),
    ]
    ranked = sorted(
        (item for item in report["predictors"].items() if item[1]["mae"] is not None),
        key=lambda item: item[1]["mae"],
    )
    lines += [
        _row(f"{place}. {name}", errors) for place, (name, errors) in enumerate(ranked[:SHOWN], 1)
    ]
    lines.append(
        f"  interval of {interval['level']:.0%}: held {_percent(interval['coverage'])}, "
        f"{width} as wide as +-1.645 RMSE of the classic forecast"
    )
    lines += [
        f"  mean of the next {rung}: MAE {_number(errors['mae'])}, of the classic one-step forecast "
        f"{_number(errors['classic_one_step_mae'])}"
        for rung, errors in report["horizons"].items()
    ]
    return [*lines, ""]


def _against(ours: float | None, classic: float | None) -> str:
    if ours is None or classic is None:
        return "too short to be scored"
    if not classic:
        return f"mean absolute error {ours:.4g}, classic 0"
    return f"mean absolute error {ours:.4g}, {ours / classic:.2f} of the classic {classic:.4g}"


def _row(name: str, errors: Mapping[str, Any]) -> str:
    return f"  {name:<25} {_number(errors['mae']):>11} {_number(errors['rmse']):>12}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _draw(folder: Path, name: str, run: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".") + ".svg")
    path.write_text(nws.picture(name, run), encoding="utf-8")
    say(f"wrote {path}")
