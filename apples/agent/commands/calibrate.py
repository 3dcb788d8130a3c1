"""``apples calibrate``: measure the application's kernel on each host; show or remove the learned state."""

from __future__ import annotations

from pathlib import Path

from apples.agent.calibration import calibrate_hosts, calibration_rows, looked_at
from apples.agent.commands.learned import forget, show_learned
from apples.agent.information import InformationPool
from apples.agent.session.planning import load
from apples.agent.session.spec import PlanSpec
from apples.agent.text.plan import calibration_document, calibration_text
from apples.errors import LaunchError, UsageError
from apples.ui import options
from apples.ui.command_line import command, say, show_answer
from apples.ui.parameters import Excludes, Requires, argument, option
from apples.weather.sensing import SensingContext

MEASURING = ("--hosts", "--template", "--user", "--set", "--rows")
"""Options that apply only while hosts are measured."""


@command(
    rules=(
        Excludes("--learned", "--forget"),
        *(Excludes(name, other) for name in MEASURING for other in ("--learned", "--forget")),
        Requires("APPLICATION|HOST", "--learned", "--forget"),
        Requires("--all", "--forget"),
    )
)
@argument(
    "name",
    required=False,
    metavar="APPLICATION|HOST",
    help="With --learned or --forget: an application, its folder, or a host.",
)
@options.hosts_option
@options.template_option
@options.user_option
@options.settings_option
@option(
    "--rows",
    "sizes",
    metavar="N,..",
    default="",
    help="Strip sizes in rows, as 100,500; else from the grid.",
)
@option("--learned", is_flag=True, help="Show measured speeds and corrections; measure nothing.")
@option(
    "--forget",
    "to_forget",
    is_flag=True,
    help="Remove the learned state of an application or a host.",
)
@option("--all", "every", is_flag=True, help="With --forget: the application in every folder.")
@options.json_option
def calibrate(
    name: str | None,
    hosts: Path | None,
    template: Path | None,
    user: Path | None,
    settings: tuple[str, ...],
    sizes: str,
    learned: bool,
    to_forget: bool,
    every: bool,
    json: bool,
) -> int:
    """Measure every implementation on every host, and remember the speeds for live plans.

    With --learned, show the remembered speeds and the corrections that runs taught: value, runs, and the error
    with and without each. With --forget, remove them.

    Example: apples calibrate; apples calibrate --learned heat; apples calibrate --forget heat
    """
    if learned:
        return show_learned(name, json)
    if to_forget:
        return forget(name, every, json)
    files = options.files_of(hosts, template, user)
    spec = PlanSpec(*files, options.settings_of(settings), weather="static")
    information = looked_at(load(spec, SensingContext(log=say)))
    rows = _sizes(sizes, information) if sizes else calibration_rows(information)
    not_stored: list[OSError] = []
    found = calibrate_hosts(information, rows, say, on_store_error=not_stored.append)
    application = information.template
    document = calibration_document(application.name, application.version, found)
    show_answer(document, calibration_text(found), json)
    if not any(found.values()):
        raise LaunchError(
            f"{files[0]}: no host could be measured; the warnings give the reasons",
            code="nothing-measured",
            file=files[0],
        )
    if not_stored:
        raise not_stored[0]
    return 0


def _sizes(text: str, information: InformationPool) -> list[int]:
    total = information.application.rows
    try:
        rows = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(
            f"--rows {text}: must be whole numbers, as 100,500",
            code="value-type",
            option="--rows",
            value=text,
        ) from None
    if rows[0] < 1 or rows[-1] > total:
        raise UsageError(
            f"--rows {text}: must be from 1 to the grid's {total} rows",
            code="value-range",
            option="--rows",
            value=text,
            bound=total,
        )
    return rows
