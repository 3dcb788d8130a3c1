"""A backtest as one SVG picture: measured, forecast, interval, and who forecast when."""

from collections.abc import Iterable
from html import escape
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from nws import INTERVAL_LEVEL, UNSCORED, BacktestTrace

Numbers = NDArray[np.float64]

MEASURED: Final = "#D55E00"
FORECAST: Final = "#0072B2"
INK: Final = "#333333"
"""Colours of two series that stay apart for every eye."""
WIDTH: Final = 1000
LEFT: Final = 190
PLOT_HEIGHT: Final = 260
ROW: Final = 16
COLUMNS: Final = WIDTH - LEFT - 10
MOST_METHODS: Final = 10

Points = list[tuple[float, float]]


def picture(name: str, run: BacktestTrace) -> str:
    """Return the SVG document of a trace.

    Where there are more samples than columns of the picture, a column shows the extremes of its
    samples; nothing is smoothed.
    """
    size = len(run.values)
    rows = slice(min(UNSCORED, max(size - 2, 0)), size)
    low, high = _range(run.values[rows], run.lower[rows, 0], run.upper[rows, 0])
    methods = _most_used(run.method[rows])
    height = 60 + PLOT_HEIGHT + 30 + ROW * len(methods) + 30
    parts = [
        _band(run.lower[rows, 0], run.upper[rows, 0], low, high),
        _line(run.values[rows], low, high, MEASURED, "6 0"),
        _line(run.absolute[rows, 0], low, high, FORECAST, "5 3"),
        _axes(low, high, rows.start, size),
        _strip(run.method[rows], methods),
    ]
    title = escape(f"{name}: measured, forecast one step ahead, {INTERVAL_LEVEL:.0%} interval")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'font-family="sans-serif" font-size="12" fill="{INK}">\n'
        f"<title>{title}</title>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="#FFFFFF"/>\n'
        f'<text x="10" y="22" font-size="15">{title}</text>\n'
        f'<text x="{LEFT}" y="44" fill="{MEASURED}">measured</text>'
        f'<text x="{LEFT + 90}" y="44" fill="{FORECAST}">forecast (dashed) and interval</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _range(*series: Numbers) -> tuple[float, float]:
    """Return what the axis spans: all of the measured, and the bulk of the interval."""
    measured = series[0][np.isfinite(series[0])]
    if not len(measured):
        return 0.0, 1.0
    low, high = float(measured.min()), float(measured.max())
    margin = 0.1 * (high - low) or max(abs(high), 1.0) * 0.1
    return low - margin, high + margin


def _x(place: float, size: int) -> float:
    return LEFT + COLUMNS * place / max(size - 1, 1)


def _y(value: float, low: float, high: float) -> float:
    share = min(max((value - low) / (high - low), 0.0), 1.0)
    return 60 + PLOT_HEIGHT * (1 - share)


def _columns(values: Numbers) -> Iterable[tuple[float, float, float]]:
    """Yield (place, least, greatest) of the known samples of every column."""
    count = min(len(values), COLUMNS)
    edges = np.linspace(0, len(values), count + 1).astype(int)
    for start, stop in pairwise(edges.tolist()):
        part = values[start:stop]
        part = part[np.isfinite(part)]
        if len(part):
            yield (start + stop - 1) / 2, float(part.min()), float(part.max())


def _path(points: Points) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _line(values: Numbers, low: float, high: float, colour: str, dash: str) -> str:
    points: Points = []
    for place, least, greatest in _columns(values):
        x = _x(place, len(values))
        points.append((x, _y(least, low, high)))
        if greatest > least:
            points.append((x, _y(greatest, low, high)))
    return (
        f'<polyline points="{_path(points)}" fill="none" stroke="{colour}" stroke-width="1.5" '
        f'stroke-dasharray="{dash}"/>'
    )


def _band(lower: Numbers, upper: Numbers, low: float, high: float) -> str:
    below = [(_x(p, len(lower)), _y(least, low, high)) for p, least, _ in _columns(lower)]
    above = [(_x(p, len(upper)), _y(most, low, high)) for p, _, most in _columns(upper)]
    return f'<polygon points="{_path(below + above[::-1])}" fill="{FORECAST}" opacity="0.18"/>'


def _axes(low: float, high: float, start: int, stop: int) -> str:
    bottom = 60 + PLOT_HEIGHT
    marks = [
        f'<line x1="{LEFT}" y1="60" x2="{LEFT}" y2="{bottom}" stroke="{INK}"/>',
        f'<line x1="{LEFT}" y1="{bottom}" x2="{WIDTH - 10}" y2="{bottom}" stroke="{INK}"/>',
        f'<text x="{LEFT}" y="{bottom + 16}">sample {start}</text>',
        f'<text x="{WIDTH - 10}" y="{bottom + 16}" text-anchor="end">{stop - 1}</text>',
    ]
    for value in np.linspace(low, high, 5)[1:-1].tolist():
        y = _y(value, low, high)
        marks.append(
            f'<line x1="{LEFT - 4}" y1="{y:.1f}" x2="{LEFT}" y2="{y:.1f}" stroke="{INK}"/>'
        )
        marks.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>')
    return "\n".join(marks)


def _most_used(methods: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return the methods and how often each was chosen, the most used first."""
    counts = {method: methods.count(method) for method in dict.fromkeys(methods)}
    return sorted(counts.items(), key=lambda item: -item[1])[:MOST_METHODS]


def _strip(methods: tuple[str, ...], most: list[tuple[str, int]]) -> str:
    """Return one row for each method, with a bar wherever it was the one chosen."""
    top = 60 + PLOT_HEIGHT + 40
    marks = []
    for row, (method, count) in enumerate(most):
        y = top + ROW * row
        share = f"{count / len(methods):.0%}"
        label = escape(f"{method} {share}")
        marks.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{label}</text>')
        for start, stop in _stretches(methods, method):
            x = _x(start, len(methods))
            width = max(_x(stop, len(methods)) - x, 0.7)
            marks.append(
                f'<rect x="{x:.1f}" y="{y - 5}" width="{width:.1f}" height="10" fill="{FORECAST}"/>'
            )
    return "\n".join(marks)


def _stretches(methods: tuple[str, ...], method: str) -> Iterable[tuple[int, int]]:
    """Yield (start, stop) wherever `method` was chosen without a break."""
    chosen = np.concatenate([[False], np.array(methods) == method, [False]]).astype(int)
    edges = np.flatnonzero(np.diff(chosen))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
