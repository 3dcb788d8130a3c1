"""`comparison_of`: what differs between recorded runs, and whether that is more than their own spread.

A run measures itself many times: each stretch between two reports of progress has its own seconds an iteration.
Two figures differ clearly where the ranges that hold four fifths of these do not meet. That says nothing of how
runs differ from one another that were to be equal: for that, compare several of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor
from typing import Any

from apples.errors import UsageError
from apples.jobs.records import RunRecord, document_so_far

Document = dict[str, Any]

SCHEMA = "apples.compare/1"
LEAST_STRETCHES = 5
"""Of fewer stretches nobody knows the range."""
OUTSIDE = 0.1
"""Share of the stretches below the range, and above it."""


def comparison_of(records: Sequence[RunRecord]) -> Document:
    """Return what differs between runs, the first of which is what the others are compared with.

    Raises
    ------
    UsageError
        Of one of them nothing was planned. Permanent.
    """
    documents = [document_so_far(one) for one in records]
    for record, document in zip(records, documents, strict=True):
        if not document.get("plan"):
            raise UsageError(
                f"{record.id}: is {record.state} and has no plan to compare",
                code="plan-missing",
                run=record.id,
            )
    facts = [_facts(document["plan"]) for document in documents]
    names = list(dict.fromkeys(name for one in facts for name in one))
    rows = {name: [one.get(name) for one in facts] for name in names}
    return {
        "schema": SCHEMA,
        "runs": [dict(one.summary) for one in records],
        "same": {name: values[0] for name, values in rows.items() if _all_equal(values)},
        "differ": {name: values for name, values in rows.items() if not _all_equal(values)},
        "figures": [
            _figure(name, [_of(*pair, key) for pair in zip(records, documents, strict=True)])
            for name, key in FIGURES.items()
        ],
    }


def _facts(plan: Mapping[str, Any]) -> Document:
    """Return what a run was given and what was planned for it."""
    application, chosen = plan["application"], plan["chosen"]
    return {
        "application": application["name"],
        "version": application["version"],
        **application["parameters"],
        "blueprint": plan["blueprint"],
        "hosts": chosen["hosts"] if chosen else None,
        "rows": chosen["rows"] if chosen else None,
        "weather": plan["weather"]["kind"],
        **({"partitions": plan["partitions"]["decomposition"]} if "partitions" in plan else {}),
    }


def _all_equal(values: Sequence[Any]) -> bool:
    return all(value == values[0] for value in values)


# ------------------------------------------------------------------------------ figures
def _predicted(document: Mapping[str, Any]) -> float | None:
    chosen = document["plan"]["chosen"]
    return chosen["iteration_seconds"] if chosen else None


def _longest(hosts: Sequence[Mapping[str, Any]], *keys: str) -> float:
    """Return the seconds of the host that has most of them."""
    return max((sum(one.get(key) or 0.0 for key in keys) for one in hosts), default=0.0)


Measured = Callable[[Mapping[str, Any]], float]
"""Returns cumulative seconds of a report of progress, or of a whole execution."""


def _loop(told: Mapping[str, Any]) -> float:
    return float(told.get("seconds", told.get("measured_seconds", 0.0)))


def _compute(told: Mapping[str, Any]) -> float:
    return _longest(told["hosts"], "compute_seconds")


def _communicate(told: Mapping[str, Any]) -> float:
    return _longest(told["hosts"], "communicate_seconds", "wait_seconds")


FIGURES: Mapping[str, Measured | None] = {
    "predicted": None,
    "measured": _loop,
    "compute": _compute,
    "communicate": _communicate,
}
"""Of one iteration: predicted; measured; what the host computed that computed longest; what the one spent at its
borders, waiting included, that spent most there."""


def _of(record: RunRecord, document: Mapping[str, Any], key: Measured | None) -> Document:
    """Return one figure of one run, with the range of its stretches."""
    if key is None:
        return {"value": _predicted(document), "range": None, "stretches": 0}
    execution = document["execution"]
    if not execution:
        return {"value": None, "range": None, "stretches": 0}
    each = sorted(stretches(record.events, key))
    span = None
    if len(each) >= LEAST_STRETCHES:
        span = [
            each[floor(OUTSIDE * (len(each) - 1))],
            each[ceil((1 - OUTSIDE) * (len(each) - 1))],
        ]
    return {
        "value": key(execution) / max(1, execution["iterations"]),
        "range": span,
        "stretches": len(each),
    }


def stretches(events: Sequence[Mapping[str, Any]], key: Measured) -> list[float]:
    """Return seconds an iteration of each stretch between two reports of progress.

    Examples
    --------
    >>> told = [{"event": "progress", "iteration": k, "seconds": s} for k, s in ((1, 1.0), (3, 5.0), (4, 6.5))]
    >>> stretches(told, lambda one: one["seconds"])
    [2.0, 1.5]
    """
    told = [one for one in events if one["event"] == "progress"]
    return [
        (key(after) - key(before)) / (after["iteration"] - before["iteration"])
        for before, after in pairwise(told)
        if after["iteration"] > before["iteration"]
    ]


def _figure(name: str, values: list[Document]) -> Document:
    """Return a figure of all runs: how many times the first run's each is, and whether clearly."""
    first = values[0]
    return {
        "figure": name,
        "runs": [
            {**one, "ratio": _ratio(one["value"], first["value"]), "clear": clearly(first, one)}
            for one in values
        ],
    }


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def clearly(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Return whether the ranges of two figures do not meet; None where one of them is not known."""
    if one["range"] is None or other["range"] is None:
        return None
    return bool(one["range"][1] < other["range"][0] or other["range"][1] < one["range"][0])
