"""The chart of a series: its measurements, with their range if a point holds several, and its forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from apples.ui.charts import Chart, Lane, Mark, Path, Rule, Scale, area
from apples.weather.text import SHARES, ago

Document = Mapping[str, Any]

HEIGHT = 212.0
AHEAD = 1 / 3
"""Time ahead with forecasts, as a share of the shown past."""
FAR = 80.0
"""Percent of the width; if now is further right, the label of the chart's end is left out."""
BREAK = 3.0
"""Gap that breaks the line, in usual intervals of the series; after it, a series is stale."""


def series_chart(
    series: str,
    kept: Document,
    forecasts: Sequence[Document],
    since: float,
    now: float,
    key: str = "",
) -> Markup:
    """Return a chart of a series: its past, and right of now the forecast mean from now to each time.

    Parameters
    ----------
    kept
        As ``/v1/range`` on a grid.
    forecasts
        As ``nws.forecast/1``, over longer and longer horizons.
    since
        Start of the chart, in seconds since the epoch.
    key
        Prefix that is unique on the page.
    """
    span = now - since
    ahead = [
        one
        for one in forecasts
        if one["value"] is not None and one["over"] and one["over"] <= AHEAD * span
    ]
    across = Scale(max([0.05 * span, *(one["over"] for one in ahead)]), low=-span)
    ticks = [(-span, f"-{ago(span)}"), (-span / 2, f"-{ago(span / 2)}"), (0.0, "now")]
    if across.at(0.0) < FAR:
        ticks.append((across.limit, f"+{ago(across.limit)}"))
    marks = [*_past(kept, now), *_future(ahead)]
    return Chart(
        f"series{key}",
        f"{series} over time",
        "Time runs to the right; the upright line is now. Left of it are measurements, a band where one "
        "point holds several; right of it, dashed, the forecast mean from now until there, with its band. "
        "The tables below have the values.",
        across,
        [
            Lane(height=8.0),
            Lane((), HEIGHT, marks, _scale(series, kept, ahead), levels=True, base=True),
        ],
        rules=[Rule(0.0)],
        ticks=ticks,
    ).svg()


def _scale(series: str, kept: Document, ahead: Sequence[Document]) -> Scale:
    """Return the axis of the values: 0 to 1 for a share, else from 0 (or a negative value) to the greatest."""
    if series.partition("/")[0] in SHARES:
        return Scale(1.0)
    values = [
        one for key in ("values", "lows", "highs") for one in kept[key] or () if one is not None
    ]
    values += [
        one[key] for one in ahead for key in ("value", "lower", "upper") if one[key] is not None
    ]
    most, least = max(values, default=1.0), min([0.0, *values])
    return Scale(most + 0.02 * (most - least) if most > least else least + 1.0, low=least)


def _past(kept: Document, now: float) -> list[Mark]:
    """Return the measurements with their range, broken at long gaps."""
    lows, highs = kept["lows"] or kept["values"], kept["highs"] or kept["values"]
    known = [
        (at - now, mean, low, high)
        for at, mean, low, high in zip(kept["times"], kept["values"], lows, highs, strict=True)
        if mean is not None
    ]
    gaps = [b[0] - a[0] for a, b in pairwise(known)]
    longest = BREAK * sorted(gaps)[len(gaps) // 2] if gaps else 0.0
    runs: list[list[tuple[float, float, float, float]]] = []
    for one in known:
        if not runs or one[0] - runs[-1][-1][0] > longest:
            runs.append([])
        runs[-1].append(one)
    ranges = [area(x, low, high) for x, _, low, high in (zip(*run, strict=True) for run in runs)]
    means = [[(at, mean) for at, mean, _, _ in run] for run in runs]
    return [Path(ranges, "bars", closed=True), Path(means, "line-run")]


def _future(ahead: Sequence[Document]) -> list[Mark]:
    """Return the forecast with its band, from now on."""
    marks: list[Mark] = []
    banded = [one for one in ahead if one["lower"] is not None and one["upper"] is not None]
    if banded:
        x = [0.0, *(one["over"] for one in banded)]
        lower, upper = ([one[key] for one in (banded[0], *banded)] for key in ("lower", "upper"))
        marks.append(Path([area(x, lower, upper)], "band", closed=True))
    if ahead:
        mean = [(0.0, ahead[0]["value"]), *((one["over"], one["value"]) for one in ahead)]
        marks.append(Path([mean], "line-plan"))
    return marks
