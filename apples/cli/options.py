"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from apples.errors import UsageError

Hosts = Annotated[Path, typer.Option("--hosts", help="Host list (hosts.toml).")]
Template = Annotated[Path, typer.Option("--template", help="Application template (TOML).")]
User = Annotated[Path, typer.Option("--user", help="User specifications (TOML).")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="A parameter of the template: NAME=VALUE.")
]
BlueprintName = Annotated[
    str | None,
    typer.Option("--blueprint", help="Name, module:name or file.py:name.", show_default=False),
]
WeatherName = Annotated[
    str, typer.Option("--weather", help="static, live, or a recorded weather file.")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Measure all, whatever is remembered or cannot matter.")
]
PlannerName = Annotated[
    str | None, typer.Option("--planner", help="time_balancing, linear, milp, or your own.")
]
DistanceName = Annotated[
    str | None, typer.Option("--distance", help="communication, paper, or your own.")
]
ModelName = Annotated[str | None, typer.Option("--model", help="strip, or your own.")]
ActuatorName = Annotated[
    str | None,
    typer.Option(
        "--actuator",
        help="local, ssh, slurm, or your own as module:name; local where all hosts are this machine.",
    ),
]
SlurmSettings = Annotated[
    list[str] | None,
    typer.Option("--slurm", help="What the site wants to be told: partition=NAME, minutes=N, .."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]


def settings_of(pairs: Sequence[str] | None, option: str = "--set") -> dict[str, str]:
    """Return ``NAME=VALUE`` options as a mapping."""
    settings = {}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UsageError(f"{option} {pair}: must be NAME=VALUE")
        settings[name] = value
    return settings
