"""The chart of a backtest: measured, forecast, interval, and the method that forecast each sample."""

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from apples.ui import charts
from apples.ui.charts import Boxes, Chart, Key, Lane, Path, Scale
from apples.ui.palette import fixed
from apples.ui.shell import page
from nws import INTERVAL_LEVEL, UNSCORED, BacktestTrace

Numbers = NDArray[np.float64]

HEIGHT, ROW = 260.0, 10.0
COLUMNS = 800
"""Columns of the chart; a column of several samples shows their range."""
MAX_METHODS = 10


def picture(name: str, run: BacktestTrace) -> str:
    """Return the SVG document of a trace; nothing is smoothed."""
    size = len(run.values)
    start = min(UNSCORED, max(size - 2, 0))
    rows = slice(start, size)
    lower = [(place, least) for place, least, _ in _columns(run.lower[rows, 0])]
    upper = [(place, most) for place, _, most in _columns(run.upper[rows, 0])]
    marks = [
        Path([[*lower, *reversed(upper)]], "band", closed=True),
        Path([_line(run.values[rows])], "line-run"),
        Path([_line(run.absolute[rows, 0])], "line-plan"),
    ]
    methods = run.method[rows]
    used = sorted(dict.fromkeys(methods), key=lambda method: -methods.count(method))[:MAX_METHODS]
    chosen = [
        Lane(
            [([f"{method} {methods.count(method) / len(methods):.0%}"], "label")],
            ROW,
            [
                Boxes(
                    [(*ends, 0, 1) for ends in _stretches(methods, method)],
                    "box fill-0",
                    crisp=True,
                )
            ],
        )
        for method in used
    ]
    title = f"{name}: measured, forecast one step ahead, {INTERVAL_LEVEL:.0%} interval"
    last = max(size - start - 1, 1)
    chart = Chart(
        "backtest",
        title,
        "Samples across. Below, for each method, the samples that it forecast.",
        Scale(last),
        [
            Lane([([title], "strong")], HEIGHT, marks, _scale(run.values[rows]), True, True),
            *chosen,
        ],
        [
            Key("line-run", "measured", line=True),
            Key("line-plan", "forecast", line=True),
            Key("band", "interval"),
        ],
        ticks=[(0, f"sample {start}"), (last, str(size - 1))],
    )
    return charts.picture(chart.svg(), fixed(page("style.css.j2")))


def _scale(measured: Numbers) -> Scale:
    """Return the axis of the values: all measured values, and a margin for the interval."""
    known = measured[np.isfinite(measured)]
    if not len(known):
        return Scale(1.0)
    low, high = float(known.min()), float(known.max())
    margin = 0.1 * (high - low) or max(abs(high), 1.0) * 0.1
    return Scale(high + margin, low=low - margin)


def _columns(values: Numbers) -> Iterable[tuple[float, float, float]]:
    """Yield (place, least, greatest) of the known samples of every column."""
    edges = np.linspace(0, len(values), min(len(values), COLUMNS) + 1).astype(int)
    for start, stop in pairwise(edges.tolist()):
        part = values[start:stop]
        part = part[np.isfinite(part)]
        if len(part):
            yield (start + stop - 1) / 2, float(part.min()), float(part.max())


def _line(values: Numbers) -> list[tuple[float, float]]:
    return [(place, value) for place, *ends in _columns(values) for value in dict.fromkeys(ends)]


def _stretches(methods: tuple[str, ...], method: str) -> Iterable[tuple[int, int]]:
    """Yield (start, stop) wherever `method` was chosen without a break."""
    chosen = np.concatenate([[False], np.array(methods) == method, [False]]).astype(int)
    edges = np.flatnonzero(np.diff(chosen))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
