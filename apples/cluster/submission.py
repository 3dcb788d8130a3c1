"""The body of a submission to a live scheduler: the sealed order of the job, and its numbers of hosts."""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hat
from apples.agent.session.spec import RunSpec
from apples.applications.files import is_master_worker
from apples.cluster.orders import REQUIRE
from apples.cluster.seals import sealed
from apples.errors import UsageError, coded
from apples.jobs.spec import JobSpec, UnitsSpec, working_directory

KINDS = ("rigid", "moldable", "malleable", "evolving")
UNESTIMATED = 3600.0
"""The run time of a job that neither its user nor its model has estimated, seconds."""
MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A job as ``apples submit`` submits it.

    Attributes
    ----------
    minimum, maximum
        Fewest and most hosts; None: as many as the fewest.
    kind
        One of `KINDS`; None: derived from the template and the hosts.
    seconds
        Estimate of its run time on its most hosts; None: its application's model makes one.
    after
        Predecessors, as ``NAME.NUMBER``; they have to finish first.
    messages
        Document of a run; hosts that exchanged many messages in it are placed near each other.
    require
        Requirement on its CPUs, ``CPUSET[...]``; empty: none.
    directory
        Folder from which it is submitted.
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
    require: str = ""
    directory: Path = field(default_factory=working_directory)

    def body(self) -> dict[str, Any]:
        """Return the body of ``POST /v1/jobs``, with a new request id.

        Raises
        ------
        hat.DocumentError
            A field of a master/worker program is invalid, or the template is no TOML.
        UsageError
            The numbers of hosts, the kind, the requirement or the template contradict each other.
        """
        content, read = _read(self.directory / self.template)
        most = self.minimum if self.maximum is None else self.maximum
        if most < self.minimum:
            raise UsageError(
                f"--max {most}: is less than --min {self.minimum}",
                code="value-range",
                option="--max",
                value=most,
                bound=self.minimum,
            )
        units = is_master_worker(read)
        name = str(read.get("name") or self.template.parent.name)[:80]
        kind = _kind(self.kind, self.minimum, most, units or read.get("malleable") is True)
        if units and self.kind is None and kind == "malleable":
            kind = "evolving"
        spec = self._units(kind, content) if units else self._application(content)
        document = spec.document()
        if self.require:
            document[REQUIRE] = _requirement(self.require, read.get("malleable") is True)
        work = sealed(document)
        submission = {
            "minimum": self.minimum, "maximum": most, "kind": kind, "modelled": self.seconds is None,
            "requested": UNESTIMATED if self.seconds is None else self.seconds, "priority": self.priority,
            "name": name, "work": work, "after": [*self.after],
        }  # fmt: skip
        if self.messages is not None:
            submission["messages"] = between_hosts(self.directory / self.messages)
        return {"request": secrets.token_hex(8), "submission": submission}

    def _application(self, content: str) -> JobSpec:
        contents = {"template": content}
        if self.user is not None:
            contents["user"], _ = _read(self.directory / self.user)
        # The executor puts the scheduler's host list here; until then a file that exists fills the field.
        spec = RunSpec(
            Path(os.devnull), self.template, self.user, self.settings, "minimum_execution_time",
            self.weather, verify=self.verify, count_messages=self.count_messages,
            messages=self.messages, contents=contents,
        )  # fmt: skip
        return JobSpec(spec, self.directory)

    def _units(self, kind: str, content: str) -> UnitsSpec:
        """Return the specification of a master/worker job; live weather is the observed speed of its workers."""
        for option, said in {
            "--count-messages": self.count_messages,
            "--messages": self.messages is not None,
        }.items():
            if said:
                raise UsageError(
                    f"{option}: a master/worker program has no ranks that exchange messages",
                    code="option-not-applicable",
                    option=option,
                )
        # user.toml in the folder is the default of --user; it belongs to an application in the same folder.
        if self.user is not None and self.directory / self.user != self.directory / "user.toml":
            raise UsageError(
                "--user: not for a master/worker program; set the preferences in its own file",
                code="option-not-applicable",
                option="--user",
            )
        from apples.applications.master_worker.document import MasterWorkerProgram  # noqa: PLC0415 - few jobs are

        MasterWorkerProgram.read(self.template, self.settings, content)
        weather = "static" if self.weather == "live" else self.weather
        verify = "none" if self.verify == "none" else "sample"
        return UnitsSpec(
            self.template, settings=self.settings, weather=weather, verify=verify,
            evolving=kind == "evolving", directory=self.directory, contents={"units": content},
        )  # fmt: skip


def _requirement(text: str, malleable: bool) -> str:
    """Return a requirement after a check that a topology daemon can parse it.

    Raises
    ------
    UsageError
        It cannot be parsed, or no daemon starts the ranks of a program that is not malleable. Permanent.
    """
    from apples.topology.language import parse  # noqa: PLC0415 - few jobs have one
    from apples.topology.requirement import CPUSET  # noqa: PLC0415 - as above

    if not malleable:
        raise UsageError(
            "--require: the template lacks 'malleable = true': daemons give CPUs to ranks of such a "
            "program only",
            code="program-not-malleable",
            option="--require",
        )
    try:
        parse(text, broker=CPUSET)
    except UsageError as error:
        raise UsageError(
            f"--require: {error}", **{**coded(error), "option": "--require"}
        ) from None
    return text


def between_hosts(run: Path) -> list[list[int]]:
    """Return the matrix of bytes between the hosts of a run, scaled so that the largest entry is `MAX_TALK`.

    Empty if the run used more hosts than a submission's matrix may have.
    """
    from apples.cluster.live_job import MAX_TALK, MAX_TALKING  # noqa: PLC0415
    from apples.topology.message_matrix import MessageMatrix  # noqa: PLC0415 - few jobs name a run

    found = MessageMatrix.of_run(run)
    rows = found.by_host(found.bytes)
    most = max([1, *(size for i, row in enumerate(rows) for j, size in enumerate(row) if i != j)])
    if len(rows) > MAX_TALKING:
        return []
    return [
        [0 if i == j else size * MAX_TALK // most for j, size in enumerate(row)]
        for i, row in enumerate(rows)
    ]


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text and the data of a TOML file, for example a template.

    Raises
    ------
    hat.DocumentError
        The file is not readable, or not TOML.
    """
    with suppress(OSError, ValueError, RecursionError):
        if path.is_file() and path.stat().st_size <= MAX_FILE_BYTES:
            content = path.read_text("utf-8")
            return content, tomllib.loads(content)
    document = hat.Document.read(path, limit=MAX_FILE_BYTES)  # loads slowly; names file and line
    return document.text, dict(document.data)


def _kind(asked: str | None, minimum: int, maximum: int, malleable: bool) -> str:
    if asked is None:
        return "rigid" if minimum == maximum else "malleable" if malleable else "moldable"
    if asked not in KINDS:
        raise UsageError(
            f"--kind {asked}: unknown; known: {', '.join(KINDS)}",
            code="value-unknown",
            option="--kind",
            value=asked,
            known=list(KINDS),
        )
    if asked in {"malleable", "evolving"} and not malleable:
        raise UsageError(
            f"--kind {asked}: the template lacks 'malleable = true'",
            code="program-not-malleable",
            option="--kind",
            value=asked,
        )
    if asked == "rigid" and minimum != maximum:
        raise UsageError(
            f"--kind rigid: --min {minimum} and --max {maximum} differ",
            code="option-conflict",
            options=["--kind", "--min", "--max"],
            value=[minimum, maximum],
        )
    return asked
