"""What ``plan``, ``run`` and ``demo`` share: options in, a coordinator and a blueprint out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from apples.agent.coordinator import Blueprint, Coordinator
from apples.agent.information import InformationPool, elsewhere, load_information
from apples.agent.planners import PLANNERS
from apples.agent.selector import DISTANCES, ResourceSelector
from apples.cli.program import say
from apples.errors import UsageError
from apples.launch.actuator import Actuator
from apples.plugins import resolve
from apples.resources import Host, HostList

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
PlannerName = Annotated[
    str | None, typer.Option("--planner", help="time_balancing, linear, milp, or your own.")
]
DistanceName = Annotated[
    str | None, typer.Option("--distance", help="communication, paper, or your own.")
]
ModelName = Annotated[str | None, typer.Option("--model", help="strip, or your own.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]

Document = dict[str, Any]
Others = Callable[[HostList], Sequence[Host]]

DEFAULT_BLUEPRINT = "minimum_execution_time"


def settings_of(pairs: Sequence[str] | None, option: str = "--set") -> dict[str, str]:
    """Return ``NAME=VALUE`` options as a mapping."""
    settings = {}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UsageError(f"{option} {pair}: must be NAME=VALUE")
        settings[name] = value
    return settings


def blueprint_of(name: str | None, information: InformationPool) -> tuple[str, Blueprint]:
    """Return the blueprint asked for, else the specification's, else the default; with its name."""
    chosen = name or information.specifications.preferences.blueprint or DEFAULT_BLUEPRINT
    package = importlib.import_module("blueprints")
    known: Mapping[str, Blueprint] = {each: getattr(package, each) for each in package.__all__}
    return chosen, resolve(chosen, known, "blueprint")


def coordinator_of(
    information: InformationPool,
    actuator: Actuator | None,
    planner: str | None = None,
    distance: str | None = None,
) -> Coordinator:
    """Return a coordinator with the planner and distance asked for, else the specification's."""
    preferences = information.specifications.preferences
    planner = planner or preferences.planner or "time_balancing"
    distance = distance or preferences.distance or "communication"
    return Coordinator(
        information,
        actuator,
        selector=ResourceSelector(resolve(distance, DISTANCES, "distance")),
        planner=resolve(planner, PLANNERS, "planner"),
    )


def information_of(
    hosts: Path,
    template: Path,
    user: Path,
    settings: Sequence[str] | None,
    weather: str,
    model: str | None,
    others: Others = elsewhere,
) -> InformationPool:
    """Return the information pool the options describe."""
    return load_information(
        hosts,
        template,
        user,
        settings=settings_of(settings),
        weather=weather,
        model=model,
        others=others,
        talk=say,
    )
