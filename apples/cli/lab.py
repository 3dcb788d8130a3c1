"""``apples lab``: an emulated cluster on this machine, up and down."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from apples import lab as emulation
from apples.cli.program import say, show, show_json
from apples.errors import LaunchError, UsageError
from apples.units import amount, digits

SCHEMA = "apples.lab/1"
commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
LabName = Annotated[str | None, typer.Option("--lab", help="Which, where several are up.")]


@commands.callback()
def options() -> None:
    """Emulate a cluster on this machine."""


@commands.command()
def up(
    file: Annotated[Path, typer.Argument(help="Lab file (TOML).")],
    no_calibration: Annotated[
        bool, typer.Option("--no-calibration", help="Leave the hosts' speeds out of the list.")
    ] = False,
    json: Json = False,
) -> int:
    """Make the hosts, links and loads of a lab file, and write the host list that goes with them.

    Example: apples lab up lab.toml
    """
    speeds = _none if no_calibration else None
    lab = emulation.up(file, speeds=speeds, talk=_warning)
    if json:
        show_json(_document(lab))
    else:
        show(f"lab '{lab.name}' is up: {len(lab.machines)} hosts")
        show(f"host list: {lab.hosts}")
        show(f"look at it: apples lab hosts; end it: apples lab down {lab.name}")
    return 0


@commands.command()
def down(
    name: Annotated[str | None, typer.Argument(help="Which lab.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every lab.")] = False,
    json: Json = False,
) -> int:
    """Take a lab down, also one that was left half-way up; the machine is as it was before.

    Example: apples lab down --all
    """
    folders, failures = _chosen(name, everything), []
    for folder in folders:
        try:
            emulation.down(folder)
        except LaunchError as error:
            failures.append(str(error))
    if failures:
        raise LaunchError("; ".join(failures))
    if json:
        show_json({"schema": SCHEMA, "down": [folder.name for folder in folders]})
    for folder in () if json else folders:
        show(f"lab '{folder.name}' is down")
    return 0


@commands.command()
def hosts(
    name: Annotated[str | None, typer.Argument(help="Which lab.")] = None, json: Json = False
) -> int:
    """Show the hosts of a lab.

    Example: apples lab hosts
    """
    lab = emulation.find(name)
    if json:
        show_json(_document(lab) | {"machines": [_machine(one) for one in lab.machines]})
        return 0
    width = max(len(one.name) for one in lab.machines)
    for one in lab.machines:
        cpu = "all" if one.cpu is None else digits(one.cpu)
        limits = f"cpu {cpu:5} memory {amount(one.memory) if one.memory else 'all':8}"
        state = "up" if one.alive else "gone"
        show(f"{one.name:{width}}  {one.address:15}  {one.site:12}  {limits}  {state}")
    return 0


@commands.command(context_settings={"ignore_unknown_options": True})
def exec(  # noqa: A001 - the command's name
    host: Annotated[str, typer.Argument(help="Host of the lab.")],
    words: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run.")],
    lab: LabName = None,
    json: Json = False,
) -> int:
    """Run a command on a host of the lab; its output and exit code are passed through.

    With --json its output comes in a document, at the end.

    Example: apples lab exec ada -- hostname
    """
    if not json:
        return emulation.execute(emulation.find(lab), host, words)
    code, out, err = emulation.captured(emulation.find(lab), host, words)
    show_json({"schema": SCHEMA, "host": host, "exit_code": code, "stdout": out, "stderr": err})
    return code


@commands.command()
def shape(
    site: Annotated[str, typer.Argument(help="Site of the lab.")],
    bandwidth: Annotated[float, typer.Argument(help="Bytes per second from now on.")],
    lab: LabName = None,
    json: Json = False,
) -> int:
    """Change the rate of a site's link to the others, while the lab is up.

    Example: apples lab shape there 200000
    """
    found = emulation.find(lab)
    emulation.shape(found, site, bandwidth)
    if json:
        show_json({"schema": SCHEMA, "name": found.name, "site": site, "bandwidth": bandwidth})
    return 0


def _chosen(name: str | None, everything: bool) -> list[Path]:
    begun = {folder.name: folder for folder in emulation.begun()}
    if everything:
        return list(begun.values())
    if name is None:
        if len(begun) > 1:
            raise UsageError(f"several labs are up ({', '.join(begun)}): name one, or --all")
        if not begun:
            say("apples: no lab is up")
        return list(begun.values())
    if name not in begun:
        known = ", ".join(begun) or "none"
        raise UsageError(f"no lab '{name}' is up (up: {known})")
    return [begun[name]]


def _document(lab: emulation.Lab) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "name": lab.name,
        "hosts": str(lab.hosts),
        "ssh_config": lab.ssh_config or None,
        "interface": lab.interface,
        "address": lab.agent,
    }


def _machine(one: emulation.Machine) -> dict[str, Any]:
    return {
        "name": one.name,
        "address": one.address,
        "site": one.site,
        "cpu": one.cpu,
        "cpus": list(one.cpus),
        "memory": one.memory,
        "pid": one.pid,
        "up": one.alive,
    }


def _none(*_: object) -> dict[str, float]:
    return {}


def _warning(line: str) -> None:
    say(f"warning: {line}")
