"""`apples sweep`: a grid of simulations, resumable, compared with intervals."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from apples.errors import UsageError
from apples.simulation.prepare import size_of
from apples.simulation.sweep import METRICS, Cell, Results, compare, grid, interval
from apples.simulation.sweep import sweep as run_sweep

SCHEMA = "apples.sweep/1"


def sweep(
    logs: Annotated[list[str], typer.Argument(help="Logs, or models such as lublin:jobs=1000.")],
    policy: Annotated[list[str], typer.Option(help="May be repeated; the first is the baseline.")],
    out: Annotated[Path, typer.Option(help="File of results; a sweep goes on where it ended.")],
    processors: Annotated[int | None, typer.Option(help="Processors of the machine.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Whole nodes are given to jobs.")] = None,
    cores_per_node: Annotated[int | None, typer.Option(help="Cores inside a node.")] = None,
    malleable: Annotated[list[float] | None, typer.Option(help="May be repeated.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0, 1, .. of each cell.")] = 1,
    slices: Annotated[int, typer.Option(help="Slices of each log, equal in jobs.")] = 1,
    option: Annotated[
        list[str] | None, typer.Option(help="name=a|b, or POLICY:name=a|b; may be repeated.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; 0: one a CPU.")] = 0,
    dask: Annotated[
        str | None, typer.Option(help="Scheduler of an existing Dask cluster.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Simulate a grid of logs, policies, options and seeds."""
    processors = size_of(processors, nodes, cores_per_node)
    if processors is None:
        raise UsageError("--processors, or --nodes and --cores-per-node, say how large it is")
    if seeds < 1 or slices < 1 or workers < 0:
        raise UsageError("--seeds and --slices are at least 1, --workers at least 0")
    cells = grid(
        logs, policy, option or [], range(seeds), malleable=malleable or [-1.0], parts=slices,
        processors=processors, nodes=nodes, cores_per_node=cores_per_node,
    )  # fmt: skip
    results = Results(out)
    if results.skipped:
        typer.echo(f"apples: {out}: {results.skipped} damaged lines skipped", err=True)
    known = sum(cell.key in results.rows for cell in cells)
    count = workers or os.cpu_count() or 1
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("simulations", total=len(cells), completed=known)
        for _ in run_sweep(cells, results, count, dask):
            bar.advance(task)
    figures = tabulate(cells, results)
    if as_json:
        typer.echo(
            json.dumps({"schema": SCHEMA, "cells": len(cells), "resumed": known, **figures})
        )
        return
    for line in lines(figures):
        typer.echo(line)
    typer.echo(f"a page: apples report {out} --out report.html")


def tabulate(cells: list[Cell], results: Results) -> dict[str, Any]:
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
                "change_half": None if change is None else change.half,
            }
        table.append(entry)
    return {"baseline": baseline, "table": table}


def lines(figures: dict[str, Any]) -> list[str]:
    """Return the table as text: the changes of three metrics against the baseline."""
    text = [f"change against {figures['baseline']}, paired, 95 % intervals"]
    for entry in figures["table"]:
        parts = [
            f"{metric.removeprefix('mean_')} {said(entry[metric])}"
            for metric in ("mean_wait", "mean_response", "mean_slowdown", "makespan")
        ]
        text.append(
            f"{Path(entry['log']).name}  {entry['policy']} ({entry['runs']} runs): "
            + ", ".join(parts)
        )
    return text


def said(figure: dict[str, Any]) -> str:
    """Return a mean and its change in words."""
    mean, change, half = figure["mean"], figure["change"], figure["change_half"]
    if change is None or (change == 0 and not half):
        return f"{mean:.6g}"
    if half is None:
        return f"{mean:.6g} ({change:+.1%}, one run)"
    if abs(change) <= half:
        return f"{mean:.6g} (no difference at 95 %: {change - half:+.1%} .. {change + half:+.1%})"
    return f"{mean:.6g} ({change:+.1%}, {change - half:+.1%} .. {change + half:+.1%})"
