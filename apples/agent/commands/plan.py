"""``apples plan``: choose hosts and strips, say why, start nothing."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from apples.agent.commands.options import (
    BlueprintName,
    DistanceName,
    Fresh,
    Learned,
    ModelName,
    PlannerName,
    WeatherName,
)
from apples.agent.session import planning
from apples.agent.session.spec import PlanSpec
from apples.agent.text.plan import explained_text, plan_text
from apples.topology.options import Messages
from apples.ui import options
from apples.ui.command_line import say, show_answer


def plan(
    hosts: options.Hosts = None,
    template: options.Template = None,
    user: options.User = None,
    settings: options.Settings = None,
    blueprint: BlueprintName = None,
    weather: WeatherName = "live",
    planner: PlannerName = None,
    distance: DistanceName = None,
    model: ModelName = None,
    learned: Learned = False,
    fresh: Fresh = False,
    messages: Messages = None,
    explain: Annotated[bool, typer.Option("--explain", help="The whole argument.")] = False,
    json: options.Json = False,
) -> int:
    """Choose hosts and strips for an application; print the plan and start nothing.

    Example: apples plan; apples plan --hosts hosts.toml --template template.toml --user user.toml
    """
    spec = PlanSpec(
        *options.files_of(hosts, template, user), options.settings_of(settings), blueprint, weather,
        planner, distance, model, fresh=fresh, learned=learned, messages=_messages_of(messages),
    )  # fmt: skip
    result = planning.plan(spec, explain=explain, talk=say)
    document = result.document()
    text = explained_text if explain else plan_text
    show_answer(document, lambda: text(document, run_command()), json)
    if result.refusal is not None:
        raise result.refusal
    return 0


def _messages_of(run: str | None) -> Path | None:
    if run is None:
        return None
    from apples.topology.message_matrix import messages_of  # noqa: PLC0415 - where the option is given

    return messages_of(run)


def run_command() -> str:
    """Return the command that runs what was planned, with this command's own options."""
    words = [word for word in sys.argv[2:] if word not in {"--explain", "--json"}]
    return shlex.join(["apples", "run", *words])
