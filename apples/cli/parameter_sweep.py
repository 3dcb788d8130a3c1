"""``apples parameter-sweep``: one program at many settings, on hosts of several sites, with the files it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apples.cli import options
from apples.cli.program import show_answer

HEURISTIC_HELP = "The only one that plans, or queue: nobody plans. Default: the best of all."

DASK_HELP = "Scheduler of an existing Dask cluster, whose workers run the tasks."


def parameter_sweep(
    sweep: Annotated[Path, typer.Argument(help="The sweep.")] = Path("sweep.toml"),
    hosts: options.Hosts = None,
    weather: Annotated[
        str, typer.Option("--weather", help="static, or a recorded weather file.")
    ] = "static",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of results; NAME-results unless named.")
    ] = None,
    heuristic: Annotated[
        str, typer.Option("--heuristic", help=HEURISTIC_HELP, show_default=False)
    ] = "",
    dask: Annotated[
        str, typer.Option("--dask", help=DASK_HELP, show_default=False, metavar="ADDRESS")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done where.")
    ] = False,
    json: options.Json = False,
) -> int:
    """Run one program at many settings: plan, move files, run, fetch results.

    A sweep that was ended goes on with the same command: nothing that has its result is run again.

    Example: apples parameter-sweep; apples parameter-sweep sweep.toml --dry-run
    """
    from apples.cli.recorded import recorded_command  # noqa: PLC0415 - help does without
    from apples.jobs import store  # noqa: PLC0415 - likewise
    from apples.sweeps import SweepSpec, plan_parameter_sweep, run_parameter_sweep  # noqa: PLC0415 - help does without
    from apples.views.parameter_sweep import sweep_text  # noqa: PLC0415 - likewise

    spec = SweepSpec(sweep, hosts or Path("hosts.toml"), weather, out, heuristic, dask)
    if dry_run:
        document = plan_parameter_sweep(spec).document()
        show_answer(document, lambda: sweep_text(document), json)
        return 0
    with recorded_command(store.SWEEP, sweep) as record:
        result = run_parameter_sweep(spec, record.talk, record.began)
        document = record.came_to(result)
        show_answer(document, lambda: sweep_text(document), json)
        result.check()
    return 0
