"""The application of ``apples plan`` and ``apples run``: its file, its model, and the options that apply to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from apples.agent.commands.options import (
    blueprint_name_option,
    distance_name_option,
    fresh_option,
    learned_option,
    model_name_option,
    planner_name_option,
)
from apples.applications.files import HOST_LIST, MASTER_WORKER, PIPELINE, SWEEP, kind_of
from apples.errors import UsageError
from apples.topology.commands.options import messages_option
from apples.ui import options
from apples.ui.options import is_missing
from apples.ui.parameters import TYPED, integer, option

GRID = "application template"
"""`hat.TEMPLATE`: an iterating grid, in strips or rectangles. The help prints without loading `hat`'s models."""

EVERY_MODEL = ("--template", "--hosts", "--weather", "--dry-run", "--json")
"""Options that apply to every model."""

APPLY: Mapping[str, tuple[str, ...]] = {
    GRID: (
        "--user", "--set", "--blueprint", "--planner", "--distance", "--model", "--learned", "--fresh",
        "--messages", "--explain", "--actuator", "--slurm", "--output", "--report", "--timeline", "--verify",
        "--no-verify", "--detach", "--warm", "--commit", "--count-messages", "--calibrate",
    ),
    SWEEP: ("--output", "--heuristic", "--dask"),
    MASTER_WORKER: ("--set", "--master", "--workers", "--verify", "--no-verify"),
    PIPELINE: ("--set", "--unit", "--actuator", "--verify", "--no-verify"),
}  # fmt: skip
"""Options that apply to a model, beside `EVERY_MODEL`. A typed option that does not apply is an error."""

FILES = ("sweep.toml", "pipeline.toml", "master-worker.toml")
"""Files of other models than a grid, as ``hat new --structure`` names them."""

weather_option = option(
    "--weather",
    metavar="NAME|FILE",
    help="static, live, remembered, or a recorded weather file. Default: live for an application template, else "
    "static.",
)
heuristic_option = option(
    "--heuristic",
    metavar="NAME",
    default="",
    help="Parameter sweep: the only heuristic to plan with, or queue: no plan. Default: the best of all.",
)
dask_option = option(
    "--dask",
    metavar="ADDRESS",
    default="",
    help="Parameter sweep: Dask scheduler; its workers run the tasks.",
)
master_option = option(
    "--master", metavar="HOST", default="", help="Master/worker: the master. Default: the best."
)
workers_option = option(
    "--workers",
    metavar="HOST,..",
    default="",
    help="Master/worker: the workers, as ada,bob; no other host joins. Default: the best.",
)
unit_option = option(
    "--unit",
    metavar="N",
    type=integer(0),
    help="Pipeline: items that pass at a time. Default: the best.",
)


PLANNING = (
    options.hosts_option, options.template_option, options.user_option, options.settings_option,
    blueprint_name_option, weather_option, planner_name_option, distance_name_option, model_name_option,
    learned_option, fresh_option, messages_option,
)  # fmt: skip


def planning_options(function: Callable[..., int]) -> Callable[..., int]:
    """Add the options that ``apples plan`` and ``apples run`` share, in the order of the help."""
    for add in reversed(PLANNING):
        function = add(function)
    return function


def application_of(template: Path | None) -> tuple[str, Path]:
    """Return the model of the application, one of `APPLY`, and its file; check the typed options of the command.

    A file that is missing, or of no model, counts as an application template: its reader reports the reason.

    Raises
    ------
    UsageError
        A typed option does not apply to the model of the file.
    hat.DocumentError
        The file cannot be read.
    """
    file = application_file(template)
    if is_missing(file):
        return GRID, file
    kind = kind_of(file)
    if kind == HOST_LIST:
        raise UsageError(
            f"{file}: is a {kind}, not an application (--template names another file)",
            code="file-invalid",
            file=str(file),
            value=kind,
        )
    model = kind if kind in APPLY else GRID
    others = [name for name in _typed_options() if name not in {*EVERY_MODEL, *APPLY[model]}]
    if others:
        verb = "does" if len(others) == 1 else "do"
        raise UsageError(
            f"{' and '.join(others)} {verb} not apply: the kind of {file} is '{model}'",
            code="option-conflict",
            options=[*others, "--template"],
            model=model,
            file=str(file),
        )
    return model, file


def _typed_options() -> list[str]:
    """Return the options on the command line, also those that repeat their default."""
    ctx = click.get_current_context()
    return [
        max(parameter.opts, key=len)
        for parameter in ctx.command.params
        if ctx.get_parameter_source(str(parameter.name)) is TYPED
    ]


def application_file(template: Path | None) -> Path:
    """Return the file of ``--template``; without the option, the application of the current folder.

    That is ``template.toml``. If it is missing and exactly one of `FILES` is there, it is that file.
    """
    own = Path("template.toml")
    if template is not None or not is_missing(own):
        return template or own
    others = [Path(name) for name in FILES if not is_missing(Path(name))]
    return others[0] if len(others) == 1 else own
