"""The process that predicts a queue for a live scheduler; the scheduler itself loads no arrays and never waits.

``python -m apples.cluster.queue_planner NAME [OPTION=VALUE ..] DESCRIPTOR`` answers each JSON document on a
connection with another. `apples.cluster.planner` is the client.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from apples.cluster.queue_future import (
    QueueForecaster,
    QueueFuture,
    simulate_queue,
    smallest_changes,
)
from apples.cluster.queue_snapshot import NOT_SUBMITTED, QueuedJob, QueueSnapshot
from apples.errors import UsageError, failure_of
from apples.scheduling.loading import load_policy
from apples.scheduling.passes import name_of

Document = dict[str, Any]
MAX_NODES = 100_000
DRAWS = 40
"""Number of draws of a what-if; both futures use the same draws, so a small number suffices."""
SHARES = "sd"


class QueuePlanner:
    """Answers questions about the queue of a scheduler with this policy."""

    def __init__(self, policy: str, options: Mapping[str, str]) -> None:
        self.policy = load_policy(policy, options)
        self._forecaster = QueueForecaster(self.policy)

    def answer(self, question: Mapping[str, Any]) -> Document:
        """Return the prediction of a queue; `ask` of the question selects one of four kinds."""
        snapshot = QueueSnapshot.parse(question["snapshot"])
        seconds = float(question["seconds"])
        if question["ask"] == "what_if":
            return self._what_if(snapshot, question["changes"], seconds)
        found = self._forecaster.future(snapshot, seconds=seconds)
        if question["ask"] == "submission":
            start, finish = found.starts[NOT_SUBMITTED], found.ends.get(NOT_SUBMITTED)
            return {"draws": found.draws, "start": start, "finish": finish}
        document = _document(found)
        if question["ask"] == "changes":
            number = int(question["job"])
            waits = any(one.number == number and not one.nodes for one in snapshot.jobs)
            changes = smallest_changes(snapshot, self.policy, number) if waits else {}
            document |= {"job": number, "changes": changes}
        return document

    def _what_if(
        self, snapshot: QueueSnapshot, changes: Mapping[str, Any], seconds: float
    ) -> Document:
        policy = self.policy
        if changes.get("policy"):
            if changes["policy"] == SHARES:
                raise UsageError(
                    f"--policy {SHARES}: no predictions while jobs share hosts",
                    code="policy-unsuitable",
                    policy=SHARES,
                )
            policy = load_policy(changes["policy"], changes.get("options") or {})
        changed = with_changes(snapshot, changes)
        # The same draws for both, so chance does not cause differences.
        now = simulate_queue(snapshot, self.policy, draws=DRAWS, seconds=seconds / 2.0)
        then = simulate_queue(changed, policy, draws=DRAWS, seconds=seconds / 2.0)
        return {
            "now": {"policy": name_of(self.policy), "hosts": snapshot.nodes, **_document(now)},
            "then": {"policy": name_of(policy), "hosts": changed.nodes, **_document(then)},
        }


def with_changes(snapshot: QueueSnapshot, changes: Mapping[str, Any]) -> QueueSnapshot:
    """Return a queue with other nodes in service and other fewest hosts of waiting jobs.

    Raises
    ------
    UsageError
        No nodes would be left, or fewer than jobs have; or no such job waits, or it cannot run on that number.
    """
    there = snapshot.nodes + int(changes.get("hosts_more", 0))
    less = int(changes.get("hosts_less", 0))
    if less >= there:
        raise UsageError(
            f"hosts_less must be below {there}, the number of hosts (got {less})",
            code="value-range",
            field="hosts_less",
            value=less,
            bound=there - 1,
        )
    nodes = there - less
    held = sum(one.nodes for one in snapshot.jobs)
    if not held <= nodes <= MAX_NODES:
        raise UsageError(
            f"{nodes} hosts in service: must be from {held}, which jobs have, to {MAX_NODES}",
            code="value-range",
            field="hosts",
            value=nodes,
            bound=held if nodes < held else MAX_NODES,
        )
    waiting = {one.number: one for one in snapshot.jobs if not one.nodes}
    for job, least in (changes.get("minimum") or {}).items():
        number = int(job.rpartition(".")[2])
        one = waiting.get(number)
        if one is None:
            raise UsageError(
                f"--minimum {job}={least}: no such job waits",
                code="job-unknown",
                option="--minimum",
                job=job,
            )
        if not 1 <= int(least) <= one.maximum:
            raise UsageError(
                f"--minimum {job}={least}: it can run on 1 to {one.maximum} hosts",
                code="value-range",
                option="--minimum",
                job=job,
                value=int(least),
                bound=one.maximum,
            )
        waiting[number] = _with_least(one, int(least))
    jobs = tuple(waiting.get(one.number, one) for one in snapshot.jobs)
    return replace(snapshot, nodes=nodes, jobs=jobs)


def _with_least(job: QueuedJob, least: int) -> QueuedJob:
    """Return a job that needs fewer hosts: a rigid job runs on that number, for proportionally longer."""
    if job.malleable:
        return replace(job, minimum=least)
    longer = job.requested * job.maximum / least
    return replace(job, minimum=least, maximum=least, requested=longer)


def _document(found: QueueFuture) -> Document:
    return {
        "basis": "history" if found.draws > 1 else "estimates",
        "draws": found.draws,
        "seconds": found.seconds,
        "wait": found.wait,
        "response": found.response,
        "over": found.over,
        "starts": {str(job): one for job, one in found.starts.items()},
        "ends": {str(job): one for job, one in found.ends.items()},
    }


def serve(connection: Connection, planner: QueuePlanner) -> None:
    """Answer questions until the other end closes the connection."""
    while True:
        try:
            question = json.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            answer = planner.answer(question)
        except Exception as error:  # noqa: BLE001 - the client gets it, and the next question is answered
            answer = {"failure": failure_of(error).document()}
        connection.send_bytes(json.dumps(answer, allow_nan=False).encode())


def main() -> None:
    """Run the process."""
    os.dup2(2, 1)  # a user's policy may print
    policy, *words, descriptor = sys.argv[1:]
    options = dict(word.split("=", 1) for word in words)
    serve(Connection(int(descriptor)), QueuePlanner(policy, options))


if __name__ == "__main__":
    main()
