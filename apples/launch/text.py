"""Text and JSON documents of ``apples doctor``: checks of this machine, of other hosts, and of a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, cast

from apples.launch.program_check import Check
from apples.launch.remote.fitness import Finding, Fitness, names
from apples.ui.tables import in_columns

if TYPE_CHECKING:
    from apples.launch.documents import CheckEntry, DoctorDocument

SCHEMA: Final = "apples.doctor/1"


def _entries(checks: Sequence[Finding | Check]) -> list[CheckEntry]:
    return [cast("CheckEntry", asdict(check)) for check in checks]


def checks_document(checks: Sequence[Finding]) -> DoctorDocument:
    """Return the document of ``apples doctor``: the checks of this machine."""
    return {"schema": SCHEMA, "checks": _entries(checks)}


def checks_text(checks: Sequence[Finding]) -> str:
    """Return the checks as text: a line for each check, and a line for the remedy of a failed one."""
    lines = []
    for one in checks:
        lines.append(f"{one.status:5} {one.name:8} {one.detail}")
        if one.cure and one.status != "ok":
            lines.append(f"{'':14} {one.cure}")
    return "\n".join(lines)


def program_checks_document(checks: Sequence[Check]) -> DoctorDocument:
    """Return the document of ``apples doctor --program``: the checks of a program."""
    return {"schema": SCHEMA, "checks": _entries(checks)}


WORDS = {True: "ok", False: "FAIL", None: "--"}
"""Words for the result of a check: passed, failed, not checked."""


def program_checks_text(checks: Sequence[Check]) -> str:
    """Return the checks of a program as text, a line for each."""
    return "\n".join(
        f"{WORDS[one.ok]:5} {one.name}{': ' if one.detail else ''}{one.detail}" for one in checks
    )


def hosts_document(found: Mapping[str, Fitness], here: Sequence[str]) -> DoctorDocument:
    """Return the document of ``apples doctor --hosts``."""
    return {
        "schema": SCHEMA,
        "hosts": [
            {"host": name, "fit": not one.refusal, "checks": _entries(one.findings)}
            for name, one in found.items()
        ],
        "here": list(here),
    }


def hosts_text(found: Mapping[str, Fitness], here: Sequence[str]) -> str:
    """Return the text of ``apples doctor --hosts``: a table of the hosts, then problems and remedies."""
    unfit = [name for name, one in found.items() if one.refusal]
    head = f"{len(found) - len(unfit)} of {len(found)} hosts can be used over ssh"
    lines = [head + (f"; not {', '.join(unfit)}" if unfit else ""), ""]
    if here:
        lines.insert(1, f"this machine itself: {', '.join(here)} (apples doctor checks it)")
    if found:
        lines += [*_table(found), ""]
    for name, one in found.items():
        for finding in one.findings:
            if finding.status != "ok":
                lines.append(f"{finding.status:5} {name} {finding.name}: {finding.detail}")
                lines += [f"      {finding.cure}"] if finding.cure else []
    lines.append(
        "during a run, hydra and MPI listen on these hosts and accept connections from any user "
        "(apples help ssh)"
    )
    return "\n".join(lines)


def _table(found: Mapping[str, Fitness]) -> Iterator[str]:
    columns = list(names())
    rows = [["host", *columns]]
    for name, one in found.items():
        cells = {finding.name: _cell(finding.status, finding.detail) for finding in one.findings}
        rows.append([name, *(cells.get(column, "-") for column in columns)])
    yield from in_columns(rows)


def _cell(status: str, detail: str) -> str:
    """Return the text of a cell: for a passed check its figure if short, else the status."""
    figure = detail.removeprefix("answers in ").removeprefix("reaches this machine in ")
    short = figure.removeprefix("mpich ").removesuffix(" free")
    return short if status == "ok" and len(short) <= 9 else status
