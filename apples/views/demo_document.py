"""The JSON document of the demo, ``apples.demo/1``: its runs, and what they say together."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from apples.views.made_by import made_by

Document = dict[str, Any]

SCHEMA = "apples.demo/1"
METHODS = ("blocked", "compile_time", "all_resources", "minimum_execution_time")
"""Section 3 of Berman et al. 1996: methods 1 to 4. `blocked` is equal strips here, not square blocks."""
TITLES = {
    "blocked": "compile-time blocked (equal strips)",
    "compile_time": "compile-time AppLeS",
    "all_resources": "run-time AppLeS, no selection",
    "minimum_execution_time": "run-time AppLeS",
}


def demo_document(runs: Sequence[Document], command: str = "apples demo") -> Document:
    """Return the runs with the summary: a row per method, the ratio to blocked, the median error."""
    done = [run for run in runs if run["execution"] is not None]
    offs = [abs(run["execution"]["off"]) for run in done]
    return {
        "schema": SCHEMA,
        "made_by": made_by(command),
        "runs": list(runs),
        "executed": len(done),
        "methods": [_method(name, runs) for name in METHODS],
        "median_prediction_error": statistics.median(offs) if offs else None,
        "ratio_to_blocked": _ratio(runs),
        "inside": sum(run["execution"]["inside"] is True for run in done),
        "verified": _verified(done),
    }


def _verified(done: Sequence[Document]) -> bool | None:
    """Return whether every result equals the sequential one; None where nobody asked or nothing ran."""
    answers = {run["verified"] for run in done}
    if False in answers:
        return False
    return None if None in answers or not answers else True


def _method(name: str, runs: Sequence[Document]) -> Document:
    own = [run for run in runs if run["plan"]["blueprint"] == name]
    done = [run["execution"] for run in own if run["execution"] is not None]
    if not done:
        reason = own[0]["rejection"] if own else "not run"
        return {"method": name, "title": TITLES[name], "runs": 0, "rejection": reason}
    seconds = [one["iteration_seconds"] for one in done]
    predicted = [one["predicted_iteration_seconds"] for one in done]
    chosen = next(run for run in reversed(own) if run["execution"])["plan"]["chosen"]
    return {
        "method": name,
        "title": TITLES[name],
        "runs": len(done),
        "hosts": chosen["hosts"],
        "rows": chosen["rows"],
        "iteration_seconds": statistics.median(seconds),
        "least": min(seconds),
        "largest": max(seconds),
        "predicted_iteration_seconds": statistics.median(predicted),
        "median_error": statistics.median(abs(one["off"]) for one in done),
    }


def _ratio(runs: Sequence[Document]) -> Document | None:
    """Return run-time AppLeS over blocked: the median of the repetitions, pair by pair, and the range."""
    series = {
        name: [
            run["execution"]["iteration_seconds"]
            for run in runs
            if run["plan"]["blueprint"] == name and run["execution"] is not None
        ]
        for name in ("minimum_execution_time", "blocked")
    }
    pairs = list(zip(series["minimum_execution_time"], series["blocked"], strict=False))
    if not pairs:
        return None
    ratios = [ours / theirs for ours, theirs in pairs]
    return {
        "median": statistics.median(ratios),
        "interval": [min(ratios), max(ratios)],
        "repetitions": len(ratios),
    }
