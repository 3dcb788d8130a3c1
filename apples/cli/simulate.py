"""`apples simulate`: run a scheduling policy over a workload log."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from apples.errors import UsageError
from apples.simulator.metrics import summary, write_csv
from apples.simulator.options import load_policy, make_setting, parse_options
from apples.simulator.run import simulate as run_simulation
from apples.simulator.sources import load_workload
from apples.simulator.workload import mark_malleable

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
    options = parse_options(option or [])
    chosen = load_policy(policy, options.policy)
    if processors is None:
        if nodes is None or cores_per_node is None:
            raise UsageError("--processors, or --nodes and --cores-per-node, say how large it is")
        processors = nodes * cores_per_node
    if processors < 1:
        raise UsageError(f"--processors {processors}: a machine has at least one")
    began = perf_counter()
    workload, cleaning, count, sha256 = load_workload(
        log, processors, options.clean, strict=strict, seed=seed
    )
    read_seconds = perf_counter() - began
    fraction = malleable
    if fraction is None:
        fraction = 1.0 if getattr(chosen, "uses_malleable", False) else 0.0
    if fraction and not workload.malleable.any():  # a model's jobs may be malleable already
        workload = mark_malleable(
            workload, fraction, seed,
            minimum=options.number("minimum", 0.5),
            maximum=options.number("maximum", 1.0), most=processors,
        )  # fmt: skip
    horizon = float(workload.submit[-1] + workload.run.sum() / max(1, processors // 64))
    setting = make_setting(options, processors, nodes, cores_per_node, seed=seed, end=horizon)
    if str(cleaning):
        typer.echo(
            f"apples: {log}: {count} records, {len(workload)} simulated: {cleaning}", err=True
        )
    schedule = run_simulation(workload, chosen, setting, engine=options.engine)
    figures = {
        "schema": SCHEMA,
        "log": {"name": log, "sha256": sha256},
        "records": count,
        "dropped": dict(cleaning.dropped),
        "reordered": cleaning.reordered,
        "requests_raised": cleaning.raised,
        "policy": policy,
        "malleable": fraction,
        **summary(workload, schedule, setting),
        "engine": schedule.engine,
        "simulation_seconds": schedule.seconds,
        "read_seconds": read_seconds,
    }
    if csv is not None:
        write_csv(csv, workload, schedule)
    if as_json:
        typer.echo(json.dumps(figures))
    else:
        typer.echo(_text(figures, log))


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
