"""``apples doctor``: is this machine fit, and does a program keep the protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from apples.agent.doctor import examine, examine_hosts, examine_program
from apples.cli import options
from apples.cli.program import show, show_json
from apples.errors import UsageError
from apples.resources import read_host_list
from apples.views.hosts_text import hosts_document, hosts_text

UNFIT = 4
BREAKS_PROTOCOL = 5


def doctor(
    program: Annotated[
        Path | None,
        typer.Option("--program", help="Template whose program is run small and checked."),
    ] = None,
    settings: options.Settings = None,
    hosts: Annotated[
        Path | None, typer.Option("--hosts", help="Host list whose other machines are checked.")
    ] = None,
    json: options.Json = False,
) -> int:
    """Check this machine, or with --program that a program keeps the protocol, or the hosts of a list.

    Example: apples doctor --program template.toml; apples doctor --hosts hosts.toml
    """
    if hosts is not None and program is not None:
        raise UsageError("--hosts and --program: one at a time")
    if hosts is not None:
        return _hosts(hosts, json)
    if program is not None:
        return _program(program, options.settings_of(settings), json)
    findings = list(examine())
    if json:
        entries: list[Any] = [
            {"name": f.name, "status": f.status, "detail": f.detail, "cure": f.cure}
            for f in findings
        ]
        show_json({"schema": "apples.doctor/1", "checks": entries})
    else:
        for one in findings:
            show(f"{one.status:5} {one.name:8} {one.detail}")
            if one.cure and one.status != "ok":
                show(f"{'':14} {one.cure}")
    return UNFIT if any(f.status == "fail" for f in findings) else 0


def _hosts(path: Path, json: bool) -> int:
    listed = read_host_list(path)
    found = examine_hosts(listed)
    here = [host.name for host in listed if host.name not in found]
    if json:
        show_json(hosts_document(found, here))
    else:
        show(hosts_text(found, here))
    return UNFIT if any(one.refusal for one in found.values()) else 0


def _program(template: Path, settings: dict[str, str], json: bool) -> int:
    checks = examine_program(template, settings)
    if json:
        entries = [{"name": c.name, "ok": c.ok, "detail": c.detail} for c in checks]
        show_json({"schema": "apples.doctor/1", "checks": entries})
    else:
        for one in checks:
            show(
                f"{'ok' if one.ok else 'FAIL':5} {one.name}{': ' if one.detail else ''}{one.detail}"
            )
    return 0 if all(one.ok for one in checks) else BREAKS_PROTOCOL
