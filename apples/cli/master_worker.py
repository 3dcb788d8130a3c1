"""``apples master-worker``: one host hands out units of work, the others do them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from apples.cli import options
from apples.cli.program import show_answer
from apples.cli.run_options import NoVerify, how_verified


def master_worker(
    file: Annotated[Path, typer.Argument(help="The program.")] = Path("master-worker.toml"),
    hosts: options.Hosts = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the file: NAME=VALUE.")
    ] = None,
    weather: Annotated[
        str, typer.Option("--weather", help="static, or a recorded weather file.")
    ] = "static",
    master: Annotated[str, typer.Option("--master", help="The master; default: the best.")] = "",
    workers: Annotated[
        str,
        typer.Option("--workers", help="The workers, as ada,bob; they stay. Default: the best."),
    ] = "",
    verify: Annotated[
        str | None,
        typer.Option(
            "--verify", help="What is done again here: full, sample, none; sample unless named."
        ),
    ] = None,
    no_verify: NoVerify = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be done where.")
    ] = False,
    json: options.Json = False,
) -> int:
    """Choose a master and workers, run the program, verify what it comes to.

    Workers join and leave while it runs, at the end of a unit.

    Example: apples master-worker; apples master-worker --dry-run
    """
    from apples.cli.recorded import recorded_command  # noqa: PLC0415 - help does without
    from apples.jobs import store  # noqa: PLC0415 - likewise
    from apples.master_worker import (  # noqa: PLC0415 - help does without
        MasterWorkerSpec,
        plan_master_worker,
        run_master_worker,
    )
    from apples.views.master_worker import master_worker_text  # noqa: PLC0415 - likewise

    how = how_verified(verify, no_verify) or "sample"
    some = tuple(name.strip() for name in workers.split(",") if name.strip())
    spec = MasterWorkerSpec(
        file, hosts or Path("hosts.toml"), options.settings_of(settings), weather, how, some, master
    )  # fmt: skip
    if dry_run:
        document = plan_master_worker(spec).document()
        show_answer(document, lambda: master_worker_text(document), json)
        return 0
    with recorded_command(store.MASTER_WORKER, file) as record:
        result = run_master_worker(spec, record.talk, record.began)
        document = record.came_to(result)
        show_answer(document, lambda: _text(document, master_worker_text(document)), json)
        result.check()
    return 0


def _text(document: dict[str, Any], lines: str) -> str:
    """Return the lines with what the units come to, which is what was asked for, first."""
    import json  # noqa: PLC0415 - of what was run

    return f"{json.dumps(document['execution']['result'])}\n{lines}"
