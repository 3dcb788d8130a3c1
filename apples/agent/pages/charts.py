"""The charts of plans, runs and demos: each drawn from a document with lanes and marks.

In all charts, predictions are hatched blue with round marks, measurements solid orange with diamonds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from apples.agent.text.words import spending, words_of
from apples.ui.charts import Box, Chart, Lane, Line, Mark, Point, Scale, Stack, Tag, short
from apples.ui.formats import Formatted, count, seconds
from apples.ui.palette import FILLS

if TYPE_CHECKING:
    from apples.agent.documents import ExecutionInfo

Document = Mapping[str, Any]

DRAWN = 12
"""Number of last repetitions that are drawn singly; the table and the JSON have all."""
BAR, REPETITION, STRIP = 16.0, 7.0, 17.0
"""Least heights in pixels: of a bar, of a repetition in it, and of a strip."""
STACK_HEIGHT, GRID_HEIGHT = 230.0, 300.0


@dataclass(frozen=True, slots=True)
class Case:
    """One host in one run: the forecast of its CPU share, and its share while computing."""

    host: str
    cpu: float
    error: float
    got: float | None
    method: str
    samples: int


def methods(rows: Sequence[Document], runs: Mapping[str, Sequence[Document]]) -> Markup:
    """Return the chart of predicted and measured iteration time by method, with a mark for each repetition."""
    every = [run["execution"] for row in rows if row["runs"] for run in runs[row["method"]]]
    scale = Scale.over(
        [one["iteration_seconds"] for one in every],
        [one["predicted_iteration_seconds"] for one in every],
    )
    lanes = []
    for row in rows:
        lanes.append(Lane([([row["title"]], "strong")]))
        if not row["runs"]:
            lanes.append(Lane([(["no plan"], "quiet")]))
            continue
        last = runs[row["method"]][-DRAWN:]
        promises: list[Mark] = []
        measured: list[Mark] = []
        for k, run in enumerate(last):
            y = 1 - (k + 0.5) / len(last)
            low, high = run["plan"]["chosen"]["iteration_interval"]
            predicted = run["execution"]["predicted_iteration_seconds"]
            promises += [Line(low, high, "whisker", y, y), Point(predicted, "mark", y)]
            measured.append(Point(run["execution"]["iteration_seconds"], "mark", y, "diamond"))
        for word, key, kind, marks in (
            ("predicted ", "predicted_iteration_seconds", "plan", promises),
            ("measured ", "iteration_seconds", "run", measured),
        ):
            beyond = ", beyond the axis" if scale.beyond(row[key]) else ""
            words = [word, seconds(row[key]), beyond]
            height = max(BAR, REPETITION * len(last))
            lanes.append(Lane([(words, "label")], height, [Box(0, row[key], kind), *marks]))
    return Chart(
        "methods",
        "Iteration time of each method, predicted and measured",
        "For each method a hatched bar for the median predicted iteration time and a solid bar for the "
        "median measured one; a mark for each repetition and a line for its promised interval. "
        "The table below has all values.",
        scale.timed("s"),
        lanes,
    ).svg()


def strips(name: str, chosen: Document, kinds: Sequence[str | None]) -> Markup:
    """Return the strips of one schedule from top to bottom, heights proportional to rows."""
    own = chosen["strips"]
    parts = [
        (strip["rows"], _fill(strip, kinds), [short(strip["host"]), " ", count(strip["rows"])])
        for strip in own
    ]
    return Chart(
        name,
        "The strips, drawn to scale",
        "One box for each host from the top of the grid to its bottom; its height is its share of the rows.",
        Scale(1.0),
        [Lane(height=max(STACK_HEIGHT, STRIP * len(own)), marks=[Stack(parts)])],
        axis=False,
    ).svg()


def _fill(strip: Document, kinds: Sequence[str | None]) -> str:
    return f"box fill-{kinds.index(strip['implementation']) % len(FILLS)}"


def rectangles(name: str, chosen: Document) -> Markup:
    """Return the grid with the rectangle of each host, with its name inside if it fits."""
    own = chosen["strips"]
    kinds = list(dict.fromkeys(strip["implementation"] for strip in own))
    tiles = [strip["rectangle"] for strip in own]
    rows = max(tile["first_row"] + tile["rows"] for tile in tiles)
    columns = max(tile["first_column"] + tile["columns"] for tile in tiles)
    marks: list[Mark] = []
    for strip, tile in zip(own, tiles, strict=True):
        left, top = tile["first_column"], rows - tile["first_row"]
        low = top - tile["rows"]
        marks.append(Box(left, left + tile["columns"], _fill(strip, kinds), low, top))
        if tile["rows"] * GRID_HEIGHT >= STRIP * rows and tile["columns"] >= 0.08 * columns:
            place = left + 0.01 * columns
            marks.append(Tag(place, [short(strip["host"])], y=(low + top) / 2, anchor="start"))
    return Chart(
        name,
        "The rectangles, drawn to scale",
        "One box for each host, where its rows and columns are in the grid.",
        Scale(columns),
        [Lane(height=GRID_HEIGHT, marks=marks, up=Scale(rows))],
        axis=False,
    ).svg()


def forecasts(name: str, cases: Sequence[Case]) -> Markup:
    """Return the band of the forecast and the measured share of each host, for each repetition."""
    lanes = []
    for host in dict.fromkeys(case.host for case in cases):
        lanes.append(Lane([([short(host)], "strong")]))
        for case in [one for one in cases if one.host == host][-DRAWN:]:
            marks: list[Mark] = [
                Line(0, 1, "grid"),
                Box(case.cpu - case.error, case.cpu + case.error, "band", 0.15, 0.85),
                Point(case.cpu, "mark-plan"),
            ]
            if case.got is not None:
                marks.append(Point(case.got, "mark-run", shape="diamond"))
            lanes.append(Lane(height=BAR, marks=marks))
    return Chart(
        name,
        "CPU share of each host, forecast and got",
        "For each host and repetition a band for the forecast with its error, a round mark for the "
        "forecast and a diamond for the share that the host got while it computed.",
        Scale(1.0),
        lanes,
    ).svg()


def times(name: str, execution: ExecutionInfo, limit: float) -> Markup:
    """Return the parts of one iteration of each host of a run, on an axis up to `limit`."""
    whole, lanes = execution["iteration_seconds"], []
    for host in execution["hosts"]:
        words: list[Formatted] = []
        marks, x = [], 0.0
        for word, value, kind in spending(host):
            words += [" + " if words else "", word, " ", seconds(value)]
            end = max(x, min(x + value, whole))
            marks.append(Box(x, end, f"box {kind}"))
            x = end
        marks.append(Box(0, whole, "frame"))
        lanes.append(Lane([([short(host["host"])], "strong"), (words, "label")], BAR, marks))
    return Chart(
        name,
        "Where the time of one iteration went, host by host",
        f"For each host a bar: {', then '.join(words_of([execution]))}. Its frame is the whole measured "
        "iteration time.",
        Scale(limit).timed("s"),
        lanes,
    ).svg()


def promise(execution: Document, at_this_pace: float | None = None) -> Markup:
    """Return the promised interval and the measured time on one axis.

    Parameters
    ----------
    at_this_pace
        Expected time of the whole run while it runs; None after its end.
    """
    predicted, measured = execution["predicted_seconds"], execution["measured_seconds"]
    low, high = execution["interval"]
    going = at_this_pace is not None
    scale = Scale.over([measured, predicted], [high, at_this_pace or 0.0])
    marks: list[Mark] = [Box(low, high, "band", 0.15, 0.85)] if low < high else []
    marks += [
        Line(predicted, predicted, "line-plan", 0, 1),
        Line(measured, measured, "line-run", 0, 1),
        Point(predicted, "mark-plan", 0.68),
        Point(measured, "mark-run", 0.32, "diamond"),
    ]
    if at_this_pace is not None:
        marks += [
            Line(measured, at_this_pace, "whisker", 0.32, 0.32),
            Point(at_this_pace, "end-run", 0.32, "arrow"),
        ]
    words = ["so far " if going else "measured ", seconds(measured)]
    return Chart(
        "promise",
        "Promised interval, prediction and measurement",
        "An axis of time with a band for the promised interval, a round mark for the predicted time and "
        "a diamond for the measured one"
        + (", from which an arrow leads to the whole run at its pace." if going else "."),
        scale.timed("s"),
        [
            Lane(height=BAR, marks=[Tag(predicted, ["predicted ", seconds(predicted)], "strong")]),
            Lane(height=44.0, marks=marks),
            Lane(
                height=2 * BAR,
                marks=[
                    Tag(measured, words, "strong"),
                    Line(measured, measured, "line-run", 0.8, 1),
                ],
            ),
        ],
    ).svg()
