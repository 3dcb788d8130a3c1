"""``apples plan``: choose the hosts of an application and their work; start nothing."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from apples.agent.session import planning
from apples.agent.session.spec import PlanSpec
from apples.agent.text.plan import explained_text, plan_text
from apples.jobs.commands.models import (
    GRID,
    application_of,
    dask_option,
    heuristic_option,
    master_option,
    planning_options,
    unit_option,
    workers_option,
)
from apples.jobs.commands.options import listed
from apples.ui import options
from apples.ui.command_line import command, say, show_answer
from apples.ui.parameters import FILE, option


@command()
@planning_options
@option("--explain", is_flag=True, help="Print the reasons of the plan.")
@heuristic_option
@dask_option
@option(
    "--output",
    metavar="FOLDER",
    type=FILE,
    help="Parameter sweep: folder of results. A task with a result there is not planned. Default: NAME-results.",
)
@master_option
@workers_option
@unit_option
@options.json_option
def plan(
    hosts: Path | None,
    template: Path | None,
    user: Path | None,
    settings: tuple[str, ...],
    blueprint: str | None,
    weather: str | None,
    planner: str | None,
    distance: str | None,
    model: str | None,
    learned: bool,
    fresh: bool,
    messages: str | None,
    explain: bool,
    heuristic: str,
    dask: str,
    output: Path | None,
    master: str,
    workers: str,
    unit: int | None,
    json: bool,
) -> int:
    """Choose hosts for an application, and the work of each; print the plan and start nothing.

    The template's model decides: a grid in strips or rectangles, a parameter sweep, a pipeline of tasks, or a
    master with workers. Without --template: template.toml, or the only one of sweep.toml, pipeline.toml and
    master-worker.toml.

    Example: apples plan; apples plan --hosts hosts.toml --template sweep.toml
    """
    kind, file = application_of(template)
    if kind != GRID:
        from apples.jobs.commands.applications import ModelRequest, show_plan  # noqa: PLC0415 - a grid does without

        request = ModelRequest(
            file, hosts or Path("hosts.toml"), options.settings_of(settings), weather or "static", json,
            output=output, heuristic=heuristic, dask=dask, master=master, workers=listed(workers), unit=unit or 0,
        )  # fmt: skip
        return show_plan(kind, request)
    spec = PlanSpec(
        *options.files_of(hosts, template, user), options.settings_of(settings), blueprint,
        weather or "live", planner, distance, model, fresh=fresh, learned=learned, messages=_messages_of(messages),
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
    """Return the command that runs this plan, with the options of this command."""
    words = [word for word in sys.argv[2:] if word not in {"--explain", "--json"}]
    return shlex.join(["apples", "run", *words])
