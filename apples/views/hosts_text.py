"""The faces of a look at many hosts: a table, what is not well and what helps; and its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apples.launch.remote.fitness import Fitness, names

SCHEMA = "apples.doctor/1"


def hosts_document(found: Mapping[str, Fitness], here: Sequence[str]) -> dict[str, Any]:
    """Return the document of ``apples doctor --hosts``."""
    return {
        "schema": SCHEMA,
        "hosts": [
            {
                "host": name,
                "fit": not one.refusal,
                "checks": [
                    {"name": f.name, "status": f.status, "detail": f.detail, "cure": f.cure}
                    for f in one.findings
                ],
            }
            for name, one in found.items()
        ],
        "here": list(here),
    }


def hosts_text(found: Mapping[str, Fitness], here: Sequence[str]) -> str:
    """Return the table of ``apples doctor --hosts``; its last lines are what helps."""
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
        "while a run goes on, hydra and MPI listen on these hosts without asking who is there "
        "(docs/reference/guarantees.md)"
    )
    return "\n".join(lines)


def _table(found: Mapping[str, Fitness]) -> Iterator[str]:
    columns = list(names())
    rows = [["host", *columns]]
    for name, one in found.items():
        cells = {finding.name: _cell(finding.status, finding.detail) for finding in one.findings}
        rows.append([name, *(cells.get(column, "-") for column in columns)])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()


def _cell(status: str, detail: str) -> str:
    """Return a short cell: the figure where all is well, the verdict where it is not."""
    figure = detail.removeprefix("answers in ").removeprefix("reaches this machine in ")
    short = figure.removeprefix("mpich ").removesuffix(" free")
    return short if status == "ok" and len(short) <= 9 else status
