"""The JSON document of a run, ``apples.run/1``: the plan, what was measured, and how far it was off."""

from __future__ import annotations

from typing import Any

from apples.actuator import Command, Outcome
from apples.feedback import PredictionCheck
from apples.schedule import Estimate

Document = dict[str, Any]

SCHEMA = "apples.run/1"


def run_document(
    plan: Document,
    estimate: Estimate,
    outcome: Outcome,
    result: PredictionCheck,
    verified: bool | None,
) -> Document:
    """Return the document of a finished run; `verified` is None when nobody asked."""
    low, high = estimate.interval or (estimate.execution_seconds, estimate.execution_seconds)
    totals = {one.host: one for one in outcome.hosts}
    return {
        "schema": SCHEMA,
        "plan": plan,
        "execution": {
            "iterations": outcome.iterations,
            "predicted_seconds": estimate.execution_seconds,
            "interval": [low, high],
            "measured_seconds": outcome.seconds,
            "iteration_seconds": outcome.iteration_seconds,
            "predicted_iteration_seconds": estimate.iteration_seconds,
            "off": result.off,
            "inside": result.inside,
            "startup_seconds": outcome.startup_seconds,
            "residual": outcome.residual,
            "files": list(outcome.files),
            "hosts": [
                {
                    "host": one.host,
                    "rows": one.rows,
                    "compute_seconds": totals[one.host].compute_seconds
                    if one.host in totals
                    else None,
                    "communicate_seconds": totals[one.host].communicate_seconds
                    if one.host in totals
                    else None,
                    "processor_seconds": totals[one.host].processor_seconds
                    if one.host in totals
                    else None,
                    "predicted_compute_per_iteration": one.predicted_compute,
                    "compute_per_iteration": one.measured_compute,
                    "predicted_communicate_per_iteration": one.predicted_communicate,
                    "communicate_per_iteration": one.measured_communicate,
                }
                for one in result.hosts
            ],
        },
        "verified": verified,
        "result_sha256": outcome.sha256,
    }


def refused_document(plan: Document, reason: str) -> Document:
    """Return the document of a method that has no plan."""
    return {
        "schema": SCHEMA,
        "plan": plan,
        "execution": None,
        "rejection": reason,
        "verified": None,
        "result_sha256": None,
    }


def dry_document(plan: Document, command: Command) -> Document:
    """Return the document of a run that was not started: what would be."""
    return {
        "schema": SCHEMA,
        "plan": plan,
        "execution": None,
        "command": {
            "argv": list(command.argv),
            "environment": dict(command.environment),
            "files": dict(command.files),
        },
        "verified": None,
        "result_sha256": None,
    }
