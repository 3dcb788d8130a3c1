"""`JobFile`: the JSON document that describes a job to its manager; this module validates it.

Standard library only, so that the manager starts fast.
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
"""Name of the file in a job's folder with the path of its run's folder, for the cleanup after all its supervisors
were killed."""


class JobFileError(ValueError):
    """The document is invalid; the message names the field.

    Attributes
    ----------
    code
        Names the condition, for example ``value-invalid``.
    field
        The invalid field of the document; empty: the document itself.
    """

    def __init__(self, message: str, *, code: str = "value-invalid", field: str = "") -> None:
        super().__init__(message)
        self.code, self.field = code, field


@dataclass(frozen=True, slots=True)
class JobFile:
    """The description of one job.

    Attributes
    ----------
    job
        Its id; every process has it in its environment (``APPLES_JOB``).
    directory
        Working directory of the program.
    hosts
        All hosts that it may use.
    members
        The first map, in strip order.
    task
        The application protocol's task, passed to the program unchanged.
    minimum, maximum
        Limits on the number of hosts.
    commits
        Directory of commits; empty: no commits on disk.
    commit_seconds
        Interval of commits; 0: only when the program requests one. None: an interval that costs little, in memory
        only.
    control
        Path of the control server's socket; empty: no control server.
    attempt
        Number of this start of the job, from 1; from the second on the job begins with its last commit.
    epoch
        The last epoch of the earlier starts.
    scheduled
        Whether a scheduler decides its hosts. Then commands may name hosts that are not in `hosts` (with their
        `places`), and a lost host is not replaced by a standby host, which another job may have.
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
        """Return the job with these hosts added; they replace hosts with the same names."""
        new = {place.host: place for place in places}
        kept = (place for place in self.hosts if place.host not in new)
        return replace(self, hosts=(*kept, *new.values()))

    def dumps(self) -> str:
        """Return the document."""
        return json.dumps({"schema": SCHEMA, **asdict(self)}, allow_nan=False)


def loads(text: str) -> JobFile:
    """Return the job in a document.

    Raises
    ------
    JobFileError
        The document is invalid. Permanent.
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
