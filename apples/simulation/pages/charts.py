"""The charts of simulations and sweeps: curves, changes, heat maps, the Gantt chart; and pictures of them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, isfinite, log10
from pathlib import Path

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apples.errors import UsageError, unwritable
from apples.io import documents
from apples.simulation.gantt import GanttBar
from apples.ui import charts as draw
from apples.ui.charts import STRETCH, Scale, line, path, text
from apples.ui.formats import count, plain, signed
from apples.ui.page import render
from apples.ui.palette import FILLS, fixed

MOST_SERIES = len(FILLS)
"""Lines of one chart: as many as colours stay apart for all eyes."""
TALL, TOP, LEGEND, GANTT_TALL = 170.0, 24.0, 18.0, 220.0


@dataclass(frozen=True)
class ChartSeries:
    """Points of a line; `low` and `high`, if given, are the ends of their intervals."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()


def lines(
    name: str,
    title: str,
    x_name: str,
    y_name: str,
    series: Sequence[ChartSeries],
    bars: ChartSeries | None = None,
    x_unit: str = "",
    x_scale: Scale | None = None,
    y_scale: Scale | None = None,
) -> Markup:
    """Return up to `MOST_SERIES` lines over a common axis, each with a dash of its own.

    Parameters
    ----------
    bars
        Drawn behind the lines to a scale of their own, their largest value six tenths of the height.
    x_unit
        Stands after each value of the axis across.
    x_scale, y_scale
        So that several charts can be compared; else from zero to the largest value.
    """
    every_x = [x for one in series for x in one.x]
    every_y = [y for one in series for y in (*one.y, *one.low, *one.high) if isfinite(y)]
    across = x_scale or Scale(max([*every_x, 1e-9]), min([0.0, *every_x]))
    down = y_scale or Scale(max([*every_y, 1e-9]) * 1.05, min([0.0, *every_y]) * 1.05)
    top = TOP + LEGEND * len(series)
    bottom = top + TALL

    def py(y: float) -> float:
        return TALL * (1 - down.at(y) / 100)

    paths = []
    if bars is not None and len(bars.x):
        wide = max(1, round(STRETCH * 0.7 / len(bars.x)))
        most = max([*bars.y, 1])
        steps = "".join(
            f"M{round(across.at(x) * 10) - wide // 2} {TALL:g}v{-y / most * TALL * 0.6:.1f}"
            f"h{wide}V{TALL:g}z"
            for x, y in zip(bars.x, bars.y, strict=True)
            if y
        )
        paths.append(path(steps, "bars"))
    for k, one in enumerate(series):
        points = [
            (round(across.at(x) * 10), py(y))
            for x, y in zip(one.x, one.y, strict=True)
            if isfinite(y)
        ]
        if points:
            steps = "M" + " ".join(f"{x} {y:.0f}" for x, y in points)
            paths.append(path(steps, f"curve curve-{k % MOST_SERIES}"))
        ends = "".join(
            f"M{round(across.at(x) * 10)} {py(low):.1f}V{py(high):.1f}"
            for x, low, high in zip(one.x, one.low, one.high, strict=False)
            if low < high
        )
        if ends:
            paths.append(path(ends, f"curve ends curve-{k % MOST_SERIES}"))
    marks = [
        draw.dot(across.at(x), top + py(y), f"mark-{k % MOST_SERIES}")
        for k, one in enumerate(series)
        if one.low
        for x, y in zip(one.x, one.y, strict=True)
    ]
    legend = [
        part
        for k, one in enumerate(series)
        for part in (
            line(0, 10 + LEGEND * k, 7, 10 + LEGEND * k, f"curve curve-{k % MOST_SERIES}"),
            text(9, 14 + LEGEND * k, [one.name], "label"),
        )
    ]
    nought = [line(0, top + py(0), 100, top + py(0), "frame")] if down.low < 0 else []
    return draw.drawing(
        name,
        title,
        f"{y_name} against {x_name}; the values are in the table below.",
        bottom + 38,
        *legend,
        text(0, top - 8, [y_name], "quiet"),
        draw.axis(across, top, bottom, (1.0, x_unit)),
        draw.levels(down, top, bottom),
        *nought,
        draw.stretched(top, TALL, *paths),
        *marks,
        text(100, bottom + 32, [x_name], "quiet", anchor="end"),
    )


@dataclass(frozen=True)
class ChangeRow:
    """A relative change of one figure, with the ends of its 95 % interval and what follows from it."""

    name: str
    mean: float
    low: float
    high: float
    verdict: str

    @property
    def kind(self) -> str:
        """The class of its mark."""
        return {"better": "good", "worse": "bad"}.get(self.verdict, "unsure")


FARTHEST = 2.0
"""Changes beyond +200 % are drawn at the end of the axis, with an arrow."""


def changes(name: str, title: str, rows: Sequence[ChangeRow]) -> Markup:
    """Return changes as marks with their intervals on one axis; left is better."""
    known = [
        abs(value) for row in rows for value in (row.mean, row.low, row.high) if isfinite(value)
    ]
    reach = min(FARTHEST, max([*known, 0.05]) * 1.1)
    scale, parts, y = Scale(reach, -min(1.0, reach)), [], 0.0
    for row in rows:
        y += 18
        parts.append(text(0, y, [row.name], "label"))
        y += 16
        parts.append(text(0, y, [signed(row.mean), ", ", row.verdict], "quiet"))
        y += 12
        low, high = max(row.low, scale.low), min(row.high, scale.limit)
        parts.append(line(scale.at(low), y, scale.at(high), y, "whisker"))
        if not scale.beyond(row.mean):
            parts.append(draw.dot(scale.at(row.mean), y, f"mark-{row.kind}"))
        if scale.beyond(row.high):
            parts.append(draw.arrow(100, y, "end-ink"))
        y += 6
    grid = draw.axis(scale, 4, y + 6, (0.01, "%"))
    nought = line(scale.at(0), 4, scale.at(0), y + 6, "frame")
    return draw.drawing(
        name,
        title,
        "For each figure a mark for its relative change and a line for its 95 % interval; zero is no "
        "change, left of it is better.",
        y + 28,
        grid,
        nought,
        *parts,
    )


def heat(
    name: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    ratio: Sequence[Sequence[float | None]],
    counts: Sequence[Sequence[int]],
) -> Markup:
    """Return ratios as coloured cells, as `heat_kind` has it; for pictures, the page has a table."""
    left, tall = 14.0, 36.0
    wide = (100 - left) / max(1, len(columns))
    parts = [
        text(left + (k + 0.5) * wide, 14, [column], "tick", anchor="middle")
        for k, column in enumerate(columns)
    ]
    for i, row in enumerate(rows):
        y = 22 + i * tall
        parts.append(text(left - 1, y + 21, [row], "label", anchor="end"))
        for k in range(len(columns)):
            value = ratio[i][k]
            if value is None:
                continue
            x = left + k * wide
            parts.append(draw.box(x, y, wide - 0.3, tall - 2, f"cell {heat_kind(value)}"))
            middle = x + (wide - 0.3) / 2
            parts.append(text(middle, y + 15, [plain(value)], "strong", anchor="middle"))
            jobs = [count(counts[i][k]), " jobs"]
            parts.append(text(middle, y + 29, jobs, "tick", anchor="middle"))
    return draw.drawing(
        name,
        title,
        "A cell for each class of nodes and run time; above one is better.",
        30 + tall * len(rows),
        *parts,
    )


def heat_kind(ratio: float) -> str:
    """Return the class of a cell: better or worse, in three strengths of factors 1.1, 1.5 and 3."""
    off = abs(log10(ratio)) if ratio > 0 else inf
    strength = sum(off >= log10(factor) for factor in (1.1, 1.5, 3.0))
    return f"{'gain' if ratio >= 1 else 'loss'}-{strength}" if strength else "even"


# ---------------------------------------------------------------------------------- Gantt

CLASSES = ("static", "guest or resized", "mate")
MOST_GANTT_ROWS = 500
"""Processors that get a row each; of more, bands of several are drawn."""
MOST_GANTT_BARS = 5000
"""Bars that the charts of one page draw singly, together."""
BANDS, CELLS = 55, 160
"""Bands of rows, and parts of the time, where bars are not drawn singly."""
SHADES = 4


@dataclass(frozen=True)
class OccupiedShares:
    """Which share of a band of rows was occupied in a part of the time, by class of job.

    Attributes
    ----------
    share
        Class x band (the lowest first) x part of the time; the sum over classes is at most 1.
    rows, seconds
        Of a band, of a part; the last band may have fewer rows.
    """

    share: NDArray[np.float64]
    rows: int
    seconds: float


def occupied_shares(
    bars: Sequence[GanttBar], classes: Sequence[int], rows: int, begin: float, end: float
) -> OccupiedShares:
    """Return the shares of `BANDS` bands and `CELLS` parts of the time, exactly, from the bars."""
    deep = ceil(rows / BANDS)
    edges = np.append(np.arange(0, rows, deep), rows).astype(np.float64)
    times = np.linspace(begin, end, CELLS + 1)
    area = np.zeros((len(CLASSES), len(edges) - 1, CELLS))
    table = np.array(
        [(bar.begin, bar.end, bar.row, bar.row + bar.rows, classes[bar.job]) for bar in bars]
    ).reshape(-1, 5)
    for kind in range(len(CLASSES)):
        mine = table[table[:, 4] == kind]
        for part in np.array_split(mine, len(mine) // 4096 + 1):
            # The overlap of a bar with a cell is that of its rows times that of its time.
            across = np.diff(np.clip(times, part[:, :1], part[:, 1:2]), axis=1)
            down = np.diff(np.clip(edges, part[:, 2:3], part[:, 3:4]), axis=1)
            area[kind] += down.T @ across
    whole = np.diff(edges)[:, None] * (times[1] - times[0])
    return OccupiedShares(area / whole, deep, float(times[1] - times[0]))


def is_drawn_singly(bars: Sequence[GanttBar], rows: int, charts: int) -> bool:
    """Return whether each bar is drawn, where the page has so many charts."""
    return rows <= MOST_GANTT_ROWS and len(bars) <= MOST_GANTT_BARS / charts


def gantt(
    name: str,
    title: str,
    bars: Sequence[GanttBar],
    rows: int,
    classes: Sequence[int],
    axis: Scale,
    unit: tuple[float, str],
    first: float,
    shares: OccupiedShares | None = None,
) -> Markup:
    """Return the chart of a machine: time across, processors down.

    Parameters
    ----------
    classes
        By job 0 static, 1 guest or resized, 2 mate: `CLASSES`.
    axis, unit, first
        Of time: in units of a size and a name, zero at the moment `first`.
    shares
        Bands are drawn from them, in place of the bars.
    """
    top = TOP + LEGEND
    bottom = top + GANTT_TALL
    legend = [
        part
        for k, (x, word) in enumerate(zip((0, 22, 80), CLASSES, strict=True))
        for part in (draw.box(x, 4, 4, 12, f"box fill-{k}"), text(x + 5, 14, [word], "label"))
    ]
    paths = (
        _share_paths(shares, rows)
        if shares is not None
        else _bar_paths(
            [((bar.begin - first) / unit[0], (bar.end - first) / unit[0]) for bar in bars],
            bars,
            rows,
            classes,
            axis,
        )
    )
    return draw.drawing(
        name,
        title,
        "Time across, processors down, the lowest at the bottom; the table below has means.",
        bottom + 38,
        *legend,
        text(0, top - 8, ["processors"], "quiet"),
        draw.axis(axis, top, bottom, (1.0, unit[1])),
        draw.levels(Scale(float(rows)), top, bottom),
        draw.stretched(top, GANTT_TALL, *paths),
        line(0, bottom, 100, bottom, "frame"),
        text(100, bottom + 32, ["since the first submission"], "quiet", anchor="end"),
    )


def _bar_paths(
    times: Sequence[tuple[float, float]],
    bars: Sequence[GanttBar],
    rows: int,
    classes: Sequence[int],
    axis: Scale,
) -> list[Markup]:
    steps: list[list[str]] = [[] for _ in CLASSES]
    for bar, (begin, end) in zip(bars, times, strict=True):
        left = round(axis.at(begin) * STRETCH / 100)
        wide = max(1, round(axis.at(end) * STRETCH / 100) - left)
        top = round(GANTT_TALL * (1 - (bar.row + bar.rows) / rows))
        tall = max(1, round(GANTT_TALL * (1 - bar.row / rows)) - top)
        steps[classes[bar.job]].append(f"M{left} {top}h{wide}v{tall}h-{wide}z")
    apart = " apart" if len(bars) <= 800 else ""
    return [path("".join(one), f"box fill-{k}{apart}") for k, one in enumerate(steps) if one]


def _share_paths(shares: OccupiedShares, rows: int) -> list[Markup]:
    whole = shares.share.sum(axis=0)
    shade = np.rint(whole * SHADES).astype(int)
    kind = shares.share.argmax(axis=0)
    code = np.where(shade > 0, kind * SHADES + shade, 0)
    steps: dict[int, list[str]] = {}
    bands, cells = code.shape
    for band in range(bands):
        middle = GANTT_TALL * (1 - min(rows, (band + 0.5) * shares.rows) / rows)
        mine = code[band]
        edges = [0, *(np.flatnonzero(np.diff(mine)) + 1).tolist(), cells]
        for left, right in pairwise(edges):
            if mine[left]:
                x, wide = left * STRETCH // cells, (right - left) * STRETCH // cells
                steps.setdefault(int(mine[left]), []).append(f"M{x} {middle:.1f}h{wide}")
    thick = GANTT_TALL * shares.rows / rows + 0.2
    return [
        Markup('<path d="{}" stroke-width="{:.1f}" class="shade stroke-{} shade-{}"/>').format(
            "".join(found), thick, (one - 1) // SHADES, (one - 1) % SHADES + 1
        )
        for one, found in sorted(steps.items())
    ]


CONVERTERS: Mapping[str, tuple[str, ...]] = {
    "rsvg-convert": ("-o", "{png}", "{svg}"),
    "inkscape": ("--export-filename={png}", "{svg}"),
    "chromium": (
        "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--window-size=860,480", "--screenshot={png}", "{svg}",
    ),
}  # fmt: skip


def picture(drawn: Markup) -> str:
    """Return a chart as an SVG file of its own, in light colours."""
    return draw.picture(drawn, fixed(render("style.css.j2")))


def picture_files(folder: Path, charts: Mapping[str, Markup], png: bool) -> list[Path]:
    """Return the files that `write_pictures` writes."""
    kinds = (".svg", ".png") if png else (".svg",)
    return [folder / f"{name}{kind}" for name in charts for kind in kinds]


def write_pictures(folder: Path, charts: Mapping[str, Markup], png: bool) -> None:
    """Write one file a chart.

    Raises
    ------
    UsageError
        PNG is asked for and no converter (rsvg-convert, inkscape, chromium) is found or it fails.
    """
    converter = next((name for name in CONVERTERS if shutil.which(name)), None)
    if png and converter is None:
        raise UsageError(
            f"PNG needs one of {', '.join(CONVERTERS)}; SVG needs none",
            code="converter-missing",
            known=list(CONVERTERS),
        )
    for name, drawn in charts.items():
        path = folder / f"{name}.svg"
        try:
            documents.put(path, picture(drawn))
        except OSError as error:
            raise unwritable(str(path), error) from None
        if png and converter is not None:
            target = path.with_suffix(".png")
            words = [word.format(svg=path.resolve(), png=target.resolve())
                     for word in CONVERTERS[converter]]  # fmt: skip
            done = subprocess.run(
                [converter, *words], capture_output=True, text=True, check=False, timeout=60
            )
            if done.returncode or not target.exists():
                raise UsageError(
                    f"{converter} failed on {path}: {done.stderr.strip()[-200:]}",
                    code="converter-failed",
                    value=converter,
                    file=path,
                )
