"""``nws sense``: measure this machine once, or for a service."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from apples.errors import UsageError
from apples.io.state import directory
from apples.resources import Host, HostList, Network, read_host_list
from apples.ui.command_line import command, say, show
from apples.ui.parameters import (
    FILE,
    NUMBER,
    TYPED,
    Excludes,
    Only,
    Requires,
    integer,
    option,
)
from apples.weather.local import LocalSensing

FORWARDED = (
    "host",
    "site",
    "every",
    "probe_every",
    "disk",
    "listen",
    "bytes_per_day",
    "ca",
    "prometheus",
    "rounds",
)
"""Options of ``nws sense`` that the sensor process receives unchanged."""


SENSOR_OPTIONS = [f"--{name.replace('_', '-')}" for name in FORWARDED if name != "rounds"]
SENSOR_RULES = (
    *(Excludes("--stdout", name) for name in ("--ca", "--site", "--listen")),
    *(Excludes("--prometheus", name) for name in ("--probe-every", "--disk")),
    *(Excludes(name, other) for name in SENSOR_OPTIONS for other in ("--once", "--hosts")),
    *(Requires(name, "--service", "--stdout") for name in SENSOR_OPTIONS),
    *(Requires(name, "--service") for name in ("--token-file", "--ca", "--site", "--listen")),
    Requires("--bytes-per-day", "--listen"),
)
"""The options of a sensor do not apply to a weather that is printed once."""


@command(
    rules=(
        Excludes("--stdout", "--once"),
        Excludes("--stdout", "--hosts"),
        Excludes("--stdout", "--service"),
        Excludes("--once", "--service"),
        Only("--stdio"),
        *SENSOR_RULES,
    )
)
@option("--hosts", type=FILE, help="Host list; its local hosts are measured.")
@option("--rounds", type=integer(1, 10_000_000), help="Number of rounds of --once; default: 6.")
@option("--once", is_flag=True, help="Print the weather and end.")
@option("--stdout", is_flag=True, help="Print the measurements, a message a line.")
@option(
    "--service",
    metavar="URL",
    envvar="NWS_SERVICE",
    help="URL of the service to report to until stopped.",
)
@option("--token-file", type=FILE, envvar="NWS_TOKEN_FILE", help="File of the service's token.")
@option("--host", metavar="HOST", help="Name of this host.")
@option("--site", metavar="NAME", help="The site it is in.")
@option("--every", metavar="SECONDS", type=NUMBER, help="Seconds between two measurements.")
@option("--probe-every", metavar="SECONDS", type=NUMBER, help="Seconds between CPU probes.")
@option("--disk", metavar="FOLDER", type=FILE, help="File system to watch.")
@option(
    "--listen",
    metavar="ADDRESS:PORT",
    help="IP address and port for the probes of others; measures links too.",
)
@option(
    "--bytes-per-day", metavar="BYTES", type=NUMBER, help="Most bytes of bandwidth probes a day."
)
@option(
    "--ca",
    type=FILE,
    envvar="NWS_CA",
    help="File of certificate authorities to trust, beside the system's.",
)
@option(
    "--prometheus",
    metavar="URL",
    help="URL of a Prometheus server; report its hosts in place of this one.",
)
@option("--stdio", is_flag=True, help="Answer questions on standard input, as over ssh.")
def sense(
    hosts: Path | None,
    rounds: int | None,
    once: bool,
    stdout: bool,
    service: str | None,
    token_file: Path | None,
    host: str | None,
    site: str | None,
    every: float | None,
    probe_every: float | None,
    disk: Path | None,
    listen: str | None,
    bytes_per_day: float | None,
    ca: Path | None,
    prometheus: str | None,
    stdio: bool,
) -> int:
    """Measure this machine: print its weather once, or report to a service until stopped.

    Once, the weather is JSON, fit for ``apples plan --weather FILE``. With --stdout the messages that
    a service takes are printed, for a reader such as the other end of ssh.

    Example: nws sense --once --hosts hosts.toml > weather.json;
    nws sense --service http://127.0.0.1:8123
    """
    if stdio:
        words = [sys.executable, "-I", "-m", "nws.sensing.stdio"]
        return os.execv(sys.executable, words)  # noqa: S606 - no shell is wanted
    if not stdout and (service is None or once or hosts is not None):
        return _once(hosts, rounds or 6)
    given = {name: value for name, value in locals().items() if name in FORWARDED}
    if stdout:
        given["stdout"] = True
    else:
        given |= {"service": service, "token_file": _token_file(token_file)}
        if not _is_typed("ca") and str(service).lower().startswith("http:"):
            given["ca"] = None  # NWS_CA is for services with TLS
    # A fresh process, without click and NumPy in its memory, runs the sensor.
    command = [sys.executable, "-P", "-m", "nws.sensing", *_typed(given)]
    return os.execv(sys.executable, command)  # noqa: S606 - no shell is wanted


def _is_typed(parameter: str) -> bool:
    return click.get_current_context().get_parameter_source(parameter) is TYPED


def _typed(options: Mapping[str, Any]) -> list[str]:
    """Return options as words of a command line; None yields no word.

    Examples
    --------
    >>> _typed({"stdout": True, "probe_every": 60.0, "site": None})
    ['--stdout', '--probe-every', '60.0']
    """
    words = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is not None:
            words += [option] if value is True else [option, str(value)]
    return words


def _once(hosts: Path | None, rounds: int) -> int:
    here = HostList((Host("localhost"),), Network())
    sensing = LocalSensing(read_host_list(hosts) if hosts else here, rounds)
    if not sensing.local:
        raise UsageError(
            f"{hosts}: no host of this list is a part of this machine",
            code="host-not-local",
            file=hosts,
        )
    show(sensing.weather().to_json())
    say(f"measured {len(sensing.local)} of the list's hosts here, {rounds} rounds")
    return 0


def _token_file(given: Path | None) -> Path:
    path = given or directory() / "nws" / "token"
    if not path.is_file():
        raise UsageError(
            f"{path}: no such file of a token (--token-file)",
            code="file-missing",
            option="--token-file",
            file=path,
        )
    return path
