"""The charts of the pages, each one a function of what the documents hold.

Predicted is hatched blue with round marks, measured solid orange with diamonds, everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from apples.agent.text.words import spending, words_of
from apples.ui import charts as draw
from apples.ui.charts import Scale, box, diamond, dot, line, text
from apples.ui.formats import count, seconds
from apples.ui.palette import FILLS

Document = dict[str, Any]

BAR = 16.0
DRAWN = 12
"""Repetitions that are drawn one by one, the last ones; all are in the table and in the JSON."""
STRIP_HEIGHT = 230.0
GRID_HEIGHT = 300.0
LETTERS = 17.0


@dataclass(frozen=True, slots=True)
class Case:
    """One host in one run: the forecast of its CPU, and the share it got while computing."""

    host: str
    cpu: float
    error: float
    got: float | None
    method: str
    samples: int


def unit_of(limit: float) -> tuple[float, str]:
    """Return the unit of time that suits an axis of this length."""
    for size, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if limit >= size:
            return size, name
    return 1e-9, "ns"


def methods(rows: Sequence[Document], runs: dict[str, list[Document]]) -> Markup:
    """Return predicted against measured iteration time of each method, a mark a repetition."""
    done = [row for row in rows if row["runs"]]
    every = [run["execution"] for row in done for run in runs[row["method"]]]
    scale = Scale.over(
        [one["iteration_seconds"] for one in every],
        [one["predicted_iteration_seconds"] for one in every],
    )
    parts, y = [], 0.0
    for row in rows:
        y += 20
        parts.append(text(0, y, [row["title"]], "strong"))
        if not row["runs"]:
            y += LETTERS
            parts.append(text(0, y, ["no plan"], "quiet"))
            y += 14
            continue
        last = runs[row["method"]][-DRAWN:]
        thick = max(BAR, 7.0 * len(last))
        parts += _bar(y, thick, scale, row, "predicted_iteration_seconds", "plan", "predicted ")
        parts += _promises(y + LETTERS + 4, thick, scale, last)
        y += LETTERS + 4 + thick
        parts += _bar(y, thick, scale, row, "iteration_seconds", "run", "measured ")
        for k, run in enumerate(last):
            at = scale.at(run["execution"]["iteration_seconds"])
            parts.append(diamond(at, _lane(y + LETTERS + 4, thick, k, len(last)), "mark"))
        y += LETTERS + 4 + thick + 14
    grid = draw.axis(scale, 28, y, unit_of(scale.limit))
    return draw.drawing(
        "methods",
        "Iteration time of each method, predicted and measured",
        "For each method a hatched bar for the median predicted iteration time and a solid bar for the "
        "median measured one; a mark for each repetition and a line for its promised interval. "
        "The table below has all values.",
        y + 20,
        grid,
        *parts,
    )


def _bar(
    y: float, thick: float, scale: Scale, row: Document, key: str, kind: str, word: str
) -> list[Markup]:
    value = row[key]
    beyond = ", beyond the axis" if scale.beyond(value) else ""
    parts = [
        text(0, y + LETTERS, [word, seconds(value), beyond], "label"),
        box(0, y + LETTERS + 4, scale.at(value), thick, kind),
    ]
    if beyond:
        parts.append(draw.arrow(100, y + LETTERS + 4 + thick / 2, f"end-{kind}"))
    return parts


def _lane(y: float, thick: float, k: int, count: int) -> float:
    return y + thick * (k + 0.5) / count


def _promises(y: float, thick: float, scale: Scale, runs: Sequence[Document]) -> list[Markup]:
    parts = []
    for k, run in enumerate(runs):
        lane = _lane(y, thick, k, len(runs))
        predicted = run["execution"]["predicted_iteration_seconds"]
        low, high = run["plan"]["chosen"]["iteration_interval"]
        parts.append(line(scale.at(low), lane, scale.at(high), lane, "whisker"))
        if scale.beyond(high):
            parts.append(draw.arrow(100, lane, "end-ink"))
        if not scale.beyond(predicted):
            parts.append(dot(scale.at(predicted), lane, "mark"))
    return parts


def strips(name: str, chosen: Document, kinds: Sequence[str]) -> Markup:
    """Return the strips of one schedule from top to bottom, heights proportional to rows."""
    own = chosen["strips"]
    total = sum(strip["rows"] for strip in own) or 1
    height = max(STRIP_HEIGHT, LETTERS * len(own))
    parts, middles, y = [], [], 0.0
    for strip in own:
        tall = height * strip["rows"] / total
        kind = f"box fill-{kinds.index(strip['implementation']) % len(FILLS)}"
        parts.append(box(0, 6 + y, 38, tall, kind))
        middles.append(6 + y + tall / 2)
        y += tall
    places = draw.spread(middles, LETTERS, height)
    for strip, middle, place in zip(own, middles, places, strict=True):
        parts.append(line(38, middle, 45, place, "leader"))
        words = [draw.short(strip["host"]), " ", count(strip["rows"])]
        parts.append(text(47, place + 4, words, "label"))
    return draw.drawing(
        name,
        "The strips, drawn to scale",
        "One box for each host from the top of the grid to its bottom; its height is its share of the rows.",
        height + 12,
        *parts,
    )


def rectangles(name: str, chosen: Document) -> Markup:
    """Return the grid with the rectangle of each host where it is, its name inside where there is room."""
    own = chosen["strips"]
    kinds = list(dict.fromkeys(strip["implementation"] for strip in own))
    tiles = [strip["rectangle"] for strip in own]
    rows = max(tile["first_row"] + tile["rows"] for tile in tiles)
    columns = max(tile["first_column"] + tile["columns"] for tile in tiles)
    parts = []
    for strip, tile in zip(own, tiles, strict=True):
        x, wide = (100 * tile[key] / columns for key in ("first_column", "columns"))
        y, tall = (GRID_HEIGHT * tile[key] / rows for key in ("first_row", "rows"))
        kind = f"box fill-{kinds.index(strip['implementation']) % len(FILLS)}"
        parts.append(box(x, 6 + y, wide, tall, kind))
        if tall >= LETTERS and wide >= 8:
            parts.append(text(x + 1, 6 + y + tall / 2 + 4, [draw.short(strip["host"])], "label"))
    return draw.drawing(
        name,
        "The rectangles, drawn to scale",
        "One box for each host, where its rows and columns are in the grid.",
        GRID_HEIGHT + 12,
        *parts,
    )


def forecasts(name: str, cases: Sequence[Case]) -> Markup:
    """Return for each host the band of its forecast, and what it got, once for each repetition."""
    hosts = list(dict.fromkeys(case.host for case in cases))
    scale, parts, y = Scale(1.0), [], 0.0
    for host in hosts:
        y += 18
        parts.append(text(0, y, [draw.short(host)], "strong"))
        y += 6
        for case in [one for one in cases if one.host == host][-DRAWN:]:
            low, high = scale.at(case.cpu - case.error), scale.at(case.cpu + case.error)
            parts.append(line(0, y + 7, 100, y + 7, "grid"))
            parts.append(box(low, y + 2, max(0.4, high - low), 10, "band"))
            parts.append(dot(scale.at(case.cpu), y + 7, "mark-plan"))
            if case.got is not None:
                parts.append(diamond(scale.at(case.got), y + 7, "mark-run"))
            y += 15
        y += 4
    grid = draw.axis(scale, 24, y, (1.0, ""))
    return draw.drawing(
        name,
        "CPU share of each host, forecast and got",
        "For each host and repetition a band for the forecast with its error, a round mark for the "
        "forecast and a diamond for the share that the host got while it computed.",
        y + 20,
        grid,
        *parts,
    )


def times(name: str, execution: Document, limit: float) -> Markup:
    """Return for each host of a run how one iteration's time was spent, on an axis up to `limit`."""
    scale, parts, y = Scale(limit), [], 0.0
    whole = scale.at(execution["iteration_seconds"])
    for host in execution["hosts"]:
        y += 18
        spent = spending(host)
        parts.append(text(0, y, [draw.short(host["host"])], "strong"))
        y += 16
        words: list[object] = []
        for word, value, _ in spent:
            words += [" + " if words else "", word, " ", seconds(value)]
        parts.append(text(0, y, words, "label"))
        y += 5
        x = 0.0
        for _, value, kind in spent:
            wide = min(scale.at(value), whole - x)
            parts.append(box(x, y, wide, 14, f"box {kind}"))
            x += max(0.0, wide)
        parts.append(box(0, y, whole, 14, "frame"))
        y += 20
    grid = draw.axis(scale, 40, y, unit_of(limit))
    return draw.drawing(
        name,
        "Where the time of one iteration went, host by host",
        f"For each host a bar: {', then '.join(words_of([execution]))}. Its frame is the whole measured "
        "iteration time.",
        y + 20,
        grid,
        *parts,
    )


def promise(execution: Document, at_this_pace: float | None = None) -> Markup:
    """Return the promise and what became of it on one axis.

    Parameters
    ----------
    at_this_pace
        What a run that has no end yet would take in all; None: it has one.
    """
    predicted, measured = execution["predicted_seconds"], execution["measured_seconds"]
    low, high = execution["interval"]
    going = at_this_pace is not None
    scale = Scale.over([measured, predicted], [high, at_this_pace or 0.0])
    parts = [draw.axis(scale, 24, 82, unit_of(scale.limit))]
    if low < high:
        parts.append(box(scale.at(low), 36, scale.at(high) - scale.at(low), 28, "band"))
        if scale.beyond(high):
            parts.append(draw.arrow(100, 50, "end-ink"))
    parts += [
        line(scale.at(predicted), 30, scale.at(predicted), 70, "line-plan"),
        line(scale.at(measured), 30, scale.at(measured), 70, "line-run"),
        dot(scale.at(predicted), 43, "mark-plan"),
        diamond(scale.at(measured), 57, "mark-run"),
        _flag(scale.at(predicted), 20, ["predicted ", seconds(predicted)]),
        _flag(scale.at(measured), 116, ["so far " if going else "measured ", seconds(measured)]),
        line(scale.at(measured), 70, scale.at(measured), 104, "line-run"),
    ]
    if at_this_pace is not None:
        end = scale.at(at_this_pace)
        parts += [
            line(scale.at(measured), 57, end, 57, "whisker"),
            draw.arrow(end, 57, "end-run"),
        ]
    return draw.drawing(
        "promise",
        "The promise and what became of it",
        "An axis of time with a band for the promised interval, a round mark for the predicted time and "
        "a diamond for the measured one"
        + (", from which an arrow leads to what all would take at its pace." if going else "."),
        124,
        *parts,
    )


def _flag(x: float, y: float, words: Sequence[object]) -> Markup:
    anchor = "start" if x < 25 else "end" if x > 75 else "middle"
    return text(x, y, words, "strong", anchor=anchor)
