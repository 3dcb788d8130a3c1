"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import hat
from apples.cli import completion
from apples.errors import UsageError

Hosts = Annotated[Path | None, typer.Option("--hosts", help="Host list; hosts.toml unless named.")]
Template = Annotated[
    Path | None,
    typer.Option("--template", help="Application template; template.toml unless named."),
]
User = Annotated[
    Path | None,
    typer.Option("--user", help="User specifications; user.toml unless named, if there is one."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="A parameter of the template: NAME=VALUE.",
        autocompletion=completion.parameters,
    ),
]
BlueprintName = Annotated[
    str | None,
    typer.Option("--blueprint", help="Name, module:name or file.py:name.", show_default=False),
]
WeatherName = Annotated[
    str, typer.Option("--weather", help="static, live, or a recorded weather file.")
]
Fresh = Annotated[
    bool, typer.Option("--fresh", help="Measure all, whatever is remembered or cannot matter.")
]
Messages = Annotated[
    str | None,
    typer.Option(
        "--messages",
        metavar="RUN",
        help="Who talks most is nearest: messages of a run (id, or its JSON), or rows of bytes.",
        autocompletion=completion.runs,
    ),
]
PlannerName = Annotated[
    str | None,
    typer.Option("--planner", help="time_balancing, linear, milp, rectangles, or your own."),
]
DistanceName = Annotated[
    str | None, typer.Option("--distance", help="communication, paper, or your own.")
]
ModelName = Annotated[str | None, typer.Option("--model", help="strip, or your own.")]
ActuatorName = Annotated[
    str | None,
    typer.Option(
        "--actuator",
        help="local, ssh, slurm, or your own as module:name; local where all hosts are this machine.",
    ),
]
SlurmSettings = Annotated[
    list[str] | None,
    typer.Option("--slurm", help="What the site wants to be told: partition=NAME, minutes=N, .."),
]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="The same as --verify none.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]

NO_FILE = "there is no such file"


def files_of(
    hosts: Path | None, template: Path | None, user: Path | None
) -> tuple[Path, Path, Path | None]:
    """Return the files of an application: those named, else those of the current folder; a user's may be missing.

    Raises
    ------
    hat.DocumentError
        All that are not there.
    """
    own = Path("user.toml")
    named = {"--hosts": hosts, "--template": template, "--user": user}
    found = (
        hosts or Path("hosts.toml"),
        template or Path("template.toml"),
        user or (None if _missing(own) else own),
    )
    problems = [
        hat.Problem(
            str(path),
            None,
            "",
            NO_FILE if named[option] else f"{NO_FILE} ({option} names another)",
            code="file-missing",
        )
        for option, path in zip(named, found, strict=True)
        if path is not None and _missing(path)
    ]
    if problems:
        raise hat.DocumentError(problems)
    return found


def _missing(path: Path) -> bool:
    """Whether there is no such file; what else may be wrong with it, its reader says."""
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return False


def settings_of(pairs: Sequence[str] | None, option: str = "--set") -> dict[str, str]:
    """Return ``NAME=VALUE`` options as a mapping."""
    settings = {}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise UsageError(
                f"{option} {pair}: must be NAME=VALUE",
                code="value-invalid",
                option=option,
                value=pair,
            )
        settings[name] = value
    return settings


def how_verified(
    word: str | None, no_verify: bool, known: Sequence[str] = ("full", "sample", "none")
) -> str:
    """Return how a result is verified, empty where nobody says or it is left open; what is said twice must agree.

    Raises
    ------
    UsageError
        Two words that contradict each other, or none of those known.
    """
    if no_verify and word not in {None, "none"}:
        raise UsageError(
            f"--verify {word}: contradicts --no-verify",
            code="option-conflict",
            options=["--verify", "--no-verify"],
            value=word,
        )
    if word not in {None, "auto", *known}:
        raise UsageError(
            f"--verify '{word}': known are {', '.join(known)}",
            code="value-unknown",
            option="--verify",
            value=word,
            known=list(known),
        )
    return "none" if no_verify else "" if word in {None, "auto"} else str(word)
