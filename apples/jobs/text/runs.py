"""Recorded runs for the terminal: a line for each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apples.ui.formats import moment
from apples.ui.tables import in_columns
from apples.ui.units import duration

Document = Mapping[str, Any]

VERIFIED = {True: "verified", False: "NOT VERIFIED", None: ""}
MAX_SHOWN_HOSTS = 4


def runs_text(runs: Sequence[Document]) -> str:
    """Return a line for each run, the latest last; then the next command to type."""
    head = ("id", "state", "application", "started", "predicted", "measured", "", "hosts")
    rows = [
        (one["id"], _state(one), _name(one), moment(one["started"]), _seconds(one["predicted_seconds"]),
         _seconds(one["measured_seconds"]), VERIFIED[one["verified"]], _hosts(one["hosts"]))
        for one in runs
    ]  # fmt: skip
    return "\n".join([*in_columns([head, *rows]), f"next: apples report {runs[-1]['id']}"])


def _state(run: Document) -> str:
    """Return the state of a run; for a running run, with its iteration."""
    if run["state"] not in {"running", "verifying"} or not run["iterations"]:
        return str(run["state"])
    return f"{run['state']} {run['iteration'] or 0}/{run['iterations']}"


def _name(one: Document) -> str:
    return f"{one['application']} ({one['blueprint']})" if one["blueprint"] else one["application"]


def _seconds(value: float | None) -> str:
    return "" if value is None else duration(value)


def _hosts(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_SHOWN_HOSTS} more" if len(names) > MAX_SHOWN_HOSTS else ""
    return ", ".join(names[:MAX_SHOWN_HOSTS]) + more
