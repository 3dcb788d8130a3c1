"""The plans of a page: files of the folder, one decision or two side by side, and their commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hat
from apples import jobs
from apples.agent.documents import PlanDocument
from apples.agent.information import load_information
from apples.agent.session.planning import plan
from apples.agent.session.spec import PlanSpec, RunSpec
from apples.agent.text.words import reasons
from apples.applications import files as user_files
from apples.applications.folder import WEATHER_ENDING, DocumentFolder
from apples.errors import ApplesError, UsageError, failure_of
from apples.jobs.pages.comparison import comparison_parts
from apples.weather.source import read_weather

if TYPE_CHECKING:
    from apples.jobs.documents import AnyComparison

Document = Mapping[str, Any]

NAMES = ("template", "hosts", "user")
LAUNCHERS = ("local", "ssh")
"""Launchers of ``apples run`` that need no further option."""
WEATHERS = ("remembered", "static", "live")
"""Weathers by name; any other is a file of the folder."""
SECOND = ("weather", "user", "set")
"""Settings in which a second plan can differ: ``weather2``, ``user2``, ``set2``."""
NO_USER, NO_SETTINGS = "-", "-"
"""Values of a second plan: no user specifications, and the defaults of all parameters."""
KINDS: Mapping[str, str] = {
    "templates": hat.TEMPLATE,
    "hosts": user_files.HOST_LIST,
    "users": hat.USER,
}


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """The answer to a form of the page.

    Attributes
    ----------
    plan
        ``apples.plan/1``; None with a `refusal`.
    refusal
        Error line; empty if there is a plan.
    commands
        Commands that plan, run and submit it.
    second
        Command of the second plan; empty without one.
    comparison
        ``apples.compare-plans/1``; None without a second plan, or if it fails.
    second_refusal
        Error line of the second plan.
    """

    plan: PlanDocument | None
    refusal: str
    commands: tuple[str, str, str]
    second: str = ""
    comparison: AnyComparison | None = None
    second_refusal: str = ""

    @property
    def reasons(self) -> Document | None:
        """Return the reasons for the plan's hosts."""
        return reasons(self.plan)

    @property
    def compared(self) -> dict[str, Any] | None:
        """Return the comparison for its templates."""
        return None if self.comparison is None else comparison_parts(self.comparison)


def choices(folder: DocumentFolder) -> dict[str, list[str]]:
    """Return the files to choose from, by their kind."""
    kinds = folder.kinds()
    return {
        key: [name for name, one in kinds.items() if one == kind] for key, kind in KINDS.items()
    }


def asked(form: Mapping[str, str], files: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the settings of a form; the default of a file is the first of its kind."""
    first = {key: names[0] if names else "" for key, names in files.items()}
    return {
        "template": form.get("template") or first["templates"],
        "hosts": form.get("hosts") or first["hosts"],
        "user": form.get("user", first["users"]),
        "set": form.get("set", ""),
        "weather": form.get("weather") or WEATHERS[0],
        "actuator": form.get("actuator") or LAUNCHERS[0],
        **{f"{name}2": form.get(f"{name}2", "") for name in SECOND},
    }


def asked_of(form: Mapping[str, Sequence[str]]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the fields of a form, and its settings; a file that the form leaves out is empty."""
    fields = {key: values[-1] for key, values in form.items()}
    return fields, asked(fields, dict.fromkeys(KINDS, ()))


def second_of(wanted: Mapping[str, str]) -> dict[str, str] | None:
    """Return the settings of the second plan; None if it would be the first."""
    second = dict(wanted)
    for name in SECOND:
        value = wanted[f"{name}2"]
        empty = {"user": NO_USER, "set": NO_SETTINGS}.get(name)
        second[name] = "" if value and value == empty else value or wanted[name]
    return None if all(second[name] == wanted[name] for name in SECOND) else second


def answer(
    folder: DocumentFolder,
    wanted: Mapping[str, str],
    compare: Callable[[Mapping[str, Any]], AnyComparison],
) -> PlanAnswer:
    """Return the plan of a form, and its comparison with the second plan if the form has one.

    Parameters
    ----------
    compare
        Returns ``apples.compare-plans/1`` of plans by name.
    """
    found, refusal = _planned_or_refused(folder, wanted)
    second = second_of(wanted)
    if second is None:
        return PlanAnswer(found, refusal, commands(wanted))
    other, second_refusal = _planned_or_refused(folder, second)
    comparison = None
    if found is not None and other is not None:
        comparison = compare(dict(zip(_labels(wanted, second), (found, other), strict=True)))
    return PlanAnswer(
        found, refusal, commands(wanted), commands(second)[0], comparison, second_refusal
    )


def _labels(wanted: Mapping[str, str], second: Mapping[str, str]) -> tuple[str, str]:
    """Return the names of two plans: the settings in which they differ."""
    empty = {"user": "no user specifications", "set": "default parameters"}
    differ = [name for name in SECOND if wanted[name] != second[name]]
    first, other = (
        ", ".join(settings[name] or empty[name] for name in differ)
        for settings in (wanted, second)
    )
    return first, other


def _planned_or_refused(
    folder: DocumentFolder, wanted: Mapping[str, str]
) -> tuple[PlanDocument | None, str]:
    try:
        return planned(folder, wanted), ""
    except (ApplesError, hat.DocumentError, OSError) as error:
        return None, failure_of(error).line


def planned(folder: DocumentFolder, wanted: Mapping[str, str]) -> PlanDocument:
    """Return ``apples.plan/1``, as ``apples plan`` with the same weather prints it.

    Raises
    ------
    hat.DocumentError, ApplesError
        As ``apples plan``. A plan that is not feasible raises nothing.
    """
    files, settings, weather = (
        files_of(folder, wanted),
        settings_of(wanted["set"]),
        wanted["weather"],
    )
    if weather in WEATHERS:
        return plan(PlanSpec(*files, settings, weather=weather)).document()
    path = folder.file(weather, WEATHER_ENDING)
    information = load_information(*files, settings=settings, weather="static")
    information = information.with_weather(read_weather(path, information.hosts), source=weather)
    return plan(PlanSpec(*files, settings, weather=str(path)), information).document()


def submitted(folder: DocumentFolder, wanted: Mapping[str, str]) -> jobs.JobStatus:
    """Start a job, as ``apples run --detach`` does; return its status once it runs."""
    hosts, template, user = files_of(folder, wanted)
    if wanted["actuator"] not in LAUNCHERS:
        raise UsageError(
            f"'{hat.printable(wanted['actuator'])}': unknown launcher",
            code="launcher-unknown", value=wanted["actuator"], known=list(LAUNCHERS),
        )  # fmt: skip
    launcher = None if wanted["actuator"] == LAUNCHERS[0] else wanted["actuator"]
    spec = RunSpec(hosts, template, user, settings_of(wanted["set"]), actuator=launcher)
    return jobs.submit(jobs.JobSpec(spec, folder.path))


def commands(wanted: Mapping[str, str]) -> tuple[str, str, str]:
    """Return the commands that plan, run and submit the form's application, to be typed in the folder."""
    settings = [word for pair in wanted["set"].split() for word in ("--set", pair)]
    files = {name: [f"--{name}", wanted[name]] if wanted[name] else [] for name in NAMES}
    words = [word for name in NAMES for word in files[name]] + settings
    weather = ["--weather", wanted["weather"]] if wanted["weather"] != "live" else []
    other = wanted["actuator"] != LAUNCHERS[0]
    launcher = ["--actuator", wanted["actuator"]] if other else []
    return (
        shlex.join(["apples", "plan", *words, *weather]),
        shlex.join(["apples", "run", "--detach", *words, *launcher]),
        shlex.join(["apples", "submit", *files["template"], *files["user"], *settings]),
    )


def files_of(folder: DocumentFolder, wanted: Mapping[str, str]) -> tuple[Path, Path, Path | None]:
    """Return the host list, the template and the user's file that a form names.

    Raises
    ------
    UsageError
        The form names no file, or the folder does not have the file.
    """
    missing = [name for name in NAMES[:2] if not wanted[name]]
    if missing:
        raise UsageError(
            f"{folder.path}: no file for {' and '.join(missing)}",
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
