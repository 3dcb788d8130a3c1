"""`apples sweep`: a grid of simulations, resumable, compared with intervals."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from apples.errors import UsageError
from apples.ui.command_line import say, show_answer

SCHEMA = "apples.sweep/2"


def sweep(
    logs: Annotated[list[str], typer.Argument(help="Logs, or models such as lublin:jobs=1000.")],
    policy: Annotated[list[str], typer.Option(help="May be repeated; the first is the baseline.")],
    out: Annotated[Path, typer.Option(help="File of results; a sweep goes on where it ended.")],
    processors: Annotated[int | None, typer.Option(help="Processors of the machine.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Whole nodes are given to jobs.")] = None,
    cores_per_node: Annotated[int | None, typer.Option(help="Cores inside a node.")] = None,
    malleable: Annotated[list[float] | None, typer.Option(help="May be repeated.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds 0, 1, .. of each cell.")] = 1,
    slices: Annotated[
        int, typer.Option(help="Slices by which a log is judged, equal in jobs.")
    ] = 1,
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
    # The simulator brings numpy, the bar brings rich: the help and a mistake in an option do without.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    from apples.simulation.prepare import size_of  # noqa: PLC0415
    from apples.simulation.sweep import Results, grid  # noqa: PLC0415
    from apples.simulation.sweep import sweep as run_sweep  # noqa: PLC0415
    from apples.simulation.text import sweep_failure_notes, sweep_table, sweep_text  # noqa: PLC0415

    processors = size_of(processors, nodes, cores_per_node)
    named = {word.partition("=")[0].rpartition(":")[2] for word in option or []}
    if processors is None and "machine" not in named:
        raise UsageError(
            "the size of the machine is required: --processors, or --nodes and --cores-per-node",
            code="option-missing",
            option="--processors",
        )
    if seeds < 1 or slices < 1 or workers < 0:
        raise UsageError(
            "--seeds and --slices are at least 1, --workers at least 0",
            code="value-range",
            options=["--seeds", "--slices", "--workers"],
        )
    cells = grid(
        logs, policy, option or [], range(seeds), malleable=malleable or [-1.0], parts=slices,
        processors=processors, nodes=nodes, cores_per_node=cores_per_node,
    )  # fmt: skip
    results = Results(out)
    if results.skipped:
        say(f"apples: {out}: {results.skipped} damaged lines skipped")
    known = sum(cell.key in results.rows for cell in cells)
    count = workers or os.cpu_count() or 1
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("simulations", total=len(cells), completed=known)
        for _ in run_sweep(cells, results, count, dask):
            bar.advance(task)
    rows = [results.rows[cell.key] for cell in cells]
    for line in sweep_failure_notes(rows):
        say(line)
    figures = sweep_table(rows, cells[0].label)
    document = {"schema": SCHEMA, "cells": len(cells), "resumed": known, **figures}
    page = f"a page: apples report {out} --out report.html"
    show_answer(document, lambda: f"{sweep_text(figures)}\n{page}", as_json)
    if any(entry["failed_passes"] for entry in figures["table"]):
        raise typer.Exit(UsageError.exit_code)
