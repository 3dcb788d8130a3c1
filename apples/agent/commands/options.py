"""Options of the commands that plan one application."""

from __future__ import annotations

from typing import Annotated

import typer

BlueprintName = Annotated[
    str | None,
    typer.Option("--blueprint", help="Name, module:name or file.py:name.", show_default=False),
]
WeatherName = Annotated[
    str, typer.Option("--weather", help="static, live, or a recorded weather file.")
]
Learned = Annotated[
    bool,
    typer.Option(
        "--learned",
        help="Use learned speeds and corrections under a static or recorded weather too.",
    ),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Ignore remembered measurements; measure every host and link."),
]
PlannerName = Annotated[
    str | None,
    typer.Option("--planner", help="time_balancing, linear, milp, rectangles, or your own."),
]
DistanceName = Annotated[
    str | None, typer.Option("--distance", help="communication, paper, or your own.")
]
ModelName = Annotated[str | None, typer.Option("--model", help="strip, or your own.")]
