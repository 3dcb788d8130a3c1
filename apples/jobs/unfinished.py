"""`document_so_far`: what a run whose program did not say ``done`` measured until its record ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apples.jobs.records import RunRecord

Document = dict[str, Any]
RUN_SCHEMA = "apples.run/1"
OTHER_SCHEMAS = {"apples.parameter-sweep/1", "apples.master-worker/1", "apples.pipeline/1"}
"""Of plans that are none of a run."""


def document_so_far(record: RunRecord) -> Document:
    """Return what is known of a run as ``apples.run/1``: its own document, or what was measured up to now.

    Of what is no such run (a parameter sweep, a pipeline, a master with workers): its plan until there is more.

    The predicted seconds of a part of a run are those of as many iterations; a promise for it there is none.
    """
    if record.document is not None:
        return record.document
    if record.plan and record.plan.get("schema") in OTHER_SCHEMAS:
        return record.plan
    execution = _execution(record) if record.plan and record.plan.get("chosen") else None
    return {
        "schema": RUN_SCHEMA,
        "plan": record.plan,
        "execution": execution,
        "verified": None,
        "result_sha256": None,
        "rejection": record.reason,
        "state": record.state,
        "reason": record.reason,
        "record": record.id,
    }


def _execution(record: RunRecord) -> Document | None:
    """Return the part of the loop that was measured; None where nothing was."""
    told = [one for one in record.events if one["event"] in {"progress", "measured"}]
    if record.plan is None or not told:
        return None
    chosen, first, last = record.plan["chosen"], told[0], told[-1]
    done = int(last.get("iteration", last.get("iterations", 0)))
    predicted = chosen["iteration_seconds"] * done
    launched = next((one["at"] for one in record.events if one["event"] == "planned"), first["at"])
    startup = last.get("startup_seconds", first["at"] - first["seconds"] - launched)
    return {
        "iterations": done,
        "predicted_seconds": predicted,
        "interval": [predicted, predicted],
        "measured_seconds": last["seconds"],
        "iteration_seconds": last["seconds"] / max(1, done),
        "predicted_iteration_seconds": chosen["iteration_seconds"],
        "off": last["seconds"] / predicted - 1.0 if predicted > 0 else 0.0,
        "inside": None,
        "coverage": None,
        "startup_seconds": max(0.0, startup),
        "residual": last.get("residual"),
        "files": [],
        "hosts": _hosts(record.plan, last["hosts"], max(1, done), last["seconds"]),
        "borders": [],
        "queue_seconds": None,
        "moved": any(one["event"] == "moved" for one in record.events),
        "messages": record.messages,
        "redistributions": [
            {key: value for key, value in one.items() if key not in {"at", "event"}}
            for one in record.events
            if one["event"] == "decision"
        ],
    }


def _hosts(
    plan: Mapping[str, Any], told: Sequence[Mapping[str, Any]], done: int, whole: float
) -> list[Document]:
    """Return the figures of each host, as a whole run of so many seconds has them."""
    strips = {strip["host"]: strip for strip in plan["chosen"]["strips"]}
    hosts = []
    for one in told:
        strip = strips.get(one["host"], {})
        planned, border = strip.get("compute_seconds", 0.0), strip.get("communicate_seconds", 0.0)
        each = one["compute_seconds"] / done
        busy, wait = one["processor_seconds"], one["wait_seconds"]
        hosts.append({
            "host": one["host"],
            "rows": strip.get("rows", 0),
            "compute_seconds": one["compute_seconds"],
            "communicate_seconds": one["communicate_seconds"],
            "wait_seconds": wait,
            "processor_seconds": busy,
            "cpu_got": min(1.0, busy / one["compute_seconds"])
            if busy and one["compute_seconds"] > 0
            else None,
            "off": each / planned - 1.0 if planned > 0 else None,
            "predicted_compute_per_iteration": planned,
            "compute_per_iteration": each,
            "predicted_communicate_per_iteration": border,
            "communicate_per_iteration": one["communicate_seconds"] / done,
            "wait_per_iteration": None if wait is None else wait / done,
            "other_per_iteration": max(
                0.0, (whole - one["compute_seconds"] - one["communicate_seconds"] - (wait or 0.0)) / done
            ),
        })  # fmt: skip
    return hosts
