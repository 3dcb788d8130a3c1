"""``apples calibrate``: run the application's own kernel at several strip sizes on each host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from apples.agent.information import InformationPool, elsewhere, needs_of
from apples.agent.launching import calibration_plan
from apples.agent.model import SpeedFunction
from apples.agent.models import store_speeds
from apples.cli import deciding
from apples.cli.program import say, show, show_json
from apples.errors import ApplesError, UsageError
from apples.launch.calibrate import calibrate as measure
from apples.launch.remote.preflight import preflight
from apples.launch.seating import seat_alone
from apples.launch.ssh import Seat
from apples.resources import Host
from apples.units import digits

SHARES = (0.02, 0.1, 0.3, 0.6, 1.0)
"""Strip sizes to measure, as shares of the grid: from what fits a cache to all of it."""

Speeds = dict[str, SpeedFunction]


def calibrate(
    hosts: deciding.Hosts,
    template: deciding.Template,
    user: deciding.User,
    settings: deciding.Settings = None,
    sizes: Annotated[
        str, typer.Option("--rows", help="Strip sizes in rows, as 100,500; else from the grid.")
    ] = "",
    json: deciding.Json = False,
) -> int:
    """Measure every implementation on every host, and remember the speeds for live plans.

    Example: apples calibrate --hosts hosts.toml --template template.toml --user user.toml
    """
    information = deciding.information_of(hosts, template, user, settings, "static", None)
    information = looked_at(information)
    rows = _sizes(sizes, information) if sizes else calibration_rows(information)
    found = calibrate_hosts(information, rows)
    if json:
        show_json(
            {
                "schema": "apples.calibration/1",
                "application": information.template.name,
                "version": information.template.version,
                "hosts": {
                    host: {
                        name: {
                            "rows": list(f.rows),
                            "seconds_per_point": list(f.seconds_per_point),
                            "error": f.error,
                            "columns": f.columns,
                        }
                        for name, f in speeds.items()
                    }
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


def looked_at(information: InformationPool) -> InformationPool:
    """Return what is known after looking at the other machines of the list."""
    others = elsewhere(information.hosts)
    if not others:
        return information
    return information.knowing(preflight(others, information.hosts, needs_of(information)))


def calibrate_hosts(information: InformationPool, rows: Sequence[int]) -> dict[str, Speeds]:
    """Measure every other machine, and this one for each set of CPUs; store and return the speed functions."""
    template = information.template
    measured: dict[str | tuple[int, ...], Speeds] = {}
    found: dict[str, Speeds] = {}
    for host in information.hosts:
        if reason := information.unfit(host):
            say(f"warning: {host.name} cannot be used: {reason}")
            continue
        which = host.name if host.name in information.looked_at else host.cpus
        if which not in measured:
            measured[which] = _speeds(host, information, rows)
        found[host.name] = measured[which]
        store_speeds(template.name, template.version, host.identity, found[host.name])
    return found


def _speeds(host: Host, information: InformationPool, rows: Sequence[int]) -> Speeds:
    speeds: Speeds = {}
    for one in information.template.implementations:
        if not (one.runs_on(host.platform) and information.offers(host.name, one)):
            continue
        try:
            program = information.program(one.name)
            parameters = information.application.parameters
            seat = _seat(host, one.name, information)
            points = measure(host, program, one.name, parameters, rows, seat=seat)
        except ApplesError as error:
            say(f"warning: {one.name} on {host.name}: {error}")
            continue
        speeds[one.name] = SpeedFunction.measured(
            [(p.rows, p.seconds_per_point, p.error) for p in points],
            information.application.columns,
        )
    return speeds


def _seat(host: Host, implementation: str, information: InformationPool) -> Seat | None:
    """Return where one process on another machine runs; None where the host is this machine."""
    if host.name not in information.looked_at:
        return None
    plan = calibration_plan(replace(host, slots=1), implementation, information)
    return seat_alone(plan)


def calibration_rows(information: InformationPool) -> list[int]:
    """Return the strip sizes to measure when nobody names any."""
    total = information.application.rows
    return sorted({max(1, round(total * share)) for share in SHARES})


def _sizes(text: str, information: InformationPool) -> list[int]:
    total = information.application.rows
    try:
        rows = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise UsageError(f"--rows {text}: must be whole numbers, as 100,500") from None
    if rows[0] < 1 or rows[-1] > total:
        raise UsageError(f"--rows {text}: must be from 1 to the grid's {total} rows")
    return rows
