"""`apples simulate`: run a scheduling policy over a workload log."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from apples.errors import UsageError
from apples.ui.command_line import say, show_answer


def simulate(
    log: Annotated[
        str, typer.Argument(help="SWF log, also .gz; sacct --parsable2; or lublin:jobs=1000,...")
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            help="fcfs, first_fit, sjf, easy, conservative, slurm, equipartition, sd, or FILE:NAME."
        ),
    ] = None,
    processors: Annotated[int | None, typer.Option(help="Processors of the machine.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Whole nodes are given to jobs.")] = None,
    cores_per_node: Annotated[int | None, typer.Option(help="Cores inside a node.")] = None,
    malleable: Annotated[
        float | None,
        typer.Option(
            help="Fraction of jobs that can be resized [default: 1 for sd, equipartition]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything drawn at random.")] = 0,
    option: Annotated[list[str] | None, typer.Option(help="name=value, may be repeated.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write one row a job.")] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="A record that would be dropped, a policy that fails: an error."
        ),
    ] = False,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="Compare the waits that the log tells of with those of the policies without malleable "
            "jobs (and --policy): which explains them, and how well.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Simulate a scheduling policy over a workload log."""
    # The simulator brings numpy: the help and a mistake in an option do without.
    from apples.simulation import text as views  # noqa: PLC0415
    from apples.simulation.metrics import write_csv  # noqa: PLC0415
    from apples.simulation.prepare import explain_waits, prepare  # noqa: PLC0415

    if calibrate:
        explained = explain_waits(
            log, policy, option or [], processors=processors, nodes=nodes, cores=cores_per_node,
            seed=seed, strict=strict,
        )  # fmt: skip
        for line in views.failure_notes(explained.failures):
            say(line)
        document = views.explanation_document(log, explained)
        show_answer(document, lambda: views.explanation_text(explained), as_json)
        if explained.failures:
            raise typer.Exit(UsageError.exit_code)
        return
    if policy is None:
        raise UsageError(
            "--policy is required (or --calibrate)", code="option-missing", option="--policy"
        )
    if csv is not None and not csv.parent.is_dir():
        raise UsageError(
            f"{csv}: No such file or directory", code="directory-missing", option="--csv", file=csv
        )
    began = perf_counter()
    made = prepare(
        log, policy, option or [], processors=processors, nodes=nodes, cores=cores_per_node,
        malleable=malleable, seed=seed, strict=strict,
    )  # fmt: skip
    read_seconds = perf_counter() - began
    for line in views.preparation_notes(log, made):
        say(line)
    result = made.run()
    for line in views.result_notes(policy, result):
        say(line)
    document = views.simulation_document(log, policy, made, result, read_seconds)
    show_answer(document, lambda: views.simulation_text(document), as_json)
    if csv is not None:
        write_csv(csv, made.workload, result)
    if result.failed_passes:
        raise typer.Exit(UsageError.exit_code)
