"""`JobSpec`, `ProgramSpec` and `UnitsSpec`: the specification of a job for its supervisor, and its stored form.

A job outlives the command that submitted it. Therefore its files have absolute paths, and the specification has
the working directory of the command: names of the user's own code (``file.py:name``) are relative to it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from apples.agent.session.spec import RunSpec
from apples.errors import LaunchError, UsageError

Document = dict[str, Any]

NAMED = ("blueprint", "planner", "distance", "model")
"""Fields of `RunSpec` that take a name or a function."""


def working_directory() -> Path:
    """Return this process's working directory; raise `LaunchError` if it was removed."""
    try:
        return Path.cwd()
    except OSError as error:
        raise LaunchError(
            f"the working directory: {error.strerror}",
            code="working-directory-missing",
            reason=error.strerror,
        ) from None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """An application to run as a job.

    Attributes
    ----------
    run
        The run. Blueprint, planner, distance and model are names, and filters are not allowed, because another
        process reads the specification.
    directory
        Working directory of the submitting command.
    """

    run: RunSpec
    directory: Path = field(default_factory=working_directory)

    def __post_init__(self) -> None:
        run, here = self.run, self.directory
        for name in NAMED:
            if callable(getattr(run, name)):
                raise UsageError(
                    f"{name}: a job needs its name (file.py:name), not the function",
                    code="value-type",
                    field=name,
                )
        for name in ("host_filters", "filters"):
            if getattr(run, name):
                raise UsageError(
                    f"{name}: a job accepts no host filters; use the limits of user.toml, or apples.run",
                    code="value-type",
                    field=name,
                )
        absolute = replace(
            run,
            hosts=here / run.hosts,
            template=here / run.template,
            user=None if run.user is None else here / run.user,
            output=None if run.output is None else here / run.output,
            messages=None if run.messages is None else here / run.messages,
        )
        object.__setattr__(self, "run", absolute)

    def document(self) -> Document:
        """Return the specification as it is stored."""
        run = self.run
        return {
            "directory": str(self.directory),
            "hosts": str(run.hosts),
            "template": str(run.template),
            "user": None if run.user is None else str(run.user),
            "output": None if run.output is None else str(run.output),
            "settings": [f"{name}={value}" for name, value in run.settings.items()],
            "blueprint": run.blueprint,
            "weather": run.weather,
            "planner": run.planner,
            "distance": run.distance,
            "model": run.model,
            "verify": run.verify,
            "actuator": run.actuator,
            "slurm": [f"{name}={value}" for name, value in run.slurm.items()],
            "warm": list(run.warm),
            "commit_seconds": run.commit_seconds,
            "fresh": run.fresh,
            "learned": run.learned,
            "learn": run.learn,
            "on": list(run.on),
            "silent": list(run.silent),
            "count_messages": run.count_messages,
            "calibrate": run.calibrate,
            "messages": None if run.messages is None else str(run.messages),
            "contents": dict(run.contents),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> JobSpec:
        """Return the specification that was stored."""
        names = (
            *("hosts", "template", "user", "blueprint", "weather", "planner", "distance", "model"),
            *("verify", "actuator", "commit_seconds"),
        )
        run = RunSpec(
            **{name: document[name] for name in names},
            settings=_pairs(document["settings"]),
            slurm=_pairs(document["slurm"]),
            output=None if document["output"] is None else Path(document["output"]),
            warm=tuple(document["warm"]),
            fresh=bool(document.get("fresh", False)),
            learned=bool(document.get("learned", False)),
            learn=document.get("learn"),
            on=tuple(document.get("on", ())),
            silent=tuple(document.get("silent", ())),
            count_messages=bool(document.get("count_messages", False)),
            calibrate=bool(document.get("calibrate", True)),
            messages=Path(document["messages"]) if document.get("messages") else None,
            contents=document.get("contents", {}),
        )
        return cls(run, Path(document["directory"]))


@dataclass(frozen=True, slots=True)
class ProgramSpec:
    """An unmodified program to run as a job that can migrate.

    Attributes
    ----------
    program
        Its command line.
    hosts
        Host list of the machines that it may use.
    on
        The host on which it begins; for an MPI program, the host of each rank.
    signal, signal_seconds
        Signal sent before a checkpoint, if the program catches it, and the seconds that it gets to prepare.
    output
        Folder of its files ``output`` and ``errors``; None: the job's own folder.
    directory
        Working directory of the submitting command.
    """

    program: tuple[str, ...]
    hosts: Path
    on: tuple[str, ...]
    signal: str = "USR1"
    signal_seconds: float = 1.0
    output: Path | None = None
    directory: Path = field(default_factory=working_directory)

    def __post_init__(self) -> None:
        object.__setattr__(self, "hosts", self.directory / self.hosts)
        if self.output is not None:
            object.__setattr__(self, "output", self.directory / self.output)

    def document(self) -> Document:
        """Return the specification as it is stored."""
        return {
            "directory": str(self.directory),
            "hosts": str(self.hosts),
            "program": list(self.program),
            "on": list(self.on),
            "signal": self.signal,
            "signal_seconds": self.signal_seconds,
            "output": None if self.output is None else str(self.output),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> ProgramSpec:
        """Return the specification that was stored."""
        on = document["on"]
        return cls(
            program=tuple(document["program"]),
            hosts=Path(document["hosts"]),
            on=(on,) if isinstance(on, str) else tuple(on),  # a text, up to 2026-11-22
            signal=document["signal"],
            signal_seconds=document["signal_seconds"],
            output=None if document["output"] is None else Path(document["output"]),
            directory=Path(document["directory"]),
        )


@dataclass(frozen=True, slots=True)
class UnitsSpec:
    """A master with its workers, to run as a scheduler's job.

    Attributes
    ----------
    file
        ``master-worker.toml``.
    hosts, on
        The scheduler's host list, and the hosts in it that the job gets.
    settings, weather, verify
        As in ``apples run`` of a master/worker program. Live weather is not measured: the job uses the host list's
        values first, then the measured speeds of the workers.
    actuator
        ``local``: treat all hosts as parts of this machine, also if the list gives them addresses.
    evolving
        Request more hosts from the scheduler if they shorten the run.
    directory
        Working directory of the submitting command.
    contents
        ``units``: the text to use in place of `file`.
    """

    file: Path
    hosts: Path = Path(os.devnull)
    settings: Mapping[str, str] = field(default_factory=dict)
    weather: str = "static"
    verify: str = "sample"
    on: tuple[str, ...] = ()
    actuator: str = "local"
    evolving: bool = False
    directory: Path = field(default_factory=working_directory)
    contents: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("file", "hosts"):
            object.__setattr__(self, name, self.directory / getattr(self, name))

    def document(self) -> Document:
        """Return the specification as it is stored."""
        return {
            "directory": str(self.directory),
            "units": str(self.file),
            "hosts": str(self.hosts),
            "settings": [f"{name}={value}" for name, value in self.settings.items()],
            "weather": self.weather,
            "verify": self.verify,
            "on": list(self.on),
            "actuator": self.actuator,
            "evolving": self.evolving,
            "contents": dict(self.contents),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> UnitsSpec:
        """Return the specification that was stored."""
        return cls(
            file=Path(document["units"]),
            hosts=Path(document["hosts"]),
            settings=_pairs(document["settings"]),
            weather=document["weather"],
            verify=document["verify"],
            on=tuple(document["on"]),
            actuator=document["actuator"],
            evolving=document["evolving"],
            directory=Path(document["directory"]),
            contents=document.get("contents", {}),
        )


Spec = JobSpec | ProgramSpec | UnitsSpec


def read(document: Mapping[str, Any]) -> Spec:
    """Return a stored specification of any kind."""
    kinds: dict[str, type[ProgramSpec | UnitsSpec]] = {"program": ProgramSpec, "units": UnitsSpec}
    kind = next((kinds[word] for word in kinds if word in document), JobSpec)
    return kind.read(document)


def _pairs(words: list[str] | None) -> dict[str, str]:
    """Return stored ``NAME=VALUE`` words as a mapping."""
    cut = (word.partition("=") for word in words or ())
    return {name: value for name, _, value in cut}


def weights_of(text: str) -> dict[str, float]:
    """Return the hosts of ``a,b=0.5,..`` with their weights.

    Examples
    --------
    >>> weights_of("ada,bob=0.5")
    {'ada': 1.0, 'bob': 0.5}
    """
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, separator, number = part.strip().partition("=")
        try:
            weight = float(number) if separator else 1.0
        except ValueError:
            weight = math.nan
        if not name or not 0 < weight < math.inf:
            raise UsageError(
                f"--on {part.strip() or text!r}: must be NAME or NAME=WEIGHT above 0",
                code="value-invalid",
                option="--on",
                value=part.strip() or text,
            )
        if name in weights:
            raise UsageError(
                f"--on {name}: is named twice",
                code="host-repeated",
                option="--on",
                host=name,
            )
        weights[name] = weight
    return weights
