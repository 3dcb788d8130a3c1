"""`JobFile`: what the job manager is told of its job, one JSON document; not trusted until it is read here.

Standard library only: the manager loads nothing heavy.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from apples.launch.host_spec import HostSpec, place_of
from apples.malleable.control.command import HostShare

SCHEMA = "apples.job-file/1"
RUN_FILE = "run"
"""In a job's folder: the path of the folder that its run has elsewhere, for whoever clears up after all that would
have done so was killed."""


class JobFileError(ValueError):
    """The document is invalid; the message names the field.

    Attributes
    ----------
    code
        Names the condition, for example ``value-invalid``.
    field
        The field of the document that is wrong; empty: the document itself.
    """

    def __init__(self, message: str, *, code: str = "value-invalid", field: str = "") -> None:
        super().__init__(message)
        self.code, self.field = code, field


@dataclass(frozen=True, slots=True)
class JobFile:
    """One job.

    Attributes
    ----------
    job
        Its id; every process bears it in its environment (``APPLES_JOB``).
    directory
        Where the program works.
    hosts
        Every host it may ever use.
    members
        The first map, in strip order.
    task
        The application protocol's task, handed to the program as it is.
    minimum, maximum
        Limits in hosts.
    commits
        Directory for committed states, empty: none are made.
    commit_seconds
        How often; 0: only when the program says so. None: as often as costs little, in memory alone.
    control
        Path of the socket of the control server; empty: there is none.
    attempt
        How often the job was started, this time included: from the second on it begins with its last commit.
    epoch
        The last of the attempts before.
    scheduled
        Whether a scheduler says where it is: commands may name hosts that are not in `hosts` (with their
        `places`), and no host takes the place of one that is lost, for another job may have it.
    """

    job: str
    directory: str
    hosts: tuple[HostSpec, ...]
    members: tuple[HostShare, ...]
    task: Mapping[str, Any]
    minimum: int = 1
    maximum: int = 0
    commits: str = ""
    commit_seconds: float | None = None
    control: str = ""
    attempt: int = 1
    epoch: int = 0
    scheduled: bool = False

    def place(self, host: str) -> HostSpec:
        """Return the host of this name."""
        return next(place for place in self.hosts if place.host == host)

    def knowing(self, places: Iterable[HostSpec]) -> JobFile:
        """Return the job with more hosts, or others in place of those of the same names."""
        new = {place.host: place for place in places}
        kept = (place for place in self.hosts if place.host not in new)
        return replace(self, hosts=(*kept, *new.values()))

    def dumps(self) -> str:
        """Return the document."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, allow_nan=False)


def loads(text: str) -> JobFile:
    """Return the job of a document.

    Raises
    ------
    JobFileError
        Permanent: it does not say what it should.
    """
    try:
        raw = json.loads(text)
        schema = raw.pop("schema")
        hosts = tuple(place_of(entry) for entry in raw.pop("hosts"))
        members = tuple(_share(entry) for entry in raw.pop("members"))
        found = JobFile(hosts=hosts, members=members, **raw)
        _check(schema, found)
    except JobFileError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise JobFileError(f"no job file: {type(error).__name__}: {error}") from None
    return found


def _share(raw: Mapping[str, Any]) -> HostShare:
    return HostShare(**{**raw, "cpus": tuple(raw.get("cpus", ()))})


def _check(schema: object, job: JobFile) -> None:
    if schema != SCHEMA:
        raise JobFileError(f"schema: {schema!r} is not {SCHEMA}", field="schema")
    _check_members(job)
    if job.attempt < 1 or job.epoch < 0:
        raise JobFileError(
            f"attempt {job.attempt} is not above 0, or epoch {job.epoch} below it",
            code="value-range",
            field="attempt",
        )


def _check_members(job: JobFile) -> None:
    names = [place.host for place in job.hosts]
    if len(set(names)) != len(names):
        raise JobFileError("hosts: a name occurs twice", code="host-repeated", field="hosts")
    for place in job.hosts:
        if place.slots < 1 or not place.program:
            raise JobFileError(
                f"hosts: {place.host}: no slots or no program", code="field-missing", field="hosts"
            )
    wanted = [share.host for share in job.members]
    if not wanted or len(set(wanted)) != len(wanted) or not set(wanted) <= set(names):
        raise JobFileError(
            f"members: {wanted} are not distinct names of hosts",
            code="host-unknown",
            field="members",
        )
    for share in job.members:
        if not 0 < share.weight < float("inf"):
            raise JobFileError(
                f"members: {share.host}: weight {share.weight} is not positive",
                code="value-range",
                field="members",
            )
    maximum = job.maximum or len(names)
    there = max(maximum, len(names)) if job.scheduled else len(names)
    if not 1 <= job.minimum <= len(wanted) <= maximum <= there:
        raise JobFileError(
            f"minimum {job.minimum} <= members {len(wanted)} <= maximum {maximum} <= hosts {len(names)} fails",
            code="value-range",
            field="minimum",
        )
