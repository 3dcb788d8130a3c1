"""The drawing of a series: what was measured, from least to most where a place holds several, and forecasts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from apples.ui import charts as draw
from apples.ui.charts import STRETCH, Scale, line, path, stretched, text
from apples.weather.text import SHARES, ago

Document = Mapping[str, Any]

TOP, HEIGHT = 8.0, 220.0
AHEAD = 1 / 3
"""Of the time that is shown: as far ahead forecasts are drawn."""
FAR = 80.0
"""Percent of the width: where now is further right, the end of the drawing has no word of its own."""
BREAK = 3.0
"""Usual spacings without a measurement after which the line is broken, as a series is stale then."""


def series_chart(
    series: str,
    kept: Document,
    forecasts: Sequence[Document],
    since: float,
    now: float,
    key: str = "",
) -> Markup:
    """Return a series over time: its past, and right of now the mean until each place, with its band.

    Parameters
    ----------
    kept
        As ``/v1/range`` on a grid.
    forecasts
        As ``nws.forecast/1``, over more and more seconds.
    since
        Where the drawing begins.
    key
        Letters that no other drawing of a series on its page has.
    """
    span = now - since
    ahead = [
        one
        for one in forecasts
        if one["value"] is not None and one["over"] and one["over"] <= AHEAD * span
    ]
    across = Scale(max([0.05 * span, *(one["over"] for one in ahead)]), low=-span)
    up = _scale(series, kept, ahead)
    return draw.drawing(
        f"series{key}",
        f"{series} over time",
        "Time across, now at the upright line. Left of it what was measured, a band where a place holds "
        "several measurements; right of it, dashed, the forecast mean from now until there, with its band. "
        "The tables below have the values.",
        HEIGHT + 22,
        draw.levels(up, TOP, HEIGHT),
        stretched(TOP, HEIGHT - TOP, *_past(kept, across, up, now), *_future(ahead, across, up)),
        line(0, HEIGHT, 100, HEIGHT, "frame"),
        *_times(across),
    )


def _times(across: Scale) -> list[Markup]:
    """Return the words below: few, for a drawing may be narrow."""
    now, y = across.at(0.0), HEIGHT + 14
    found = [
        line(now, TOP, now, HEIGHT, "moved"),
        text(0, y, [f"-{ago(-across.low)}"], "tick"),
        text(now / 2, y, [f"-{ago(-across.low / 2)}"], "tick", anchor="middle"),
        text(now, y, ["now"], "tick", anchor="middle"),
    ]
    if now < FAR:
        found.append(text(100, y, [f"+{ago(across.limit)}"], "tick", anchor="end"))
    return found


def _scale(series: str, kept: Document, ahead: Sequence[Document]) -> Scale:
    """Return the axis of the values: a share from 0 to 1, all else from 0 to the most, or from the least."""
    if series.partition("/")[0] in SHARES:
        return Scale(1.0)
    told = [
        one for key in ("values", "lows", "highs") for one in kept[key] or () if one is not None
    ]
    told += [
        one[key] for one in ahead for key in ("value", "lower", "upper") if one[key] is not None
    ]
    most, least = max(told, default=1.0), min(0.0, *told) if told else 0.0
    return Scale(most + 0.02 * (most - least) if most > least else least + 1.0, low=least)


def _past(kept: Document, across: Scale, up: Scale, now: float) -> list[Markup]:
    """Return bands and lines of what was measured, broken where nothing was for long."""
    lows, highs = kept["lows"] or kept["values"], kept["highs"] or kept["values"]
    known = [
        (at, mean, low, high)
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
    found = []
    for run in runs:
        x = [_x(across, at - now) for at, *_ in run]
        found.append(
            path(
                _closed(x, [_y(up, one[2]) for one in run], [_y(up, one[3]) for one in run]),
                "bars",
            )
        )
        y = [_y(up, one[1]) for one in run]
        alone = "h2" if len(run) == 1 else ""
        found.append(path(_open(x, y) + alone, "line-run level"))
    return found


def _future(ahead: Sequence[Document], across: Scale, up: Scale) -> list[Markup]:
    """Return the band and the line of what is forecast, from now on."""
    if not ahead:
        return []
    x = [_x(across, 0.0), *(_x(across, one["over"]) for one in ahead)]
    found = []
    banded = [one for one in ahead if one["lower"] is not None and one["upper"] is not None]
    if banded:
        over = [_x(across, 0.0), *(_x(across, one["over"]) for one in banded)]
        lower = [_y(up, one["lower"]) for one in (banded[0], *banded)]
        upper = [_y(up, one["upper"]) for one in (banded[0], *banded)]
        found.append(path(_closed(over, lower, upper), "band level"))
    found.append(
        path(_open(x, [_y(up, one["value"]) for one in (ahead[0], *ahead)]), "line-plan level")
    )
    return found


def _x(across: Scale, at: float) -> float:
    return across.at(at) / 100 * STRETCH


def _y(up: Scale, value: float) -> float:
    return (HEIGHT - TOP) * (1 - up.at(value) / 100)


def _open(x: Sequence[float], y: Sequence[float]) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def _closed(x: Sequence[float], lower: Sequence[float], upper: Sequence[float]) -> str:
    back = [*zip(x, upper, strict=True)][::-1]
    return f"{_open(x, lower)}L" + "L".join(f"{a:.1f} {b:.1f}" for a, b in back) + "Z"
