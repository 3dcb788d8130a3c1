"""``nws``: the Network Weather Service of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from apples.cli.program import Entry, run, say, show
from apples.errors import UsageError
from apples.information import LiveSky
from apples.resources import Host, HostList, Network, read_host_list

COMMANDS: Mapping[str, Entry] = {
    "backtest": Entry("apples.cli.nws_backtest:backtest", "League table of predictors."),
    "sense": Entry("apples.cli.nws:sense", "Measure this machine and print its weather."),
}


def main() -> None:
    """Run the command line and exit."""
    run(
        "nws",
        COMMANDS,
        "Network Weather Service: what hosts and links will give next.",
        "Exit codes: 0 ok, 2 bad input, 4 cannot be measured. Start with: nws sense",
    )


def sense(
    hosts: Annotated[
        Path | None, typer.Option("--hosts", help="Host list; its local hosts are measured.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=10_000)] = 6,
) -> int:
    """Measure and print the weather as JSON, fit for ``apples plan --weather FILE``.

    Example: nws sense --hosts hosts.toml > sky.json
    """
    here = HostList((Host("localhost"),), Network())
    sky = LiveSky(read_host_list(hosts) if hosts else here, rounds)
    if not sky.local:
        raise UsageError(f"{hosts}: no host of this list is a part of this machine")
    show(sky.weather().to_json())
    say(f"measured {len(sky.local)} of the list's hosts here, {rounds} rounds")
    return 0
