"""The charts of simulations and sweeps: curves, changes, heat maps and Gantt charts, also as SVG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, isfinite, log10
from pathlib import Path as FilePath

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from apples.errors import unwritable
from apples.io import documents
from apples.simulation.gantt import GanttBar
from apples.ui import charts as draw
from apples.ui.charts import (
    Box,
    Boxes,
    Chart,
    Key,
    Lane,
    Line,
    Mark,
    Path,
    Point,
    Rule,
    Scale,
    Tag,
)
from apples.ui.formats import count, plain, signed
from apples.ui.palette import FILLS, fixed
from apples.ui.shell import page

MAX_SERIES = len(FILLS)
"""Maximum number of lines in a chart: the number of colours that all readers can distinguish."""
HEIGHT, GANTT_HEIGHT, CELL_HEIGHT = 170.0, 220.0, 34.0


@dataclass(frozen=True)
class ChartSeries:
    """Points of a line; `low` and `high`, if given, are the ends of the points' intervals."""

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
    """Return up to `MAX_SERIES` lines over a common axis, each with its own dash pattern.

    Parameters
    ----------
    bars
        Bars behind the lines with their own scale; the largest has six tenths of the height.
    x_unit
        Unit after each value of the horizontal axis.
    x_scale, y_scale
        Common scales of several charts; default: from zero to the largest value.
    """
    every_x = [x for one in series for x in one.x]
    every_y = [y for one in series for y in (*one.y, *one.low, *one.high) if isfinite(y)]
    across = x_scale or Scale(max([*every_x, 1e-9]), min([0.0, *every_x]))
    up = y_scale or Scale(max([*every_y, 1e-9]) * 1.05, min([0.0, *every_y]) * 1.05)
    marks: list[Mark] = [Line(across.low, across.limit, "frame", 0, 0)] if up.low < 0 else []
    if bars is not None and len(bars.x):
        wide = 0.35 * (across.limit - across.low) / len(bars.x)
        size = 0.6 * (up.limit - up.low) / max([*bars.y, 1])
        boxes = [
            (x - wide, x + wide, up.low, up.low + size * y)
            for x, y in zip(bars.x, bars.y, strict=True)
            if y
        ]
        marks.append(Boxes(boxes, "bars", crisp=True))
    for k, one in enumerate(series):
        points = [point for point in zip(one.x, one.y, strict=True) if isfinite(point[1])]
        ends = [
            ((x, low), (x, high))
            for x, low, high in zip(one.x, one.low, one.high, strict=False)
            if low < high
        ]
        marks += [Path([points], f"curve curve-{k}")] if points else []
        marks += [Path(ends, f"curve ends curve-{k}")] if ends else []
        marks += [Point(x, f"mark-{k}", y) for x, y in points if one.low]
    return Chart(
        name,
        title,
        f"{y_name} against {x_name}; the values are in the table below.",
        Scale(across.limit, across.low, (1.0, x_unit)),
        [Lane([([y_name], "quiet")], HEIGHT, marks, up, levels=True)],
        [Key(f"curve curve-{k}", one.name, line=True) for k, one in enumerate(series)],
        below=x_name,
    ).svg()


@dataclass(frozen=True)
class ChangeRow:
    """A relative change of one figure, with the ends of its 95 % interval and the verdict."""

    name: str
    mean: float
    low: float
    high: float
    verdict: str

    @property
    def kind(self) -> str:
        """The CSS class of its mark."""
        return {"better": "good", "worse": "bad"}.get(self.verdict, "unsure")


FARTHEST = 2.0
"""The chart draws changes beyond +200 % at the end of the axis, with an arrow."""


def changes(name: str, title: str, rows: Sequence[ChangeRow]) -> Markup:
    """Return changes as marks with their intervals on one axis; left is better."""
    known = [
        abs(value) for row in rows for value in (row.mean, row.low, row.high) if isfinite(value)
    ]
    reach = min(FARTHEST, max([*known, 0.05]) * 1.1)
    lanes = [
        Lane(
            [([row.name], "label"), ([signed(row.mean), ", ", row.verdict], "quiet")],
            12.0,
            [Line(row.low, row.high, "whisker"), Point(row.mean, f"mark-{row.kind}")],
        )
        for row in rows
    ]
    return Chart(
        name,
        title,
        "For each figure a mark for its relative change and a line for its 95 % interval; zero is no "
        "change, left of it is better.",
        Scale(reach, -min(1.0, reach), (0.01, "%")),
        lanes,
        rules=[Rule(0.0, kind="frame")],
    ).svg()


def heat(
    name: str,
    title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    ratio: Sequence[Sequence[float | None]],
    counts: Sequence[Sequence[int]],
) -> Markup:
    """Return ratios as coloured cells (`heat_kind`) for an SVG file; the page has a table instead."""
    head = [Tag(k + 0.5, [column], "tick", anchor="middle") for k, column in enumerate(columns)]
    lanes = [Lane(height=16.0, marks=head)]
    for row, ratios, jobs in zip(rows, ratio, counts, strict=True):
        marks: list[Mark] = []
        for k, (value, number) in enumerate(zip(ratios, jobs, strict=True)):
            if value is not None:
                marks.append(Box(k, k + 0.98, f"cell {heat_kind(value)}"))
                middle = k + 0.49
                marks.append(Tag(middle, [plain(value)], "strong", 0.7, "middle"))
                marks.append(Tag(middle, [count(number), " jobs"], "tick", 0.28, "middle"))
        lanes.append(Lane([([row], "label")], CELL_HEIGHT, marks))
    return Chart(
        name,
        title,
        "A cell for each class of nodes and run time; above one is better.",
        Scale(max(1, len(columns))),
        lanes,
        axis=False,
    ).svg()


def heat_kind(ratio: float) -> str:
    """Return the CSS class of a cell: gain or loss with strength 1 to 3, from factors 1.1, 1.5 and 3 on."""
    off = abs(log10(ratio)) if ratio > 0 else inf
    strength = sum(off >= log10(factor) for factor in (1.1, 1.5, 3.0))
    return f"{'gain' if ratio >= 1 else 'loss'}-{strength}" if strength else "even"


# ---------------------------------------------------------------------------------- Gantt

CLASSES = ("static", "guest or resized", "mate")
MAX_GANTT_ROWS = 500
"""Maximum number of processors with a row each; for more, the chart draws bands of several rows."""
MAX_GANTT_BARS = 5000
"""Maximum number of single bars in all charts of a page together."""
BANDS, CELLS = 55, 160
"""Number of bands of rows, and of parts of the time, if the chart draws no single bars."""
SHADES, MAX_OUTLINED = 4, 800
"""Shades of a band; maximum number of bars with an outline."""


@dataclass(frozen=True)
class OccupiedShares:
    """Occupied share of each band of rows in each part of the time, by class of job.

    Attributes
    ----------
    share
        Class x band (the lowest first) x part of the time; the sum over classes is at most 1.
    rows, seconds
        Rows of a band, and seconds of a part; the last band may have fewer rows.
    """

    share: NDArray[np.float64]
    rows: int
    seconds: float


def occupied_shares(
    bars: Sequence[GanttBar], classes: Sequence[int], rows: int, begin: float, end: float
) -> OccupiedShares:
    """Return the exact shares of `BANDS` bands and `CELLS` parts of the time."""
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
            # The overlap of a bar with a cell is the overlap of the rows times that of the times.
            across = np.diff(np.clip(times, part[:, :1], part[:, 1:2]), axis=1)
            down = np.diff(np.clip(edges, part[:, 2:3], part[:, 3:4]), axis=1)
            area[kind] += down.T @ across
    whole = np.diff(edges)[:, None] * (times[1] - times[0])
    return OccupiedShares(area / whole, deep, float(times[1] - times[0]))


def is_drawn_singly(bars: Sequence[GanttBar], rows: int, charts: int) -> bool:
    """Return whether the chart draws single bars, on a page with `charts` charts."""
    return rows <= MAX_GANTT_ROWS and len(bars) <= MAX_GANTT_BARS / charts


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
    """Return the Gantt chart of a machine: time across, processors down.

    Parameters
    ----------
    classes
        Class of each job, an index of `CLASSES`: 0 static, 1 guest or resized, 2 mate.
    axis, unit, first
        Time axis: its scale, its unit (seconds and name), and the time at its zero.
    shares
        Shares from which the chart draws bands in place of bars.
    """
    marks = (
        [
            Boxes(
                [
                    (
                        (bar.begin - first) / unit[0],
                        (bar.end - first) / unit[0],
                        bar.row,
                        bar.row + bar.rows,
                    )
                    for bar in bars
                    if classes[bar.job] == kind
                ],
                f"box fill-{kind}{' apart' if len(bars) <= MAX_OUTLINED else ''}",
                crisp=True,
            )
            for kind in range(len(CLASSES))
        ]
        if shares is None
        else _shades(shares, axis)
    )
    return Chart(
        name,
        title,
        "Time across, processors down, the lowest at the bottom; the table below has means.",
        Scale(axis.limit, axis.low, (1.0, unit[1])),
        [
            Lane(
                [(["processors"], "quiet")],
                GANTT_HEIGHT,
                marks,
                Scale(rows),
                levels=True,
                base=True,
            )
        ],
        [Key(f"box fill-{kind}", word) for kind, word in enumerate(CLASSES)],
        below="since the first submission",
    ).svg()


def _shades(shares: OccupiedShares, axis: Scale) -> list[Boxes]:
    """Return boxes by class of job and shade; a box covers consecutive cells of equal class and shade."""
    shade = np.rint(shares.share.sum(axis=0) * SHADES).astype(int)
    code = np.where(shade > 0, shares.share.argmax(axis=0) * SHADES + shade, 0)
    found: dict[int, list[tuple[float, float, float, float]]] = {}
    bands, cells = code.shape
    for band in range(bands):
        edges = [0, *(np.flatnonzero(np.diff(code[band])) + 1).tolist(), cells]
        for left, right in pairwise(edges):
            times = (axis.limit * left / cells, axis.limit * right / cells)
            rows = (band * shares.rows, (band + 1) * shares.rows)
            found.setdefault(int(code[band][left]), []).append((*times, *rows))
    return [
        Boxes(boxes, f"shade box fill-{(one - 1) // SHADES} shade-{(one - 1) % SHADES + 1}")
        for one, boxes in sorted(found.items())
        if one
    ]


def picture(drawn: Markup) -> str:
    """Return a chart as the text of an SVG file, in light colours."""
    return draw.picture(drawn, fixed(page("style.css.j2")))


def picture_files(folder: FilePath, charts: Mapping[str, Markup]) -> list[FilePath]:
    """Return the files that `write_pictures` writes."""
    return [folder / f"{name}.svg" for name in charts]


def write_pictures(folder: FilePath, charts: Mapping[str, Markup]) -> None:
    """Write one file for each chart."""
    for path, drawn in zip(picture_files(folder, charts), charts.values(), strict=True):
        try:
            documents.put(path, picture(drawn))
        except OSError as error:
            raise unwritable(str(path), error) from None
