"""`apples report`: make the page of a log under several policies, or of a sweep."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

import click

from apples.errors import UsageError
from apples.io.documents import put_page
from apples.scheduling.policies import POLICIES
from apples.simulation.documents import ReportFigures, SimulationReport
from apples.simulation.log_validation import WaitExplanation
from apples.simulation.metrics import write_csv
from apples.simulation.pages.charts import picture_files, write_pictures
from apples.simulation.pages.facts import SimulatedRun, comparison_document, comparison_text
from apples.simulation.pages.report import (
    comparison_page,
    comparison_pictures,
    sweep_charts,
    sweep_page,
)
from apples.simulation.prepare import explain_waits, options_of_policy, prepare
from apples.simulation.sources import is_generated
from apples.simulation.sweep import Results
from apples.simulation.text import (
    baseline_of,
    preparation_notes,
    result_notes,
    sweep_table,
    sweep_text,
)
from apples.ui.command_line import say, show, show_answer


def report_simulation(
    source: str,
    out: Path,
    policy: tuple[str, ...],
    processors: int | None,
    nodes: int | None,
    cores_per_node: int | None,
    malleable: tuple[float, ...],
    seed: int,
    option: tuple[str, ...],
    pictures: Path | None,
    as_json: bool,
) -> None:
    """Write a page about simulations as one file that opens offline."""
    method: dict[str, object] = {
        "log": Path(source).name,
        "command": shlex.join(["apples", *sys.argv[1:]]),
        "apples": version("apples"),
        "seed": seed,
    }
    if not out.parent.is_dir():
        raise UsageError(
            f"{out}: No such file or directory", code="directory-missing", option="--out", file=out
        )
    tables: dict[Path, SimulatedRun] = {}
    if source.endswith(".jsonl"):
        if not Path(source).is_file():
            raise UsageError(
                f"{source}: No such file or directory", code="file-missing", file=source
            )
        rows = list(Results(Path(source)).rows.values())
        if not rows:
            raise UsageError(f"{source}: holds no results", code="file-empty", file=source)
        table = sweep_table(rows, baseline_of(rows, policy[0] if policy else None))
        text, drawn = sweep_page(rows, table, method), sweep_charts(rows, table)
        count, said = len(rows), sweep_text(table)
        figures: ReportFigures = {
            "baseline": table["baseline"],
            "table": table["table"],
            "fractions": table["fractions"],
        }
        failed = any(row.get("failed_passes") for row in rows)
    else:
        runs = _runs(source, list(dict.fromkeys(policy or ["easy", "sd"])), processors, nodes,
                     cores_per_node, [*malleable] or [1.0], seed, [*option], method)  # fmt: skip
        figures = comparison_document(
            Path(source).name, runs, _explained(source, processors, nodes, cores_per_node, seed)
        )
        text = comparison_page(runs, figures, method)
        drawn = comparison_pictures(runs, figures) if pictures is not None else {}
        count, said = len(runs), comparison_text(figures)
        failed = any(run.schedule.failed_passes for run in runs)
        for run in runs:
            name = re.sub(r"[:/ ]", "_", run.name)
            tables[out.with_name(f"{out.stem}-{name}.csv")] = run
    files = picture_files(pictures, drawn) if pictures is not None else []
    size, drawn_to = len(text.encode()), [str(path) for path in files]
    answer: SimulationReport = {
        "schema": "apples.report/1",
        "page": str(out),
        "bytes": size,
        "runs": count,
        "pictures": drawn_to,
        **figures,
    }
    try:
        for path, run in tables.items():
            write_csv(path, run.workload, run.schedule)
        put_page(out, text)
        if pictures is not None:
            write_pictures(pictures, drawn)
    finally:  # print the answer even if a file cannot be written
        show_answer(answer, said, as_json)
    if not as_json:
        show(f"{out}: {size} bytes, {count} runs, {len(files)} pictures")
    if failed:
        raise click.exceptions.Exit(UsageError.exit_code)


def _explained(
    source: str, processors: int | None, nodes: int | None, cores: int | None, seed: int
) -> WaitExplanation | str:
    """Return whether a base policy explains the log's waits, or why that is unknown; empty for a model."""
    if is_generated(source):
        return ""
    try:
        return explain_waits(
            source, None, [], processors=processors, nodes=nodes, cores=cores, seed=seed
        )
    except UsageError as error:
        return str(error)


def _runs(
    source: str, policies: list[str], processors: int | None, nodes: int | None,
    cores: int | None, fractions: list[float], seed: int, words: list[str], method: dict[str, object],
) -> list[SimulatedRun]:  # fmt: skip
    """Simulate every policy; a policy that resizes jobs runs with every fraction of malleable jobs."""
    runs: list[SimulatedRun] = []
    for name in policies:
        rigid = name in POLICIES and not POLICIES[name].uses_malleable
        several = len(fractions) > 1 and not rigid
        for fraction in fractions if several else [max(fractions)]:
            made = prepare(
                source, name, options_of_policy(name, words), processors=processors, nodes=nodes,
                cores=cores, malleable=fraction, seed=seed,
            )  # fmt: skip
            if not runs:
                for line in preparation_notes(source, made):
                    say(line)
            config, read = made.config, made.source
            result = made.run(record=True)
            for line in result_notes(name, result):
                say(line)
            label = f"{name} malleable={fraction:g}" if several else name
            runs.append(
                SimulatedRun(label, made.workload, result, config, fraction if several else None)
            )
            method.update(
                {"log sha256": read.sha256 or "none: a model", "records": read.records,
                 "cleaning": str(read.cleaning) or "nothing",
                 "machine": config.machine,
                 "tie rule": config.ties, "run-time model": config.runtime_model,
                 "malleable": ", ".join(f"{one:g}" for one in fractions)}
            )  # fmt: skip
            method[f"policy {name}"] = repr(made.policy)
    return runs
