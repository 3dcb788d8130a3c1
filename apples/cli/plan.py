"""``apples plan``: choose hosts and strips, say why, start nothing."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from apples.agent.session import planning
from apples.agent.session.spec import PlanSpec
from apples.cli import options
from apples.cli.program import say, show_answer
from apples.launch.remote.addresses import remote_hosts
from apples.resources import read_host_list
from apples.views.plan import explained_text, plan_text


def plan(
    hosts: options.Hosts,
    template: options.Template,
    user: options.User,
    settings: options.Settings = None,
    blueprint: options.BlueprintName = None,
    weather: options.WeatherName = "live",
    planner: options.PlannerName = None,
    distance: options.DistanceName = None,
    model: options.ModelName = None,
    fresh: options.Fresh = False,
    explain: Annotated[bool, typer.Option("--explain", help="The whole argument.")] = False,
    json: options.Json = False,
) -> int:
    """Choose hosts and strips for an application; print the plan and start nothing.

    Example: apples plan --hosts hosts.toml --template template.toml --user user.toml
    """
    spec = PlanSpec(
        hosts, template, user, options.settings_of(settings), blueprint, weather,
        planner, distance, model, fresh=fresh,
    )  # fmt: skip
    result = planning.plan(spec, explain=explain, talk=say)
    document = result.document()
    text = explained_text if explain else plan_text
    show_answer(document, lambda: text(document, run_command(spec)), json)
    if result.refusal is not None:
        raise result.refusal
    return 0


def run_command(spec: PlanSpec) -> str:
    """Return the command that runs what was planned, with this command's own options."""
    given = sys.argv[2:] if len(sys.argv) > 2 and sys.argv[1] == "plan" else []
    words = [word for word in given if word not in {"--explain", "--json"}]
    files = ["--hosts", spec.hosts, "--template", spec.template, "--user", spec.user]
    words = words or [str(word) for word in files]
    if remote_hosts(read_host_list(spec.hosts)):
        words = [*words, "--actuator", "ssh"]
    return f"apples run {shlex.join(words)}"
