"""The chart of a run over time: a lane for each host, as thick as its rows, above the time of an iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from apples.jobs.text.timeline import KINDS
from apples.ui.charts import Boxes, Chart, Lane, Mark, Path, Rule, Scale, area, short
from apples.ui.formats import Formatted, count

Document = Mapping[str, Any]

MAX_LANES = 24
"""Largest number of drawn hosts: those with the most rows."""
THICKEST, THINNEST, ALL_LANES = 46.0, 12.0, 420.0
"""Pixels: largest and smallest height of a lane, and approximate largest height of all lanes together."""
PANEL = 120.0


def timeline_chart(timeline: Document) -> Markup:
    """Return the chart: a lane for each host, coloured by kind of time, and the predicted and measured times."""
    hosts = drawn_hosts(timeline)
    up = Scale(max(rows for one in timeline["slices"] for rows in one["rows"]) or 1)
    height = max(THINNEST, min(THICKEST, ALL_LANES / len(hosts)))
    lanes = [
        Lane(
            [(_rows_in_words(timeline, host), "label")],
            height,
            _spent(timeline, host),
            up,
            base=True,
        )
        for host in hosts
    ]
    return Chart(
        "timeline",
        "The run over time",
        "Time across. A lane for each host, as thick as its rows at that time, divided into "
        f"{', '.join(timeline['kinds'])}; below, the measured time of an iteration with the promised one as "
        "a band. Upright lines are moves. The table below has the values.",
        Scale(timeline["seconds"]).timed("s"),
        [*lanes, _iterations(timeline)],
        rules=[Rule(move["at"], str(number)) for number, move in enumerate(timeline["moves"], 1)],
    ).svg()


def _rows_in_words(timeline: Document, host: str) -> list[Formatted]:
    """Return a host's name with its first and its last number of rows."""
    own = [
        dict(zip(epoch["hosts"], epoch["rows"], strict=True)).get(host, 0)
        for epoch in timeline["epochs"]
    ]
    change = [] if own[0] == own[-1] else [" → ", count(own[-1])]
    return [short(host), " ", count(own[0]), *change, " rows"]


def drawn_hosts(timeline: Document) -> list[str]:
    """Return the hosts that get a lane, in the order in which they joined the run."""
    hosts = timeline["hosts"]
    most = dict.fromkeys(hosts, 0)
    for epoch in timeline["epochs"]:
        for host, rows in zip(epoch["hosts"], epoch["rows"], strict=True):
            most[host] = max(most[host], rows)
    kept = sorted(hosts, key=lambda host: -most[host])[:MAX_LANES]
    return [host for host in hosts if host in kept]


def _spent(timeline: Document, host: str) -> list[Boxes]:
    """Return the boxes of a lane by kind of time: in each slice, the host's rows divided by the kinds' shares."""
    boxes: dict[str, list[tuple[float, float, float, float]]] = {
        kind: [] for kind in timeline["kinds"]
    }
    for one in timeline["slices"]:
        if host not in one["hosts"]:
            continue
        place, low = one["hosts"].index(host), 0.0
        for own, share in zip(boxes.values(), one["spent"][place] or (), strict=False):
            high = low + one["rows"][place] * share
            own.append((one["from"], one["to"], low, high))
            low = high
    return [Boxes(own, f"box fill-{KINDS[kind]}") for kind, own in boxes.items() if own]


def _iterations(timeline: Document) -> Lane:
    """Return the lane of the iteration time, with the predictions."""
    known = [s["iteration_seconds"] for s in timeline["slices"] if s["iteration_seconds"]]
    promises = [one for one in timeline["epochs"] if one["promised"]]
    means = [one["promised"]["iteration_seconds"] for one in promises]
    highs = [one["promised"]["interval"][1] for one in promises]
    up = Scale(Scale.over([*known, *means], highs).limit * 1.05).timed("s")
    marks: list[Mark] = []
    for one, mean in zip(promises, means, strict=True):
        low, high = one["promised"]["interval"]
        ends = (one["from"], one["to"])
        if low < high:
            marks.append(Path([area(ends, (low, low), (high, high))], "band", closed=True))
        marks.append(Path([[(end, mean) for end in ends]], "line-plan"))
    marks.append(Path(_steps(timeline["slices"]), "line-run"))
    words = [([f"an iteration, {up.unit[1]}"], "label")]
    return Lane(words, PANEL, marks, up, levels=True, base=True)


def _steps(slices: Sequence[Document]) -> list[list[tuple[float, float]]]:
    """Return step lines over the slices that have a value."""
    lines: list[list[tuple[float, float]]] = [[]]
    for one in slices:
        value = one["iteration_seconds"]
        if value is None:
            lines.append([])
        else:
            lines[-1] += [(one["from"], value), (one["to"], value)]
    return [line for line in lines if line]
