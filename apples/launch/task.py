"""The task: what an agent asks of a program, as the document of docs/reference/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apples.agent.information import InformationPool
from apples.errors import LaunchError
from apples.schedule import Allocation, Schedule

SCHEMA = "apples.task/1"
PROGRESS_SECONDS = 0.25

Parameters = Mapping[str, int | float | str]


def run_task(
    schedule: Schedule,
    information: InformationPool,
    *,
    output: Path | None = None,
    save: bool = False,
    progress_seconds: float = PROGRESS_SECONDS,
) -> dict[str, Any]:
    """Return the task that runs a schedule.

    Parameters
    ----------
    output
        Directory the program may write to.
    save
        Whether it is asked to keep its result there.

    Raises
    ------
    LaunchError
        A schedule that is no partition: no host, or strips that are no whole rows or less than one.
    """
    return {
        "schema": SCHEMA,
        "mode": "run",
        "parameters": dict(information.application.parameters),
        "implementations": {
            a.host.name: a.implementation for a in schedule.allocations if a.implementation
        },
        "partition": partition(schedule.allocations),
        "output": None if output is None else str(output.absolute()),
        "progress_seconds": progress_seconds,
        "save": save,
    }


def calibrate_task(
    implementation: str, parameters: Parameters, sizes: Sequence[int]
) -> dict[str, Any]:
    """Return the task that measures one implementation on strips of `sizes` rows.

    Examples
    --------
    >>> calibrate_task("numpy", {"grid": 100}, [50])["sizes"]
    [50]
    """
    return {
        "schema": SCHEMA,
        "mode": "calibrate",
        "parameters": dict(parameters),
        "implementation": implementation,
        "sizes": list(sizes),
        "output": None,
        "save": False,
    }


def partition(allocations: Sequence[Allocation]) -> list[dict[str, Any]]:
    """Return the strips in rank order, with the row each begins at."""
    if not allocations:
        raise LaunchError("the schedule uses no host")
    entries, row = [], 0
    for allocation in allocations:
        if not (allocation.rows >= 1 and float(allocation.rows).is_integer()):
            name = allocation.host.name
            raise LaunchError(f"{name}: a strip of {allocation.rows} rows cannot be run")
        rows = int(allocation.rows)
        entries.append(
            {
                "host": allocation.host.name,
                "address": allocation.host.reached_at,
                "ranks": allocation.ranks,
                "first_row": row,
                "rows": rows,
            }
        )
        row += rows
    return entries
