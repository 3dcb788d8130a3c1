"""The routes of runs, jobs and plans: each calls the function of the command of the same name.

The page of a run or job subscribes to a stream of events: new texts, and requests to redraw.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

import hat
from apples import jobs
from apples.applications.folder import DocumentFolder
from apples.errors import ApplesError, UsageError, failure_of
from apples.jobs import store
from apples.jobs.comparison import Comparison, ComparisonEntry
from apples.jobs.comparison import compare as compare_runs
from apples.jobs.pages import plan as planning
from apples.jobs.pages.comparison import comparison_parts
from apples.jobs.pages.record import has_own_page, record_page
from apples.jobs.pages.run import run_parts
from apples.jobs.pages.runs import KINDS, LATEST_FIRST, RecordedRuns, RunQuery, page_of
from apples.jobs.records import document_so_far
from apples.jobs.scheduler_client import scheduler_directories
from apples.jobs.text.job import live_texts, resize_text, restarted_text, submitted_text
from apples.resources import read_host_list
from apples.ui.web.answers import STATUSES, form_value
from apples.ui.web.gate import Session
from apples.ui.web.site import PageNumber, Since, Site
from apples.ui.web.streams import AGAIN_SECONDS, LiveStream

if TYPE_CHECKING:
    from apples.jobs.documents import AnyComparison, RunDocument

MAX_COMPARED = 12
LOG_BYTES = 64 << 10
SAVED_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)
"""Headers of a page that is one file, with its style inside."""

Identifier = Annotated[str, Path(pattern="^[0-9a-f]{1,8}$")]
TAIL_BYTES: Final = 4 << 10
REDRAWN_SECONDS, REDRAWN_SHARE = 10.0, 0.02
"""A running run is redrawn after these seconds or this share of its duration so far, whichever is longer."""


def add(app: FastAPI, site: Site) -> None:
    """Add the routes."""
    _add_runs(app, site)
    _add_verbs(app, site)
    _add_plan(app, site)


def _add_runs(app: FastAPI, site: Site) -> None:
    known = RecordedRuns()

    @app.get("/", response_class=HTMLResponse)
    def runs(
        request: Request,
        words: Annotated[str, Query(max_length=200)] = "",
        order: Annotated[str, Query(max_length=40)] = LATEST_FIRST,
        descending: bool = True,
        page: PageNumber = 1,
    ) -> str:
        query = RunQuery(words, order, descending, page)
        found = page_of(known.entries(), query)
        model = {"query": query, "list": found, "kinds": KINDS}
        return site.page(request, "Runs", "runs.html.j2", model)

    @app.get("/runs/{identifier}", response_class=HTMLResponse)
    def run(request: Request, identifier: Identifier) -> Response:
        return job_answer(site, request, identifier)

    @app.get("/runs/{identifier}/events")
    async def events(request: Request, identifier: Identifier, since: Since = "") -> Response:
        found = await asyncio.to_thread(store.record, identifier)
        return site.followed(request, since, run_events(found.id), partial(RecordStream, found.id))

    @app.get("/runs/{identifier}/report.html", response_class=HTMLResponse)
    def report(identifier: Identifier) -> HTMLResponse:
        text = record_page(jobs.run_record(identifier))
        return HTMLResponse(text, headers={"content-security-policy": SAVED_POLICY})

    @app.get("/runs/{identifier}/log", response_class=HTMLResponse)
    def log(request: Request, identifier: Identifier) -> str:
        found = store.record(identifier)
        with found.log.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - LOG_BYTES))
            text = stream.read(LOG_BYTES)
        model = {
            "id": found.id,
            "text": text.decode("utf-8", "replace"),
            "shown": len(text),
            "bytes": size,
        }
        return site.page(request, "Runs", "log.html.j2", model)

    @app.get("/compare", response_class=HTMLResponse)
    def compare(
        request: Request,
        run: Annotated[
            list[Annotated[str, Query(max_length=8)]], Query(max_length=MAX_COMPARED)
        ] = [],  # noqa: B006 - read only
    ) -> str:
        if len(run) < 2:
            raise UsageError(
                "choose two runs or more in the list to compare them",
                code="value-range", field="run", value=len(run), bound=2,
            )  # fmt: skip
        document = compare_runs(*(jobs.run_record(name) for name in run)).document()
        return site.page(request, "Runs", "compare.html.j2", comparison_parts(document))


def run_events(identifier: str) -> str:
    """Return the address of the events of a run's record."""
    return f"/runs/{identifier}/events"


def job_answer(site: Site, request: Request, identifier: str, status: int = 200) -> Response:
    """Return the current page of a run or job."""
    found = store.record(identifier)
    record = jobs.RunRecord.of(found)
    document = document_so_far(record)
    if has_own_page(document):
        return RedirectResponse(f"/runs/{found.id}/report.html", 303)
    events = f"{run_events(found.id)}?since={site.streams.last(run_events(found.id))}"
    job = jobs.JobStatus.of(found, ask=False)
    texts = live_texts(found.summary(), log_end(found, TAIL_BYTES), time.time())
    run = cast("RunDocument", document)
    parts = run_parts(run, record.events) if run["plan"] else {"plan": None}
    model = {
        **parts, "job": job, "verbs": verbs_of(found, job.state), "others": hosts_of(found), "texts": texts,
        "over": KINDS, "stream": events,
    }  # fmt: skip
    return HTMLResponse(site.page(request, "Runs", "served_run.html.j2", model), status)


def verbs_of(found: store.StoredJob, state: str) -> tuple[str, ...]:
    """Return the verbs that apply to a job in this state; none for a run in the foreground."""
    if not found.controlled:
        return ()
    if state in store.OVER:
        return () if state == "finished" else ("restart",)
    return ("cancel", "resize")


def hosts_of(found: store.StoredJob) -> tuple[str, ...]:
    """Return the names of a job's host list; empty if the file was removed."""
    try:
        return tuple(host.name for host in read_host_list(found.order()["hosts"]))
    except (KeyError, hat.DocumentError):
        return ()


def _add_verbs(app: FastAPI, site: Site) -> None:
    def done(request: Request, identifier: str, verb: Callable[[], str]) -> Response:
        """Carry out the verb of a button, as its command does, and show the outcome on the job's page."""
        session: Session = request.state.session
        try:
            session.said = "good", verb()
        except ApplesError as error:
            failure = failure_of(error)
            session.said = "bad", f"{failure.line} (exit code {failure.exit_code})"
            return job_answer(site, request, identifier, STATUSES.get(failure.exit_code, 500))
        return RedirectResponse(f"/runs/{identifier}", 303)

    def cancelled(identifier: str) -> str:
        job = jobs.cancel(identifier)
        return f"{job.id} is {job.state}"

    @app.post("/runs/{identifier}/cancel")
    def cancel(request: Request, identifier: Identifier) -> Response:
        return done(request, identifier, lambda: cancelled(identifier))

    @app.post("/runs/{identifier}/resize")
    def resize(request: Request, identifier: Identifier) -> Response:
        weights = form_value(request, "hosts")

        def resized() -> str:
            return resize_text(jobs.resize(jobs.own_job(identifier), jobs.weights_of(weights)))

        return done(request, identifier, resized)

    @app.post("/runs/{identifier}/migrate")
    def migrate(request: Request, identifier: Identifier) -> Response:
        source, target = form_value(request, "from"), form_value(request, "to")
        return done(
            request, identifier,
            lambda: resize_text(jobs.migrate(jobs.own_job(identifier), source, target)),
        )  # fmt: skip

    @app.post("/runs/{identifier}/rebalance")
    def rebalance(request: Request, identifier: Identifier) -> Response:
        return done(request, identifier, lambda: resize_text(jobs.rebalance(identifier)))

    @app.post("/runs/{identifier}/restart")
    def restart(request: Request, identifier: Identifier) -> Response:
        return done(
            request, identifier, lambda: restarted_text(jobs.restart(jobs.own_job(identifier)))
        )


def _add_plan(app: FastAPI, site: Site) -> None:
    folder = DocumentFolder(site.path)

    def compared(plans: Mapping[str, dict[str, Any]]) -> AnyComparison:
        entries = (ComparisonEntry.of_document(name, plan) for name, plan in plans.items())
        return Comparison(tuple(entries)).document()

    @app.get("/plan", response_class=HTMLResponse)
    def plan(request: Request) -> str:
        files = planning.choices(folder)
        wanted = planning.asked(
            {key: value[:2000] for key, value in request.query_params.items()}, files
        )
        model = {
            "asked": wanted, "files": files, "answer": planning.answer(folder, wanted, compared),
            "weathers": [*planning.WEATHERS, *folder.weather_files()], "launchers": planning.LAUNCHERS,
            "schedulers": list(scheduler_directories(site.schedulers)),
        }  # fmt: skip
        return site.page(request, "Plan", "plan.html.j2", model)

    @app.post("/plan/run")
    def run_planned(request: Request) -> Response:
        _, wanted = planning.asked_of(request.state.form)
        job = planning.submitted(folder, wanted)
        request.state.session.said = "good", submitted_text(job, f"wait {job.id}")
        return RedirectResponse(f"/runs/{job.id}", 303)


def drawing_number(seconds: float) -> int:
    """Return the number of the current drawing of a run `seconds` after its start.

    Examples
    --------
    >>> [drawing_number(after) for after in (0.0, 9.9, 10.0, 500.0, 509.0, 510.0, 3600.0)]
    [0, 0, 1, 50, 50, 51, 149]
    """
    steady = REDRAWN_SECONDS / REDRAWN_SHARE
    if seconds < steady:
        return max(0, int(seconds / REDRAWN_SECONDS))
    return int(1 / REDRAWN_SHARE + math.log(seconds / steady) / math.log1p(REDRAWN_SHARE))


class RecordStream(LiveStream):
    """The events of a run's or job's record: new texts, and requests to redraw while it runs.

    Parameters
    ----------
    identifier
        Id of the record.
    """

    def __init__(self, identifier: str) -> None:
        super().__init__()
        self._identifier = identifier
        self._shape = ""
        self._shown: dict[str, str] = {}

    async def look(self) -> None:
        """Read the record each second and publish its changes."""
        while True:
            shape, texts = await asyncio.to_thread(self._found)
            for key, text in texts.items():
                if self._shown.get(key) != text:
                    self.text(key, text)
            if shape != self._shape:
                self.change()
            self._shape, self._shown = shape, texts
            await asyncio.sleep(AGAIN_SECONDS)

    def _found(self) -> tuple[str, dict[str, str]]:
        """Return a key that changes when the page must be redrawn, and the record's texts.

        If the record cannot be read, return the reason and an empty mapping.
        """
        try:
            one = store.record(self._identifier)
            record = one.record()
        except (OSError, ApplesError) as error:
            return str(error), {}
        keys = ("state", "attempt", "epoch", "hosts", "rows", "last_resize", "last_change")
        going = record.get("state") not in store.OVER and record.get("submitted")
        drawn = drawing_number(time.time() - record["submitted"]) if going else 0
        shape = json.dumps([drawn, *(record.get(key) for key in keys)])
        return shape, live_texts(one.summary(record), log_end(one, TAIL_BYTES), time.time())


def log_end(one: store.StoredJob, most: int) -> str:
    """Return the last `most` bytes of a record's log; empty without a log."""
    try:
        with one.log.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - most))
            return stream.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
