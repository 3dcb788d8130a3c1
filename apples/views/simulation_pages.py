"""The page of a simulation report: verdict first, losers as prominent as winners, one file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from apples.simulation.gantt import lay_out
from apples.simulation.metrics import job_outcomes, summary
from apples.simulation.sweep import Cell, MetricChange, compare, interval
from apples.views.simulation import failed_words
from apples.views.simulation_charts import (
    FIRST,
    GREY,
    INK,
    PAPER,
    RULE,
    ChartSeries,
    changes,
    figure,
    gantt,
    heat,
    lines,
)
from apples.views.simulation_facts import (
    SimulatedRun,
    by_size,
    heat_maps,
    markdown,
    over_time,
    paired_change,
    per_day,
    rejections,
    stories,
)

STYLE = f"""
:root{{color-scheme:light}}
body{{font:16px/1.5 sans-serif;max-width:60rem;margin:auto;padding:1rem;color:{INK};
background:{PAPER}}}
h1{{font-size:1.4rem}}h2{{font-size:1.1rem;margin-top:2rem}}h3{{font-size:1rem}}
.verdict{{font-size:1.15rem;border-left:4px solid {FIRST};padding-left:.8rem}}
svg,canvas{{width:100%;height:auto}}.wide{{overflow-x:auto}}
table{{border-collapse:collapse}}
th,td{{padding:.2rem .7rem;text-align:right;border-bottom:1px solid {RULE}}}
th:first-child,td:first-child{{text-align:left}}footer td:last-child{{text-align:left;
overflow-wrap:anywhere}}
figure{{margin:1rem 0}}figcaption{{color:{GREY}}}
.key{{border-left:1rem solid;padding-left:.4rem}}
pre{{overflow:auto;border:1px solid {RULE};padding:.6rem}}
a.skip{{position:absolute;left:-99rem}}a.skip:focus{{left:0}}summary{{min-height:24px}}
"""
METRICS = (("slowdown", "slowdown"), ("bounded_slowdown", "bounded slowdown"), ("wait", "wait"),
           ("response", "response"))  # fmt: skip


def verdict(base: SimulatedRun, other: SimulatedRun) -> str:
    """Return the answer in a sentence: what changes, by how much, how surely."""
    first, second = (job_outcomes(run.workload, run.schedule) for run in (base, other))
    parts = []
    wins = losses = 0
    for name, word in METRICS:
        before, after = getattr(first, name), getattr(second, name)
        change = paired_change(before, after)
        figures = f"mean {word} {before.mean():.4g} to {after.mean():.4g}"
        if not change.is_sure:
            parts.append(f"{figures}: no clear difference ({_ends(change)})")
            continue
        wins += change.mean < 0
        losses += change.mean > 0
        parts.append(
            f"{figures} ({change.mean:+.1%} over {change.count} slices, 95 %: {_ends(change)})"
        )
    word = "beats" if wins and not losses else "loses to" if losses and not wins else "against"
    return f"{other.name} {word} {base.name} on this log: " + "; ".join(parts) + "."


def _ends(change: MetricChange) -> str:
    return (
        f"{change.low:+.1%} .. {change.high:+.1%}" if change.count > 1 else "one run: no verdict"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return an HTML table."""
    top = "".join(f"<th scope=col>{escape(str(word))}</th>" for word in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(word))}</td>" for word in row) + "</tr>" for row in rows
    )
    return f"<div class=wide><table><tr>{top}</tr>{body}</table></div>"


def charts(base: SimulatedRun, other: SimulatedRun) -> dict[str, tuple[str, str]]:
    """Return name -> (SVG or HTML, caption) of every chart that compares two runs."""
    first, second = (job_outcomes(run.workload, run.schedule) for run in (base, other))
    pairs = [
        (f"mean {word}", paired_change(getattr(first, name), getattr(second, name)))
        for name, word in METRICS
    ]
    made = {
        "changes": (
            changes("changes", [(word, one.mean, one.low, one.high) for word, one in pairs]),
            f"MetricChange of {other.name} against {base.name}; left is better. 95 % by batch means.",
        )
    }
    times = [over_time(run) for run in (base, other)]
    for key, name, part in (("utilisation", "utilisation", 1), ("queue", "jobs waiting", 2)):
        series = [
            ChartSeries(run.name, t[0].tolist(), t[part].tolist())
            for run, t in zip((base, other), times, strict=True)
        ]
        means = [float(np.mean(t[part])) for t in times]
        made[key] = (
            lines(name, "days", name, series),
            f"Mean {name}: {means[0]:.3g} under {base.name}, {means[1]:.3g} under {other.name}.",
        )
    daily = [per_day(run) for run in (base, other)]
    made["slowdown_per_day"] = (
        lines(
            "slowdown per day", "days", "mean slowdown",
            [ChartSeries(run.name, d[0].tolist(), d[1].tolist())
             for run, d in zip((base, other), daily, strict=True)],
            ChartSeries("malleable starts", daily[1][0].tolist(), daily[1][2].tolist()),
        ),
        (
            "Mean slowdown of the jobs that ended each day; bars: "
            f"{int(daily[1][2].sum())} jobs started with malleability under {other.name} "
            "(Figure 7 of D'Amico et al. 2019)."
        ),
    )  # fmt: skip
    for number, one in zip((4, 5, 6), heat_maps(base, other), strict=True):
        key = one.name.replace(" ", "_")
        made[f"heat_{key}"] = (
            heat(one.name, one.columns, one.rows, one.ratio, one.counts),
            (
                f"{one.name} of {base.name} over that of {other.name}, by nodes and run time: "
                f"over 1 (blue) {other.name} is better, under 1 (orange) worse (Figure {number})."
            ),
        )
    return made


def job_classes(run: SimulatedRun) -> list[int]:
    """Return by job 0 static, 1 guest or resized, 2 mate."""
    schedule = run.schedule
    resized = (schedule.guest | (schedule.resizes > 0)) & ~schedule.mate
    return np.where(schedule.mate, 2, np.where(resized, 1, 0)).tolist()  # type: ignore[no-any-return]


def comparison_page(
    runs: Sequence[SimulatedRun], method: Mapping[str, object], explained: str = ""
) -> str:
    """Return the page that compares runs of one workload; the first is the baseline.

    `explained` says whether the model explains the waits that the log tells of: the page opens with it.
    """
    base, other = runs[0], runs[-1]
    message = [*([explained] if explained else []), *(verdict(base, one) for one in runs[1:])]
    message += [
        f"{one.name}: {words}."
        for one in runs
        if (words := failed_words(one.schedule.failed_passes))
    ]
    sentences = "".join(f"<p class=verdict>{escape(one)}</p>" for one in message)
    rows = []
    for run in runs:
        f: dict[str, Any] = summary(run.workload, run.schedule, run.setting)
        rows.append(
            [run.name, f"{f['mean_slowdown']:.5g}", f"{f['mean_bounded_slowdown']:.5g}",
             f"{f['mean_wait']:.6g}", f"{f['mean_response']:.6g}", f"{f['makespan']:.8g}",
             f"{f['utilisation']:.4f}", f["malleable_starts"], f["mates"], f["resizes"],
             "-" if f["energy"] is None else f"{f['energy']:.5g}"]
        )  # fmt: skip
    head = ("policy", "slowdown", "bounded", "wait s", "response s", "makespan s", "utilisation",
            "malleable starts", "mates", "resizes", "energy J")  # fmt: skip
    parts = [f"<h2>Policies</h2>{table(head, rows)}"]
    compared: list[tuple[Sequence[str], Sequence[Sequence[object]]]] = []
    made = charts(base, other) if len(runs) > 1 else {}
    if len(runs) > 1:
        parts.append(figure(*made.pop("changes")))
    parts.append("<h2>The machine over time</h2>")
    for run in (base, other) if len(runs) > 1 else (base,):
        bars = lay_out(run.schedule, run.setting.processors)
        chart = gantt(f"Gantt, {run.name}", bars, run.setting.processors, job_classes(run))
        parts.append(figure(chart, f"{run.name}: processors over time, {len(bars)} bars."))
    if len(runs) > 1:
        parts += [figure(*made.pop(key)) for key in ("utilisation", "queue", "slowdown_per_day")]
        sizes = by_size(base, other)
        who = [
            [one.name, one.jobs, f"{one.base:.4g}", f"{one.other:.4g}",
             *(f"#{base.workload.job[k]}: {before:.3g} to {after:.3g}"
               for k, (before, after) in ((one.worst_job, one.worst), (one.best_job, one.best)))]
            for one in sizes
        ]  # fmt: skip
        top = ("nodes", "jobs", f"bounded slowdown, {base.name}", other.name,
               "worst single job", "best single job")  # fmt: skip
        compared.append((top, who))
        parts.append(f"<h2>Who gains, who loses</h2>{table(top, who)}")
        parts += [figure(svg, caption) for svg, caption in made.values()]
        parts.append(f"<h2>Single jobs</h2>{stories(base, other, sizes)}")
    refused = rejections(runs)
    parts.append(
        "<h2>Rejected decisions, by reason</h2>"
        + (
            table(("policy", "reason", "jobs"), refused)
            if refused
            else "<p>None: no policy refused a job.</p>"
        )
    )
    title = f"{method['log']} · {len(base.workload)} jobs"
    copied = markdown(
        title, message, (head, rows), *compared,
        (("method", ""), list(method.items())),
    )  # fmt: skip
    parts.append(
        f"<details><summary>copy as Markdown</summary><pre>{escape(copied)}</pre></details>"
    )
    return page(title, sentences, "".join(parts), method)


def page(title: str, verdicts: str, body: str, method: Mapping[str, object]) -> str:
    """Return the whole file."""
    how = table(("method", ""), list(method.items()))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body><a class=skip href=#main>to the content</a>"
        f"<header><h1>{escape(title)}</h1>{verdicts}</header><main id=main>{body}</main>"
        f"<footer><h2>Method</h2>{how}</footer></body></html>\n"
    )


BARS = (
    ("makespan", "Figure 1"),
    ("mean_response", "Figure 2"),
    ("mean_slowdown", "Figure 3"),
    ("mean_wait", ""),
)
Rows = Sequence[Mapping[str, Any]]


def label_of(row: Mapping[str, Any]) -> str:
    """Return what distinguishes a row's policy."""
    return Cell.of(row).label


def sweep_charts(rows: Rows) -> dict[str, tuple[str, str]]:
    """Return name -> (SVG, caption)."""
    made: dict[str, tuple[str, str]] = {}
    baseline = label_of(rows[0])
    for metric, number in BARS:
        for log, by_label in compare(rows, baseline, metric).items():
            shown = [
                (name, one.mean, one.low, one.high)
                for name, one in by_label.items()
                if name != baseline
            ]
            if not shown:
                continue
            name = metric.removeprefix("mean_")
            paper = f" ({number} of D'Amico et al. 2019)" if number else ""
            most = max(by_label.values(), key=lambda one: one.count)
            runs = f"{most.count} {most.over}"
            made[f"{name}_{re.sub(r'[^a-z0-9]+', '_', log.lower())[-40:]}"] = (
                changes(f"{name}, {log}", shown),
                f"{name} on {log} against {baseline}, {runs}, 95 % intervals{paper}.",
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
            series.append(ChartSeries(name, at, [m.mean for m in means], [m.half for m in means]))
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
            message = f"{one.mean:+.1%}" if one.is_sure else "no clear difference"
            over = f", {one.count} {one.over}" if one.count > 1 else ""
            sentences.append(
                f"<p class=verdict>{escape(name)} on {escape(log)}: mean slowdown {message} "
                f"({_ends(one)}{over})</p>"
            )
    body = "".join(figure(svg, caption) for svg, caption in sweep_charts(rows).values())
    head = ("log", "policy", "slices", "seed", "wait s", "response s", "slowdown", "makespan s")
    numbers = [
        [row["cell"]["log"], label_of(row), row["cell"]["parts"], row["cell"]["seed"],
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
