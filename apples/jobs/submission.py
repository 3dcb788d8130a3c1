"""What a live scheduler is sent to submit a job: the order of its run, sealed, and the hosts it may have."""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from apples.agent.session.spec import RunSpec
from apples.errors import UsageError
from apples.jobs.seals import sealed
from apples.jobs.spec import JobSpec, working_directory
from apples.monitoring.message_counts import MessageMatrix
from apples.scheduling.server.live_job import MOST_TALK, MOST_TALKING

KINDS = ("rigid", "moldable", "malleable", "evolving")
UNESTIMATED = 3600.0
"""The run time of a job that neither its user nor its model has estimated, seconds."""
MOST_TEMPLATE = 1 << 20


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job that a scheduler is asked for, as ``apples submit`` takes it.

    Attributes
    ----------
    minimum, maximum
        Fewest and most hosts; None: as many as the fewest.
    kind
        One of `KINDS`; None: by the template and the hosts.
    seconds
        Estimate of its run time on its most hosts; None: its application's model makes one.
    after
        Jobs that have to finish before, as ``NAME.NUMBER``.
    messages
        Document of a run whose messages say which hosts are to be neighbours.
    directory
        Folder it is submitted from.
    """

    template: Path
    user: Path | None
    settings: Mapping[str, str]
    minimum: int = 1
    maximum: int | None = None
    kind: str | None = None
    seconds: float | None = None
    priority: float = 0.0
    after: Sequence[str] = ()
    weather: str = "live"
    verify: str = "auto"
    count_messages: bool = False
    messages: Path | None = None
    directory: Path = field(default_factory=working_directory)

    def body(self) -> dict[str, Any]:
        """Return the body of ``POST /v1/jobs``, under an identifier of its own.

        Raises
        ------
        UsageError
            The numbers of hosts, the kind and the template do not go together.
        """
        malleable, name = _template(self.template)
        most = self.minimum if self.maximum is None else self.maximum
        if most < self.minimum:
            raise UsageError(f"--max {most}: is less than --min {self.minimum}")
        # The scheduler's own list takes the place of the hosts; a file that is there stands for it.
        spec = RunSpec(
            Path(os.devnull), self.template, self.user, self.settings, "minimum_execution_time",
            self.weather, verify=self.verify, count_messages=self.count_messages,
            messages=self.messages,
        )  # fmt: skip
        work = sealed(JobSpec(spec, self.directory).document())
        submission = {
            "minimum": self.minimum, "maximum": most,
            "kind": _kind(self.kind, self.minimum, most, malleable), "modelled": self.seconds is None,
            "requested": UNESTIMATED if self.seconds is None else self.seconds, "priority": self.priority,
            "name": name, "work": work, "after": [*self.after],
        }  # fmt: skip
        if self.messages is not None:
            submission["messages"] = between_hosts(self.directory / self.messages)
        return {"request": secrets.token_hex(8), "submission": submission}


def between_hosts(run: Path) -> list[list[int]]:
    """Return what the hosts of a run sent each other in parts of the most that any sent, for the choice of hosts.

    Empty where it was on more hosts than a submission may tell of.
    """
    found = MessageMatrix.of_run(run)
    rows = found.by_host(found.bytes)
    most = max([1, *(size for i, row in enumerate(rows) for j, size in enumerate(row) if i != j)])
    if len(rows) > MOST_TALKING:
        return []
    return [
        [0 if i == j else size * MOST_TALK // most for j, size in enumerate(row)]
        for i, row in enumerate(rows)
    ]


def _template(place: Path) -> tuple[bool, str]:
    """Return whether a template's program is malleable, and what it is called; its job reads the rest."""
    try:
        with place.open("rb") as stream:
            read = tomllib.loads(stream.read(MOST_TEMPLATE).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{place}: {error}") from None
    return read.get("malleable") is True, str(read.get("name") or place.parent.name)[:80]


def _kind(asked: str | None, minimum: int, maximum: int, malleable: bool) -> str:
    if asked is None:
        return "rigid" if minimum == maximum else "malleable" if malleable else "moldable"
    if asked not in KINDS:
        raise UsageError(f"--kind {asked}: known are {', '.join(KINDS)}")
    if asked in {"malleable", "evolving"} and not malleable:
        raise UsageError(f"--kind {asked}: the template does not say 'malleable = true'")
    if asked == "rigid" and minimum != maximum:
        raise UsageError(f"--kind rigid: --min {minimum} and --max {maximum} differ")
    return asked
