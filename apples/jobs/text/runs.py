"""Recorded runs for the terminal: a line a run, and what differs between some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apples.ui.formats import moment
from apples.ui.tables import in_columns
from apples.ui.units import duration

Document = Mapping[str, Any]

VERIFIED = {True: "verified", False: "NOT VERIFIED", None: ""}
CLEAR = {True: "", False: "no clear difference", None: "too short to tell"}
MOST_HOSTS = 4


def runs_text(runs: Sequence[Document]) -> str:
    """Return a line a run, the latest last; the last line is what to type next."""
    head = ("id", "state", "application", "started", "predicted", "measured", "", "hosts")
    rows = [
        (one["id"], one["state"], _name(one), moment(one["started"]), _seconds(one["predicted_seconds"]),
         _seconds(one["measured_seconds"]), VERIFIED[one["verified"]], _hosts(one["hosts"]))
        for one in runs
    ]  # fmt: skip
    return "\n".join([*in_columns([head, *rows]), f"next: apples report {runs[-1]['id']}"])


def _name(one: Document) -> str:
    return f"{one['application']} ({one['blueprint']})" if one["blueprint"] else one["application"]


def _seconds(value: float | None) -> str:
    return "" if value is None else duration(value)


def _hosts(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_HOSTS} more" if len(names) > MOST_HOSTS else ""
    return ", ".join(names[:MOST_HOSTS]) + more


def comparison_text(document: Document) -> str:
    """Return the answer, then what differs, a column a run."""
    ids = [one["id"] for one in document["runs"]]
    rows = [("", *ids)]
    rows += [(name, *map(_value, values)) for name, values in document["differ"].items()]
    for figure in document["figures"]:
        cells = [_cell(one, first=k == 0, measured=figure["figure"] != "predicted")
                 for k, one in enumerate(figure["runs"])]  # fmt: skip
        rows.append((figure["figure"], *cells))
    same = ", ".join(f"{name} {_value(value)}" for name, value in document["same"].items())
    return "\n".join([
        *comparison_sentences(document), "", *in_columns(rows), "", f"seconds are of one iteration; same: {same}",
    ])  # fmt: skip


def comparison_sentences(document: Document) -> Iterator[str]:
    """Yield a sentence a run, of what it took beside the first."""
    first = document["runs"][0]["id"]
    (figure,) = (one for one in document["figures"] if one["figure"] == "measured")
    for run, one in zip(document["runs"][1:], figure["runs"][1:], strict=True):
        if one["ratio"] is None:
            yield f"{run['id']} and {first}: nothing was measured to compare."
        elif one["clear"]:
            yield f"{run['id']} took {one['ratio']:.2f} times as long an iteration as {first}."
        else:
            why = CLEAR[one["clear"]]
            yield f"{run['id']} and {first}: {why} ({one['ratio']:.2f} times as long an iteration)."


def _cell(one: Document, *, first: bool, measured: bool) -> str:
    if one["value"] is None:
        return "-"
    text = duration(one["value"])
    if first or one["ratio"] is None:
        return text
    words = CLEAR[one["clear"]] if measured else ""
    return f"{text}  x {one['ratio']:.2f}{', ' if words else ''}{words}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)
