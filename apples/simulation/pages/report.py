"""The pages of `apples report`: policies compared on one log, and a sweep; each opens with its verdict."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from apples.simulation.documents import (
    FractionGains,
    FractionPoint,
    Metric,
    RelativeChange,
    ReportFigures,
    SweepFigures,
)
from apples.simulation.gantt import lay_out
from apples.simulation.pages.charts import (
    MAX_SERIES,
    ChangeRow,
    ChartSeries,
    changes,
    gantt,
    heat,
    heat_kind,
    is_drawn_singly,
    lines,
    occupied_shares,
)
from apples.simulation.pages.facts import (
    DAY,
    HOUR,
    METRICS,
    SimulatedRun,
    heat_maps,
    last_end,
    markdown,
    over_time,
    per_day,
)
from apples.simulation.sweep import Cell, interval
from apples.simulation.text import BY_FRACTION, Rows, sweep_findings, sweep_headline
from apples.simulation.verdicts import verdict_word
from apples.ui.charts import Scale, short
from apples.ui.formats import Formatted, count, exact, number, percent, seconds, share, signed
from apples.ui.shell import page

Table = tuple[Sequence[str], Sequence[Sequence[object]]]

POINTS = 100
"""Points of a curve over time."""
MAX_RUNS = 500
"""Maximum number of rows in the table of a sweep's runs."""


def comparison_charts(runs: Sequence[SimulatedRun], document: ReportFigures) -> dict[str, Markup]:
    """Return the charts of a comparison by name; the name of a policy's chart is ``CHART-POLICY``."""
    made = _change_charts(document) if len(runs) > 1 else {}
    made |= fraction_charts(document["fractions"])
    made |= _machine_charts(runs)
    for other in runs[1:]:
        made |= _daily_chart(runs[0], other)
    return made


def comparison_pictures(
    runs: Sequence[SimulatedRun], document: ReportFigures
) -> dict[str, Markup]:
    """Return the charts of the page, and its tables of ratios as heat maps."""
    made = comparison_charts(runs, document)
    for other in runs[1:]:
        for one in heat_maps(runs[0], other):
            name = _name(f"heat-{one['of']}", other.name)
            title = f"{one['of']} of {runs[0].name} over that of {other.name}"
            made[name] = heat(
                name, title, one["columns"], one["rows"], one["ratio"], one["counts"]
            )
    return made


def _name(*words: str) -> str:
    return re.sub(r"[^A-Za-z0-9-]+", "_", "-".join(words))


def _change_charts(document: ReportFigures) -> dict[str, Markup]:
    rows = [
        _change_row(f"{short(one['policy'])}: mean {word}", one["changes"][f"mean_{name}"])
        for one in document["policies"][1:]
        for name, word in METRICS
    ]
    return {"changes": changes("changes", f"Changes against {document['baseline']}", rows)}


def _change_row(name: str, change: RelativeChange) -> ChangeRow:
    mean, ends = change["change"], change["change_interval"]
    if mean is None:
        raise ValueError(f"{name}: no change against a baseline to draw")
    low, high = ends or (mean, mean)
    return ChangeRow(name, mean, low, high, verdict_word(change))


def fraction_charts(fractions: Sequence[FractionGains]) -> dict[str, Markup]:
    """Return the charts of the gain over the fraction of malleable jobs, by log and metric."""
    made = {}
    for log in dict.fromkeys(one["log"] for one in fractions):
        mine = [one for one in fractions if one["log"] == log]
        for part in range(0, len(mine), MAX_SERIES):
            for metric in BY_FRACTION:
                series = [
                    _fraction_series(one["policy"], one[metric])
                    for one in mine[part : part + MAX_SERIES]
                    if one[metric]
                ]
                if not series:
                    continue
                word = metric.removeprefix("mean_")
                name = _name(f"fraction-{word}", Path(log).name, *([str(part)] if part else []))
                made[name] = lines(
                    name,
                    f"Change of the mean {word} by how many jobs are malleable, {Path(log).name}",
                    "% of the jobs malleable",
                    f"change of the mean {word}, %",
                    series,
                )
    return made


def _fraction_series(name: str, points: Sequence[FractionPoint]) -> ChartSeries:
    rows = [_change_row(name, point) for point in points]
    return ChartSeries(
        name,
        [100 * point["malleable"] for point in points],
        [100 * row.mean for row in rows],
        [100 * row.low for row in rows],
        [100 * row.high for row in rows],
    )


def time_unit(span: float) -> tuple[float, str]:
    """Return the unit of an axis of `span` seconds: its seconds and its name."""
    for size, name in ((DAY, "d"), (HOUR, "h"), (60.0, "min")):
        if span >= 2 * size:
            return size, name
    return 1.0, "s"


def _machine_charts(runs: Sequence[SimulatedRun]) -> dict[str, Markup]:
    """Return the Gantt chart of every run, and its utilisation and queue beside those of the baseline."""
    made = {}
    first, last = float(runs[0].workload.submit[0]), last_end(runs)
    size, unit = time_unit(last - first)
    axis = Scale((last - first) / size or 1.0)
    curves = [over_time(run, POINTS, last) for run in runs]
    most = max(float(waiting.max()) for _, _, waiting in curves)
    for run, mine in zip(runs, curves, strict=True):
        rows, classes = run.setting.processors, job_classes(run)
        bars = lay_out(run.schedule, rows, run.setting.partitions)
        shares = (
            None
            if is_drawn_singly(bars, rows, len(runs))
            else occupied_shares(bars, classes, rows, first, last)
        )
        name = _name("gantt", run.name)
        title = f"The machine under {run.name}"
        made[name] = gantt(name, title, bars, rows, classes, axis, (size, unit), first, shares)
        shown = [(runs[0], curves[0]), *([] if run is runs[0] else [(run, mine)])]
        for word, part, scale in (
            ("utilisation", 1, Scale(1.0)),
            ("queue", 2, Scale(max(1.0, most) * 1.05)),
        ):
            series = [
                ChartSeries(one.name, (curve[0] / size).tolist(), curve[part].tolist())
                for one, curve in shown
            ]
            name = _name(word, run.name)
            y_name = "jobs waiting" if word == "queue" else word
            made[name] = lines(
                name, f"{y_name.capitalize()} under {run.name}", "since the first submission",
                y_name, series, x_unit=unit, x_scale=axis, y_scale=scale,
            )  # fmt: skip
    return made


def _daily_chart(base: SimulatedRun, other: SimulatedRun) -> dict[str, Markup]:
    daily = [per_day(run) for run in (base, other)]
    name = _name("slowdown_per_day", other.name)
    series = [
        ChartSeries(run.name, (one[0] + 0.5).tolist(), one[1].tolist())
        for run, one in zip((base, other), daily, strict=True)
    ]
    bars = ChartSeries("malleable starts", (daily[1][0] + 0.5).tolist(), daily[1][2].tolist())
    axis = Scale(float(max(len(one[0]) for one in daily)))
    return {
        name: lines(
            name, f"Mean slowdown by day under {base.name} and {other.name}",
            "since the first submission", "mean slowdown", series, bars, x_unit="d", x_scale=axis,
        )
    }  # fmt: skip


def job_classes(run: SimulatedRun) -> list[int]:
    """Return the class of each job: 0 static, 1 guest or resized, 2 mate."""
    schedule = run.schedule
    resized = (schedule.guest | (schedule.resizes > 0)) & ~schedule.mate
    return np.where(schedule.mate, 2, np.where(resized, 1, 0)).tolist()  # type: ignore[no-any-return]


def _policies(document: ReportFigures) -> Table:
    """Return the table of all policies, with energy if the configuration has the power of nodes."""
    head = ["policy", "slowdown", "bounded slowdown", "wait", "response", "makespan", "utilisation",
            "malleable starts", "mates", "resizes"]  # fmt: skip
    rows: list[list[Formatted]] = [
        [one["policy"], number(one["mean_slowdown"]), number(one["mean_bounded_slowdown"]),
         seconds(one["mean_wait"]), seconds(one["mean_response"]), seconds(one["makespan"]),
         share(one["utilisation"]), count(one["malleable_starts"]), count(one["mates"]),
         count(one["resizes"])]
        for one in document["policies"]
    ]  # fmt: skip
    if document["policies"][0]["energy"] is not None:
        head.append("energy, J")
        for row, one in zip(rows, document["policies"], strict=True):
            row.append(number(one["energy"]))
    return head, rows


def _change_rows(document: ReportFigures) -> list[list[Formatted]]:
    return [
        [one["policy"], f"mean {word}", *_changed(one["changes"][f"mean_{name}"]),
         one["changes"][f"mean_{name}"]["verdict"]]
        for one in document["policies"][1:] for name, word in METRICS
    ]  # fmt: skip


def _changed(change: RelativeChange) -> list[Formatted]:
    """Return a change and the ends of its interval."""
    low, high = change["change_interval"] or (None, None)
    over = f"{change['count']} {change['over']}"
    return [signed(change["change"]), signed(low), signed(high), over]


CHANGE_HEAD = ("change", "95 % from", "to", "over")


def comparison_page(
    runs: Sequence[SimulatedRun], document: ReportFigures, method: Mapping[str, object]
) -> str:
    """Return the HTML page of a comparison with its charts and tables."""
    charts = comparison_charts(runs, document)
    machines = [
        {
            "policy": run.name,
            "is_drawn_singly": 'class="shade' not in charts[_name("gantt", run.name)],
            "charts": [
                charts[_name(what, run.name)] for what in ("gantt", "utilisation", "queue")
            ],
            "parts": one["parts"],
        }
        for run, one in zip(runs, document["over_time"], strict=True)
    ]
    title = f"{document['log']}, {document['jobs']} jobs, {document['processors']} processors"
    policies = _policies(document)
    compared: Table = (
        ("policy", "figure", *CHANGE_HEAD, "in this simulation"),
        _change_rows(document),
    )
    sizes = [
        (
            (f"nodes ({one['policy']})", "jobs", document["baseline"], one["policy"]),
            [[size["nodes"], size["jobs"], f"{size['before']:.4g}", f"{size['after']:.4g}"]
             for size in one["sizes"]],
        )
        for one in document["against"]
    ]  # fmt: skip
    copied = markdown(
        title, [document["headline"], *document["findings"]],
        *(_as_texts(one) for one in (policies, compared) if one[1]), *sizes,
        (("method", ""), list(method.items())),
    )  # fmt: skip
    model = {
        "document": document,
        "title": title,
        "method": method,
        "policies": policies,
        "compared": compared,
        "changes_chart": charts.get("changes"),
        "fractions": _fraction_views(document["fractions"], charts),
        "machines": machines,
        "against": [
            {**one, "daily": charts[_name("slowdown_per_day", one["policy"])],
             "starts": sum(part["malleable_starts"] for part in parts["parts"])}
            for one, parts in zip(document["against"], document["over_time"][1:], strict=True)
        ],
        "heat_kind": heat_kind,
        "copied": copied,
    }  # fmt: skip
    return page("comparison.html.j2", model)


def _as_texts(table: Table) -> Table:
    head, rows = table
    return head, [[getattr(cell, "text", cell) for cell in row] for row in rows]


def _fraction_views(
    fractions: Sequence[FractionGains], charts: Mapping[str, Markup]
) -> list[dict[str, Any]]:
    """Return the findings on fractions of malleable jobs, their charts and their table, by log."""
    views = []
    for log in dict.fromkeys(one["log"] for one in fractions):
        mine = [one for one in fractions if one["log"] == log]
        ending = _name("", Path(log).name)
        rows: list[list[Formatted]] = [
            [one["policy"], metric.removeprefix("mean_"), percent(point["malleable"]), *_changed(point)]
            for one in mine for metric in BY_FRACTION for point in one[metric]
        ]  # fmt: skip
        views.append(
            {
                "log": log,
                "findings": [one["finding"] for one in mine],
                "charts": [
                    chart for name, chart in charts.items()
                    if name.startswith("fraction-") and (name + "-").find(f"{ending}-") > 0
                ],
                "table": (("policy", "mean", "jobs malleable", *CHANGE_HEAD), rows),
            }
        )  # fmt: skip
    return views


# ---------------------------------------------------------------------------------- sweeps

BARS: tuple[tuple[Metric, str], ...] = (
    ("makespan", "Figure 1"),
    ("mean_response", "Figure 2"),
    ("mean_slowdown", "Figure 3"),
    ("mean_wait", ""),
)


def sweep_charts(rows: Rows, figures: SweepFigures) -> dict[str, Markup]:
    """Return the charts of a sweep by name."""
    made = fraction_charts(figures["fractions"])
    for log, metric, changed in _changes_by_log(figures):
        word = metric.removeprefix("mean_")
        name = _changes_name(log, metric)
        title = f"Change of the {'' if word == metric else 'mean '}{word} on {Path(log).name}"
        made[name] = changes(name, title, changed)
    return made | load_curves(rows)


def _changes_name(log: str, metric: str) -> str:
    return _name(f"changes-{metric.removeprefix('mean_')}", Path(log).name[-40:])


def _changes_by_log(figures: SweepFigures) -> Iterator[tuple[str, Metric, list[ChangeRow]]]:
    for log in dict.fromkeys(entry["log"] for entry in figures["table"]):
        for metric, _ in BARS:
            changed = [
                _change_row(entry["policy"], entry[metric])
                for entry in figures["table"]
                if entry["log"] == log and entry["policy"] != figures["baseline"]
                and entry.get(metric, {}).get("change") is not None
            ]  # fmt: skip
            if changed:
                yield log, metric, changed


def load_curves(rows: Rows) -> dict[str, Markup]:
    """Return the charts of response and utilisation against load, for logs that are models with a load."""
    groups: dict[str, dict[float, list[Mapping[str, Any]]]] = {}
    for row in rows:
        found = re.search(r"load=([0-9.]+)", row["cell"]["log"])
        if found:
            rest = row["cell"]["log"].replace(found.group(0), "").strip(":,").replace(",,", ",")
            groups.setdefault(f"{Cell.of(row).label} ({rest})", {}).setdefault(
                float(found.group(1)), []
            ).append(row)
    curves = [(name, sorted(loads.items())) for name, loads in groups.items() if len(loads) > 1]
    made = {}
    for metric, title in (("mean_response", "mean response, s"), ("utilisation", "utilisation")):
        for part in range(0, len(curves), MAX_SERIES):
            series = []
            for label, loads in curves[part : part + MAX_SERIES]:
                means = [interval([row[metric] for row in mine]) for _, mine in loads]
                half = [mean.half or 0.0 for mean in means]
                series.append(
                    ChartSeries(
                        label,
                        [load for load, _ in loads],
                        [mean.mean for mean in means],
                        [mean.mean - wide for mean, wide in zip(means, half, strict=True)],
                        [mean.mean + wide for mean, wide in zip(means, half, strict=True)],
                    )
                )
            name = _name(f"load-{metric}", str(part))
            made[name] = lines(name, f"{title} against load", "load factor", title, series)
    return made


def sweep_page(rows: Rows, figures: SweepFigures, method: Mapping[str, object]) -> str:
    """Return the HTML page of a sweep's results."""
    charts = sweep_charts(rows, figures)
    changed: list[list[Formatted]] = [
        [Path(entry["log"]).name, entry["policy"], metric.removeprefix("mean_"),
         number(entry[metric]["mean"]), *_changed(entry[metric])]
        for entry in figures["table"] for metric, _ in BARS
        if metric in entry and entry[metric]["change"] is not None
    ]  # fmt: skip
    runs: list[list[Formatted]] = [
        [Path(row["cell"]["log"]).name, Cell.of(row).label, count(row["cell"]["parts"]),
         exact(row["cell"]["seed"]), seconds(row["mean_wait"]), seconds(row["mean_response"]),
         number(row["mean_slowdown"]), seconds(row["makespan"])]
        for row in rows[:MAX_RUNS]
    ]  # fmt: skip
    model = {
        "title": f"{len(rows)} simulations",
        "headline": sweep_headline(figures),
        "findings": sweep_findings(figures),
        "figures": figures,
        "fractions": _fraction_views(figures["fractions"], charts),
        "change_charts": [
            (f"{metric.removeprefix('mean_')} on {Path(log).name}", charts[_changes_name(log, metric)])
            for log, metric, _ in _changes_by_log(figures)
        ],
        "load_charts": [chart for name, chart in charts.items() if name.startswith("load-")],
        "changed": (("log", "policy", "figure", "mean", *CHANGE_HEAD), changed),
        "runs": (("log", "policy", "slices", "seed", "wait", "response", "slowdown", "makespan"), runs),
        "cut": len(rows) > MAX_RUNS,
        "method": method,
    }  # fmt: skip
    return page("sweep.html.j2", model)
