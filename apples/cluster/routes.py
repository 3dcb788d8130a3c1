"""The routes of live schedulers: each sends the request of the command of the same name.

A page of a queue follows the scheduler's own stream of events.
"""

from __future__ import annotations

import asyncio
import json
import pathlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from fastapi import FastAPI, Path, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

import hat
from apples.applications.folder import DocumentFolder
from apples.cluster.pages.clusters import Cluster, Clusters
from apples.cluster.pages.queue import ClusterQuery, cluster_address, is_waiting, job_parts
from apples.cluster.pages.what_if import Supposition, starts
from apples.cluster.submission import JobRequest
from apples.cluster.text import why_text
from apples.errors import ApplesError, UsageError, failure_of
from apples.io.sockets import socket_name
from apples.jobs.pages import plan as planning
from apples.jobs.scheduler_client import SOCKET, missing
from apples.jobs.text.job import iteration_text
from apples.scheduling.policies import POLICIES
from apples.ui.web.answers import STATUSES, form_value
from apples.ui.web.event_log import read_events
from apples.ui.web.gate import Session
from apples.ui.web.site import HostName, PageNumber, Since, Site
from apples.ui.web.streams import AGAIN_SECONDS, LiveStream
from apples.weather.pages.host_series import series_of
from apples.weather.pages.hosts import HostWeather

if TYPE_CHECKING:
    from apples.cluster.documents import WaitingDocument

LIVE_POLICIES = tuple(name for name in POLICIES if name != "sd")
"""Policies that the pages offer for a live scheduler; not `sd`, which needs shared hosts."""

ClusterName = Annotated[str, Path(max_length=255)]
JobNumber = Annotated[str, Path(pattern="^[0-9]{1,12}$")]

MAX_HOSTS: Final = 10**6
AWAY_LOOKS: Final = 10
"""After this number of unanswered requests, the page updates how long the scheduler has been away."""
SILENT_SECONDS: Final = 30.0
"""Time limit for the next event; a scheduler sends at least one line every 10 s."""
MAX_LINE: Final = 64 << 20
MAX_SEEN: Final = 20_000


def add(app: FastAPI, site: Site) -> None:
    """Add the routes.

    Raises
    ------
    LaunchError
        A directory of a scheduler does not exist.
    """
    for place in site.schedulers:
        if not place.is_dir():
            raise missing(place)
    folder = DocumentFolder(site.path)
    clusters = Clusters(site.schedulers, folder, site.shared(HostWeather))
    _add_clusters(app, site, clusters)
    _add_cluster_verbs(app, site, clusters)
    _add_what_if(app, site, clusters)
    _add_submission(app, folder, clusters)


def _add_clusters(app: FastAPI, site: Site, clusters: Clusters) -> None:
    @app.get("/cluster", response_class=HTMLResponse)
    def schedulers(request: Request) -> Response:
        found = clusters.all()
        if len(found) == 1:
            return RedirectResponse(cluster_address(found[0].name), 303)
        with ThreadPoolExecutor(max(1, len(found))) as pool:  # each may wait for its time limit
            rows = [*pool.map(_answer_of, found)]
        return HTMLResponse(site.page(request, "Cluster", "clusters.html.j2", {"rows": rows}))

    @app.get("/cluster/{name}", response_class=HTMLResponse)
    def cluster(
        request: Request,
        name: ClusterName,
        words: Annotated[str, Query(max_length=200)] = "",
        waiting_page: PageNumber = 1,
        hosts_page: PageNumber = 1,
    ) -> str:
        parts = clusters.one(name).parts(ClusterQuery(words, waiting_page, hosts_page))
        model = {**parts, "base": cluster_address(name), "stream": stream_address(site, name)}
        return site.page(request, "Cluster", "cluster.html.j2", model)

    @app.get("/cluster/{name}/events")
    async def events(request: Request, name: ClusterName, since: Since = "") -> Response:
        one = await asyncio.to_thread(clusters.one, name)
        return site.followed(
            request, since, cluster_events(name), partial(QueueStream, one.directory)
        )

    @app.get("/cluster/{name}/jobs/{number}", response_class=HTMLResponse)
    def job(request: Request, name: ClusterName, number: JobNumber) -> Response:
        return cluster_job_answer(site, clusters, request, name, number)

    @app.get("/cluster/{name}/hosts/{host}", response_class=HTMLResponse)
    def host(request: Request, name: ClusterName, host: HostName) -> Response:
        return cluster_host_answer(site, clusters, request, name, host)


def _add_what_if(app: FastAPI, site: Site, clusters: Clusters) -> None:
    @app.get("/cluster/{name}/what-if", response_class=HTMLResponse)
    def what_if(
        request: Request,
        name: ClusterName,
        policy: Annotated[str, Query(max_length=40)] = "",
        hosts: Annotated[int, Query(ge=-(10**6), le=10**6)] = 0,
        job: Annotated[str, Query(max_length=80)] = "",
        minimum: PageNumber = 1,
    ) -> str:
        one, asked = clusters.one(name), Supposition(policy, hosts, job, minimum)
        document, _ = one.queue()
        found, refusal = None, ""
        try:
            if policy and policy not in LIVE_POLICIES:
                raise UsageError(
                    f"unknown policy '{hat.printable(policy)}'; choose one of {', '.join(LIVE_POLICIES)}",
                    code="policy-unknown", value=policy, known=list(LIVE_POLICIES),
                )  # fmt: skip
            found = one.ask("POST", "/v1/whatif", asked.body())
        except ApplesError as error:
            refusal = failure_of(error).line
        model = {
            "base": cluster_address(name), "name": name, "policies": LIVE_POLICIES, "document": document,
            "waiting": [*filter(is_waiting, document["jobs"])], "asked": asked, "found": found,
            "refusal": refusal, "starts": starts(found, document["time"]) if found else [],
        }  # fmt: skip
        return site.page(request, "Cluster", "cluster_what_if.html.j2", model)


def cluster_events(name: str) -> str:
    """Return the address of the event stream of a scheduler's queue."""
    return f"{cluster_address(name)}/events"


def stream_address(site: Site, name: str) -> str:
    """Return the address of the stream of events from now on."""
    address = cluster_events(name)
    return f"{address}?since={site.streams.last(address)}"


def cluster_job_answer(
    site: Site, clusters: Clusters, request: Request, name: str, number: str, status: int = 200
) -> Response:
    """Return the page of a scheduler's job in its present state."""
    one = clusters.one(name)
    shown, why = (
        one.read(f"/v1/jobs/{number}"),
        cast("WaitingDocument", one.read(f"/v1/jobs/{number}/why")),
    )
    model = {
        **job_parts(shown, time.time()), "why": why_text(why), "base": cluster_address(name),
        "stream": stream_address(site, name),
    }  # fmt: skip
    return HTMLResponse(site.page(request, "Cluster", "cluster_job.html.j2", model), status)


def cluster_host_answer(
    site: Site, clusters: Clusters, request: Request, name: str, host: str, status: int = 200
) -> Response:
    """Return the page of a scheduler's host in its present state."""
    one = clusters.one(name)
    shown, known = one.host(host)
    series = series_of(one.series_of(host))
    model = {"base": cluster_address(name), "host": shown, "known": known, "series": series}
    return HTMLResponse(site.page(request, "Cluster", "cluster_host.html.j2", model), status)


def _add_cluster_verbs(app: FastAPI, site: Site, clusters: Clusters) -> None:
    def told(
        request: Request, what: str, call: Callable[[], object], shown: Callable[[int], Response]
    ) -> Response:
        """Send the request of a button to a scheduler, and show the outcome on the button's page."""
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
            request, f"job {number} is being cancelled",
            lambda: clusters.one(name).ask("POST", f"/v1/jobs/{number}/cancel"),
            lambda status: cluster_job_answer(site, clusters, request, name, number, status),
        )  # fmt: skip

    @app.post("/cluster/{name}/jobs/{number}/resize")
    def resize(request: Request, name: ClusterName, number: JobNumber) -> Response:
        body = {"hosts": form_value(request, "hosts").replace(",", " ").split()}
        return told(
            request, f"job {number} is being resized to {', '.join(body['hosts'])}",
            lambda: clusters.one(name).ask("POST", f"/v1/jobs/{number}/resize", body),
            lambda status: cluster_job_answer(site, clusters, request, name, number, status),
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
            lambda: clusters.one(name).ask("POST", f"/v1/hosts/{host}/{verb}"),
            lambda status: cluster_host_answer(site, clusters, request, name, host, status),
        )  # fmt: skip


def _add_submission(app: FastAPI, folder: DocumentFolder, clusters: Clusters) -> None:
    @app.post("/plan/submit")
    def submit_planned(request: Request) -> Response:
        form, wanted = planning.asked_of(request.state.form)
        one = clusters.one(form.get("scheduler", ""))
        hosts = form.get("minimum", "").strip(), form.get("maximum", "").strip()
        answer = one.ask("POST", "/v1/jobs", submission(folder, wanted, hosts))
        request.state.session.said = "good", f"{answer['job']} is submitted"
        number = answer["job"].rpartition(".")[2]
        return RedirectResponse(f"{cluster_address(one.name)}/jobs/{number}", 303)


def submission(folder: DocumentFolder, wanted: Mapping[str, str], hosts: tuple[str, str]) -> Any:
    """Return the body of a submission as ``apples submit`` sends it.

    Parameters
    ----------
    hosts
        The fewest and the most hosts, as typed in the form; empty: 1, and as many as the fewest.
    """
    _, template, user = planning.files_of(folder, {**wanted, "hosts": wanted["template"]})
    least, most = (
        _count(name, text) for name, text in zip(("--min", "--max"), hosts, strict=True)
    )
    request = JobRequest(
        template,
        user,
        planning.settings_of(wanted["set"]),
        least or 1,
        most,
        directory=folder.path,
    )
    return request.body()


def _count(option: str, text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MAX_HOSTS):
        raise UsageError(
            f"{option} {hat.printable(text)}: must be a whole number from 1 to {MAX_HOSTS}",
            code="value-range", option=option, value=text, bound=[1, MAX_HOSTS],
        )  # fmt: skip
    return int(text)


def _answer_of(cluster: Cluster) -> dict[str, Any]:
    """Return a scheduler's row in the list: its answer, or the reason that it gives none."""
    try:
        document, refusal = cluster.queue()
    except ApplesError as error:
        return {"name": cluster.name, "document": None, "refusal": failure_of(error).line}
    return {"name": cluster.name, "document": document, "refusal": refusal}


class QueueStream(LiveStream):
    """The changes in the queue of a scheduler, from its own stream of events.

    Parameters
    ----------
    directory
        The directory of the scheduler's socket.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__()
        self._directory = directory
        self._seen: dict[str, Mapping[str, Any]] = {}

    async def look(self) -> None:
        """Follow the scheduler's events; while it is away, connect again at intervals."""
        last, asked = "", 0
        while True:
            with suppress(OSError, ValueError, KeyError, TypeError):
                async for number, kind, data in self._said(last):
                    last = number
                    self._take(kind, data)
                    asked = 0
            if asked % AWAY_LOOKS == 0:  # the scheduler is away: update the page's message
                self.change()
            asked += 1
            await asyncio.sleep(AGAIN_SECONDS)

    def _take(self, kind: str, data: str) -> None:
        """Pass on the progress of a job as a text, and every other event as a change."""
        if kind == "job":
            job = json.loads(data)
            name, rest = job["job"], {**job, "iteration": None, "iterations": None}
            if self._seen.get(name) == rest:
                self.text(name, iteration_text(job))
                return
            if len(self._seen) >= MAX_SEEN:
                self._seen.clear()
            self._seen[name] = rest
        self.change()

    async def _said(self, last: str) -> AsyncIterator[tuple[str, str, str]]:
        """Yield identifier, kind and data of the events after event `last`."""
        with socket_name(self._directory / SOCKET) as name:
            async with asyncio.timeout(SILENT_SECONDS):
                reader, writer = await asyncio.open_unix_connection(name, limit=MAX_LINE)
        try:
            resumed = f"Last-Event-ID: {last}\r\n" if last else ""
            writer.write(f"GET /v1/events HTTP/1.0\r\nHost: scheduler\r\n{resumed}\r\n".encode())
            async with asyncio.timeout(SILENT_SECONDS) as limit:
                if b" 200 " not in await reader.readline():
                    raise ConnectionRefusedError
                async for event in read_events(reader):
                    limit.reschedule(asyncio.get_running_loop().time() + SILENT_SECONDS)
                    if event:
                        yield event["id"], event["event"], event["data"]
        finally:
            writer.close()
