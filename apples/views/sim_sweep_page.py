"""The page of a sweep: normalised bars over options, curves over load, all with intervals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from apples.simulation.sweep import Cell, compare, interval
from apples.views.sim_charts import Series, changes, figure, lines
from apples.views.sim_page import page, table

BARS = (
    ("makespan", "Figure 1"),
    ("mean_response", "Figure 2"),
    ("mean_slowdown", "Figure 3"),
    ("mean_wait", ""),
)
Rows = Sequence[Mapping[str, Any]]


def label_of(row: Mapping[str, Any]) -> str:
    """Return what distinguishes a row's policy."""
    return Cell(**{**row["cell"], "options": tuple(row["cell"]["options"])}).label


def sweep_charts(rows: Rows) -> dict[str, tuple[str, str]]:
    """Return name -> (SVG, caption)."""
    made: dict[str, tuple[str, str]] = {}
    baseline = label_of(rows[0])
    for metric, number in BARS:
        for log, by_label in compare(rows, baseline, metric).items():
            shown = [
                (name, one.mean, one.half) for name, one in by_label.items() if name != baseline
            ]
            if not shown:
                continue
            name = metric.removeprefix("mean_")
            paper = f" ({number} of D'Amico et al. 2019)" if number else ""
            runs = max(one.count for one in by_label.values())
            made[f"{name}_{re.sub(r'[^a-z0-9]+', '_', log.lower())[-40:]}"] = (
                changes(f"{name}, {log}", shown),
                f"{name} on {log} against {baseline}, {runs} pairs, 95 % intervals{paper}.",
            )
    made.update(load_curves(rows))
    return made


def load_curves(rows: Rows) -> dict[str, tuple[str, str]]:
    """Return response and utilisation against load, where the logs are models with a load."""
    groups: dict[str, dict[float, list[Mapping[str, Any]]]] = {}
    for row in rows:
        found = re.search(r"load=([0-9.]+)", row["cell"]["log"])
        if found:
            rest = row["cell"]["log"].replace(found.group(0), "").strip(":,").replace(",,", ",")
            groups.setdefault(f"{label_of(row)} ({rest})", {}).setdefault(
                float(found.group(1)), []
            ).append(row)
    groups = {name: loads for name, loads in groups.items() if len(loads) > 1}
    made = {}
    for metric, title in (("mean_response", "mean response, s"), ("utilisation", "utilisation")):
        series = []
        for name, loads in groups.items():
            at = sorted(loads)
            means = [interval([row[metric] for row in loads[load]]) for load in at]
            series.append(Series(name, at, [m.mean for m in means], [m.half for m in means]))
        if series:
            made[f"load_{metric}"] = (
                lines(title, "load factor", title, series),
                f"{title} against load, 95 % intervals over seeds (Kale et al., Figures 7-10).",
            )
    return made


def sweep_page(rows: Rows, method: Mapping[str, object]) -> str:
    """Return the page of a file of results; the first row's policy is the baseline."""
    baseline = label_of(rows[0])
    sentences = []
    for log, by_label in compare(rows, baseline, "mean_slowdown").items():
        for name, one in by_label.items():
            if name == baseline:
                continue
            sure = not one.low <= 0 <= one.high
            said = f"{one.mean:+.1%}" if sure else "no difference at 95 %"
            sentences.append(
                f"<p class=verdict>{escape(name)} on {escape(log)}: mean slowdown {said} "
                f"({one.low:+.1%} .. {one.high:+.1%}, {one.count} pairs)</p>"
            )
    body = "".join(figure(svg, caption) for svg, caption in sweep_charts(rows).values())
    head = ("log", "policy", "slice", "seed", "wait s", "response s", "slowdown", "makespan s")
    numbers = [
        [row["cell"]["log"], label_of(row), row["cell"]["part"], row["cell"]["seed"],
         *(f"{row[m]:.6g}" for m in ("mean_wait", "mean_response", "mean_slowdown", "makespan"))]
        for row in rows[:500]
    ]  # fmt: skip
    more = (
        f"<p>The first 500 of {len(rows)} runs; all are in the file.</p>"
        if len(rows) > 500
        else ""
    )
    return page(
        f"Sweep · {len(rows)} simulations", "".join(sentences),
        f"{body}<h2>Runs</h2>{more}{table(head, numbers)}", method,
    )  # fmt: skip
