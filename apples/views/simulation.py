"""Simulations and sweeps in words, and what a log's figures do not say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apples.simulation.config import SimulationResult
from apples.simulation.explained_waits import WaitExplanation, WaitFit
from apples.simulation.metrics import summary
from apples.simulation.prepare import PreparedSimulation
from apples.simulation.run import first_compilation
from apples.simulation.sweep import METRICS, Cell, Results, compare, interval

SCHEMA = "apples.simulation/1"
MOST_GROUPS = 4
"""Groups of a breakdown that the text names."""


def preparation_notes(log: str, made: PreparedSimulation) -> Iterator[str]:
    """Yield what the log's numbers do not say: size from the header, cleaning, compilation."""
    source = made.source
    if source.from_header:
        yield f"apples: {log}: {source.processors} processors, by MaxProcs of its header"
    if str(source.cleaning):
        yield (
            f"apples: {log}: {source.records} records, {len(source.workload)} simulated: "
            f"{source.cleaning}"
        )
    core = first_compilation(made.policy, made.config, made.workload, made.options.engine)
    if core:
        yield f"apples: compiling the {core} core, once per machine"


def failure_notes(result: SimulationResult) -> Iterator[str]:
    """Yield a line a kind of failure of the user's policy."""
    for first, count in result.failures:
        passes = "1 pass" if count == 1 else f"{count} passes"
        yield f"apples: {first} ({passes}; first-come-first-served decided)"


def failed_words(passes: int) -> str:
    """Return in words that a result is not all the policy's; empty if it is."""
    if not passes:
        return ""
    many = "1 pass" if passes == 1 else f"{passes} passes"
    return f"the policy failed in {many}, which first-come-first-served decided"


def simulation_document(
    log: str, policy: str, made: PreparedSimulation, result: SimulationResult, read_seconds: float
) -> dict[str, Any]:
    """Return a simulation as ``apples.simulation/1``."""
    source = made.source
    return {
        "schema": SCHEMA,
        "log": {"name": log, "sha256": source.sha256},
        "records": source.records,
        "dropped": dict(source.cleaning.dropped),
        "reordered": source.cleaning.reordered,
        "requests_raised": source.cleaning.raised,
        "notes": list(source.cleaning.notes),
        "policy": policy,
        "malleable": made.malleable,
        **summary(made.workload, result, made.config),
        "engine": result.engine,
        "simulation_seconds": result.seconds,
        "read_seconds": read_seconds,
    }


def simulation_text(figures: dict[str, Any]) -> str:
    """Return the figures as lines: first the answer, last what to do next."""
    f, log = figures, figures["log"]["name"]
    failed = f"  {words}\n" if (words := failed_words(f["failed_passes"])) else ""
    energy = "" if f["energy"] is None else f"  energy {f['energy']:.6g} J\n"
    return (
        f"{f['policy']} on {Path(log).name}: mean wait {f['mean_wait']:.6g} s, "
        f"mean bounded slowdown {f['mean_bounded_slowdown']:.6g}\n"
        f"{failed}  jobs {f['jobs']} ({f['completed']} completed)\n"
        f"  mean response {f['mean_response']:.6g} s\n"
        f"  mean slowdown {f['mean_slowdown']:.6g}\n"
        f"  makespan {f['makespan']:.10g} s\n"
        f"  utilisation {f['utilisation']:.4f}\n{energy}"
        f"  malleable starts {f['malleable_starts']}, mates {f['mates']}, "
        f"resizes {f['resizes']}\n"
        f"  simulated in {f['simulation_seconds']:.3g} s ({f['engine']}), "
        f"read in {f['read_seconds']:.3g} s\n"
        "all figures: --json; one row a job: --csv FILE"
    )


def explanation_document(log: str, explained: WaitExplanation) -> dict[str, Any]:
    """Return what explains a site's waits as ``apples.explained_waits/1``."""

    def fit(one: WaitFit) -> dict[str, Any]:
        return {
            "logged_wait": one.overall.logged,
            "simulated_wait": one.overall.simulated,
            "worst": dict(zip(("breakdown", "factor"), one.worst, strict=True)),
            **{
                f"by_{name}": [
                    {
                        "name": group.name,
                        "jobs": group.jobs,
                        "logged_wait": group.logged,
                        "simulated_wait": group.simulated,
                    }
                    for group in groups
                ]
                for name, groups in one.breakdowns.items()
            },
        }

    return {
        "schema": "apples.explained_waits/1",
        "log": log,
        "verdict": str(explained),
        "explained": explained.is_explained,
        "policy": explained.policy,
        "factor": explained.factor,
        "jobs": explained.jobs,
        "unknown": explained.unknown,
        "not_tried": list(explained.not_tried),
        "policies": {
            name: {
                "first_half": fit(explained.first[name]),
                "second_half": fit(explained.second[name]),
            }
            for name in explained.first
        },
    }


def explanation_text(explained: WaitExplanation) -> str:
    """Return the verdict, a table of the policies, and the groups of the chosen one that are off most."""
    lines = [
        str(explained),
        f"{'policy':16}{'first half':>12}{'second half':>12}   waits of the second half",
    ]
    for name, second in sorted(explained.second.items(), key=lambda item: item[1].worst[1]):
        chosen = " (chosen)" if name == explained.policy else ""
        first = explained.first[name]
        lines.append(
            f"{name:16}{_times(first.worst[1]):>12}{_times(second.worst[1]):>12}   "
            f"{second.overall.simulated:.6g} s simulated, {second.overall.logged:.6g} s logged{chosen}"
        )
    for name, groups in explained.second[explained.policy].breakdowns.items():
        worst = sorted(groups, key=lambda group: -group.jobs * abs(group.log_ratio))[:MOST_GROUPS]
        said = ", ".join(
            f"{group.name}: {group.simulated:.4g} s for {group.logged:.4g} s ({group.jobs} jobs)"
            for group in worst
        )
        lines.append(f"by {name}, where {explained.policy} is off most: {said}")
    if explained.unknown:
        lines.append(f"{explained.unknown} jobs left out: the log does not tell their wait")
    lines += [
        f"{name} not tried: it takes long on so many jobs (--policy {name} tries it)"
        for name in explained.not_tried
    ]
    lines.append("all groups: --json; a page that opens with this verdict: apples report LOG")
    return "\n".join(lines)


def _times(factor: float) -> str:
    return f"{factor:.3g} x"


def sweep_table(cells: list[Cell], results: Results) -> dict[str, Any]:
    """Return means by log and policy, and changes against the first policy, with intervals."""
    rows = [results.rows[cell.key] for cell in cells]
    baseline = cells[0].label
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for cell, row in zip(cells, rows, strict=True):
        groups.setdefault((cell.log, cell.label), []).append(row)
    changes = {metric: compare(rows, baseline, metric) for metric in METRICS}
    table = []
    for (log, label), mine in groups.items():
        entry: dict[str, Any] = {"log": log, "policy": label, "runs": len(mine)}
        entry["failed_passes"] = sum(row.get("failed_passes", 0) for row in mine)
        for metric in METRICS:
            values = [row[metric] for row in mine if row[metric] is not None]
            if not values:
                continue
            mean = interval(values)
            change = changes[metric].get(log, {}).get(label)
            entry[metric] = {
                "mean": mean.mean,
                "half": mean.half,
                "change": None if change is None else change.mean,
                "change_interval": None
                if change is None or change.count < 2
                else [change.low, change.high],
                "over": None if change is None else change.over,
                "count": 0 if change is None else change.count,
            }
        table.append(entry)
    return {"baseline": baseline, "table": table}


def sweep_text(figures: dict[str, Any]) -> str:
    """Return the table as text: the changes of four metrics against the baseline."""
    text = [f"change against {figures['baseline']}, log ratios, 95 % intervals"]
    for entry in figures["table"]:
        parts = [
            f"{metric.removeprefix('mean_')} {_change(entry[metric])}"
            for metric in ("mean_wait", "mean_response", "mean_slowdown", "makespan")
        ]
        text.append(
            f"{Path(entry['log']).name}  {entry['policy']} ({entry['runs']} runs): "
            + ", ".join(parts)
            + (f"; {words}" if (words := failed_words(entry["failed_passes"])) else "")
        )
    return "\n".join(text)


def _change(figure: dict[str, Any]) -> str:
    """Return a mean and its change in words."""
    mean, change, ends = figure["mean"], figure["change"], figure["change_interval"]
    if change is None or (change == 0 and ends in (None, [0, 0])):
        return f"{mean:.6g}"
    if ends is None:
        return f"{mean:.6g} ({change:+.1%}, one run: no verdict)"
    low, high = ends
    over = f"{figure['count']} {figure['over']}"
    if low <= 0 <= high:
        return f"{mean:.6g} (no clear difference, {low:+.1%} .. {high:+.1%} over {over})"
    return f"{mean:.6g} ({change:+.1%}, {low:+.1%} .. {high:+.1%} over {over})"
