"""``apples calibrate``: run the application's own kernel at several strip sizes on each host."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from apples.agent.calibration import calibrate_hosts, calibration_rows, looked_at
from apples.agent.information import InformationPool
from apples.agent.models.model import SpeedFunction
from apples.agent.session.planning import load
from apples.agent.session.spec import PlanSpec
from apples.cli import options
from apples.cli.program import say, show, show_json
from apples.errors import UsageError
from apples.units import digits


def calibrate(
    hosts: options.Hosts,
    template: options.Template,
    user: options.User,
    settings: options.Settings = None,
    sizes: Annotated[
        str, typer.Option("--rows", help="Strip sizes in rows, as 100,500; else from the grid.")
    ] = "",
    json: options.Json = False,
) -> int:
    """Measure every implementation on every host, and remember the speeds for live plans.

    Example: apples calibrate --hosts hosts.toml --template template.toml --user user.toml
    """
    spec = PlanSpec(hosts, template, user, options.settings_of(settings), weather="static")
    information = looked_at(load(spec, talk=say))
    rows = _sizes(sizes, information) if sizes else calibration_rows(information)
    found = calibrate_hosts(information, rows, say)
    if json:
        show_json(
            {
                "schema": "apples.calibration/1",
                "application": information.template.name,
                "version": information.template.version,
                "hosts": {
                    host: {name: _curve(f) for name, f in speeds.items()}
                    for host, speeds in found.items()
                },
            }
        )
        return 0
    for host, speeds in found.items():
        for name, f in speeds.items():
            points = ", ".join(
                f"{digits(s * 1e9)} at {r:.0f} rows"
                for r, s in zip(f.rows, f.seconds_per_point, strict=True)
            )
            show(f"{host}  {name}  ns a point: {points}")
    return 0


def _curve(speed: SpeedFunction) -> dict[str, Any]:
    return {
        "rows": list(speed.rows),
        "seconds_per_point": list(speed.seconds_per_point),
        "error": speed.error,
        "columns": speed.columns,
    }


def _sizes(text: str, information: InformationPool) -> list[int]:
    total = information.application.rows
    try:
        rows = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(f"--rows {text}: must be whole numbers, as 100,500") from None
    if rows[0] < 1 or rows[-1] > total:
        raise UsageError(f"--rows {text}: must be from 1 to the grid's {total} rows")
    return rows
