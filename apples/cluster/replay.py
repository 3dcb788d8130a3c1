"""Repeat the decisions in the log of a live scheduler: the same inputs have to lead to the same decisions.

The log holds the inputs (`inputs`) since the last start of the scheduler, until its length makes the scheduler
rewrite it. A replay gives these inputs to a new scheduler and compares each of its records with the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Final

from pydantic import TypeAdapter

from apples.cluster.answers import reason_of
from apples.cluster.history import Requests
from apples.cluster.host_preference import HostPreference
from apples.cluster.inputs import BEGUN, HEAR, REPORTS, REQUIRED
from apples.cluster.live_job import LiveJob, submission_of
from apples.cluster.log import SchedulerLog, folded
from apples.cluster.orders import AttemptPhase, JobReport, Report
from apples.cluster.progress import JobPace
from apples.cluster.scheduler import LiveScheduler
from apples.cluster.state import Record, SchedulerState
from apples.cluster.timeouts import QueueLimits, Timeouts
from apples.errors import ApplesError, UsageError
from apples.scheduling.policy import NodeLoad, SchedulingPolicy

DECISIONS: Final = frozenset({"start", "resize", "vacate", "reject"})
"""Kinds of the records of decisions; all other records follow from inputs."""
_LOADS: Final = TypeAdapter(NodeLoad)
_READERS: Final = {verb: TypeAdapter[Report](kind) for verb, kind in REPORTS.items()}


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision that a replay made, with its reason and its alternative.

    Attributes
    ----------
    record
        The decision's record in the log.
    reason
        Reason of the decision.
    runner_up
        The alternative that was not taken, and why not; empty: there was none.
    """

    record: Record
    reason: str
    runner_up: str


@dataclass(frozen=True, slots=True)
class Replay:
    """The records of a log, and those of a scheduler with the same inputs.

    Attributes
    ----------
    logged, made
        Without inputs and request ids.
    explained
        The replayed decisions, in their order.
    wall, since
        Time since the epoch at second 0 of the scheduler's clock, and the second of the scheduler's start.
    """

    logged: Sequence[Record]
    made: Sequence[Record]
    explained: Sequence[Decision] = ()
    wall: float = 0.0
    since: float = 0.0

    @property
    def decisions(self) -> int:
        """Number of decisions in the log."""
        return sum(one["do"] in DECISIONS for one in self.logged)

    @property
    def alike(self) -> int:
        """Number of decisions that the replay repeated, with the same time and place in the order of decisions."""
        ours = (
            [one for one in each if one["do"] in DECISIONS] for each in (self.logged, self.made)
        )
        return sum(one == other for one, other in zip(*ours, strict=False))

    @property
    def parting(self) -> tuple[Record | None, Record | None] | None:
        """The first difference: the record of the log, and the record of the replay; None: no difference."""
        both = zip_longest(self.logged, self.made)
        return next(((one, other) for one, other in both if one != other), None)


def replayed(
    records: Sequence[Record],
    policy: SchedulingPolicy,
    prefer: HostPreference | None = None,
    nodes: Mapping[str, NodeLoad] = MappingProxyType({}),
) -> Replay:
    """Replay the inputs in a log since the last start of its scheduler.

    Parameters
    ----------
    records
        All records of the log, in their order.
    policy, prefer, nodes
        As those of that scheduler.

    Raises
    ------
    UsageError
        The log lacks the start of that scheduler: an older version wrote it, or the scheduler has rewritten it
        since. Permanent.
    """
    begun = max((k for k, one in enumerate(records) if one.get("do") == BEGUN), default=None)
    if begun is None or "timeouts" not in records[begun]:
        raise UsageError(
            "this log cannot be replayed: it was written by an older version, or written anew since the scheduler "
            "was started",
            code="log-not-replayable",
        )
    start, rest = records[begun], records[begun + 1 :]
    memory = _Memory(folded(records[:begun])[0])
    folders = iter([str(one["is"]["folder"]) for one in rest if one["do"] == "start"])
    state = memory.state
    wall, since = state.wall, state.time
    timeouts = Timeouts(**{name: float(each) for name, each in start["timeouts"].items()})
    lost = dict.fromkeys(start["lost"], "it does not answer")
    fresh = _ReplayedScheduler(
        memory, policy, state.hosts, since, wall + since, lambda: next(folders, ""), timeouts, lost, prefer,
        nodes, bool(start["shared"]), start["name"], start["most_hosts"], start["cpus"],
        QueueLimits(**{name: int(each) for name, each in start.get("limits", {}).items()}),
    )  # fmt: skip
    submissions = {one["job"]: one["submission"] for one in rest if "submission" in one}
    memory.records.clear()
    for record in rest:
        for at, verb, *words in record.get("inputs", ()):
            with suppress(ApplesError):  # the replay differs already
                if verb == "submit":
                    submission = submission_of(submissions[words[0]])
                    past = dict.fromkeys(submission.after, "finished")  # it was accepted
                    fresh.submit(at, submission, past=past)
                else:
                    fresh.take_in(at, verb, *words)
        fresh.turn()
    return Replay([*_bare(rest)], [*_bare(memory.records)], fresh.explained, wall, since)


def report_of(verb: str, words: Sequence[Any]) -> Report:
    """Return the report of an input."""
    more = words[-1] if words and isinstance(words[-1], Mapping) else {}
    given = dict(zip(REQUIRED[verb], words, strict=False))
    return _READERS[verb].validate_python({**given, **more})


def _bare(records: Sequence[Record]) -> Iterator[Record]:
    for record in records:
        if record["do"] not in {
            HEAR,
            "forget",
        }:  # `forget` records carry the time of a tick, which is no input
            yield {key: each for key, each in record.items() if key not in {"inputs", "answer"}}


class _Memory(SchedulerLog):
    """A log that keeps its records in memory."""

    def __init__(self, state: SchedulerState) -> None:
        self.state = state
        self.records: list[Record] = []

    def recover(self) -> tuple[SchedulerState, list[str]]:
        return self.state, []

    def commit(self, records: Sequence[Record], state: SchedulerState) -> None:  # noqa: ARG002 - as the real one
        self.records += json.loads(json.dumps(records))

    def rewrite(self, state: SchedulerState, *more: Record) -> None:
        pass

    def archive(self, jobs: Sequence[LiveJob], name: str, wall: float, requests: Requests) -> None:
        pass

    def import_history(self, name: str, wall: float) -> list[str]:  # noqa: ARG002 - as the real one
        return []

    @property
    def whole(self) -> bool:
        return True


class _ReplayedScheduler(LiveScheduler):
    """A scheduler that gets the inputs of a log, and no others."""

    def __init__(self, *words: Any) -> None:
        self.explained: list[Decision] = []
        self._queue: list[int] = []
        self._free = 0
        super().__init__(*words)

    def take_in(self, clock: float, verb: str, *words: Any) -> None:
        """Take in one input of a log."""
        if verb in _READERS:
            self.report(clock, report_of(verb, words))
        elif verb in {"cancel", "resize", "drain", "resume"}:
            getattr(self, verb)(clock, *words)
        else:
            with self._input(clock, verb):
                getattr(self, f"_take_in_{verb}")(*words)

    def _pass(self) -> None:
        """Run the policy once; explain its decisions by the reason of the first job that still waits."""
        ledger = self.ledger
        self._queue, self._free = [job.id for job in ledger.queue], ledger.free
        count = len(self.explained)
        super()._pass()
        waiting = next((job for job in self._queue if self.state.jobs[job].waits), None)
        if waiting is not None:
            why = reason_of(self, self.state.jobs[waiting])
            for at in range(count, len(self.explained)):
                decision = self.explained[at]
                if not decision.runner_up:
                    runner_up = f"{self.name}.{waiting} waits: {why}"
                    self.explained[at] = replace(decision, runner_up=runner_up)

    def _change(self, job: LiveJob, do: str, **values: Any) -> LiveJob:
        before = self.state.jobs.get(job.number)
        changed = super()._change(job, do, **values)
        if do in DECISIONS:
            record = {"do": do, "at": self.now, "job": job.number, "is": changed.document()}
            self.explained.append(Decision(record, *self._explained(do, before, changed)))
        return changed

    def _explained(self, do: str, before: LiveJob | None, job: LiveJob) -> tuple[str, str]:
        """Return reason and runner-up of a decision; empty runner-up: `_pass` names the first job left waiting."""
        if do != "start":
            stays = ", ".join(() if before is None else before.hosts)
            return job.reason, f"stay on {stays}" if stays else ""
        place = self._queue.index(job.number) + 1 if job.number in self._queue else 0
        order = "first in the queue" if place == 1 else f"number {place} in the queue"
        free = f"{self._free} of {len(self.state.hosts)} hosts free"
        first = self._queue[0] if place > 1 else None
        ahead = "" if first is None or not self.state.jobs[first].waits else (
            f"; started ahead of {self.name}.{first}"
        )  # fmt: skip
        return f"{order}, {free}{ahead}" if place else free, ""

    def _take_in_look(self) -> None:
        self._check_timeouts()

    def _take_in_pass(self) -> None:
        self._pass()

    def _take_in_pace(self, number: int, end: float | None) -> None:
        self.paces[number] = JobPace(self.job(number).hosts, self.now, 0, self.now, end)
        self._request_pass()

    def _take_in_speeds(self, number: int, speeds: Mapping[str, Any], anchor: str) -> None:
        measured = {host: float(speed) for host, speed in speeds.items()}
        self.progress[number] = replace(self._progress(number), speeds=measured, anchor=anchor)

    def _take_in_messages(self, number: int, messages: Sequence[tuple[str, str, Any]]) -> None:
        sent = tuple((source, target, float(size)) for source, target, size in messages)
        self.progress[number] = replace(self._progress(number), messages=sent)

    def _progress(self, number: int) -> JobReport:
        """Return the last report of a job; the inputs of a log lack reports that changed no record."""
        attempt = self.job(number).attempt
        return self.progress.get(number) or JobReport(number, attempt, AttemptPhase.RUNNING)

    def _take_in_load(self, host: str, load: Sequence[Any]) -> None:
        self.loads[host] = _LOADS.validate_python(load)

    def _hear_running(self, job: LiveJob, report: JobReport) -> None:
        """Keep the job's speeds and messages; separate inputs carry them, not the reports in a log."""
        if (said := self.progress.get(job.number)) is not None:
            report = replace(
                report, speeds=said.speeds, anchor=said.anchor, messages=said.messages
            )
        super()._hear_running(job, report)

    def _note_pace(self, job: LiveJob, report: JobReport) -> None:
        """Do nothing: an input of the log gives the pace."""
