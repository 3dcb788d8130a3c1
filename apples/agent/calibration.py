"""Calibration: the application's own kernel measured at several strip sizes on each host, and remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from apples.agent.information import InformationPool, needs_of, offers, program_of, refusal
from apples.agent.launching import calibration_plan
from apples.agent.models import store_speeds
from apples.agent.models.model import SpeedFunction
from apples.errors import ApplesError
from apples.launch.calibrate import calibrate as measure
from apples.launch.events import Talk
from apples.launch.remote.addresses import remote_hosts
from apples.launch.remote.preflight import preflight
from apples.launch.ssh import LaunchTarget
from apples.launch.targets import first_target
from apples.resources import Host

SHARES = (0.02, 0.1, 0.3, 0.6, 1.0)
"""Strip sizes to measure, as shares of the grid: from what fits a cache to all of it."""

Speeds = dict[str, SpeedFunction]


def looked_at(information: InformationPool) -> InformationPool:
    """Return what is known after looking at the other machines of the list."""
    others = remote_hosts(information.hosts)
    if not others:
        return information
    return information.with_findings(preflight(others, information.hosts, needs_of(information)))


def calibrate_hosts(
    information: InformationPool, rows: Sequence[int], talk: Talk = lambda _: None
) -> dict[str, Speeds]:
    """Measure every other machine, and this one for each set of CPUs; store and return the speed functions."""
    template = information.template
    measured: dict[str | tuple[int, ...], Speeds] = {}
    found: dict[str, Speeds] = {}
    for host in information.hosts:
        if reason := refusal(information, host):
            talk(f"warning: {host.name} cannot be used: {reason}")
            continue
        which = host.name if host.name in information.findings else host.cpus
        if which not in measured:
            measured[which] = _speeds(host, information, rows, talk)
        found[host.name] = measured[which]
        store_speeds(template.name, template.version, host.identity, found[host.name])
    return found


def _speeds(host: Host, information: InformationPool, rows: Sequence[int], talk: Talk) -> Speeds:
    speeds: Speeds = {}
    for one in information.template.implementations:
        if not (one.runs_on(host.platform) and offers(information, host.name, one)):
            continue
        try:
            program = program_of(information, one.name)
            parameters = information.application.parameters
            target = _target(host, one.name, information)
            points = measure(host, program, one.name, parameters, rows, target=target)
        except ApplesError as error:
            talk(f"warning: {one.name} on {host.name}: {error}")
            continue
        speeds[one.name] = SpeedFunction.measured(
            [(p.rows, p.seconds_per_point, p.error) for p in points],
            information.application.columns,
        )
    return speeds


def _target(host: Host, implementation: str, information: InformationPool) -> LaunchTarget | None:
    """Return where one process on another machine runs; None where the host is this machine."""
    if host.name not in information.findings:
        return None
    plan = calibration_plan(replace(host, slots=1), implementation, information)
    return first_target(plan)


def calibration_rows(information: InformationPool) -> list[int]:
    """Return the strip sizes to measure when nobody names any."""
    total = information.application.rows
    return sorted({max(1, round(total * share)) for share in SHARES})
