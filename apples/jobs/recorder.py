"""`RunRecorder`: writes the record of a run while it runs, in its command or in the supervisor of a job.

If a file cannot be written, for example on a full disk, the recorder warns once and the run continues. Written
files survive any end of the process that wrote them.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from apples.agent.documents import SlowHostEntry
from apples.agent.information import InformationPool
from apples.agent.rescheduling import AdaptiveExecution, ReschedulingDecision
from apples.agent.session.phases import PhaseTimes
from apples.agent.session.results import (
    PlanResult,
    RunResult,
    VerificationInterrupt,
    verification_error,
)
from apples.agent.session.running import Follow, prepare, unwatched
from apples.agent.session.spec import RunSpec
from apples.agent.slow_hosts import SlowHostDetector
from apples.errors import ApplesError, UsageError, failure_of
from apples.io import documents
from apples.io.naming import naming
from apples.jobs import store
from apples.jobs.spec import NAMED, JobSpec
from apples.jobs.store import Record, StoredJob, read_events
from apples.launch.actuator import Execution
from apples.launch.events import Outcome, Progress, Talk, unheard
from apples.launch.plan import LaunchPlan, run_task
from apples.malleable.control.messages import phases_in_order
from apples.weather.conditions import STATIC

PROGRESS = "progress"
MAX_PROGRESS = 10_000
MAX_PROGRESS_BYTES = 1 << 23
"""Limits of the lines of progress in the events and of their bytes; beyond them every second line is dropped."""
INTERRUPTED = 130
"""Exit code of a command that the user interrupts."""
STATE, EVENTS = "state", "events"
"""Parts of a record for which a failed write is warned about."""
MAX_RANKS_RECORDED = 24
"""Largest number of ranks for which messages are recorded during a run: each write replaces the whole record."""
MAX_PAIRS_RECORDED = 200
"""Largest number of pairs of hosts for which the bytes of an iteration are recorded."""
SHOWN_DECISIONS = 20
COUNTERS = (
    "clipped_compute_seconds",
    "clipped_processor_seconds",
    "cpu_wait_seconds",
    "throttled_seconds",
    "major_faults",
)
"""Fields of a host's times that most programs leave out."""
WRITE_SECONDS = 1.0
"""Shortest interval between two writes of a running run's state; its progress goes to its events."""


class EventLog:
    """Appends events to the file of a record, one JSON object a line; a line is written whole or not at all."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.monotonic,
        max_progress: int = MAX_PROGRESS,
        max_progress_bytes: int = MAX_PROGRESS_BYTES,
    ) -> None:
        self.path = path
        self._clock = clock
        self._max_progress, self._max_progress_bytes = max_progress, max_progress_bytes
        self._began = self._last = -math.inf
        self._apart = 0.0
        self._progress = self._bytes = 0
        self._handle = -1

    def append(self, event: Mapping[str, Any]) -> int:
        """Write an event; return the bytes of its line.

        Raises
        ------
        OSError
            The line could not be written; the file is unchanged.
        """
        line = json.dumps(event).encode() + b"\n"
        with naming(self.path):
            if self._handle < 0:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._handle = os.open(self.path, flags, 0o600)
            before = os.fstat(self._handle).st_size
            try:
                written = os.write(self._handle, line)
                if written < len(line):
                    os.write(self._handle, line[written:])  # raises the reason of the short write
            except OSError:
                with suppress(OSError):
                    os.ftruncate(self._handle, before)
                raise
        return len(line)

    def append_progress(self, event: Mapping[str, Any]) -> None:
        """Write a line of progress, unless the last line is more recent than the current minimum distance.

        `_thin_out` raises that distance as the run gets longer.
        """
        now = self._clock()
        if now - self._last < self._apart:
            return
        self._bytes += self.append(event)
        self._began = now if self._progress == 0 else self._began
        self._last = now
        self._progress += 1
        if self._progress > self._max_progress or self._bytes > self._max_progress_bytes:
            self._thin_out()

    def close(self) -> None:
        """Close the descriptor."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

    def _thin_out(self) -> None:
        """Drop every second line of progress; later lines keep the distance of the remaining lines."""
        kept, count = [], 0
        for event in read_events(self.path):
            count += event["event"] == PROGRESS
            if event["event"] != PROGRESS or count % 2:
                kept.append(event)
        documents.replace(self.path, "".join(f"{json.dumps(event)}\n" for event in kept))
        self.close()  # the next line goes to the new file
        self._apart = 1.5 * (self._last - self._began) / self._progress
        self._progress, self._bytes = (count + 1) // 2, self._bytes // 2


class RunRecorder:
    """Writes the state, events and result of one run into its record.

    Parameters
    ----------
    job
        The record, which the caller supervises; None: no record could be created, and nothing is written.
    talk
        Receives a warning, once, if a file cannot be written.
    every
        Shortest interval in seconds between two writes of the state while the run runs.
    clock
        Returns seconds, monotonic.

    Attributes
    ----------
    state
        Content of ``job.json``.
    document
        The document of an ended run; empty before its end.
    kept
        Whether `document` is on the disk.
    """

    def __init__(
        self,
        job: StoredJob | None,
        talk: Talk,
        every: float = WRITE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.job = job
        self.state: Record = job.record() if job else {}
        self.document: Mapping[str, Any] = {}
        self.kept = False
        self._talk, self._every, self._clock = talk, every, clock
        self._events = EventLog(job.events) if job else None
        self._written = -math.inf
        self._warned: dict[str, str] = {}
        self._decided: ReschedulingDecision | None = None
        self._slow_hosts: list[SlowHostEntry] = []
        self._changed = 0

    @property
    def ended(self) -> bool:
        """Whether the end of the run is recorded."""
        return self.state.get("ended") is not None

    @property
    def id(self) -> str | None:
        """The record's name; None without a record."""
        return self.job.id if self.job else None

    def events(self) -> list[Record]:
        """Return the events recorded so far."""
        return read_events(self.job.events) if self.job else []

    # ----------------------------------------------------------------------------- events
    def planned(self, plan: PlanResult, launch: LaunchPlan | None) -> None:
        """Record the plan, its weather and the task, before anything is started."""
        chosen, information = plan.decisions.chosen, plan.decisions.information or plan.information
        self._keep_document("plan.json", lambda: json.dumps(plan.document(), indent=1))
        if information.conditions.source != STATIC:
            self._keep_document("weather.json", information.conditions.weather.to_json)
        news: Record = {"name": information.template.name, "blueprint": plan.blueprint}
        if chosen is not None and launch is not None:
            task = run_task(launch)
            self._keep_document("task.json", lambda: json.dumps(task, indent=1))
            news |= {
                "hosts": list(plan.rows), "rows": list(plan.rows.values()),
                "iterations": information.application.iterations,
                "predicted_seconds": chosen.execution_seconds,
            }  # fmt: skip
        self.note(**news)
        self.event("planned")

    def followed(self, follow: Follow) -> Follow:
        """Return a function that follows a run as `follow` does, and records it."""

        @contextmanager
        def both(plan: PlanResult, execution: Execution) -> Iterator[Callable[[Progress], None]]:
            self.running()
            with self.recording(execution) as record, follow(plan, execution) as show:

                def received(at: Progress) -> None:
                    record(at)
                    show(at)

                yield received

        return both

    def running(self) -> None:
        """Record that the program runs, with its hosts and rows."""
        self.note(state="running")
        self.event("running", hosts=self.state.get("hosts"), rows=self.state.get("rows"))

    @contextmanager
    def recording(self, execution: Execution) -> Iterator[Callable[[Progress], None]]:
        """Yield a function that records a progress report; record the measurements at the end of the block.

        The state is written at the first report, then at most once each `every` seconds.
        """

        def record(at: Progress) -> None:
            first = not self.state.get("iteration")
            self.state.update(iteration=at.iteration, iterations=at.iterations)
            self._changes(execution)
            if isinstance(execution, AdaptiveExecution):
                self._decisions(execution.decisions)
                self._slow(execution.slow_hosts)
            line = _event(PROGRESS, **_reported(at))
            del line["borders"]  # the measurements at the end contain them
            self._kept(partial(EventLog.append_progress, event=line))
            if first or self._clock() - self._written >= self._every:
                self.note(**_messages(execution))

        if isinstance(execution, AdaptiveExecution):
            warn = execution.on_unattended_end

            def unattended(line: str) -> None:
                warn(line)
                with suppress(ApplesError):  # the run failed; the line has the reason
                    outcome = execution.execution.outcome()
                    if outcome is not None:
                        self.state.update(iteration=outcome.iterations)
                self.note(reason=line)

            execution.on_unattended_end = unattended
        yield record
        self._changes(execution)
        if isinstance(execution, AdaptiveExecution):
            self._decisions(execution.decisions)
        outcome = execution.outcome()
        if outcome is not None:
            self._measured(outcome)

    def _changes(self, execution: Execution) -> None:
        """Record each change of hosts or rows since the last call."""
        for change in execution.changes:
            if change.epoch <= self._changed:
                continue
            self._changed = change.epoch
            place = {
                "hosts": [host for host, _ in change.members],
                "rows": [rows for _, rows in change.members],
                "epoch": change.epoch,
            }
            if change.epoch >= self.state.get(
                "epoch", 0
            ):  # else the state has a later epoch already, from the job's status
                self.state.update(place)
            self.event(
                "moved", at=change.at, iteration=change.iteration, **place,
                seconds=change.seconds, phases=phases_in_order(change.phases),
            )  # fmt: skip

    def verifying(self, seconds: float) -> None:
        """Record that the verification has begun, with the estimated seconds that it takes."""
        self.note(state=store.VERIFYING, verifying_until=time.time() + seconds)

    def verified(self, document: Mapping[str, Any]) -> None:
        """Record the verification of a run's result, from its document."""
        self.state["verified"] = document.get("verified")
        self.event("verified", verified=document.get("verified"))

    def finished(self, document: Mapping[str, Any], reason: str = "", code: int = 0) -> None:
        """Write the document of an ended run, and record the end: `failed` if the verification found an error.

        Parameters
        ----------
        reason, code
            Reason and exit code of a run with a right or unverified result.
        """
        self.verified(document)
        self._keep_result(document)
        self.note()
        if wrong := verification_error(document):
            self.over("failed", str(wrong), wrong.exit_code)
        else:
            self.over("finished", reason, code)

    def began(self, document: Mapping[str, Any], **known: Any) -> None:
        """Record the plan of a sweep, master/worker run or pipeline, before it is started.

        Parameters
        ----------
        known
            Entries for ``job.json``: `name`, `hosts`, `predicted_seconds`.
        """
        self._keep_document("plan.json", lambda: json.dumps(document, indent=1))
        self.note(state="running", **known)
        self.event("planned")

    def record_result(self, document: Mapping[str, Any], **known: Any) -> None:
        """Write the result's document; `over` records how the run ended.

        Parameters
        ----------
        known
            Entries for ``job.json``: `name`, `hosts`, `predicted_seconds`, `measured_seconds`, `verified`.
        """
        self._keep_result(document)
        self.note(**known)
        self.event("verified", verified=known.get("verified"))

    def over(self, state: str, reason: str, code: int) -> None:
        """Record the end of the run: its final state, reason and exit code."""
        self.event("ended", state=state, reason=reason, exit_code=code)
        self.state.update(state=state, reason=reason, exit_code=code, ended=time.time())
        if self.job is None or self._events is None:
            return
        self._events.close()
        try:
            self.job.write_last(self.state)
        except (OSError, ValueError) as error:
            self.warn(f"the end of the run is not recorded: {_why(error)}")

    # ------------------------------------------------------------------------------ writing
    def note(self, **news: Any) -> None:
        """Update and write the state; if the write fails, the old file stays and the run continues."""
        self.state.update(news)
        self._written = self._clock()
        if self.job is None:
            return
        try:
            self.job.write(self.state)
        except (OSError, ValueError) as error:
            self.warn(f"the record is not saved: {_why(error)}", STATE)
        else:
            self._warned.pop(STATE, None)

    def event(self, name: str, **values: Any) -> None:
        """Append an event to the record."""
        self._kept(partial(EventLog.append, event=_event(name, **values)))

    def warn(self, line: str, about: str = "") -> None:
        """Log a warning once; with `about`, log no other warning about that file until it can be written."""
        if line != self._warned.get(about) and not (about and about in self._warned):
            self._warned[about] = line
            self._talk(f"warning: {line}")

    def logging(self, talk: Talk, max_bytes: int = store.MAX_LOG_BYTES) -> Talk:
        """Return a function that passes lines to `talk` and appends them to the log, of at most `max_bytes`."""
        if self.job is None:
            return talk
        job = self.job

        def both(line: str) -> None:
            talk(line)
            with suppress(OSError), job.log.open("ab", buffering=0) as stream:
                stream.write(f"{line}\n".encode(errors="replace"))
            job.trim_log(max_bytes)

        return both

    def _measured(self, outcome: Outcome) -> None:
        """Record the program's measurements; on a full disk, use the reserved space."""
        self.state.update(iteration=outcome.iterations, measured_seconds=outcome.seconds)
        event = _event("measured", **_reported(outcome))
        if self.job is not None:
            to_the_last = self.job.to_the_last
            self._kept(lambda events: to_the_last(lambda: events.append(event)))

    def _slow(self, slow: SlowHostDetector) -> None:
        """Record each host that became slow or recovered; the state has the latest figures."""
        if not slow.findings:
            return
        now, known = [host.document() for host in slow.findings], self._slow_hosts
        before = {_place(host): host["until_iteration"] for host in known}
        for host in now:
            if before.get(_place(host), -1) != host["until_iteration"]:
                self.event("slow-host", **host)
        self._slow_hosts = self.state["slow_hosts"] = now

    def _decisions(self, decisions: list[ReschedulingDecision]) -> None:
        """Record the moves that were evaluated or made since the last call."""
        if not decisions or decisions[-1] is self._decided:
            return
        places = [k for k, decision in enumerate(decisions) if decision is self._decided]
        for decision in decisions[places[-1] + 1 if places else 0 :]:
            self.event("decision", **decision.document())
        self._decided = decisions[-1]
        self.state["redistributions"] = [
            decision.document() for decision in decisions[-SHOWN_DECISIONS:]
        ]

    def _keep_result(self, document: Mapping[str, Any]) -> None:
        """Write the document of an ended run."""
        self.document = document
        if self.job is not None:
            write = self.job.write_result
            self.kept = self._kept(lambda _: write(document))

    def _keep_document(self, name: str, text: Callable[[], str]) -> None:
        """Write a document of the record, durably."""
        if self.job is not None:
            path = self.job.folder / name
            self._kept(lambda _: documents.replace(path, text()))

    def _kept(self, write: Callable[[EventLog], object]) -> bool:
        """Call `write`; return whether it succeeded. A failure is logged once."""
        if self._events is None:
            return False
        try:
            write(self._events)
        except OSError as error:
            self.warn(f"the record is not saved: {_why(error)}", EVENTS)
        except ValueError as error:
            self.warn(f"the record is incomplete: {_why(error)}", EVENTS)
        else:
            self._warned.pop(EVENTS, None)
            return True
        return False


def _place(slow: SlowHostEntry) -> tuple[str, int]:
    """Return the host of an entry and the iteration since which it is slow."""
    return slow["host"], slow["since_iteration"]


def _reported(times: Progress | Outcome) -> Record:
    """Return a report as a record; counters that the program does not report are left out."""
    document = asdict(times)
    if document["clipped_seconds"] is None:
        del document["clipped_seconds"]
    for host in document["hosts"]:
        for name in [name for name in COUNTERS if host[name] is None]:
            del host[name]
    return document


def _messages(execution: Execution) -> Record:
    """Return the data that a running run's arrays sent between ranks; empty if unknown."""
    messages = execution.array_messages
    pairs = [[*pair, float(f"{sent:.3g}")] for pair, sent in messages.per_iteration().items()]
    entries: Record = {"iteration_messages": pairs if len(pairs) <= MAX_PAIRS_RECORDED else []}
    if (
        messages.ranks <= MAX_RANKS_RECORDED
    ):  # checked first, because the matrix is quadratic in the ranks
        matrix = messages.matrix()
        entries = {} if matrix is None else {**entries, "messages": matrix.document()}
    return entries


def _why(error: OSError | ValueError) -> str:
    """Return the reason of a failed write: an error of the disk, or a NaN from a user's model or program."""
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error)


def _event(name: str, **values: Any) -> Record:
    return {"at": time.time(), "event": name, **values}


@contextmanager
def recorded(
    order: Mapping[str, Any], talk: Talk, kind: str = store.RUN, where: Path | None = None
) -> Iterator[RunRecorder]:
    """Record a run that ends with this process; an error that ends the block is recorded and raised again.

    If the input is invalid and nothing was planned, the record is removed.

    Parameters
    ----------
    order
        The request of the user.
    where
        Directory of all records; default: `store.folder`.
    """
    with ExitStack() as held:
        try:
            job = store.create({"command": ["apples", *sys.argv[1:]], **order}, "", kind, where)
            held.enter_context(job.supervising())
        except OSError as error:
            talk(f"warning: this command is not recorded: {error.filename}: {error.strerror}")
            yield RunRecorder(None, talk)
            return
        recorder = RunRecorder(job, talk)
        try:
            yield recorder
            if not recorder.ended:
                recorder.over("finished", "", 0)
        except KeyboardInterrupt:
            if not recorder.ended:
                recorder.over("cancelled", "interrupted", INTERRUPTED)
            if job.plan.exists():
                talk(f"page of the interrupted run: apples report {job.id}")
            raise
        except (Exception, SystemExit) as error:
            failure = failure_of(error)
            if failure.exit_code == UsageError.exit_code and not job.plan.exists():
                shutil.rmtree(job.folder, ignore_errors=True)
            elif not recorder.ended:  # else the end is recorded already
                recorder.over("failed", failure.message, failure.exit_code)
            raise


def known_of(document: Mapping[str, Any]) -> Record:
    """Return the entries of the list of runs for the document of a sweep, master/worker run or pipeline."""
    done = document["execution"] or {}
    verified = done.get("verified")
    if document["schema"] == f"apples.{store.SWEEP}/1":
        hosts = [host for host, count in done.get("hosts", {}).items() if count]
        hosts = hosts or [each["host"] for each in document["planned"]]
    elif document["schema"] == f"apples.{store.MASTER_WORKER}/1":
        hosts = [document["master"], *document["workers"], *done.get("hosts", ())]
        verified = True if verified else None  # the number of repeated units
    else:
        hosts = [host["host"] for task in document["tasks"] for host in task["hosts"]]
    return {
        "name": document["name"],
        "hosts": list(dict.fromkeys(hosts)),
        "predicted_seconds": done.get("predicted_seconds")
        or document["predicted_seconds"]
        or None,
        "measured_seconds": done.get("measured_seconds"),
        "verified": verified,
    }


def run(
    spec: RunSpec,
    information: InformationPool | None = None,
    *,
    talk: Talk = unheard,
    follow: Follow = unwatched,
) -> RunResult:
    """Plan, start, follow to the end, verify, learn and record.

    Raises the errors of `plan` and `PreparedRun.execute`. A wrong result raises nothing: it is returned, and the
    run is recorded as failed.

    Parameters
    ----------
    information
        The loaded pool, in place of the specification's files, settings, weather and model.
    """
    with recorded(_order(spec), talk) as record:
        return carry_out(record, spec, information, talk=talk, follow=follow)


def carry_out(
    record: RunRecorder,
    spec: RunSpec,
    information: InformationPool | None = None,
    *,
    talk: Talk,
    follow: Follow,
    program_log: Talk | None = None,
    phases: PhaseTimes | None = None,
    made_by: Callable[[], Record] | None = None,
) -> RunResult:
    """Carry out a run in this process and record it; the recorder then has its document.

    Raises as `run`. If the verification is interrupted, the run is recorded before the error is raised.

    Parameters
    ----------
    program_log
        Receives the lines of the program; None: `talk` receives them.
    phases
        As in `prepare`.
    made_by
        Returns the document's entry about its command.
    """
    log = record.logging(talk)
    prepared = prepare(spec, information, talk=log, phases=phases)

    def with_maker(result: RunResult) -> Record:
        return result.document() | ({"made_by": made_by()} if made_by else {})

    try:
        done = prepared.execute(
            talk=log,
            program_log=log if program_log is None else record.logging(program_log),
            decided=record.planned,
            follow=record.followed(follow),
            verifying=record.verifying,
        )
    except VerificationInterrupt as interrupt:
        document = with_maker(replace(interrupt.result, record=record.id))
        record.finished(document, "interrupted after the run itself", INTERRUPTED)
        raise
    result = replace(done, record=record.id)
    record.finished(with_maker(result))
    return result


def _order(spec: RunSpec) -> Record:
    """Return the request of a specification, with the names of the user's functions."""
    named: dict[str, Any] = {
        name: _place_of(each) for name in NAMED if callable(each := getattr(spec, name))
    }
    filters = {
        name: [_place_of(each) for each in asked]
        for name in ("host_filters", "filters")
        if (asked := getattr(spec, name))
    }
    by_name = replace(spec, **named, host_filters=(), filters=())
    return {**JobSpec(by_name).document(), **filters, "command": sys.argv}


def _place_of(function: Any) -> str:
    """Return ``module:name`` of a function, or of an object's class."""
    own = function if hasattr(function, "__qualname__") else type(function)
    return f"{own.__module__}:{own.__qualname__}"
