"""The ``apples.job/1`` document of a detached job, and who speaks with it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from apples.errors import ApplesError, LaunchError
from apples.jobs import store
from apples.jobs.store import Record
from apples.malleable.conversing import Conversation
from apples.malleable.protocol.messages import in_order

FACE = ("schema", "id", "state", "hosts", "rows", "epoch", "iteration", "last_resize")
POSITION_SECONDS = 2.0


def conversation(job: store.StoredJob) -> Conversation:
    """Return what speaks with a running job; one that is over, or cannot be resized, says so."""
    record = job.record()
    if record["state"] in store.OVER:
        raise LaunchError(f"job {job.id} is {record['state']}")
    if not record.get("malleable", True):
        raise LaunchError(
            f"job {job.id} cannot be resized: its template does not say 'malleable = true'"
        )
    return Conversation(job.id, job.secret(), job.announce, over=lambda: not job.supervised())


def face(job: store.StoredJob, ask: bool = True) -> dict[str, Any]:
    """Return the ``apples.job/1`` document; of a running job with what it says itself just now."""
    record = job.record()
    if ask and record["state"] == "running" and job.announce.exists():
        with suppress(ApplesError):
            record.update(placed(conversation(job).status(POSITION_SECONDS)))
    document = {key: record.get(key) for key in FACE}
    document["hosts"], document["rows"] = record.get("hosts", []), record.get("rows", [])
    for key in ("name", "iterations", "reason", "exit_code", "redistributions"):
        document[key] = record.get(key)
    return document


def placed(position: Any) -> Record:
    """Return what a record takes from a job's own account of where it is."""
    last = position["last_resize"]
    found = {key: position[key] for key in ("hosts", "rows", "epoch")}
    if position.get("iteration"):
        found["iteration"] = position["iteration"]
    if last:
        phases = in_order(last["phases"])
        found["last_resize"] = {
            "epoch": last["epoch"], "seconds": last["seconds"], "phases": phases
        }  # fmt: skip
    return found
