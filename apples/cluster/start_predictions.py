"""Predictions in a scheduler's answers: intervals of starts, changes that start a job, and what-if questions.

The deciding thread adds a snapshot to its answer; the thread that waits for the answer asks the planner. If the
planner does not answer in time, the last prediction counts, unless it is too old.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from apples.cluster.answers import Document
from apples.cluster.live_job import JobSubmission
from apples.cluster.planner import PlannerClient
from apples.cluster.queue_snapshot import (
    MAX_QUEUED,
    QueueSnapshot,
    as_if_submitted,
    snapshot_of,
)
from apples.cluster.scheduler import LiveScheduler
from apples.errors import LaunchError, UsageError

SNAPSHOT = "snapshot"
"""Key of the snapshot in an answer, until the waiting thread replaces it."""
FRESH_SECONDS = 2.0
OLD_SECONDS = 30.0
QUEUE_SECONDS = 1.0
WHAT_IF_SECONDS = 10.0
NOT_YET = "its start is being computed"
NO_PLANNER = "no predictions while jobs share hosts"
NO_HISTORY = "too few finished runs to predict its start"
TOO_FAR_BACK = f"it is not among the first {MAX_QUEUED} jobs that may be started"
MAX_CHANGED = 1000


class Foresight:
    """Adds a planner's predictions to the answers of a scheduler."""

    def __init__(self, scheduler: LiveScheduler, name: str, planner: PlannerClient | None) -> None:
        self._scheduler, self._name, self._planner = scheduler, name, planner
        self._taken: tuple[int, QueueSnapshot] | None = None
        self._last: tuple[QueueSnapshot, Document] | None = None

    def close(self) -> None:
        """End the planner."""
        if self._planner is not None:
            self._planner.close()

    def rest(self) -> None:
        """End the planner process after a time without questions."""
        if self._planner is not None:
            self._planner.rest()

    def snapshot(self) -> Document:
        """Return the present queue for the planner; only for the deciding thread."""
        scheduler = self._scheduler
        if self._planner is None or scheduler.trouble:
            return {SNAPSHOT: None}
        kept = self._taken
        if (
            kept is None
            or kept[0] != scheduler.changes
            or scheduler.now > kept[1].time + FRESH_SECONDS
        ):
            kept = self._taken = scheduler.changes, snapshot_of(scheduler)
        return {SNAPSHOT: kept[1]}

    def of_queue(self, document: Document) -> Document:
        """Return the answer about the queue with the predicted starts of its waiting jobs."""
        snapshot = document.pop(SNAPSHOT)
        found = None if snapshot is None else self._future(snapshot)
        for one in document["jobs"]:
            one["start"] = self._start(found, one["job"])
        return document

    def of_job(self, document: Document, number: int) -> Document:
        """Return the answer on a waiting job with its start, ends of other jobs, and changes to start it now."""
        snapshot = document.pop(SNAPSHOT)
        document |= {"start": None, "start_unknown": "", "changes": {}}
        if document["position"] is None:
            return document
        found = None
        if self._planner is None:
            return document | {"start_unknown": NO_PLANNER}
        if snapshot is not None and all(job.number != number for job in snapshot.jobs):
            return document | {"start_unknown": TOO_FAR_BACK}
        if snapshot is not None:
            answer = self._planner.ask("changes", snapshot, job=number)
            found = self._found(snapshot, answer)
        if found is None:
            return document | {"start_unknown": NOT_YET}
        if found[1].get("job") == number:
            document["changes"] = found[1]["changes"]
        document["start"] = self._start(found, document["job"])
        if document["start"] is None:
            document["start_unknown"] = (
                NO_HISTORY if found[1]["draws"] <= 1 else "it fits on no hosts in service"
            )
        for one in document["holding"]:
            one["end"] = self._end(found, one["job"])
        return document

    def with_job(self, submission: JobSubmission) -> Document:
        """Return the queue with an additional job, for `of_submission`; only for the deciding thread."""
        snapshot = self._answerable(self.snapshot())
        snapshot, source = as_if_submitted(self._scheduler, snapshot, submission)
        requested = snapshot.jobs[-1].requested
        return {SNAPSHOT: snapshot, "requested": requested, "estimated_by": source}

    def of_submission(self, document: Document) -> Document:
        """Return the predicted start and finish of a job that is not submitted."""
        snapshot = document.pop(SNAPSHOT)
        answer = self._answered("submission", snapshot)
        return {
            "schema": "apples.prediction/1", "name": self._name,
            "time": self._scheduler.state.wall + snapshot.time,
            "basis": "history" if answer["draws"] > 1 else "estimates", **document,
            "start": self._at(snapshot, answer["start"]), "finish": self._at(snapshot, answer["finish"]),
        }  # fmt: skip

    def what_if(self, document: Document, changes: Mapping[str, Any]) -> Document:
        """Return the queue's future as it is, and after the changes."""
        snapshot = self._answerable(document)
        answer = self._answered("what_if", snapshot, changes=changes)
        both = {}
        for which in ("now", "then"):
            one = answer[which]
            found = snapshot, one
            both[which] = {
                key: one[key] for key in ("policy", "hosts", "wait", "response", "over")
            } | {
                "starts": {
                    f"{self._name}.{job}": self._start(found, f"{self._name}.{job}")
                    for job in one["starts"]
                }
            }
        then = answer["then"]
        return {
            "schema": "apples.what-if/1", "name": self._name, "basis": then["basis"],
            "draws": then["draws"], **both,
        }  # fmt: skip

    # ----------------------------------------------------------------------------- asking
    def _answerable(self, document: Document) -> QueueSnapshot:
        """Return the snapshot of an answer.

        Raises
        ------
        UsageError
            Jobs share hosts under the scheduler's policy. Permanent.
        LaunchError
            The scheduler cannot write its log. Transient.
        """
        snapshot: QueueSnapshot | None = document[SNAPSHOT]
        if self._planner is None:
            raise UsageError(NO_PLANNER, code="planner-missing")
        if snapshot is None:
            raise LaunchError("no prediction can be made now", code="prediction-unavailable")
        return snapshot

    def _answered(self, what: str, snapshot: QueueSnapshot, **more: Any) -> Document:
        """Return the planner's answer, or raise `LaunchError` if there is none in time."""
        answer = (
            None
            if self._planner is None
            else self._planner.ask(what, snapshot, WHAT_IF_SECONDS, **more)
        )
        if answer is None:
            raise LaunchError(
                f"no answer of the planner within {WHAT_IF_SECONDS:g} s (for a long queue it compiles "
                "its loops, once for each version of apples); ask again",
                code="planner-silent", seconds=WHAT_IF_SECONDS,
            )  # fmt: skip
        return answer

    def _future(self, snapshot: QueueSnapshot) -> tuple[QueueSnapshot, Document] | None:
        if self._last is not None and self._last[0] is snapshot:
            return self._last
        if self._planner is not None and any(not one.nodes for one in snapshot.jobs):
            answer = self._planner.ask("future", snapshot, QUEUE_SECONDS)
            return self._found(snapshot, answer)
        return None

    def _found(
        self, snapshot: QueueSnapshot, answer: Document | None
    ) -> tuple[QueueSnapshot, Document] | None:
        """Return an answer with its snapshot; without an answer in time, the last one unless it is too old."""
        late = None if self._planner is None else self._planner.late
        if answer is not None:
            self._last = snapshot, answer
        elif (
            late is not None
            and "starts" in late[1]
            and (self._last is None or late[0].time > self._last[0].time)
        ):
            self._last = late
        last = self._last
        return last if last is not None and last[0].time > snapshot.time - OLD_SECONDS else None

    def _start(self, found: tuple[QueueSnapshot, Document] | None, job: str) -> list[float] | None:
        """Return a job's start in seconds since the epoch: low, middle and high; None: not known."""
        if found is None or found[1]["draws"] <= 1:
            return None
        return self._at(found[0], found[1]["starts"].get(job.rpartition(".")[2]))

    def _end(self, found: tuple[QueueSnapshot, Document], job: str) -> list[float] | None:
        if found[1]["draws"] <= 1:
            return None
        return self._at(found[0], found[1]["ends"].get(job.rpartition(".")[2]))

    def _at(self, snapshot: QueueSnapshot, seconds: list[float] | None) -> list[float] | None:
        if seconds is None:
            return None
        begin = self._scheduler.state.wall + snapshot.time
        return [begin + one for one in seconds]


def checked_changes(body: Mapping[str, Any], number_of: Callable[[str], int]) -> dict[str, Any]:
    """Return the changes of a what-if question, checked.

    Raises
    ------
    UsageError
        They are invalid.
    """
    unknown = set(body) - {"policy", "options", "hosts_more", "hosts_less", "minimum"}
    policy, options, minimum = (
        body.get("policy", ""),
        body.get("options", {}),
        body.get("minimum", {}),
    )
    counts = [body.get(name, 0) for name in ("hosts_more", "hosts_less")]
    if (
        unknown
        or not isinstance(policy, str)
        or not _all_are(options, str)
        or not _all_are(minimum, int)
        or not all(type(one) is int and 0 <= one < math.inf for one in counts)
    ):
        raise UsageError(
            'what-if: expected {"policy": name, "options": {name: value}, "hosts_more": n, "hosts_less": n, '
            '"minimum": {job: n}}; each field is optional',
            code="request-invalid", field=next(iter(unknown), None),
        )  # fmt: skip
    for job in minimum:
        number_of(job)
    return {
        "policy": policy, "options": options, "hosts_more": counts[0], "hosts_less": counts[1],
        "minimum": minimum,
    }  # fmt: skip


def _all_are(found: object, kind: type) -> bool:
    return (
        isinstance(found, dict)
        and len(found) <= MAX_CHANGED
        and all(type(value) is kind for value in found.values())
    )
