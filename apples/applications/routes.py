"""The routes of the files of a folder, their forms, and the hosts of a host list."""

from __future__ import annotations

from typing import Annotated, get_args
from urllib.parse import urlencode

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

import hat
from apples.applications.folder import DocumentFolder
from apples.applications.forms import KINDS_OF_NEW, EditedFile, create, start_agent
from apples.applications.scaffold import ProgramKind
from apples.errors import ApplesError, UsageError, failure_of
from apples.resources import read_host_list
from apples.ui.web.answers import STATUSES, form_value
from apples.ui.web.site import HostName, Site
from apples.weather.pages.host_series import known_of, series_of
from apples.weather.pages.hosts import HostWeather
from apples.weather.service import service_settings

Name = Annotated[str, Query(max_length=1000)]


def add(app: FastAPI, site: Site) -> None:
    """Add the routes."""
    folder = DocumentFolder(site.path)
    _add_files(app, site, folder)
    _add_hosts(app, site, folder, site.shared(HostWeather))
    _add_new_and_deleted(app, site, folder)
    _add_forms(app, site, folder)


def _add_files(app: FastAPI, site: Site, folder: DocumentFolder) -> None:
    @app.get("/files", response_class=HTMLResponse)
    def files(request: Request) -> str:
        model = {
            "files": folder.checked(),
            "documents": KINDS_OF_NEW,
            "agents": get_args(ProgramKind),
        }
        return site.page(request, "Files", "files.html.j2", model)


def _add_hosts(app: FastAPI, site: Site, folder: DocumentFolder, weather: HostWeather) -> None:
    @app.get("/hosts", response_class=HTMLResponse)
    def hosts(request: Request, name: Name) -> str:
        model = {"name": name, "asked": weather.of(read_host_list(folder.file(name)))}
        return site.page(request, "Files", "hosts.html.j2", model)

    @app.get("/hosts/{host}", response_class=HTMLResponse)
    def host(request: Request, host: HostName, name: Name) -> str:
        listed = read_host_list(folder.file(name))
        one = next((each for each in listed if each.name == host), None)
        if one is None:
            raise UsageError(
                f"{name} has no host {hat.printable(host)}",
                code="host-unknown",
                file=name,
                host=host,
            )
        series = series_of(known_of(listed, one, service_settings()))
        model = {"list": name, "host": one, "series": series}
        return site.page(request, "Files", "host_weather.html.j2", model)

    @app.post("/hosts/measure")
    def measure(request: Request) -> Response:
        name = form_value(request, "name")
        weather.measure(read_host_list(folder.file(name)))
        return RedirectResponse(f"/hosts?{urlencode({'name': name})}", 303)


def _add_new_and_deleted(app: FastAPI, site: Site, folder: DocumentFolder) -> None:
    def told(request: Request, name: str, what: str) -> Response:
        request.state.session.said = "good", what
        return RedirectResponse(file_address(name), 303)

    @app.post("/files/new")
    def new_file(request: Request) -> Response:
        name = form_value(request, "name")
        create(folder, name, form_value(request, "kind"))
        return told(request, name, f"{name} is new, with the text that hat new writes")

    @app.post("/files/agent")
    def new_agent(request: Request) -> Response:
        name = form_value(request, "name")
        first = start_agent(folder, name, form_value(request, "kind"))
        return told(request, first, f"{name} is new: its program, host list and README are beside")

    @app.get("/file/delete", response_class=HTMLResponse)
    def ask_to_delete(request: Request, name: Name) -> str:
        return site.page(request, "Files", "file_delete.html.j2", EditedFile.read(folder, name))

    @app.post("/file/delete")
    def delete_file(request: Request) -> Response:
        name = form_value(request, "name")
        if form_value(request, "typed") != name:
            raise UsageError(
                f"nothing was deleted: type '{hat.printable(name)}' to delete it",
                code="confirmation-missing", file=name,
            )  # fmt: skip
        kept = folder.put_aside(name, form_value(request, "digest"))
        request.state.session.said = "good", f"{name} is deleted; its text is kept in {kept}"
        return RedirectResponse("/files", 303)


def file_address(name: str) -> str:
    """Return the address of the form of a file."""
    return f"/file?{urlencode({'name': name})}"


def _add_forms(app: FastAPI, site: Site, folder: DocumentFolder) -> None:
    def answered(
        request: Request, edited: EditedFile, said: str = "", status: int = 200
    ) -> Response:
        if said:
            request.state.session.said = "bad", said
        found = edited.check(folder)
        problems: dict[str, list[hat.Problem]] = {}
        for problem in found.problems:
            problems.setdefault(problem.field, []).append(problem)
        model = {
            "edited": edited, "found": found, "form": edited.form(found.kind), "problems_of": problems,
        }  # fmt: skip
        return HTMLResponse(site.page(request, "Files", "file.html.j2", model), status)

    @app.get("/file", response_class=HTMLResponse)
    def file(request: Request, name: Name) -> Response:
        return answered(request, EditedFile.read(folder, name))

    @app.post("/file")
    def edit(request: Request) -> Response:
        form = {
            key: values[-1].replace("\r\n", "\n") for key, values in request.state.form.items()
        }
        edited = EditedFile(form.get("name", ""), form.get("text", ""), form.get("digest", ""))
        folder.file(edited.name)
        try:
            edited = edited.with_changes(folder, form)
            if form.get("do") == "save":
                edited.save(folder)
                wrong = len(edited.check(folder).problems)
                request.state.session.said = "good", f"saved{f'; {wrong} wrong' if wrong else ''}"
                return RedirectResponse(file_address(edited.name), 303)
        except hat.NotEditableError as error:
            return answered(request, edited, failure_of(error).line, 400)
        except ApplesError as error:
            failure = failure_of(error)
            text = f"{failure.line} (exit code {failure.exit_code})"
            return answered(request, edited, text, STATUSES.get(failure.exit_code, 500))
        return answered(request, edited)
