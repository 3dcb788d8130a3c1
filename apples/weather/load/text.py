"""The load monitor for the terminal: what every node has left, and what the jobs there have and use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apples.ui.tables import in_columns
from apples.ui.units import amount, digits

ATTRIBUTES = ("cpu", "memory", "swap", "disk", "network")


def monitor_text(document: Mapping[str, Any], ranks: bool = False) -> str:
    """Return a line a host, a line a job and host, if wanted a line a rank, then what is wrong."""
    head = ("host", "CPUs", "wanted", *ATTRIBUTES, "C", "L")
    rows = [
        (
            one["host"], str(one["cpus"]), digits(one["wanted"]),
            *(_share(one["available"].get(name)) for name in ATTRIBUTES),
            _share(one["capacity"]), _share(one["load"]),
        )
        for one in document["hosts"]
    ]  # fmt: skip
    lines = list(in_columns([head, *rows], numbers=True))
    jobs = [
        (
            each["job"], one["host"], str(each["processes"]), digits(each["wanted"]),
            digits(each["cpu_seconds"]), amount(each["memory"]),
        )
        for one in document["hosts"]
        for each in one["jobs"]
    ]  # fmt: skip
    if jobs:
        titles = ("job", "host", "processes", "wanted", "CPU s", "memory")
        lines += ["", *in_columns([titles, *jobs], numbers=True)]
    if ranks:
        each_rank = [
            (
                each["job"], str(each["rank"]), one["host"], str(each["processes"]),
                digits(each["cpu_seconds"]), amount(each["memory"]),
            )
            for one in document["hosts"]
            for each in one["ranks"]
        ]  # fmt: skip
        titles = ("job", "rank", "host", "processes", "CPU s", "memory")
        lines += ["", *in_columns([titles, *each_rank], numbers=True)]
    lines += [f"{one['machine']}: {one['text']}" for one in document["problems"]]
    return "\n".join(lines)


def _share(part: float | None) -> str:
    return "-" if part is None else f"{part:.2f}"
