"""The JSON document of a run, ``apples.run/1``: the plan, what was measured, and how far it was off."""

from __future__ import annotations

from typing import Any

from apples.agent.learning import HostCheck, PredictionCheck
from apples.launch.actuator import Command, Outcome
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
            "hosts": [_host(one, outcome.iterations) for one in result.hosts],
        },
        "verified": verified,
        "result_sha256": outcome.sha256,
    }


def _host(one: HostCheck, iterations: int) -> Document:
    """Return one host's figures: totals over the loop, then what one iteration took and was predicted to."""
    processor = None if one.processor is None else one.processor * iterations
    busy = processor is not None and one.measured_compute > 0
    planned = one.predicted_compute
    return {
        "host": one.host,
        "rows": one.rows,
        "compute_seconds": one.measured_compute * iterations,
        "communicate_seconds": one.measured_communicate * iterations,
        "wait_seconds": None if one.wait is None else one.wait * iterations,
        "processor_seconds": processor,
        "cpu_got": min(1.0, one.processor / one.measured_compute)
        if busy and one.processor
        else None,
        "off": one.measured_compute / planned - 1.0 if planned > 0 else None,
        "predicted_compute_per_iteration": planned,
        "compute_per_iteration": one.measured_compute,
        "predicted_communicate_per_iteration": one.predicted_communicate,
        "communicate_per_iteration": one.measured_communicate,
        "wait_per_iteration": one.wait,
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
