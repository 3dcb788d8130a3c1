"""``apples pipeline``: which hosts do which task of an application, and how much passes at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apples.cli import options
from apples.cli.program import show_answer


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
        int, typer.Option("--unit", min=0, help="Items that pass at a time; default: the best.")
    ] = 0,
    json: options.Json = False,
) -> int:
    """Plan which hosts do which task, and how much passes at a time; start nothing.

    Example: apples pipeline; apples pipeline --unit 10
    """
    from apples.pipelines import PipelineSpec, plan_pipeline_file  # noqa: PLC0415 - help does without
    from apples.views.pipeline import pipeline_text  # noqa: PLC0415 - likewise

    spec = PipelineSpec(
        file, hosts or Path("hosts.toml"), options.settings_of(settings), weather, unit
    )
    document = plan_pipeline_file(spec).document()
    show_answer(document, lambda: pipeline_text(document), json)
    return 0
