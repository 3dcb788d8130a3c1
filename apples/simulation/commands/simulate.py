"""`apples simulate`: policies over workload logs, one run or a grid; logs of the Parallel Workloads Archive."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import click

from apples.errors import UsageError
from apples.simulation.documents import KnownLogInfo, LogDocument, LogsDocument, SweepDocument
from apples.ui.command_line import command, say, show_answer
from apples.ui.parameters import FILE, INTEGER, NUMBER, Excludes, Only, Requires, argument, option

GRID_ONLY = ("--seeds", "--slices", "--workers", "--dask")
SINGLE_ONLY = ("--seed", "--csv", "--strict", "--explain-waits")
RULES = (
    Excludes("--grid", "--fetch", "--list-logs"),
    *(Excludes("--grid", name) for name in SINGLE_ONLY),
    Only("--fetch", "--folder", "--base", "--json"),
    Only("--list-logs", "--json"),
    Excludes("--explain-waits", "--csv"),
    Excludes("--explain-waits", "--malleable-fraction"),
    Excludes("--workers", "--dask"),
    *(Requires(name, "--grid") for name in GRID_ONLY),
    *(Requires(name, "--fetch") for name in ("--folder", "--base")),
)


@dataclass(frozen=True, slots=True)
class _Machine:
    """The options for the size of the simulated machine."""

    processors: int | None
    nodes: int | None
    cores_per_node: int | None


@command(rules=RULES)
@argument(
    "logs",
    metavar="[LOG]...",
    nargs=-1,
    help="Log: SWF, sacct --parsable2, Batsim JSON, accounting of PBS or SGE, lsb.acct of LSF, each also "
    "packed; or lublin:jobs=1000,...; several with --grid.",
)
@option(
    "--policy",
    metavar="NAME",
    multiple=True,
    help="fcfs, first_fit, sjf, easy, conservative, slurm, equipartition, sd, decider, migrate, or FILE:NAME; "
    "required for a simulation. With --grid it may be repeated; the first is the baseline.",
)
@option("--processors", type=INTEGER, help="Processors of the machine.")
@option("--nodes", type=INTEGER, help="Whole nodes are given to jobs.")
@option("--cores-per-node", type=INTEGER, help="Cores inside a node.")
@option(
    "--malleable-fraction",
    "malleable",
    metavar="FRACTION",
    type=NUMBER,
    multiple=True,
    help="Fraction of jobs that can be resized; with --grid it may be repeated "
    "[default: 1 for sd, equipartition]",
)
@option("--seed", type=INTEGER, default=0, help="Seed of all random numbers.")
@option(
    "--option",
    metavar="NAME=VALUE",
    multiple=True,
    help="name=value, may be repeated; with --grid also name=a|b, or POLICY:name=a|b.",
)
@option("--csv", type=FILE, help="Write one row a job.")
@option(
    "--strict",
    is_flag=True,
    help="End with an error if a record would be dropped or the policy fails.",
)
@option(
    "--explain-waits",
    "explain",
    is_flag=True,
    help="Compare the waits in the log with those of the policies without malleable "
    "jobs (and of --policy); print the error of each.",
)
@option(
    "--grid",
    type=FILE,
    help="Simulate every combination; FILE keeps the results, and a later start continues there.",
)
@option("--seeds", type=INTEGER, default=1, help="With --grid: seeds 0, 1, .. of each cell.")
@option(
    "--slices",
    type=INTEGER,
    default=1,
    help="With --grid: slices by which a log is judged, equal in jobs.",
)
@option("--workers", type=INTEGER, default=0, help="With --grid: processes; 0: one a CPU.")
@option("--dask", metavar="ADDRESS", help="With --grid: scheduler of an existing Dask cluster.")
@option("--fetch", metavar="NAME", help="Fetch a log of the archive once, and print its path.")
@option("--folder", metavar="FOLDER", type=FILE, help="With --fetch: where the log is kept.")
@option("--base", metavar="URL", help="With --fetch: a mirror, instead of the archive.")
@option("--list-logs", is_flag=True, help="List the logs that --fetch knows.")
@option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def simulate(
    logs: tuple[str, ...],
    policy: tuple[str, ...],
    processors: int | None,
    nodes: int | None,
    cores_per_node: int | None,
    malleable: tuple[float, ...],
    seed: int,
    option: tuple[str, ...],
    csv: Path | None,
    strict: bool,
    explain: bool,
    grid: Path | None,
    seeds: int,
    slices: int,
    workers: int,
    dask: str | None,
    fetch: str | None,
    folder: Path | None,
    base: str | None,
    list_logs: bool,
    as_json: bool,
) -> None:
    """Simulate a scheduling policy over a workload log, or a grid of logs, policies, options and seeds.

    Example: apples simulate lublin:jobs=100,processors=64 --policy easy --processors 64;
    apples simulate --grid results.jsonl lublin:jobs=300,processors=64 --policy easy --policy sd
    --nodes 16 --cores-per-node 4; apples simulate --fetch KTH-SP2-1996-2
    """
    if list_logs:
        return _list_logs(as_json)
    if fetch is not None:
        return _fetch(fetch, folder, base, as_json)
    if not logs:
        raise UsageError(
            "LOG is required: apples simulate lublin:jobs=100 --policy easy --processors 64",
            code="argument-missing",
            argument="LOG",
        )
    if not policy and not explain:
        raise UsageError(
            f"--policy is required (or --explain-waits): apples simulate {logs[0]} --policy easy",
            code="option-missing",
            option="--policy",
        )
    machine = _Machine(processors, nodes, cores_per_node)
    if grid is not None:
        return _grid(
            logs, policy, machine, malleable, option, grid, seeds, slices, workers, dask, as_json
        )
    for name, values in (("LOG", logs), ("--policy", policy), ("--malleable-fraction", malleable)):
        if len(values) > 1:
            raise UsageError(
                f"{name}: several values ({len(values)}) need --grid FILE",
                code="option-not-applicable",
                option=name,
                reason="several values need --grid",
            )
    named = policy[0] if policy else None
    if explain:
        return _explain(logs[0], named, machine, seed, option, strict, as_json)
    share = malleable[0] if malleable else None
    return _run(logs[0], str(named), machine, share, seed, option, csv, strict, as_json)


def _explain(
    log: str,
    policy: str | None,
    machine: _Machine,
    seed: int,
    option: tuple[str, ...],
    strict: bool,
    as_json: bool,
) -> None:
    """Compare the waits of a log with those under the policies."""
    # The simulator brings numpy: the help and a mistake in an option do without.
    from apples.simulation import text as views  # noqa: PLC0415
    from apples.simulation.prepare import explain_waits  # noqa: PLC0415

    explained = explain_waits(
        log, policy, option, processors=machine.processors, nodes=machine.nodes,
        cores=machine.cores_per_node,
        seed=seed, strict=strict,
    )  # fmt: skip
    for line in views.failure_notes(explained.failures):
        say(line)
    show_answer(
        views.explanation_document(log, explained),
        lambda: views.explanation_text(explained),
        as_json,
    )
    if explained.failures:
        raise click.exceptions.Exit(UsageError.exit_code)


def _run(
    log: str,
    policy: str,
    machine: _Machine,
    malleable: float | None,
    seed: int,
    option: tuple[str, ...],
    csv: Path | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Simulate one policy over one log."""
    # The simulator brings numpy: the help and a mistake in an option do without.
    from apples.simulation import text as views  # noqa: PLC0415
    from apples.simulation.metrics import write_csv  # noqa: PLC0415
    from apples.simulation.prepare import base_policies, prepare  # noqa: PLC0415

    if csv is not None and not csv.parent.is_dir():
        raise UsageError(
            f"{csv}: No such file or directory", code="directory-missing", option="--csv", file=csv
        )
    if malleable is not None and policy in base_policies():
        raise UsageError(
            f"--malleable-fraction does not apply: {policy} neither resizes nor moves jobs",
            code="option-not-applicable",
            option="--malleable-fraction",
            value=policy,
        )
    began = perf_counter()
    made = prepare(
        log, policy, option, processors=machine.processors, nodes=machine.nodes,
        cores=machine.cores_per_node,
        malleable=malleable, seed=seed, strict=strict,
    )  # fmt: skip
    if malleable is not None and made.source.workload.malleable.any():
        raise UsageError(
            f"--malleable-fraction does not apply: {log} marks its malleable jobs itself",
            code="option-not-applicable",
            option="--malleable-fraction",
            value=log,
        )
    read_seconds = perf_counter() - began
    for line in views.preparation_notes(log, made):
        say(line)
    result = made.run()
    for line in views.result_notes(policy, result):
        say(line)
    document = views.simulation_document(log, policy, made, result, read_seconds)
    try:
        if csv is not None:
            write_csv(csv, made.workload, result)
    finally:  # print the answer even if the file cannot be written
        show_answer(document, lambda: views.simulation_text(document), as_json)
    if result.failed_passes:
        raise click.exceptions.Exit(UsageError.exit_code)


def _grid(
    logs: tuple[str, ...],
    policy: tuple[str, ...],
    machine: _Machine,
    malleable: tuple[float, ...],
    option: tuple[str, ...],
    out: Path,
    seeds: int,
    slices: int,
    workers: int,
    dask: str | None,
    as_json: bool,
) -> None:
    """Simulate every combination that the file of results lacks."""
    # Import numpy and rich here: the help and option errors do not need them.
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    from apples.simulation.prepare import size_of  # noqa: PLC0415
    from apples.simulation.sweep import Results, grid  # noqa: PLC0415
    from apples.simulation.sweep import sweep as run_sweep  # noqa: PLC0415
    from apples.simulation.text import sweep_failure_notes, sweep_table, sweep_text  # noqa: PLC0415

    processors = size_of(machine.processors, machine.nodes, machine.cores_per_node)
    named = {word.partition("=")[0].rpartition(":")[2] for word in option}
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
        logs, policy, option, range(seeds), malleable=malleable or [-1.0], parts=slices,
        processors=processors, nodes=machine.nodes,
        cores_per_node=machine.cores_per_node,
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
    document: SweepDocument = {
        "schema": "apples.sweep/2",
        "cells": len(cells),
        "resumed": known,
        **figures,
    }
    page = f"a page: apples report {out} --out report.html"
    show_answer(document, lambda: f"{sweep_text(figures)}\n{page}", as_json)
    if any(entry["failed_passes"] for entry in figures["table"]):
        raise click.exceptions.Exit(UsageError.exit_code)


def _fetch(name: str, folder: Path | None, base: str | None, as_json: bool) -> None:
    """Fetch a log once, check its SHA-256, print its path."""
    from apples.simulation.sources import (  # noqa: PLC0415 - it brings numpy
        ARCHIVE,
        LOGS,
        fetch_log,
        log_folder,
    )

    path, found = fetch_log(name, folder or log_folder(), base or ARCHIVE)
    checked = bool(LOGS[name].sha256)
    if not checked:
        say(f"apples: {name}: not verified: no checksum is known; sha256 {found}")
    document: LogDocument = {
        "schema": "apples.log/1",
        "name": name,
        "path": str(path),
        "sha256": found,
        "checked": checked,
    }
    show_answer(document, str(path), as_json)


def _list_logs(as_json: bool) -> None:
    """List the logs that `--fetch` can fetch."""
    from apples.simulation.sources import LOGS  # noqa: PLC0415 - it brings numpy

    known: list[KnownLogInfo] = [
        {"name": name, "processors": log.processors} for name, log in LOGS.items()
    ]
    text = "\n".join(f"{log['name']}  {log['processors']} processors" for log in known)
    document: LogsDocument = {"schema": "apples.logs/1", "logs": known}
    show_answer(document, text, as_json)
