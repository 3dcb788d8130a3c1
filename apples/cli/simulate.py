"""`apples simulate`: run a scheduling policy over a workload log."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from apples.simulation.metrics import summary, write_csv
from apples.simulation.prepare import PreparedSimulation, prepare
from apples.simulation.run import first_compilation

SCHEMA = "apples.simulation/1"


def simulate(
    log: Annotated[
        str, typer.Argument(help="SWF log, also .gz; sacct --parsable2; or lublin:jobs=1000,...")
    ],
    policy: Annotated[
        str,
        typer.Option(
            help="fcfs, first_fit, sjf, easy, conservative, equipartition, sd, or FILE:NAME."
        ),
    ],
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
        bool, typer.Option("--strict", help="A record that would be dropped is an error.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Simulate a scheduling policy over a workload log."""
    began = perf_counter()
    made = prepare(
        log, policy, option or [], processors=processors, nodes=nodes, cores=cores_per_node,
        malleable=malleable, seed=seed, strict=strict,
    )  # fmt: skip
    read_seconds = perf_counter() - began
    say_what_was_done(log, made)
    source, workload = made.source, made.workload
    result = made.run()
    figures = {
        "schema": SCHEMA,
        "log": {"name": log, "sha256": source.sha256},
        "records": source.records,
        "dropped": dict(source.cleaning.dropped),
        "reordered": source.cleaning.reordered,
        "requests_raised": source.cleaning.raised,
        "policy": policy,
        "malleable": made.malleable,
        **summary(workload, result, made.config),
        "engine": result.engine,
        "simulation_seconds": result.seconds,
        "read_seconds": read_seconds,
    }
    if csv is not None:
        write_csv(csv, workload, result)
    if as_json:
        typer.echo(json.dumps(figures, allow_nan=False))
    else:
        typer.echo(_text(figures, log))


def say_what_was_done(log: str, made: PreparedSimulation) -> None:
    """Say on stderr what the log's numbers do not: size from the header, cleaning, compilation."""
    source = made.source
    if source.from_header:
        typer.echo(f"apples: {log}: {source.processors} processors, by MaxProcs of its header",
                   err=True)  # fmt: skip
    if str(source.cleaning):
        typer.echo(
            f"apples: {log}: {source.records} records, {len(source.workload)} simulated: "
            f"{source.cleaning}", err=True,
        )  # fmt: skip
    core = first_compilation(made.policy, made.config, made.options.engine)
    if core:
        typer.echo(f"apples: compiling the {core} core, once per machine", err=True)


def _text(figures: dict[str, object], log: str) -> str:
    """Return the figures as lines: first the answer, last what to do next."""
    f = figures
    energy = "" if f["energy"] is None else f"  energy {f['energy']:.6g} J\n"
    return (
        f"{f['policy']} on {Path(log).name}: mean wait {f['mean_wait']:.6g} s, "
        f"mean bounded slowdown {f['mean_bounded_slowdown']:.6g}\n"
        f"  jobs {f['jobs']} ({f['completed']} completed)\n"
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
