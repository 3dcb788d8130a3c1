"""``nws``: the Network Weather Service, as a service and of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from apples.errors import UsageError
from apples.io.state import directory
from apples.resources import Host, HostList, Network, read_host_list
from apples.ui.command_line import Entry, run, say, show
from apples.weather.local import LocalSensing

COMMANDS: Mapping[str, Entry] = {
    "serve": Entry(
        "apples.weather.commands.serve:serve", "Run the service: memory and forecasts."
    ),
    "sense": Entry(
        "apples.weather.commands.nws:sense", "Measure this machine: once, or for a service."
    ),
    "forecast": Entry("apples.weather.commands.ask:forecast", "Forecast series of a service."),
    "query": Entry("apples.weather.commands.ask:query", "Which series a service has."),
    "extract": Entry("apples.weather.commands.ask:extract", "Print the measurements of a series."),
    "top": Entry("apples.weather.commands.ask:top", "Series, forecasts and bands, live."),
    "import": Entry(
        "apples.weather.commands.import_history:import_history",
        "Store the past that Prometheus has.",
    ),
    "doctor": Entry(
        "apples.weather.commands.doctor:doctor", "Is a service fit, and what cures it."
    ),
    "status": Entry("apples.weather.commands.ask:status", "How a service is."),
    "backtest": Entry("apples.weather.commands.backtest:backtest", "League table of predictors."),
}

FORWARDED = (
    "host",
    "site",
    "every",
    "probe_every",
    "disk",
    "listen",
    "cpu_share",
    "bytes_per_day",
    "link_share",
    "certificate",
    "prometheus",
    "udp",
    "window",
    "rounds",
)
"""Options of ``nws sense`` that the sensor's process understands as they are."""


def main() -> None:
    """Run the command line and exit."""
    run(
        "nws",
        COMMANDS,
        "Network Weather Service: what hosts and links will give next.",
        "Exit codes: 0 ok, 2 bad input, 4 cannot be measured or does not answer. "
        "Start with: nws sense",
    )


def sense(
    hosts: Annotated[
        Path | None, typer.Option("--hosts", help="Host list; its local hosts are measured.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, max=10_000_000, help="Once: 6.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print the weather and end.")] = False,
    stdout: Annotated[
        bool, typer.Option("--stdout", help="Print what is measured, a message a line.")
    ] = False,
    service: Annotated[
        str | None,
        typer.Option("--service", envvar="NWS_SERVICE", help="Report to it until stopped."),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", envvar="NWS_TOKEN_FILE", help="Its token.")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Name of this host.")] = None,
    site: Annotated[str | None, typer.Option("--site", help="The site it is in.")] = None,
    every: Annotated[float | None, typer.Option("--every", help="Seconds between two.")] = None,
    probe_every: Annotated[
        float | None, typer.Option("--probe-every", help="Seconds between CPU probes.")
    ] = None,
    disk: Annotated[Path | None, typer.Option("--disk", help="File system to watch.")] = None,
    listen: Annotated[
        str | None, typer.Option("--listen", help="HOST:PORT for others' probes; joins cliques.")
    ] = None,
    cpu_share: Annotated[
        float | None, typer.Option("--cpu-share", help="CPU seconds a second for probes.")
    ] = None,
    bytes_per_day: Annotated[
        float | None, typer.Option("--bytes-per-day", help="For bandwidth probes.")
    ] = None,
    link_share: Annotated[
        float | None, typer.Option("--link-share", help="Of a link's time; .01.")
    ] = None,
    udp: Annotated[
        bool, typer.Option("--udp", help="Losses and latency of datagrams too.")
    ] = False,
    window: Annotated[
        list[str] | None, typer.Option("--window", help="HH:MM-HH:MM for bandwidth probes.")
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", envvar="NWS_CERTIFICATE", help="Authorities to trust."),
    ] = None,
    prometheus: Annotated[
        str | None, typer.Option("--prometheus", help="URL; its hosts instead of this one.")
    ] = None,
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Answer questions on standard input, as over ssh.")
    ] = False,
) -> int:
    """Measure this machine: print its weather once, or report to a service until stopped.

    Once, the weather is JSON, fit for ``apples plan --weather FILE``. With --stdout the messages that
    a service takes are printed, for whoever started this, such as the other end of ssh.

    Example: nws sense --once --hosts hosts.toml > weather.json;
    nws sense --service http://127.0.0.1:8123
    """
    if stdio:
        words = [sys.executable, "-I", "-m", "nws.sensing.stdio"]
        return os.execv(sys.executable, words)  # noqa: S606 - no shell is wanted
    if stdout and (once or hosts is not None):
        raise UsageError(
            "--stdout prints measurements, --once and --hosts a weather: give one",
            code="option-conflict",
            options=["--stdout", "--once", "--hosts"],
        )
    if not stdout and (service is None or once or hosts is not None):
        return _once(hosts, rounds or 6)
    given = {name: value for name, value in locals().items() if name in FORWARDED}
    if stdout:
        given["stdout"] = True
    else:
        given |= {"service": service, "token_file": _token_file(token_file)}
    # The process that stays is a fresh one: it has never loaded typer or NumPy.
    command = [sys.executable, "-m", "nws.sensing", *_typed(given)]
    return os.execv(sys.executable, command)  # noqa: S606 - no shell is wanted


def _typed(options: Mapping[str, Any]) -> list[str]:
    """Return options as they are typed: a flag alone, of several values each, none for None.

    Examples
    --------
    >>> _typed({"udp": True, "link_share": 0.01, "window": ["22:00-06:00"], "site": None})
    ['--udp', '--link-share', '0.01', '--window', '22:00-06:00']
    """
    words = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            values = value if isinstance(value, list) else [value]
            words += [word for each in values for word in (option, str(each))]
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
