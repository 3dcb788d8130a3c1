"""`apples report`: the page of a run, of a job, of one log under several policies, or of a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apples.cli import runs
from apples.cli.record_completion import run_ids
from apples.errors import UsageError


def report(
    source: Annotated[
        str,
        typer.Argument(
            help="A run or job by its id; or a log, a model, a sweep's file of results.",
            autocompletion=run_ids,
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write; of a run, ID.html.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="May be repeated; the first is the baseline. Of a sweep: the baseline."),
    ] = None,
    processors: Annotated[int | None, typer.Option(help="Processors of the machine.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Whole nodes are given to jobs.")] = None,
    cores_per_node: Annotated[int | None, typer.Option(help="Cores inside a node.")] = None,
    malleable: Annotated[
        list[float] | None,
        typer.Option(help="Fraction of jobs that can be resized [default: 1]; may be repeated."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything drawn at random.")] = 0,
    option: Annotated[
        list[str] | None, typer.Option(help="name=value, or POLICY:name=value; may be repeated.")
    ] = None,
    pictures: Annotated[Path | None, typer.Option(help="Folder for the charts as SVG.")] = None,
    png: Annotated[bool, typer.Option("--png", help="PNG beside the SVG.")] = False,
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Of a run: show it over time here, too.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Write the page of a run or a job, at any time, or of simulations: one file that opens offline.

    Example: apples report 1f2e3d4c -o run.html
    """
    if runs.is_record(source):
        runs.report_run(source, out, json, timeline)
        return
    if out is None:
        raise UsageError(
            "--out is required for simulations: the file of the page",
            code="option-missing",
            option="--out",
        )
    from apples.cli.simulation_report import report_simulation  # noqa: PLC0415 - the simulator, for its pages only

    report_simulation(
        source, out, policy, processors, nodes, cores_per_node, malleable, seed, option, pictures, png, json
    )  # fmt: skip
