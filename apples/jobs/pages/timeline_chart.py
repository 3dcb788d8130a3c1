"""The drawing of a run over time: a lane a host, as thick as its rows, and the time of an iteration below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from apples.agent.pages.charts import unit_of
from apples.jobs.text.timeline import KINDS
from apples.ui import charts as draw
from apples.ui.charts import STRETCH, Scale, line, path, stretched, text
from apples.ui.formats import count

Document = dict[str, Any]

MOST_LANES = 24
"""Hosts that are drawn; beyond, those that had the most rows."""
THICKEST, THINNEST, ALL_LANES = 46.0, 12.0, 420.0
"""Pixels of the thickest lane: less where there are many, so that all together are about so tall."""
PANEL = 120.0


def timeline_chart(timeline: Document) -> Markup:
    """Return the drawing: lanes by host, coloured by what took the time, and the iteration against its promise."""
    scale = Scale(timeline["seconds"])
    hosts = drawn_hosts(timeline)
    most = max(rows for one in timeline["slices"] for rows in one["rows"]) or 1
    tall = max(THINNEST, min(THICKEST, ALL_LANES / len(hosts)))
    moved = [scale.at(move["at"]) for move in timeline["moves"]]
    parts, y = [], 22.0
    for host in hosts:
        y += 16
        parts.append(text(0, y, [draw.short(host), " ", *_rows_in_words(timeline, host)], "label"))
        parts.append(stretched(y + 4, tall, *_lane(timeline, host, scale, most, tall)))
        # A lane at a time: a host's name is no place for a line.
        parts += [line(x, y + 2, x, y + tall + 4, "moved") for x in moved]
        y += 4 + tall + 4
        parts.append(line(0, y - 4, 100, y - 4, "frame"))
    y += 26
    parts.append(text(0, y - 8, ["an iteration"], "label"))
    bottom = y + PANEL
    panel, top = _panel(timeline, scale, y)
    parts.append(draw.levels(Scale(top / unit_of(top)[0]), y, bottom))
    parts.append(text(100, y - 8, [unit_of(top)[1]], "quiet", anchor="end"))
    parts.append(draw.axis(scale_in_unit(scale), y, bottom, (1.0, unit_of(scale.limit)[1])))
    parts.append(panel)
    parts.append(line(0, bottom, 100, bottom, "frame"))
    for number, x in enumerate(moved, 1):
        parts.append(line(x, y, x, bottom, "moved"))
        anchor = "start" if x < 4 else "end" if x > 96 else "middle"
        parts.append(text(x, 11, [number], "tick", anchor=anchor))
    return draw.drawing(
        "timeline",
        "The run over time",
        "Time across. A lane for each host, as thick as its rows at that time, divided into "
        f"{', '.join(timeline['kinds'])}; below, the measured time of an iteration with the promised one as "
        "a band. Upright lines are moves. The table below has the values.",
        bottom + 22,
        *parts,
    )


def _rows_in_words(timeline: Document, host: str) -> list[object]:
    """Return the rows that a host began and ended with."""
    own = [
        dict(zip(epoch["hosts"], epoch["rows"], strict=True)).get(host, 0)
        for epoch in timeline["epochs"]
    ]
    first, last = own[0], own[-1]
    words: list[object] = [count(first)] if first == last else [count(first), " → ", count(last)]
    return [*words, " rows"]


def scale_in_unit(scale: Scale) -> Scale:
    """Return an axis of time in the unit that suits its length."""
    return Scale(scale.limit / unit_of(scale.limit)[0])


def drawn_hosts(timeline: Document) -> list[str]:
    """Return the hosts that get a lane, in the order in which they came."""
    hosts = timeline["hosts"]
    most = dict.fromkeys(hosts, 0)
    for epoch in timeline["epochs"]:
        for host, rows in zip(epoch["hosts"], epoch["rows"], strict=True):
            most[host] = max(most[host], rows)
    kept = sorted(hosts, key=lambda host: -most[host])[:MOST_LANES]
    return [host for host in hosts if host in kept]


def _lane(timeline: Document, host: str, scale: Scale, most: int, tall: float) -> list[Markup]:
    """Return the paths of a lane, one a kind; slices that are alike to the pixel are one piece."""
    fills = [KINDS[kind] for kind in timeline["kinds"]]
    steps: list[list[str]] = [[] for _ in fills]
    for one in timeline["slices"]:
        if host not in one["hosts"]:
            continue
        place = one["hosts"].index(host)
        spent = one["spent"][place]
        thick = tall * one["rows"][place] / most
        left = round(scale.at(one["from"]) * STRETCH / 100)
        wide = round(scale.at(one["to"]) * STRETCH / 100) - left
        y = tall
        for k, share in enumerate(spent or ()):
            high = thick * share
            if high >= SEEN:
                steps[k].append(f"M{left} {y:.1f}h{wide}V{y - high:.1f}h-{wide}z")
            y -= high
    return [
        path("".join(own), f"box fill-{fill}")
        for fill, own in zip(fills, steps, strict=True)
        if own
    ]


SEEN = 0.15
"""Pixels below which a piece of a lane is not drawn."""


def _panel(timeline: Document, scale: Scale, y: float) -> tuple[Markup, float]:
    """Return the iteration's time over time with its promises, and the top of its axis."""
    known = [s["iteration_seconds"] for s in timeline["slices"] if s["iteration_seconds"]]
    promises = [one for one in timeline["epochs"] if one["promised"]]
    means = [one["promised"]["iteration_seconds"] for one in promises]
    highs = [one["promised"]["interval"][1] for one in promises]
    top = Scale.over([*known, *means], highs).limit * 1.05
    level = Scale(top)

    def down(value: float) -> float:
        return PANEL * (1 - level.at(value) / 100)

    def across(value: float) -> float:
        return scale.at(value) * STRETCH / 100

    parts = []
    for one in promises:
        low, high = one["promised"]["interval"]
        left, right = across(one["from"]), across(one["to"])
        if low < high:
            band = f"M{left:.0f} {down(high):.1f}H{right:.0f}V{down(low):.1f}H{left:.0f}z"
            parts.append(path(band, "band level"))
        middle = f"M{left:.0f} {down(one['promised']['iteration_seconds']):.1f}H{right:.0f}"
        parts.append(path(middle, "line-plan level"))
    parts.append(path(_curve(timeline["slices"], across, down), "line-run level"))
    return stretched(y, PANEL, *parts), top


def _curve(slices: Sequence[Document], across: Any, down: Any) -> str:
    """Return a step line over the slices that have a value."""
    steps, drawing = [], False
    for one in slices:
        value = one["iteration_seconds"]
        if value is None:
            drawing = False
            continue
        height = down(value)
        steps.append(f"V{height:.1f}" if drawing else f"M{across(one['from']):.0f} {height:.1f}")
        steps.append(f"H{across(one['to']):.0f}")
        drawing = True
    return "".join(steps)
