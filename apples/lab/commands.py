"""``apples lab``: an emulated cluster on this machine, up and down, and its documents and text."""

from __future__ import annotations

from pathlib import Path

from apples import lab as emulation
from apples.errors import LaunchError, UsageError
from apples.lab.documents import LabMachine, LabStatusDocument
from apples.lab.record import EmulatedHost, Lab
from apples.ui.command_line import CommandGroup, say, show_answer, show_json
from apples.ui.options import json_option
from apples.ui.parameters import FILE, NUMBER, Excludes, argument, option
from apples.ui.units import amount, digits

commands = CommandGroup()
lab_name_option = option("--lab", metavar="NAME", help="Name of the lab, if several are up.")


@commands.command()
@argument("file", type=FILE, help="Lab file (TOML).")
@option("--no-calibration", is_flag=True, help="Leave the hosts' speeds out of the list.")
@json_option
def up(file: Path, no_calibration: bool, json: bool) -> int:
    """Make the hosts, links and loads of a lab file, and write the host list that goes with them.

    Example: apples lab up lab.toml
    """
    speeds = _none if no_calibration else None
    lab = emulation.up(file, speeds=speeds, talk=_warning)
    show_answer(lab_document(lab), lab_text(lab), json)
    return 0


@commands.command(rules=(Excludes("NAME", "--all"),))
@argument("name", required=False, help="Name of the lab.")
@option("--all", "everything", is_flag=True, help="Every lab.")
@json_option
def down(name: str | None, everything: bool, json: bool) -> int:
    """Take a lab down, even after a failed start; restore the machine's former state.

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
    document: LabStatusDocument = {"schema": "apples.lab/1", "down": names}
    show_answer(document, text, json)
    return 0


@commands.command()
@argument("name", required=False, help="Name of the lab.")
@json_option
def hosts(name: str | None, json: bool) -> int:
    """Show the hosts of a lab.

    Example: apples lab hosts
    """
    lab = emulation.find(name)
    show_answer(lab_hosts_document(lab), lambda: lab_hosts_text(lab), json)
    return 0


@commands.command(context_settings={"ignore_unknown_options": True})
@argument("host", help="Host of the lab.")
@argument(
    "words",
    nargs=-1,
    required=True,
    metavar="-- COMMAND...",
    help="The command and its arguments.",
)
@lab_name_option
@json_option
def exec(  # noqa: A001 - the command's name
    host: str, words: tuple[str, ...], lab: str | None, json: bool
) -> int:
    """Run a command on a host of the lab; its output and exit code are passed through.

    With --json its output comes in a document, at the end.

    Example: apples lab exec ada -- hostname
    """
    if not json:
        return emulation.execute(emulation.find(lab), host, words)
    code, out, err = emulation.captured(emulation.find(lab), host, words)
    document: LabStatusDocument = {
        "schema": "apples.lab/1",
        "host": host,
        "exit_code": code,
        "stdout": out,
        "stderr": err,
    }
    show_json(document)
    return code


@commands.command()
@argument("site", help="Site of the lab.")
@argument("bandwidth", type=NUMBER, help="Bytes per second from now on.")
@lab_name_option
@json_option
def shape(site: str, bandwidth: float, lab: str | None, json: bool) -> int:
    """Change the rate of a site's link to the others, while the lab is up.

    Example: apples lab shape there 200000
    """
    found = emulation.find(lab)
    emulation.shape(found, site, bandwidth)
    if json:
        document: LabStatusDocument = {
            "schema": "apples.lab/1",
            "name": found.name,
            "site": site,
            "bandwidth": bandwidth,
        }
        show_json(document)
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


def lab_document(lab: Lab) -> LabStatusDocument:
    """Return a lab as ``apples.lab/1``."""
    return {
        "schema": "apples.lab/1",
        "name": lab.name,
        "hosts": str(lab.hosts),
        "ssh_config": lab.ssh_config or None,
        "interface": lab.interface,
        "address": lab.agent,
    }


def lab_hosts_document(lab: Lab) -> LabStatusDocument:
    """Return a lab with its machines."""
    return {**lab_document(lab), "machines": [_machine(one) for one in lab.machines]}


def lab_text(lab: Lab) -> str:
    """Return the report of a started lab, with the next commands to type."""
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


def _machine(one: EmulatedHost) -> LabMachine:
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
