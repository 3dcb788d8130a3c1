"""``apples doctor``: check this machine, hosts of a list, or a program against the protocol."""

from __future__ import annotations

from pathlib import Path

from apples.agent.doctor import examine, examine_hosts, examine_program
from apples.launch.text import (
    checks_document,
    checks_text,
    hosts_document,
    hosts_text,
    program_checks_document,
    program_checks_text,
)
from apples.resources import read_host_list
from apples.ui import options
from apples.ui.command_line import command, show_answer
from apples.ui.parameters import FILE, Excludes, Requires, option

UNFIT = 4
BREAKS_PROTOCOL = 5


@command(rules=(Excludes("--hosts", "--program"), Requires("--set", "--program")))
@option("--program", type=FILE, help="Template; its program is run with small sizes and checked.")
@options.settings_option
@option("--hosts", type=FILE, help="Host list; its remote hosts are checked.")
@options.json_option
def doctor(program: Path | None, settings: tuple[str, ...], hosts: Path | None, json: bool) -> int:
    """Check this machine, the protocol of a program (--program), or the hosts of a list (--hosts).

    Example: apples doctor --program template.toml; apples doctor --hosts hosts.toml
    """
    if hosts is not None:
        return _hosts(hosts, json)
    if program is not None:
        return _program(program, options.settings_of(settings), json)
    findings = list(examine())
    show_answer(checks_document(findings), checks_text(findings), json)
    return UNFIT if any(f.status == "fail" for f in findings) else 0


def _hosts(path: Path, json: bool) -> int:
    listed = read_host_list(path)
    found = examine_hosts(listed)
    here = [host.name for host in listed if host.name not in found]
    show_answer(hosts_document(found, here), hosts_text(found, here), json)
    return UNFIT if any(one.refusal for one in found.values()) else 0


def _program(template: Path, settings: dict[str, str], json: bool) -> int:
    checks = examine_program(template, settings)
    show_answer(program_checks_document(checks), program_checks_text(checks), json)
    return BREAKS_PROTOCOL if any(one.ok is False for one in checks) else 0
