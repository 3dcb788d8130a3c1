"""`apples report`: a page on one log under several policies, or on a sweep."""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from apples.cli.program import say, show_answer
from apples.errors import UsageError
from apples.simulation.metrics import write_csv
from apples.simulation.prepare import explain_waits, options_of_policy, prepare
from apples.simulation.sources import is_generated
from apples.simulation.sweep import Results
from apples.views.simulation import failure_notes, preparation_notes
from apples.views.simulation_charts import write_pictures
from apples.views.simulation_facts import SimulatedRun
from apples.views.simulation_pages import charts, comparison_page, sweep_charts, sweep_page


def report(
    source: Annotated[str, typer.Argument(help="A log, a model, or a sweep's file of results.")],
    out: Annotated[Path, typer.Option(help="The page to write.")],
    policy: Annotated[
        list[str] | None, typer.Option(help="May be repeated; the first is the baseline.")
    ] = None,
    processors: Annotated[int | None, typer.Option(help="Processors of the machine.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Whole nodes are given to jobs.")] = None,
    cores_per_node: Annotated[int | None, typer.Option(help="Cores inside a node.")] = None,
    malleable: Annotated[float, typer.Option(help="Fraction of jobs that can be resized.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of everything drawn at random.")] = 0,
    option: Annotated[
        list[str] | None, typer.Option(help="name=value, or POLICY:name=value; may be repeated.")
    ] = None,
    pictures: Annotated[Path | None, typer.Option(help="Folder for the charts as SVG.")] = None,
    png: Annotated[bool, typer.Option("--png", help="PNG beside the SVG.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Write a page about simulations: one file that opens offline."""
    method: dict[str, object] = {
        "log": Path(source).name,
        "command": shlex.join(["apples", *sys.argv[1:]]),
        "apples": version("apples"),
        "seed": seed,
    }
    if source.endswith(".jsonl"):
        rows = list(Results(Path(source)).rows.values())
        if not rows:
            raise UsageError(f"{source}: holds no results")
        text, drawn = sweep_page(rows, method), sweep_charts(rows)
        count = len(rows)
        failed = any(row.get("failed_passes") for row in rows)
    else:
        runs = _runs(source, policy or ["easy", "sd"], processors, nodes, cores_per_node,
                     malleable, seed, option or [], method)  # fmt: skip
        text = comparison_page(
            runs, method, _explained(source, processors, nodes, cores_per_node, seed)
        )
        drawn = charts(runs[0], runs[-1]) if len(runs) > 1 else {}
        count = len(runs)
        failed = any(run.schedule.failed_passes for run in runs)
        for run in runs:
            path = out.with_name(f"{out.stem}-{run.name.replace(':', '_').replace('/', '_')}.csv")
            write_csv(path, run.workload, run.schedule)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror or error}") from error
    files = write_pictures(pictures, drawn, png) if pictures is not None else []
    size, drawn_to = len(text.encode()), [str(path) for path in files]
    answer = {"schema": "apples.report/1", "page": str(out), "bytes": size}
    words = f"{out}: {size} bytes, {count} runs, {len(files)} pictures"
    show_answer({**answer, "runs": count, "pictures": drawn_to}, words, as_json)
    if failed:
        raise typer.Exit(UsageError.exit_code)


def _explained(
    source: str, processors: int | None, nodes: int | None, cores: int | None, seed: int
) -> str:
    """Return whether a base policy explains the waits of the log, in a sentence; empty for a model."""
    if is_generated(source):
        return ""
    try:
        return str(
            explain_waits(
                source, None, [], processors=processors, nodes=nodes, cores=cores, seed=seed
            )
        )
    except UsageError as error:
        return str(error)


def _runs(
    source: str, policies: list[str], processors: int | None, nodes: int | None,
    cores: int | None, malleable: float, seed: int, words: list[str], method: dict[str, object],
) -> list[SimulatedRun]:  # fmt: skip
    runs: list[SimulatedRun] = []
    for name in policies:
        made = prepare(
            source, name, options_of_policy(name, words), processors=processors, nodes=nodes, cores=cores,
            malleable=malleable, seed=seed,
        )  # fmt: skip
        if not runs:
            for line in preparation_notes(source, made):
                say(line)
        config, read = made.config, made.source
        result = made.run(record=True)
        for line in failure_notes(result):
            say(line)
        runs.append(SimulatedRun(name, made.workload, result, config))
        method.update(
            {"log sha256": read.sha256 or "none: a model", "records": read.records,
             "cleaning": str(read.cleaning) or "nothing",
             "machine": f"{config.nodes} nodes x {config.cores_per_node} cores",
             "tie rule": config.ties, "run-time model": config.runtime_model,
             "malleable": malleable}
        )  # fmt: skip
        method[f"policy {name}"] = repr(made.policy)
    return runs
