"""The routes: each asks what the command of the same name asks, and has a page made of the answer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any, get_args
from urllib.parse import urlencode

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.middleware.gzip import GZipMiddleware

import hat
from apples import jobs
from apples.agent.weather.service import service_settings
from apples.errors import ApplesError, UsageError
from apples.jobs import store
from apples.jobs.comparing import comparison_of
from apples.jobs.unfinished import document_so_far
from apples.refusals import failure_of
from apples.resources import read_host_list
from apples.scheduling.policies import POLICIES
from apples.views import served
from apples.views.cluster import ClusterQuery
from apples.views.foretold import Supposition
from apples.views.frame import Frame, said_page
from apples.views.job import live_texts, resize_text, restarted_text, submitted_text
from apples.views.record_page import has_own_page, record_page
from apples.web import planning
from apples.web.answers import STATUSES, add_assets, handle_errors
from apples.web.clusters import Cluster, Clusters
from apples.web.folder import DocumentFolder
from apples.web.forms import KINDS_OF_NEW, EditedFile, create, start_agent
from apples.web.gate import LOOPBACK, Gate, Session, Sessions
from apples.web.host_series import known_of
from apples.web.run_list import LATEST_FIRST, RecordedRuns, RunQuery, page_of
from apples.web.streams import (
    TAIL_BYTES,
    LiveStream,
    QueueStream,
    RecordStream,
    Streams,
    log_end,
)
from apples.web.weather import HostWeather, host_rows

MOST_COMPARED = 12
LOG_BYTES = 64 << 10
LEAST_COMPRESSED = 4 << 10
LIVE_POLICIES = tuple(name for name in POLICIES if name != "sd")
"""Those that a live scheduler can be started with: of shares of hosts it knows nothing yet."""
SAVED_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
)
"""Of a page that is one file: its style is inside."""

Identifier = Annotated[str, Path(pattern="^[0-9a-f]{1,8}$")]
Name = Annotated[str, Query(max_length=1000)]
ClusterName = Annotated[str, Path(max_length=255)]
JobNumber = Annotated[str, Path(pattern="^[0-9]{1,12}$")]
HostName = Annotated[str, Path(pattern="^[A-Za-z0-9._-]{1,253}$")]
Since = Annotated[str, Query(max_length=40)]
PageNumber = Annotated[int, Query(ge=1, le=10**6)]


class Pages:
    """What every route needs: the folder, the records, schedulers, weather, streams, and a page's frame."""

    def __init__(
        self, folder: DocumentFolder, schedulers: Sequence[FilePath], streams: Streams
    ) -> None:
        self.folder, self.streams = folder, streams
        self.runs = RecordedRuns()
        self.weather = HostWeather()
        self.clusters = Clusters(schedulers, folder, self.weather)

    def frame(self, request: Request | None, here: str = "") -> Frame:
        """Return what stands around the page that answers a request."""
        session: Session | None = (
            None if request is None else getattr(request.state, "session", None)
        )
        token, said = (session.token, session.take_said()) if session else ("", None)
        return Frame(token, str(self.folder.path), socket.gethostname(), said, here)


def create_app(
    folder: DocumentFolder,
    sessions: Sessions,
    names: tuple[str, ...] = (),
    *,
    secure: bool = False,
    schedulers: Sequence[FilePath] = (),
    streams: Streams | None = None,
) -> Gate:
    """Return the application, its gate around it.

    Parameters
    ----------
    names
        What the Host header may say besides the names of loopback.
    secure
        Whether it is reached by HTTPS alone.
    schedulers
        Directories of live schedulers that have pages besides this user's own.
    streams
        Those of open pages; whoever serves closes them at the end, for else their readers keep it.
    """
    pages = Pages(folder, schedulers, streams or Streams())
    app = FastAPI(title="apples", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(GZipMiddleware, minimum_size=LEAST_COMPRESSED, compresslevel=4)
    for add in (
        _add_runs,
        _add_verbs,
        _add_clusters,
        _add_cluster_verbs,
        _add_what_if,
        _add_files,
        _add_new_and_deleted,
        _add_forms,
        _add_plan,
    ):
        add(app, pages)

    add_assets(app)
    handle_errors(app, pages.frame)

    def refuse(status: int, reason: str) -> Response:
        return HTMLResponse(
            said_page(pages.frame(None), f"Not admitted: {status}", [reason]), status
        )

    return Gate(app, sessions, refuse, (*LOOPBACK, *names), secure=secure)


# ------------------------------------------------------------------------------ runs
def _add_runs(app: FastAPI, pages: Pages) -> None:
    @app.get("/", response_class=HTMLResponse)
    def runs(
        request: Request,
        words: Annotated[str, Query(max_length=200)] = "",
        order: Annotated[str, Query(max_length=40)] = LATEST_FIRST,
        descending: bool = True,
        page: PageNumber = 1,
    ) -> str:
        query = RunQuery(words, order, descending, page)
        return served.runs_page(
            pages.frame(request, "Runs"), query, page_of(pages.runs.entries(), query)
        )

    @app.get("/runs/{identifier}", response_class=HTMLResponse)
    def run(request: Request, identifier: Identifier) -> Response:
        return job_answer(pages, request, identifier)

    @app.get("/runs/{identifier}/events")
    async def events(request: Request, identifier: Identifier, since: Since = "") -> Response:
        found = await asyncio.to_thread(store.record, identifier)
        return followed(
            pages, request, since, run_events(found.id), partial(RecordStream, found.id)
        )

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
            text = stream.read(LOG_BYTES).decode("utf-8", "replace")
        return served.log_page(pages.frame(request, "Runs"), found.id, text, size)

    @app.get("/compare", response_class=HTMLResponse)
    def compare(
        request: Request,
        run: Annotated[
            list[Annotated[str, Query(max_length=8)]], Query(max_length=MOST_COMPARED)
        ] = [],  # noqa: B006 - read only
    ) -> str:
        if len(run) < 2:
            raise UsageError(
                "choose two runs or more in the list to compare them",
                code="value-range", field="run", value=len(run), bound=2,
            )  # fmt: skip
        document = comparison_of([jobs.run_record(name) for name in run])
        return served.comparison_page(pages.frame(request, "Runs"), document)


def run_events(identifier: str) -> str:
    """Return the address of what changes in a run's record."""
    return f"/runs/{identifier}/events"


def followed(
    pages: Pages, request: Request, since: str, name: str, make: Callable[[], LiveStream]
) -> Response:
    """Return what happens on a page, from the event on that its reader had last."""
    since = request.headers.get("last-event-id", since)[:40]
    events = pages.streams.of(name, make).follow(since)
    return StreamingResponse(events, media_type="text/event-stream")


def job_answer(pages: Pages, request: Request, identifier: str, status: int = 200) -> Response:
    """Return the page of a run or job as it is just now."""
    found = store.record(identifier)
    record = jobs.RunRecord.of(found)
    document = document_so_far(record)
    if has_own_page(document):
        return RedirectResponse(f"/runs/{found.id}/report.html", 303)
    events = f"{run_events(found.id)}?since={pages.streams.last(run_events(found.id))}"
    job = jobs.JobStatus.of(found, ask=False)
    texts = live_texts(found.summary(), log_end(found, TAIL_BYTES), time.time())
    page = served.job_page(
        pages.frame(request, "Runs"), job, verbs_of(found, job.state), hosts_of(found),
        document if document["plan"] else None, record.events, texts, events,
    )  # fmt: skip
    return HTMLResponse(page, status)


def verbs_of(found: store.StoredJob, state: str) -> tuple[str, ...]:
    """Return what a job may be asked for in a state; a run that its command waits for: nothing."""
    if not found.controlled:
        return ()
    if state in store.OVER:
        return () if state == "finished" else ("restart",)
    return ("cancel", "resize")


def hosts_of(found: store.StoredJob) -> tuple[str, ...]:
    """Return the names of a job's host list; empty where it is not there any more."""
    try:
        return tuple(host.name for host in read_host_list(found.order()["hosts"]))
    except (KeyError, hat.DocumentError):
        return ()


# ----------------------------------------------------------------------------- verbs
def _add_verbs(app: FastAPI, pages: Pages) -> None:
    def done(request: Request, identifier: str, verb: Callable[[], str]) -> Response:
        """Do what a button asks for, as the command does, and say what came of it on the job's page."""
        session: Session = request.state.session
        try:
            session.said = "good", verb()
        except ApplesError as error:
            failure = failure_of(error)
            session.said = "bad", f"{failure.line} (exit code {failure.exit_code})"
            return job_answer(pages, request, identifier, STATUSES.get(failure.exit_code, 500))
        return RedirectResponse(f"/runs/{identifier}", 303)

    def value(request: Request, name: str) -> str:
        form: dict[str, list[str]] = request.state.form
        return form.get(name, [""])[-1].strip()

    def cancelled(identifier: str) -> str:
        job = jobs.cancel(identifier)
        return f"{job.id} is {job.state}"

    @app.post("/runs/{identifier}/cancel")
    def cancel(request: Request, identifier: Identifier) -> Response:
        return done(request, identifier, lambda: cancelled(identifier))

    @app.post("/runs/{identifier}/resize")
    def resize(request: Request, identifier: Identifier) -> Response:
        return done(
            request, identifier,
            lambda: resize_text(jobs.resize(jobs.own_job(identifier), jobs.weights_of(value(request, "hosts")))),
        )  # fmt: skip

    @app.post("/runs/{identifier}/migrate")
    def migrate(request: Request, identifier: Identifier) -> Response:
        source, target = value(request, "from"), value(request, "to")
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


# -------------------------------------------------------------------------- clusters
def _add_clusters(app: FastAPI, pages: Pages) -> None:
    @app.get("/cluster", response_class=HTMLResponse)
    def clusters(request: Request) -> Response:
        found = pages.clusters.all()
        if len(found) == 1:
            return RedirectResponse(served.cluster_address(found[0].name), 303)
        rows = [_answer_of(each) for each in found]
        return HTMLResponse(served.clusters_page(pages.frame(request, "Cluster"), rows))

    @app.get("/cluster/{name}", response_class=HTMLResponse)
    def cluster(
        request: Request,
        name: ClusterName,
        words: Annotated[str, Query(max_length=200)] = "",
        waiting_page: PageNumber = 1,
        hosts_page: PageNumber = 1,
    ) -> str:
        address = cluster_events(name)
        events = f"{address}?since={pages.streams.last(address)}"
        parts = pages.clusters.one(name).parts(ClusterQuery(words, waiting_page, hosts_page))
        return served.cluster_page(pages.frame(request, "Cluster"), name, parts, events)

    @app.get("/cluster/{name}/events")
    async def events(request: Request, name: ClusterName, since: Since = "") -> Response:
        one = await asyncio.to_thread(pages.clusters.one, name)
        return followed(
            pages, request, since, cluster_events(name), partial(QueueStream, one.directory)
        )

    @app.get("/cluster/{name}/jobs/{number}", response_class=HTMLResponse)
    def job(request: Request, name: ClusterName, number: JobNumber) -> Response:
        return cluster_job_answer(pages, request, name, number)

    @app.get("/cluster/{name}/hosts/{host}", response_class=HTMLResponse)
    def host(request: Request, name: ClusterName, host: HostName) -> Response:
        return cluster_host_answer(pages, request, name, host)


def _add_what_if(app: FastAPI, pages: Pages) -> None:
    @app.get("/cluster/{name}/what-if", response_class=HTMLResponse)
    def what_if(
        request: Request,
        name: ClusterName,
        policy: Annotated[str, Query(max_length=40)] = "",
        hosts: Annotated[int, Query(ge=-(10**6), le=10**6)] = 0,
        job: Annotated[str, Query(max_length=80)] = "",
        minimum: PageNumber = 1,
    ) -> str:
        one, asked = pages.clusters.one(name), Supposition(policy, hosts, job, minimum)
        document, _ = one.queue()
        found, refusal = None, ""
        try:
            if policy and policy not in LIVE_POLICIES:
                raise UsageError(
                    f"there is no policy '{hat.printable(policy)}' to choose",
                    code="policy-unknown", value=policy, known=list(LIVE_POLICIES),
                )  # fmt: skip
            found = one.ask("POST", "/v1/whatif", asked.body())
        except ApplesError as error:
            refusal = failure_of(error).line
        frame = pages.frame(request, "Cluster")
        return served.what_if_page(frame, name, LIVE_POLICIES, document, asked, found, refusal)


def cluster_events(name: str) -> str:
    """Return the address of what changes in a scheduler's queue."""
    return f"{served.cluster_address(name)}/events"


def cluster_job_answer(
    pages: Pages, request: Request, name: str, number: str, status: int = 200
) -> Response:
    """Return the page of a scheduler's job as it is just now."""
    one = pages.clusters.one(name)
    shown, why = one.ask("GET", f"/v1/jobs/{number}"), one.ask("GET", f"/v1/jobs/{number}/why")
    address = cluster_events(name)
    page = served.cluster_job_page(
        pages.frame(request, "Cluster"), name, shown, why, time.time(),
        f"{address}?since={pages.streams.last(address)}",
    )  # fmt: skip
    return HTMLResponse(page, status)


def cluster_host_answer(
    pages: Pages, request: Request, name: str, host: str, status: int = 200
) -> Response:
    """Return the page of a scheduler's host as it is just now."""
    one = pages.clusters.one(name)
    shown, known = one.host(host)
    page = served.cluster_host_page(
        pages.frame(request, "Cluster"), name, shown, known, one.series_of(host)
    )
    return HTMLResponse(page, status)


def _add_cluster_verbs(app: FastAPI, pages: Pages) -> None:
    def told(
        request: Request, what: str, call: Callable[[], object], shown: Callable[[int], Response]
    ) -> Response:
        """Ask a scheduler for what a button says, and say what came of it on the page of the button."""
        session: Session = request.state.session
        try:
            call()
        except ApplesError as error:
            failure = failure_of(error)
            session.said = "bad", f"{failure.line} (exit code {failure.exit_code})"
            return shown(STATUSES.get(failure.exit_code, 500))
        session.said = "good", what
        return RedirectResponse(request.url.path.rpartition("/")[0], 303)

    @app.post("/cluster/{name}/jobs/{number}/cancel")
    def cancel(request: Request, name: ClusterName, number: JobNumber) -> Response:
        return told(
            request, f"job {number} is told to end",
            lambda: pages.clusters.one(name).ask("POST", f"/v1/jobs/{number}/cancel"),
            lambda status: cluster_job_answer(pages, request, name, number, status),
        )  # fmt: skip

    @app.post("/cluster/{name}/jobs/{number}/resize")
    def resize(request: Request, name: ClusterName, number: JobNumber) -> Response:
        words = request.state.form.get("hosts", [""])[-1]
        body = {"hosts": words.replace(",", " ").split()}
        return told(
            request, f"job {number} is ordered to {', '.join(body['hosts'])}",
            lambda: pages.clusters.one(name).ask("POST", f"/v1/jobs/{number}/resize", body),
            lambda status: cluster_job_answer(pages, request, name, number, status),
        )  # fmt: skip

    @app.post("/cluster/{name}/hosts/{host}/{verb}")
    def drain_or_resume(
        request: Request,
        name: ClusterName,
        host: HostName,
        verb: Annotated[str, Path(pattern="^(drain|resume)$")],
    ) -> Response:
        told_so = "gets no other job" if verb == "drain" else "gets jobs again"
        return told(
            request, f"{host} {told_so}",
            lambda: pages.clusters.one(name).ask("POST", f"/v1/hosts/{host}/{verb}"),
            lambda status: cluster_host_answer(pages, request, name, host, status),
        )  # fmt: skip


def _answer_of(cluster: Cluster) -> dict[str, Any]:
    """Return a scheduler for the list of them: what it answers, or why it does not."""
    try:
        document, refusal = cluster.queue()
    except ApplesError as error:
        return {"name": cluster.name, "document": None, "refusal": failure_of(error).line}
    return {"name": cluster.name, "document": document, "refusal": refusal}


# ----------------------------------------------------------------------------- files
def _add_files(app: FastAPI, pages: Pages) -> None:
    @app.get("/files", response_class=HTMLResponse)
    def files(request: Request) -> str:
        return served.files_page(
            pages.frame(request, "Files"), pages.folder.checked(), KINDS_OF_NEW, get_args(hat.ProgramKind)
        )  # fmt: skip

    @app.get("/hosts", response_class=HTMLResponse)
    def hosts(request: Request, name: Name) -> str:
        listed = read_host_list(pages.folder.file(name))
        asked = pages.weather.of(listed)
        notes = [*asked.said, *asked.conditions.notes]
        return served.hosts_page(
            pages.frame(request, "Files"), name, host_rows(asked), notes, asked.age
        )

    @app.get("/hosts/{host}", response_class=HTMLResponse)
    def host(request: Request, host: HostName, name: Name) -> str:
        listed = read_host_list(pages.folder.file(name))
        one = next((each for each in listed if each.name == host), None)
        if one is None:
            raise UsageError(
                f"{name} has no host {hat.printable(host)}",
                code="host-unknown",
                file=name,
                host=host,
            )
        known = known_of(listed, one, service_settings())
        return served.host_page(pages.frame(request, "Files"), name, one, known)

    @app.post("/hosts/measure")
    def measure(request: Request) -> Response:
        name = request.state.form.get("name", [""])[-1]
        pages.weather.measure(read_host_list(pages.folder.file(name)))
        return RedirectResponse(f"/hosts?{urlencode({'name': name})}", 303)


def _add_new_and_deleted(app: FastAPI, pages: Pages) -> None:
    def told(request: Request, name: str, what: str) -> Response:
        request.state.session.said = "good", what
        return RedirectResponse(file_address(name), 303)

    def value(request: Request, name: str) -> str:
        form: dict[str, list[str]] = request.state.form
        return form.get(name, [""])[-1].strip()

    @app.post("/files/new")
    def new_file(request: Request) -> Response:
        name = value(request, "name")
        create(pages.folder, name, value(request, "kind"))
        return told(request, name, f"{name} is new: it says what hat new would write")

    @app.post("/files/agent")
    def new_agent(request: Request) -> Response:
        name = value(request, "name")
        first = start_agent(pages.folder, name, value(request, "kind"))
        return told(request, first, f"{name} is new: its program, host list and README are beside")

    @app.get("/file/delete", response_class=HTMLResponse)
    def ask_to_delete(request: Request, name: Name) -> str:
        edited = EditedFile.read(pages.folder, name)
        frame = pages.frame(request, "Files")
        return served.delete_page(frame, name, edited.text, edited.digest)

    @app.post("/file/delete")
    def delete_file(request: Request) -> Response:
        name = value(request, "name")
        if value(request, "typed") != name:
            raise UsageError(
                f"nothing was deleted: type '{hat.printable(name)}' to delete it",
                code="confirmation-missing", file=name,
            )  # fmt: skip
        kept = pages.folder.put_aside(name, value(request, "digest"))
        request.state.session.said = "good", f"{name} is deleted; what it said is in {kept}"
        return RedirectResponse("/files", 303)


def file_address(name: str) -> str:
    """Return the address of the form of a file."""
    return f"/file?{urlencode({'name': name})}"


def _add_forms(app: FastAPI, pages: Pages) -> None:
    def answered(
        request: Request, edited: EditedFile, said: str = "", status: int = 200
    ) -> Response:
        if said:
            request.state.session.said = "bad", said
        found = edited.check(pages.folder)
        page = served.file_page(
            pages.frame(request, "Files"), edited.name, edited.text, edited.digest, edited.changed, found,
            edited.form(found.kind),
        )  # fmt: skip
        return HTMLResponse(page, status)

    @app.get("/file", response_class=HTMLResponse)
    def file(request: Request, name: Name) -> Response:
        return answered(request, EditedFile.read(pages.folder, name))

    @app.post("/file")
    def edit(request: Request) -> Response:
        form = {
            key: values[-1].replace("\r\n", "\n") for key, values in request.state.form.items()
        }
        edited = EditedFile(form.get("name", ""), form.get("text", ""), form.get("digest", ""))
        pages.folder.file(edited.name)
        try:
            edited = edited.with_changes(pages.folder, form)
            if form.get("do") == "save":
                edited.save(pages.folder)
                wrong = len(edited.check(pages.folder).problems)
                request.state.session.said = "good", f"saved{f'; {wrong} wrong' if wrong else ''}"
                return RedirectResponse(file_address(edited.name), 303)
        except hat.NotEditableError as error:
            return answered(request, edited, failure_of(error).line, 400)
        except ApplesError as error:
            failure = failure_of(error)
            text = f"{failure.line} (exit code {failure.exit_code})"
            return answered(request, edited, text, STATUSES.get(failure.exit_code, 500))
        return answered(request, edited)


# ------------------------------------------------------------------------------ plan
def _add_plan(app: FastAPI, pages: Pages) -> None:
    @app.get("/plan", response_class=HTMLResponse)
    def plan(request: Request) -> str:
        files = planning.choices(pages.folder)
        wanted = planning.asked(
            {key: value[:2000] for key, value in request.query_params.items()}, files
        )
        found, refusal = None, ""
        try:
            found = planning.planned(pages.folder, wanted)
        except (ApplesError, hat.DocumentError, OSError) as error:
            refusal = failure_of(error).line
        return served.plan_page(
            pages.frame(request, "Plan"), wanted, files, found, refusal, planning.commands(wanted),
            planning.LAUNCHERS, [each.name for each in pages.clusters.all()],
        )  # fmt: skip

    def asked_of(request: Request) -> tuple[dict[str, str], dict[str, str]]:
        """Return a form, and what it asks for; a form that leaves a file out has none."""
        form = {key: values[-1] for key, values in request.state.form.items()}
        return form, planning.asked(form, dict.fromkeys(planning.KINDS, ()))

    @app.post("/plan/submit")
    def submit_planned(request: Request) -> Response:
        form, wanted = asked_of(request)
        one = pages.clusters.one(form.get("scheduler", ""))
        hosts = form.get("minimum", "").strip(), form.get("maximum", "").strip()
        answer = one.ask("POST", "/v1/jobs", planning.submission(pages.folder, wanted, hosts))
        request.state.session.said = "good", f"{answer['job']} is submitted"
        number = answer["job"].rpartition(".")[2]
        return RedirectResponse(f"{served.cluster_address(one.name)}/jobs/{number}", 303)

    @app.post("/plan/run")
    def run_planned(request: Request) -> Response:
        _, wanted = asked_of(request)
        job = planning.submitted(pages.folder, wanted)
        request.state.session.said = "good", submitted_text(job, f"wait {job.id}")
        return RedirectResponse(f"/runs/{job.id}", 303)
