"""A plan for a page: files of the folder, a decision under what is known without measuring, and its command."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import hat
from apples import jobs
from apples.agent.information import load_information
from apples.agent.models import recall
from apples.agent.session.planning import plan
from apples.agent.session.spec import PlanSpec, RunSpec
from apples.applications import files as user_files
from apples.applications.folder import DocumentFolder
from apples.errors import UsageError
from apples.weather.history import remembered_weather
from apples.weather.service import service_settings

NAMES = ("template", "hosts", "user")
LAUNCHERS = ("local", "ssh")
"""Those that ``apples run`` can be told and that ask for no more than their name."""
KINDS: Mapping[str, str] = {
    "templates": hat.TEMPLATE,
    "hosts": user_files.HOST_LIST,
    "users": hat.USER,
}


def choices(folder: DocumentFolder) -> dict[str, list[str]]:
    """Return the files there are to choose from, by what they are."""
    kinds = folder.kinds()
    return {
        key: [name for name, one in kinds.items() if one == kind] for key, kind in KINDS.items()
    }


def asked(form: Mapping[str, str], files: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return what a form asks for; what it leaves open is the first file of its kind."""
    first = {key: names[0] if names else "" for key, names in files.items()}
    return {
        "template": form.get("template") or first["templates"],
        "hosts": form.get("hosts") or first["hosts"],
        "user": form.get("user", first["users"]),
        "set": form.get("set", ""),
        "weather": form.get("weather") or "remembered",
        "actuator": form.get("actuator") or LAUNCHERS[0],
    }


def asked_of(form: Mapping[str, Sequence[str]]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields of a form, and what it asks for; a form that leaves a file out has none."""
    fields = {key: values[-1] for key, values in form.items()}
    return fields, asked(fields, dict.fromkeys(KINDS, ()))


def planned(folder: DocumentFolder, wanted: Mapping[str, str]) -> dict[str, Any]:
    """Return a plan as ``apples.plan/1``, under the host list's values or what is remembered of the hosts.

    Raises
    ------
    hat.DocumentError, ApplesError
        As ``apples plan`` says; that there is no plan is none.
    """
    spec = PlanSpec(*files_of(folder, wanted), settings_of(wanted["set"]), weather="static")
    information = load_information(
        spec.hosts, spec.template, spec.user, settings=spec.settings, weather="static"
    )
    # Nothing is measured here: a page that is opened or typed into would otherwise log in on
    # hosts.
    if wanted["weather"] != "static":
        known = remembered_weather(information.hosts, service_settings())
        learned = recall(information.learned_key, hosts=information.hosts)
        information = replace(information, conditions=known, learned=learned)
    return plan(spec, information).document()


def submitted(folder: DocumentFolder, wanted: Mapping[str, str]) -> jobs.JobStatus:
    """Start a job, as ``apples run --detach`` does, and return it once it runs."""
    hosts, template, user = files_of(folder, wanted)
    if wanted["actuator"] not in LAUNCHERS:
        raise UsageError(
            f"'{hat.printable(wanted['actuator'])}': is no launcher to choose",
            code="launcher-unknown", value=wanted["actuator"], known=list(LAUNCHERS),
        )  # fmt: skip
    launcher = None if wanted["actuator"] == LAUNCHERS[0] else wanted["actuator"]
    spec = RunSpec(hosts, template, user, settings_of(wanted["set"]), actuator=launcher)
    return jobs.submit(jobs.JobSpec(spec, folder.path))


def commands(wanted: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the commands that plan, run and submit this, typed in the folder."""
    settings = [word for pair in wanted["set"].split() for word in ("--set", pair)]
    files = {name: [f"--{name}", wanted[name]] if wanted[name] else [] for name in NAMES}
    words = [word for name in NAMES for word in files[name]] + settings
    static = ["--weather", "static"] if wanted["weather"] == "static" else []
    other = wanted["actuator"] != LAUNCHERS[0]
    launcher = ["--actuator", wanted["actuator"]] if other else []
    return (
        shlex.join(["apples", "plan", *words, *static]),
        shlex.join(["apples", "run", "--detach", *words, *launcher]),
        shlex.join(["apples", "submit", *files["template"], *files["user"], *settings]),
    )


def files_of(folder: DocumentFolder, wanted: Mapping[str, str]) -> tuple[Path, Path, Path | None]:
    """Return the host list, the template and the user's file that a form names.

    Raises
    ------
    UsageError
        A file is not named, or is no file of the folder.
    """
    missing = [name for name in NAMES[:2] if not wanted[name]]
    if missing:
        raise UsageError(
            f"there is no file for {' and '.join(missing)} in {folder.path}",
            code="file-missing", fields=missing, directory=str(folder.path),
        )  # fmt: skip
    user = folder.file(wanted["user"]) if wanted["user"] else None
    return folder.file(wanted["hosts"]), folder.file(wanted["template"]), user


def settings_of(text: str) -> dict[str, str]:
    """Return the settings of ``NAME=VALUE NAME=VALUE``."""
    found = {}
    for pair in text.split():
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UsageError(
                f"--set {pair}: must be NAME=VALUE",
                code="value-invalid",
                option="--set",
                value=pair,
            )
        found[name] = value
    return found
