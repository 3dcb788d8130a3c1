"""The service of a live scheduler: one thread decides, and other threads put calls into its queue.

In each turn the deciding thread takes all waiting calls and reports, passes them to the scheduler, and writes the
records under one sync. Only then it answers, gives orders and publishes events (`events`). `listener` accepts the
connections.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final, cast

from apples.cluster.access import ForbiddenError, Principal
from apples.cluster.admission import job_of, not_recorded
from apples.cluster.answers import (
    Document,
    history_document,
    job_document,
    metrics_text,
    queue_document,
    reason_of,
    why_document,
)
from apples.cluster.documents import ScheduledJob
from apples.cluster.events import MAX_EVENTS, Announcer
from apples.cluster.live_job import JobSubmission, submission_of
from apples.cluster.orders import REQUIRE, JobExecutor, Report, attached_requirement
from apples.cluster.planner import PlannerClient
from apples.cluster.scheduler import LiveScheduler
from apples.cluster.start_predictions import Foresight, checked_changes
from apples.cluster.state import digest_of, same_request, unknown_job
from apples.cluster.user_runners import (
    REPORTS,
    JobNews,
    JobRunnerExecutor,
    message_document,
    message_of,
)
from apples.errors import ApplesError, DeadlineError, LaunchError, UsageError, failure_of
from apples.topology.language import MAX_CHARACTERS
from apples.ui.units import listed
from apples.ui.web.event_log import EventStreamLog

MAX_WORK: Final = 32 << 10
"""Bytes of an order as JSON, the texts of its template and user file included."""
MAX_AFTER: Final = 20
MAX_NUMBER: Final = 1e9
"""Exclusive limit of an estimate in seconds, and of the absolute value of a priority."""
MAX_GATHERED: Final = 1000
MAX_HISTORY: Final = 1000
"""Jobs in one answer about the history."""
REQUEST_SECONDS: Final = 30.0
"""Time limit of a request."""
MAX_SLEEP: Final = 1.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
REQUEST = re.compile(r"[A-Za-z0-9._-]{1,64}")

TEXT: Final = "text"
"""An answer with this key alone is plain text, not JSON."""

Call = Callable[[float], Document | None]


@dataclass(frozen=True, slots=True)
class Look:
    """A call that changes nothing; it runs at the end of a turn, after the attempt to write its records.

    Attributes
    ----------
    then
        Completes the answer, in the thread that waits for it.
    """

    call: Call
    then: Callable[[Document], Document] = lambda document: document

    def __call__(self, clock: float) -> Document | None:
        """Return the answer of the call."""
        return self.call(clock)


@dataclass(frozen=True, slots=True)
class PastJobs:
    """Facts from the history that a submission needs.

    Attributes
    ----------
    moves
        `LiveScheduler.moves` before the history was read; if it has changed, the history is read again.
    states
        Final states of the predecessors of the job.
    answer
        Number of the job that the same request id submitted; None: the id is new.
    """

    moves: int
    states: Mapping[int, str]
    answer: int | None


@dataclass(frozen=True, slots=True)
class PendingSubmission:
    """A call about a submission; the thread that waits for it reads the history first.

    Attributes
    ----------
    look_up
        Reads the history.
    call
        Submits the job or, as a `Look`, only checks it, in the deciding thread. None: the history is out of date.
    known
        Returns the answer about a job of the history.
    then
        As that of a `Look`; None: the call submits the job.
    """

    look_up: Callable[[], PastJobs]
    call: Callable[[float, PastJobs], Document | None]
    known: Callable[[int], Document]
    then: Callable[[Document], Document] | None = None


Asked = tuple[Callable[[float], Document | None], Future[Document | None]]
"""A call, and the future of its answer."""


def _made_with(call: PendingSubmission, past: PastJobs, clock: float) -> Document | None:
    return call.call(clock, past)


def _ending() -> LaunchError:
    return LaunchError("the scheduler is ending; its jobs continue", code="scheduler-ending")


class SchedulerService:
    """Runs a scheduler's decisions and passes its orders to an executor.

    Parameters
    ----------
    clock
        Monotonic, in seconds.
    planner
        Predicts the queue; None: no predictions.
    job_runners
        The job runners of a scheduler of several users; None: it serves one user.
    without_daemon
        Returns the hosts without a topology daemon, which no job with a requirement can use.
    """

    def __init__(
        self,
        scheduler: LiveScheduler,
        clock: Callable[[], float],
        planner: PlannerClient | None = None,
        job_runners: JobRunnerExecutor | None = None,
        without_daemon: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._without_daemon = without_daemon
        self.scheduler, self.name = scheduler, scheduler.name
        self._clock = clock
        self.job_runners = job_runners
        self._foresight = Foresight(scheduler, self.name, planner)
        self.events = EventStreamLog(f"{scheduler.state.incarnation:x}", MAX_EVENTS)
        self._announcer = Announcer(scheduler, self.name, self.events)
        self._calls: SimpleQueue[Asked | None] = SimpleQueue()
        self._stopping = self._ended = False

    # --------------------------------------------------------------------------- deciding
    def run(self, executor: JobExecutor) -> None:
        """Decide until `stop`; jobs continue when this returns."""
        while not self._stopping:
            self._turn(executor, self._gathered(min(MAX_SLEEP, self.scheduler.next_time())))
        self._turn(executor, self._gathered(0.0))

    def stop(self) -> None:
        """Make `run` return soon; a signal handler may call this."""
        self._stopping = True
        self.wake()

    def end(self) -> None:
        """Refuse all calls from now on, and end the streams; call it after `run` has returned."""
        self._ended = True
        self.events.close()
        for _, future in self._gathered(0.0):
            future.set_exception(_ending())

    def close(self) -> None:
        """Release the directory."""
        self.end()
        self._foresight.close()
        self.scheduler.log.close()

    def hear(self, report: Report) -> None:
        """Pass a report to the deciding thread, from a source other than the executor."""

        def call(clock: float) -> Document:
            self.scheduler.report(clock, report)
            return {}

        self._calls.put((call, Future()))

    def wake(self) -> None:
        """Wake the deciding thread."""
        self._calls.put(None)

    def ask(self, call: Call | PendingSubmission) -> Document:
        """Return the answer of a call from the deciding thread, after its changes are on the disk.

        Raises
        ------
        ApplesError
            As raised by the call; `LaunchError` if nothing can be recorded, `DeadlineError` after the time limit.
        """
        if isinstance(call, PendingSubmission):
            while True:
                past = call.look_up()
                if past.answer is not None:
                    return call.known(past.answer)
                made = partial(_made_with, call, past)
                answer = self._answer(made if call.then is None else Look(made))
                if answer is not None:
                    return answer if call.then is None else call.then(answer)
        answer = self._answer(call)
        assert answer is not None  # noqa: S101 - for the type checker: only a submission is made again
        return call.then(answer) if isinstance(call, Look) else answer

    def _answer(self, call: Callable[[float], Document | None]) -> Document | None:
        """Return the answer of the deciding thread."""
        future: Future[Document | None] = Future()
        self._calls.put((call, future))
        if self._ended:
            raise _ending()
        try:
            return future.result(REQUEST_SECONDS)
        except FutureTimeoutError:
            raise DeadlineError(
                f"no answer within {REQUEST_SECONDS:g} s",
                code="scheduler-silent", seconds=REQUEST_SECONDS,
            ) from None  # fmt: skip

    def _gathered(self, seconds: float) -> list[Asked]:
        """Return the waiting calls, after waiting at most `seconds` for the first call or wake-up."""
        found = []
        with suppress(Empty):
            one = self._calls.get(timeout=seconds) if seconds > 0 else self._calls.get_nowait()
            while True:
                if one is not None:
                    found.append(one)
                if len(found) >= MAX_GATHERED:
                    break
                one = self._calls.get_nowait()
        return found

    def _turn(self, executor: JobExecutor, asked: Iterable[Asked]) -> None:
        """Take in calls and reports, write the records, answer, and give orders."""
        scheduler, looks = self.scheduler, list[Asked]()
        answers: list[tuple[Future[Document | None], Document | None]] = []
        for call, future in asked:
            if isinstance(call, Look):
                looks.append((call, future))
            elif (made := self._made(call, future)) is not None:
                answers.append((future, made[0]))
        with self._going_on("taking in reports of jobs"):
            for report in executor.reports():
                with self._going_on("taking in a report"):
                    scheduler.report(self._clock(), report)
        with self._going_on("scheduling"):
            scheduler.tick(self._clock())
        # If this raises, `run` ends: the service may not acknowledge unwritten records.
        orders = scheduler.turn()
        for future, answer in answers:
            if scheduler.trouble:
                future.set_exception(not_recorded(scheduler.trouble, pending=True))
            else:
                future.set_result(answer)
        with self._going_on("carrying out orders"):  # an order is sent again until it is answered
            executor.carry_out(orders)
        self._foresight.rest()
        self._announcer.look(self._clock())
        for call, future in looks:
            if (made := self._made(call, future)) is not None:
                future.set_result(made[0])

    @contextmanager
    def _going_on(self, step: str) -> Iterator[None]:
        """Keep the deciding thread alive if a step raises: an alarm names the step and the error."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - a defect must not block jobs and requests for ever
            self.scheduler.note_failure(step, error)

    def _made(
        self,
        call: Callable[[float], Document | None],
        future: Future[Document | None],
    ) -> tuple[Document | None] | None:
        """Return the answer of a call in a tuple; None: the call failed, and its future has the error."""
        try:
            return (call(self._clock()),)
        except ApplesError as error:
            future.set_exception(error)
        except Exception as error:  # noqa: BLE001 - an error of one request must not end the others
            future.set_exception(failure_of(error).error())
        return None

    # ----------------------------------------------------------------------------- requests
    def number(self, job: str) -> int:
        """Return the number of a job's id.

        Raises
        ------
        UsageError
            The id is invalid, or of another scheduler.
        """
        name, _, number = job.rpartition(".")
        if name not in {"", self.name} or not re.fullmatch(r"[0-9]{1,12}", number):
            raise UsageError(
                f"job {job[:80]}: jobs of this scheduler are {self.name}.1, ..",
                code="job-unknown", job=job[:80],
            )  # fmt: skip
        return int(number)

    def _submission(
        self, body: Mapping[str, Any], principal: Principal
    ) -> tuple[str, JobSubmission]:
        """Return the id of a request to submit a job, which may be empty, and the submission."""
        user = principal.name
        unknown = set(body) - {"request", "submission"}
        if unknown or not isinstance(body.get("submission"), dict):
            raise UsageError(
                'a submission is {"request": id, "submission": {..}}',
                code="request-invalid", field="submission",
            )  # fmt: skip
        request = str(body.get("request") or "")
        if request and not REQUEST.fullmatch(request):
            raise UsageError(
                "request: 1 to 64 letters, digits, dots, - and _",
                code="request-invalid",
                field="request",
            )
        after = body["submission"].get("after", [])
        if (
            not isinstance(after, list)
            or len(after) > MAX_AFTER
            or not all(isinstance(one, str) for one in after)
        ):
            raise UsageError(
                f"submission: after is a list of at most {MAX_AFTER} jobs",
                code="request-invalid", field="after", bound=MAX_AFTER,
            )  # fmt: skip
        found = {**body["submission"], "user": user, "after": [self.number(one) for one in after]}
        submission = checked(found)
        if attached_requirement(submission.work) and (lacking := self._without_daemon()):
            raise UsageError(
                f"--require: {listed(lacking)}: no topology daemon; start one there and name its socket in the "
                'host list of the scheduler (topologyd = "/path/of/its/socket")',
                code="daemon-missing", option="--require", hosts=list(lacking),
            )  # fmt: skip
        principal.check_priority(submission.priority)
        return f"{user}/{request}" if request else "", submission

    def submit(self, body: Mapping[str, Any], principal: Principal) -> PendingSubmission:
        """Return the call that submits a job."""
        scheduler = self.scheduler
        key, submission = self._submission(body, principal)

        def known(number: int) -> Document:
            job = self._past(number)
            return {
                "schema": "apples.submitted/1", "job": job["job"], "position": 0, "start": None,
                "state": job["state"], "reason": job["reason"],
            }  # fmt: skip

        def call(clock: float, past: PastJobs) -> Document | None:
            if scheduler.moves != past.moves:
                return None
            number = scheduler.submit(clock, submission, key, principal.is_operator, past.states)
            with self._going_on("scheduling"):  # the job stays in the queue even if the pass fails
                scheduler.tick(clock)
            job = scheduler.job(number)
            return {
                "schema": "apples.submitted/1",
                "job": f"{self.name}.{number}",
                "position": scheduler.state.waiting
                if job.waits
                else 0,  # the job that came last is last in the queue
                "start": None,
                "state": job_document(scheduler, self.name, job)["state"],
                "reason": reason_of(scheduler, job),
            }

        return PendingSubmission(partial(self._past_jobs, key, submission), call, known)

    def _past_jobs(self, key: str, submission: JobSubmission) -> PastJobs:
        """Return the facts from the history that a submission needs; not for the deciding thread."""
        moves, history = self.scheduler.moves, self.scheduler.log.history
        known = history.requested(key) if key else None
        answer = (
            None if known is None
            else same_request(key, digest_of(submission), known[1], known[0])
        )  # fmt: skip
        return PastJobs(moves, history.states(submission.after), answer)

    def _past(self, number: int) -> ScheduledJob:
        """Return the document of a job in the history; not for the deciding thread."""
        job = self.scheduler.log.history.document(number)
        if job is None:
            raise unknown_job(f"{self.name}.{number}")
        return job

    def predict(self, body: Mapping[str, Any], principal: Principal) -> PendingSubmission:
        """Return the call that predicts start and finish of a job as if it were submitted now."""
        _, submission = self._submission(body, principal)
        foresight, scheduler = self._foresight, self.scheduler

        def call(_: float, past: PastJobs) -> Document | None:
            if scheduler.moves != past.moves:
                return None
            scheduler.check_submission(submission, principal.is_operator, past.states)
            return foresight.with_job(submission)

        look_up = partial(self._past_jobs, "", submission)
        return PendingSubmission(
            look_up, call, lambda number: {**self._past(number)}, foresight.of_submission
        )

    def owned(self, job: str, principal: Principal, call: Call) -> Call:
        """Return a call that fails unless the principal owns the job or is the operator."""

        def checked(clock: float) -> Document | None:
            owner = self.scheduler.job(self.number(job)).submission.user
            principal.check_owner(job, owner)
            return call(clock)

        return checked

    def job(self, job: str) -> Call:
        """Return the call that shows a job, also from the history."""
        number = self.number(job)

        def call(_: float) -> Document:
            shown = self.scheduler.recorded.jobs.get(number)
            return {} if shown is None else {**job_document(self.scheduler, self.name, shown)}

        def then(document: Document) -> Document:
            return {"schema": "apples.scheduled/1", **(document or self._past(number))}

        return Look(call, then)

    def _shown(self, job: str) -> Document:
        shown = self.scheduler.job(self.number(job))
        return {"schema": "apples.scheduled/1", **job_document(self.scheduler, self.name, shown)}

    def why(self, job: str) -> Call:
        """Return the call for a waiting job's reason, its predicted start, and changes that start it now."""
        foresight, number = self._foresight, self.number(job)

        def call(_: float) -> Document:
            found = job_of(self.scheduler.recorded, number, self.name)
            return why_document(self.scheduler, self.name, found) | foresight.snapshot()

        return Look(call, lambda document: foresight.of_job(document, number))

    def cancel(self, job: str, principal: Principal) -> Call:
        """Return the call that ends a job."""

        def call(clock: float) -> Document:
            self.scheduler.cancel(clock, self.number(job), operator=principal.is_operator)
            return self._shown(job)

        return call

    def resize(self, job: str, body: Mapping[str, Any]) -> Call:
        """Return the call that orders a job to other hosts; the answer shows the job with that order."""
        hosts = body.get("hosts")
        if set(body) != {"hosts"} or not (
            isinstance(hosts, list) and hosts and all(isinstance(host, str) for host in hosts)
        ):
            raise UsageError(
                'a resize is {"hosts": [name, ..]}', code="request-invalid", field="hosts"
            )

        def call(clock: float) -> Document:
            self.scheduler.resize(clock, self.number(job), hosts)
            return self._shown(job)

        return call

    def job_runner_reports(self, body: Mapping[str, Any], principal: Principal) -> Call:
        """Return the call that takes in reports of a user's job runner; reports on others' jobs are ignored."""
        user = principal.name
        found = body.get("reports")
        if set(body) != {"reports"} or not isinstance(found, list):
            raise UsageError(
                'the reports of a job runner are {"reports": [..]}',
                code="request-invalid",
                field="reports",
            )
        reports: list[JobNews] = [message_of(one, REPORTS) for one in found]

        def call(clock: float) -> Document:
            for report in reports:
                job = self.scheduler.state.jobs.get(report.job)
                if job is not None and job.submission.user == user:
                    self.scheduler.report(clock, report)
            return {"heard": len(reports)}

        return call

    def job_runner_orders(self, body: Mapping[str, Any], user: str) -> Document:
        """Wait for the first orders for a user's job runner and return them; not for the deciding thread.

        Raises
        ------
        ForbiddenError
            This scheduler is of one user.
        """
        life = body.get("life")
        if set(body) != {"life"} or not isinstance(life, str) or not REQUEST.fullmatch(life):
            raise UsageError(
                'a job runner asks with {"life": 1 to 64 letters, digits, dots, - and _}',
                code="request-invalid", field="life",
            )  # fmt: skip
        if self.job_runners is None:
            raise ForbiddenError(
                "this scheduler serves one user and has no job runners",
                code="scheduler-not-shared",
            )
        orders = self.job_runners.take(user, life)
        return {"orders": [message_document(one) for one in orders]}

    def drain(self, host: str) -> Call:
        """Return the call that stops scheduling on a host."""

        def call(clock: float) -> Document:
            self.scheduler.drain(clock, host)
            return {**queue_document(self.scheduler, self.name)}

        return call

    def resume(self, host: str) -> Call:
        """Return the call that schedules on a drained host again."""

        def call(clock: float) -> Document:
            self.scheduler.resume(clock, host)
            return {**queue_document(self.scheduler, self.name)}

        return call

    def queue(self) -> Call:
        """Return the call that shows hosts and jobs."""
        return Look(
            lambda _: {
                **queue_document(self.scheduler, self.name),
                **self._foresight.snapshot(),
            },
            self._foresight.of_queue,
        )

    def queue_event(self) -> Call:
        """Return the call for the queue as the first event of a stream."""
        return Look(
            lambda _: {
                "number": self.events.last, "data": queue_document(self.scheduler, self.name)
            }
        )  # fmt: skip

    def metrics(self) -> Call:
        """Return the call for the metrics of the scheduler, in the text format of Prometheus."""
        return Look(lambda _: {TEXT: metrics_text(self.scheduler)})

    def what_if(self, body: Mapping[str, Any]) -> Call:
        """Return the call that predicts the effects of another policy or machine on the queue."""
        changes = checked_changes(body, self.number)
        return Look(
            lambda _: self._foresight.snapshot(),
            lambda document: self._foresight.what_if(document, changes),
        )

    def history(self, query: Mapping[str, str]) -> Look:
        """Return the call for ended jobs: the first `limit` jobs after the job `after`."""
        limit = query.get("limit", str(MAX_HISTORY))
        if not query.keys() <= {"after", "limit"} or not (
            re.fullmatch(r"[0-9]{1,4}", limit) and 1 <= int(limit) <= MAX_HISTORY
        ):
            raise UsageError(
                f"the history is asked for with ?after=JOB&limit=N, N from 1 to {MAX_HISTORY}",
                code="request-invalid", field="limit", bound=MAX_HISTORY,
            )  # fmt: skip
        after, most = self.number(query["after"]) if "after" in query else 0, int(limit)

        def then(document: Document) -> Document:
            recent = {self.number(job["job"]): job for job in document["jobs"]}
            known = {**self.scheduler.log.history.documents(after, most + 1), **recent}
            numbers = sorted(number for number in known if number > after)
            page = numbers[:most]
            following = f"{self.name}.{page[-1]}" if len(numbers) > most else None
            return {**document, "jobs": [known[number] for number in page], "next": following}

        return Look(lambda _: {**history_document(self.scheduler, self.name)}, then)


def checked(document: Mapping[str, Any]) -> JobSubmission:
    """Return the submission of a request.

    Raises
    ------
    UsageError
        The document is invalid.
    """
    try:
        one = submission_of(document)
        fit = {
            "modelled": type(one.modelled) is bool,
            "minimum": type(one.minimum) is int,
            "maximum": type(one.maximum) is int,
            "name": isinstance(one.name, str) and len(one.name) <= 80 and one.name.isprintable(),
            "requested": _is_number(one.requested),
            "priority": _is_number(one.priority),
            "work": isinstance(one.work, dict),
            "require": isinstance(one.work, dict) and _is_requirement(one.work.get(REQUIRE, "")),
        }
        size = len(json.dumps(one.work, allow_nan=False))  # as the log writes it
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(
            f"submission: {str(error)[:200]}", code="request-invalid", field="submission"
        ) from None
    if size > MAX_WORK:
        raise UsageError(
            f"the order has {size} bytes, its template and user file included, and may have {MAX_WORK}",
            code="message-too-long", field="work", value=size, bound=MAX_WORK,
        )  # fmt: skip
    if unfit := [name for name, is_fit in fit.items() if not is_fit]:
        raise UsageError(
            "submission: hosts are whole numbers, seconds and priority numbers below 1e9, a name has at most "
            f"80 printable characters, work is an object, its {REQUIRE} has at most {MAX_CHARACTERS} characters",
            code="request-invalid", field=unfit[0],
        )  # fmt: skip
    return one


def _is_requirement(text: object) -> bool:
    """Whether a text can be shown to other users as a requirement; its client and the daemon parse it."""
    return (
        isinstance(text, str)
        and len(text) <= MAX_CHARACTERS
        and "".join(text.split()).isprintable()
    )


def _is_number(value: object) -> bool:
    return type(value) in {int, float} and abs(cast("float", value)) < MAX_NUMBER
