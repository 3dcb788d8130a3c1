"""The routes of the files of a folder, their forms, and the hosts of a host list."""

from __future__ import annotations

from typing import Annotated, get_args
from urllib.parse import urlencode

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

import hat
from apples.applications import pages as served
from apples.applications.folder import DocumentFolder
from apples.applications.forms import KINDS_OF_NEW, EditedFile, create, start_agent
from apples.applications.scaffold import ProgramKind
from apples.errors import ApplesError, UsageError, failure_of
from apples.resources import read_host_list
from apples.ui.web.answers import STATUSES
from apples.ui.web.site import HostName, Site
from apples.weather.pages.host_series import known_of
from apples.weather.pages.hosts import HostWeather, host_rows
from apples.weather.pages.served import host_page, hosts_page
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
        return served.files_page(
            site.frame(request, "Files"), folder.checked(), KINDS_OF_NEW, get_args(ProgramKind)
        )  # fmt: skip


def _add_hosts(app: FastAPI, site: Site, folder: DocumentFolder, weather: HostWeather) -> None:
    @app.get("/hosts", response_class=HTMLResponse)
    def hosts(request: Request, name: Name) -> str:
        listed = read_host_list(folder.file(name))
        asked = weather.of(listed)
        notes = [*asked.said, *asked.conditions.notes]
        return hosts_page(site.frame(request, "Files"), name, host_rows(asked), notes, asked.age)

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
        known = known_of(listed, one, service_settings())
        return host_page(site.frame(request, "Files"), name, one, known)

    @app.post("/hosts/measure")
    def measure(request: Request) -> Response:
        name = request.state.form.get("name", [""])[-1]
        weather.measure(read_host_list(folder.file(name)))
        return RedirectResponse(f"/hosts?{urlencode({'name': name})}", 303)


def _add_new_and_deleted(app: FastAPI, site: Site, folder: DocumentFolder) -> None:
    def told(request: Request, name: str, what: str) -> Response:
        request.state.session.said = "good", what
        return RedirectResponse(file_address(name), 303)

    def value(request: Request, name: str) -> str:
        form: dict[str, list[str]] = request.state.form
        return form.get(name, [""])[-1].strip()

    @app.post("/files/new")
    def new_file(request: Request) -> Response:
        name = value(request, "name")
        create(folder, name, value(request, "kind"))
        return told(request, name, f"{name} is new: it says what hat new would write")

    @app.post("/files/agent")
    def new_agent(request: Request) -> Response:
        name = value(request, "name")
        first = start_agent(folder, name, value(request, "kind"))
        return told(request, first, f"{name} is new: its program, host list and README are beside")

    @app.get("/file/delete", response_class=HTMLResponse)
    def ask_to_delete(request: Request, name: Name) -> str:
        edited = EditedFile.read(folder, name)
        frame = site.frame(request, "Files")
        return served.delete_page(frame, name, edited.text, edited.digest)

    @app.post("/file/delete")
    def delete_file(request: Request) -> Response:
        name = value(request, "name")
        if value(request, "typed") != name:
            raise UsageError(
                f"nothing was deleted: type '{hat.printable(name)}' to delete it",
                code="confirmation-missing", file=name,
            )  # fmt: skip
        kept = folder.put_aside(name, value(request, "digest"))
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
        page = served.file_page(
            site.frame(request, "Files"), edited.name, edited.text, edited.digest, edited.changed, found,
            edited.form(found.kind),
        )  # fmt: skip
        return HTMLResponse(page, status)

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
