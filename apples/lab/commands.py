"""``apples lab``: an emulated cluster on this machine, up and down, and its documents and text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from apples import lab as emulation
from apples.errors import LaunchError, UsageError
from apples.lab.record import EmulatedHost, Lab
from apples.ui.command_line import say, show_answer, show_json
from apples.ui.options import Json
from apples.ui.units import amount, digits

commands = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
LabName = Annotated[str | None, typer.Option("--lab", help="Which, where several are up.")]
SCHEMA = "apples.lab/1"
Document = dict[str, Any]


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
    show_answer(lab_document(lab), lab_text(lab), json)
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
        raise LaunchError("; ".join(failures), code="lab-not-removed", failures=failures)
    names = [folder.name for folder in folders]
    text = "\n".join(f"lab '{name}' is down" for name in names)
    show_answer({"schema": SCHEMA, "down": names}, text, json)
    return 0


@commands.command()
def hosts(
    name: Annotated[str | None, typer.Argument(help="Which lab.")] = None, json: Json = False
) -> int:
    """Show the hosts of a lab.

    Example: apples lab hosts
    """
    lab = emulation.find(name)
    show_answer(lab_hosts_document(lab), lambda: lab_hosts_text(lab), json)
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
            raise UsageError(
                f"several labs are up ({', '.join(begun)}): name one, or --all",
                code="value-missing",
                field="name",
                known=list(begun),
            )
        if not begun:
            say("apples: no lab is up")
        return list(begun.values())
    if name not in begun:
        known = ", ".join(begun) or "none"
        raise UsageError(
            f"no lab '{name}' is up (up: {known})",
            code="lab-unknown",
            value=name,
            known=list(begun),
        )
    return [begun[name]]


def _none(*_: object) -> dict[str, float]:
    return {}


def _warning(line: str) -> None:
    say(f"warning: {line}")


def lab_document(lab: Lab) -> Document:
    """Return a lab as ``apples.lab/1``."""
    return {
        "schema": SCHEMA,
        "name": lab.name,
        "hosts": str(lab.hosts),
        "ssh_config": lab.ssh_config or None,
        "interface": lab.interface,
        "address": lab.agent,
    }


def lab_hosts_document(lab: Lab) -> Document:
    """Return a lab with its machines."""
    return lab_document(lab) | {"machines": [_machine(one) for one in lab.machines]}


def lab_text(lab: Lab) -> str:
    """Return that a lab is up, and what to type next."""
    return (
        f"lab '{lab.name}' is up: {len(lab.machines)} hosts\nhost list: {lab.hosts}\n"
        f"look at it: apples lab hosts; end it: apples lab down {lab.name}"
    )


def lab_hosts_text(lab: Lab) -> str:
    """Return the machines of a lab, a line each."""
    width = max(len(one.name) for one in lab.machines)
    return "\n".join(_line(one, width) for one in lab.machines)


def _line(one: EmulatedHost, width: int) -> str:
    cpu = "all" if one.cpu is None else digits(one.cpu)
    limits = f"cpu {cpu:5} memory {amount(one.memory) if one.memory else 'all':8}"
    state = "up" if one.alive else "gone"
    return f"{one.name:{width}}  {one.address:15}  {one.site:12}  {limits}  {state}"


def _machine(one: EmulatedHost) -> Document:
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
