"""``apples calibrate``: run the application's own kernel at several strip sizes on each host."""

from __future__ import annotations

from typing import Annotated

import typer

from apples.agent.calibration import calibrate_hosts, calibration_rows, looked_at
from apples.agent.information import InformationPool
from apples.agent.session.planning import load
from apples.agent.session.spec import PlanSpec
from apples.agent.text.plan import calibration_document, calibration_text
from apples.errors import LaunchError, UsageError
from apples.ui import options
from apples.ui.command_line import say, show_answer
from apples.weather.sensing import SensingContext


def calibrate(
    hosts: options.Hosts = None,
    template: options.Template = None,
    user: options.User = None,
    settings: options.Settings = None,
    sizes: Annotated[
        str, typer.Option("--rows", help="Strip sizes in rows, as 100,500; else from the grid.")
    ] = "",
    json: options.Json = False,
) -> int:
    """Measure every implementation on every host, and remember the speeds for live plans.

    Example: apples calibrate; apples calibrate --hosts hosts.toml --template template.toml --user user.toml
    """
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
