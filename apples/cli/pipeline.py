"""``apples pipeline``: which hosts do which task of an application, and how much passes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Annotated

import typer

from apples.cli import options
from apples.cli.program import say, show_answer
from apples.cli.run_options import NoVerify, how_verified

LONG_SECONDS = 3.0
SEARCHING = "still looking for the quickest mapping; of fewer hosts (hosts = [..] in the file) it takes less"


def pipeline(
    file: Annotated[Path, typer.Argument(help="The pipeline.")] = Path("pipeline.toml"),
    hosts: options.Hosts = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the file: NAME=VALUE.")
    ] = None,
    weather: Annotated[
        str, typer.Option("--weather", help="static, or a recorded weather file.")
    ] = "static",
    unit: Annotated[
        int | None,
        typer.Option("--unit", min=0, help="Items that pass at a time; default: the best."),
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Run it too, and verify the result.")] = False,
    actuator: Annotated[str, typer.Option("--actuator", help="local or ssh.")] = "",
    verify: Annotated[
        str | None,
        typer.Option("--verify", help="Compare with one process: full, none; full unless named."),
    ] = None,
    no_verify: NoVerify = False,
    json: options.Json = False,
) -> int:
    """Plan which hosts do which task, and how much passes at a time; run it if asked.

    Example: apples pipeline; apples pipeline --run
    """
    from apples.cli.recorded import recorded_command  # noqa: PLC0415 - help does without
    from apples.jobs import store  # noqa: PLC0415 - likewise
    from apples.pipelines import PipelineResult, PipelineSpec, plan_pipeline_file, run_pipeline  # noqa: PLC0415 - help does without
    from apples.views.pipeline import pipeline_text  # noqa: PLC0415 - likewise

    how = how_verified(verify, no_verify, ("full", "none"))
    spec = PipelineSpec(
        file, hosts or Path("hosts.toml"), options.settings_of(settings), weather, unit or 0, actuator
    )  # fmt: skip
    if not run:
        with _long_search_said():
            document = plan_pipeline_file(spec).document()
        show_answer(document, lambda: pipeline_text(document), json)
        return 0
    with recorded_command(store.PIPELINE, file) as record, _long_search_said() as planned:

        def began(result: PipelineResult) -> None:
            planned()
            record.began(result)

        result = run_pipeline(spec, verify=how != "none", began=began)
        document = record.came_to(result)
        show_answer(document, lambda: pipeline_text(document), json)
    return 0


@contextmanager
def _long_search_said() -> Iterator[Callable[[], None]]:
    """Say that the search goes on when it is long; hand out what is to be called when there is a plan."""
    timer = Timer(LONG_SECONDS, say, (SEARCHING,))
    timer.daemon = True
    timer.start()
    try:
        yield timer.cancel
    finally:
        timer.cancel()
