"""The service of a live scheduler: one thread that decides, and the calls that others put to it.

Each request is a call that is put into a queue. The deciding thread takes all that have gathered, has the
scheduler take them in with whatever jobs have reported, has the records written under one sync, and only then
answers, gives orders and says what has happened (`events`). `listener` is what listens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Final, cast

from apples.cluster.access import ForbiddenError, Principal
from apples.cluster.answers import (
    Document,
    history_document,
    job_document,
    metrics_text,
    queue_document,
    reason_of,
    why_document,
)
from apples.cluster.events import Announcer, RecentEvents
from apples.cluster.live_job import JobSubmission, submission_of
from apples.cluster.orders import JobExecutor, Report
from apples.cluster.planner import PlannerClient
from apples.cluster.scheduler import LiveScheduler, job_of, not_recorded
from apples.cluster.start_predictions import Foresight, checked_changes
from apples.cluster.user_runners import (
    REPORTS,
    JobNews,
    ShepherdExecutor,
    message_document,
    message_of,
)
from apples.errors import ApplesError, DeadlineError, UsageError, failure_of

MOST_WORK: Final = 2048
"""Bytes of what is to be run, as JSON: `QueueLimits.waiting` of them are less than a journal can be read of."""
MOST_AFTER: Final = 20
MOST_NUMBER: Final = 1e9
"""Below this are an estimate of a run time in seconds, and a priority without its sign."""
MOST_GATHERED: Final = 1000
REQUEST_SECONDS: Final = 30.0
"""For a request to be answered."""
LONGEST_SLEEP: Final = 1.0
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
REQUEST = re.compile(r"[A-Za-z0-9._-]{1,64}")

TEXT: Final = "text"
"""An answer that has this alone is no JSON."""

Call = Callable[[float], Document]


@dataclass(frozen=True, slots=True)
class Look:
    """A call that changes nothing: it is made when what has changed was written, or could not be.

    Attributes
    ----------
    then
        What is made of its answer, by the thread that waits for it.
    """

    call: Call
    then: Callable[[Document], Document] = lambda document: document

    def __call__(self, clock: float) -> Document:
        """Return its answer."""
        return self.call(clock)


Asked = tuple[Call, Future[Document]]
"""A call, and who waits for its answer."""


class SchedulerService:
    """Has a scheduler decide, and an executor carry out.

    Parameters
    ----------
    clock
        Seconds; never goes back.
    planner
        Foretells the queue; None: nothing is foretold.
    shepherds
        Those of a scheduler of several users; None: it is of one.
    """

    def __init__(
        self,
        scheduler: LiveScheduler,
        clock: Callable[[], float],
        planner: PlannerClient | None = None,
        shepherds: ShepherdExecutor | None = None,
    ) -> None:
        self.scheduler, self.name = scheduler, scheduler.name
        self._clock = clock
        self.shepherds = shepherds
        self._foresight = Foresight(scheduler, self.name, planner)
        self.events = RecentEvents(scheduler.state.incarnation)
        self._announcer = Announcer(scheduler, self.name, self.events)
        self._calls: SimpleQueue[Asked | None] = SimpleQueue()
        self._stopping = False

    # --------------------------------------------------------------------------- deciding
    def run(self, executor: JobExecutor) -> None:
        """Decide until `stop`; jobs go on when this returns."""
        while not self._stopping:
            self._turn(executor, self._gathered(min(LONGEST_SLEEP, self.scheduler.next_time())))
        self._turn(executor, self._gathered(0.0))

    def stop(self) -> None:
        """Have `run` return soon; may be called by a signal handler."""
        self._stopping = True
        self.wake()

    def close(self) -> None:
        """Give the directory back, and end the streams."""
        self.events.close()
        self._foresight.close()
        self.scheduler.log.close()

    def hear(self, report: Report) -> None:
        """Have the deciding thread take in what somebody reports who runs no jobs."""

        def call(clock: float) -> Document:
            self.scheduler.report(clock, report)
            return {}

        self._calls.put((call, Future()))

    def wake(self) -> None:
        """Have the deciding thread look at what is new."""
        self._calls.put(None)

    def ask(self, call: Call) -> Document:
        """Return the answer of a call, made by the deciding thread; what it changed is on the disk then.

        Raises
        ------
        ApplesError
            As the call says; or nothing can be recorded (`LaunchError`), or it took too long (`DeadlineError`).
        """
        future: Future[Document] = Future()
        self._calls.put((call, future))
        try:
            answer = future.result(REQUEST_SECONDS)
        except FutureTimeoutError:
            raise DeadlineError(
                f"no answer within {REQUEST_SECONDS:g} s",
                code="scheduler-silent", seconds=REQUEST_SECONDS,
            ) from None  # fmt: skip
        return call.then(answer) if isinstance(call, Look) else answer

    def _gathered(self, seconds: float) -> list[Asked]:
        """Return the calls that have come, after waiting for the first of anything."""
        found = []
        with suppress(Empty):
            one = self._calls.get(timeout=seconds) if seconds > 0 else self._calls.get_nowait()
            while True:
                if one is not None:
                    found.append(one)
                if len(found) >= MOST_GATHERED:
                    break
                one = self._calls.get_nowait()
        return found

    def _turn(self, executor: JobExecutor, asked: Iterable[Asked]) -> None:
        """Take in what has come, write it down, answer, and give orders."""
        scheduler, answers, looks = self.scheduler, [], []
        for call, future in asked:
            if isinstance(call, Look):
                looks.append((call, future))
            elif (answer := self._made(call, future)) is not None:
                answers.append((future, answer))
        for report in executor.reports():
            scheduler.report(self._clock(), report)
        scheduler.tick(self._clock())
        orders = scheduler.turn()
        for future, answer in answers:
            if scheduler.trouble:
                future.set_exception(not_recorded(scheduler.trouble, pending=True))
            else:
                future.set_result(answer)
        executor.carry_out(orders)
        self._foresight.rest()
        self._announcer.look(self._clock())
        for call, future in looks:
            if (answer := self._made(call, future)) is not None:
                future.set_result(answer)

    def _made(self, call: Call, future: Future[Document]) -> Document | None:
        """Return the answer of a call; None: it is refused, and the one who asked is told."""
        try:
            return call(self._clock())
        except ApplesError as error:
            future.set_exception(error)
        except Exception as error:  # noqa: BLE001 - one request must not take the others with it
            future.set_exception(failure_of(error).error())
        return None

    # ----------------------------------------------------------------------------- requests
    def number(self, job: str) -> int:
        """Return the number of a job's id.

        Raises
        ------
        UsageError
            It is none of this scheduler's.
        """
        name, _, number = job.rpartition(".")
        if name not in {"", self.name} or not re.fullmatch(r"[0-9]{1,12}", number):
            raise UsageError(
                f"job {job[:80]}: jobs of this scheduler are {self.name}.1, ..",
                code="job-unknown", job=job[:80],
            )  # fmt: skip
        return int(number)

    def submit(self, body: Mapping[str, Any], principal: Principal) -> Call:
        """Return the call that submits a job."""
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
            or len(after) > MOST_AFTER
            or not all(isinstance(one, str) for one in after)
        ):
            raise UsageError(
                f"submission: after is a list of at most {MOST_AFTER} jobs",
                code="request-invalid", field="after", bound=MOST_AFTER,
            )  # fmt: skip
        found = {**body["submission"], "user": user, "after": [self.number(one) for one in after]}
        submission = checked(found)

        def call(clock: float) -> Document:
            scheduler = self.scheduler
            number = scheduler.submit(
                clock, submission, f"{user}/{request}" if request else "", principal.is_operator
            )
            scheduler.tick(clock)
            job = scheduler.job(number)
            return {
                "schema": "apples.submitted/1",
                "job": f"{self.name}.{number}",
                "position": scheduler.state.waiting
                if job.waits
                else 0,  # the last that came is the last
                "start": None,
                "state": job_document(scheduler, self.name, job)["state"],
                "reason": reason_of(scheduler, job),
            }

        return call

    def owned(self, job: str, principal: Principal, call: Call) -> Call:
        """Return a call that is refused unless the job is of whom asks, or that is the operator."""

        def checked(clock: float) -> Document:
            owner = self.scheduler.job(self.number(job)).submission.user
            principal.check_owner(job, owner)
            return call(clock)

        return checked

    def job(self, job: str) -> Call:
        """Return the call that looks at a job, one of the history too."""

        def call(_: float) -> Document:
            scheduler, number = self.scheduler, self.number(job)
            state = scheduler.recorded
            past = number <= state.last and number not in state.jobs
            found = (
                next((one for one in scheduler.log.history() if one.number == number), None)
                if past
                else None
            )
            shown = job_document(scheduler, self.name, found or job_of(state, number, self.name))
            return {"schema": "apples.scheduled/1", **shown}

        return Look(call)

    def why(self, job: str) -> Call:
        """Return the call that says why a job waits, when it will start, and what would start it now."""
        foresight, number = self._foresight, self.number(job)

        def call(_: float) -> Document:
            found = job_of(self.scheduler.recorded, number, self.name)
            return why_document(self.scheduler, self.name, found) | foresight.snapshot()

        return Look(call, lambda document: foresight.of_job(document, number))

    def cancel(self, job: str) -> Call:
        """Return the call that ends a job."""

        def call(clock: float) -> Document:
            self.scheduler.cancel(clock, self.number(job))
            return self.job(job)(clock)

        return call

    def resize(self, job: str, body: Mapping[str, Any]) -> Call:
        """Return the call that orders a job to other hosts; the answer is the job as it is ordered."""
        hosts = body.get("hosts")
        if set(body) != {"hosts"} or not (
            isinstance(hosts, list) and hosts and all(isinstance(host, str) for host in hosts)
        ):
            raise UsageError(
                'a resize is {"hosts": [name, ..]}', code="request-invalid", field="hosts"
            )

        def call(clock: float) -> Document:
            self.scheduler.resize(clock, self.number(job), hosts)
            return self.job(job)(clock)

        return call

    def shepherd_reports(self, body: Mapping[str, Any], principal: Principal) -> Call:
        """Return the call that takes in what a user's shepherd says; of the jobs of others it is not believed."""
        user = principal.name
        found = body.get("reports")
        if set(body) != {"reports"} or not isinstance(found, list):
            raise UsageError(
                'the reports of a shepherd are {"reports": [..]}',
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

    def shepherd_orders(self, body: Mapping[str, Any], user: str) -> Document:
        """Return the orders for a user's shepherd, after waiting for the first; not by the deciding thread.

        Raises
        ------
        ForbiddenError
            This scheduler is of one user.
        """
        life = body.get("life")
        if set(body) != {"life"} or not isinstance(life, str) or not REQUEST.fullmatch(life):
            raise UsageError(
                'a shepherd asks with {"life": 1 to 64 letters, digits, dots, - and _}',
                code="request-invalid", field="life",
            )  # fmt: skip
        if self.shepherds is None:
            raise ForbiddenError(
                "this scheduler is of one user, and has no shepherds", code="scheduler-not-shared"
            )
        orders = self.shepherds.take(user, life)
        return {"orders": [message_document(one) for one in orders]}

    def drain(self, host: str) -> Call:
        """Return the call after which a host gets no other job."""

        def call(clock: float) -> Document:
            self.scheduler.drain(clock, host)
            return queue_document(self.scheduler, self.name)

        return call

    def resume(self, host: str) -> Call:
        """Return the call after which a host gets jobs again."""

        def call(clock: float) -> Document:
            self.scheduler.resume(clock, host)
            return queue_document(self.scheduler, self.name)

        return call

    def queue(self) -> Call:
        """Return the call that looks at hosts and jobs."""
        return Look(
            lambda _: queue_document(self.scheduler, self.name) | self._foresight.snapshot(),
            self._foresight.of_queue,
        )

    def queue_event(self) -> Call:
        """Return the call that looks at the queue as the event with which a stream of events begins."""
        return Look(
            lambda _: {
                "number": self.events.last, "data": queue_document(self.scheduler, self.name)
            }
        )  # fmt: skip

    def metrics(self) -> Call:
        """Return the call that gives the figures of the scheduler for who collects them."""
        return Look(lambda _: {TEXT: metrics_text(self.scheduler)})

    def what_if(self, body: Mapping[str, Any]) -> Call:
        """Return the call that says what another policy or machine would change for the queue."""
        changes = checked_changes(body, self.number)
        return Look(
            lambda _: self._foresight.snapshot(),
            lambda document: self._foresight.what_if(document, changes),
        )

    def history(self) -> Call:
        """Return the call that looks at the jobs that are over."""
        return Look(lambda _: history_document(self.scheduler, self.name))


def checked(document: Mapping[str, Any]) -> JobSubmission:
    """Return the submission of a request.

    Raises
    ------
    UsageError
        It is none.
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
        }
        size = len(json.dumps(one.work, allow_nan=False))  # as the log writes it
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UsageError(
            f"submission: {str(error)[:200]}", code="request-invalid", field="submission"
        ) from None
    if size > MOST_WORK:
        raise UsageError(
            f"what is to be run takes {size} bytes of settings and paths, and may take {MOST_WORK}",
            code="message-too-long", field="work", value=size, bound=MOST_WORK,
        )  # fmt: skip
    if unfit := [name for name, is_fit in fit.items() if not is_fit]:
        raise UsageError(
            "submission: hosts are whole numbers, seconds and priority numbers below 1e9, a name has at most "
            "80 printable characters, work is an object",
            code="request-invalid", field=unfit[0],
        )  # fmt: skip
    return one


def _is_number(value: object) -> bool:
    return type(value) in {int, float} and abs(cast("float", value)) < MOST_NUMBER
