"""The requests of the daemon: JSON objects, one a line, checked and bounded; and the caller of a request.

An answer is one line as well: ``{"ok": true, ...}`` or ``{"ok": false, "error": .., "code": ..}`` with the exit
code of the command: 2 permanent error, 3 never on this host, 4 not now, 7 deadline exceeded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from apples.errors import ApplesError, UsageError
from apples.io.json_lines import LineError, decode
from apples.topology.daemon.state import EndCondition

PROTOCOL: Final = 3
"""Version of the requests, in the answer to `status`. Since version 3 a request has no id and may be repeated."""
MAX_TEXT: Final = 4096
"""Maximum length of a requirement in characters."""
MAX_WAIT: Final = 60.0
JOB: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

JobName = Annotated[str, Field(pattern=JOB)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]
Seconds = Annotated[float, Field(ge=0, le=MAX_WAIT)]
Count = Annotated[int, Field(ge=1, le=1 << 16)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StatusRequest(_Request):
    """Free map with its version, isolation backend and guarantee, problems."""

    verb: Literal["status"]


class JobsRequest(_Request):
    """All allocations, or the allocation of one job."""

    verb: Literal["jobs"]
    job: JobName | None = None


class SatisfiesRequest(_Request):
    """Whether a requirement can be satisfied (yes, not now or never) and the reason."""

    verb: Literal["satisfies"]
    requirement: Text = ""
    count: Count = 1


class AllocateRequest(_Request):
    """CPUs and a container for a job.

    Attributes
    ----------
    requirement
        ``CPUSET[...]``; empty: the requirement attached to the job, if any.
    least
        Minimum of CPUs of a malleable job; 0: the job is not malleable.
    share
        Take CPUs from malleable mates if too few are free.
    """

    verb: Literal["allocate"]
    job: JobName
    count: Count = 1
    requirement: Text = ""
    least: int = Field(default=0, ge=0, le=1 << 16)
    share: bool = False
    until: Literal["keeper", "empty", "idle", "told"] = "keeper"
    seconds: Seconds = 5.0

    @property
    def ends(self) -> EndCondition:
        """The event that ends the allocation."""
        return EndCondition(self.until)


class BindRequest(_Request):
    """Move the process that sent the request into the job's container."""

    verb: Literal["bind"]
    job: JobName


class DeallocateRequest(_Request):
    """Kill the processes of a job and free its CPUs; with `grace`, send SIGTERM that many seconds earlier.

    Attributes
    ----------
    number
        Number of the allocation; a later allocation of the same name is not affected. None: the current
        allocation.
    """

    verb: Literal["deallocate"]
    job: JobName
    number: int | None = None
    grace: Seconds = 0.0


class SuspendRequest(_Request):
    """Stop a job and free its CPUs."""

    verb: Literal["suspend"]
    job: JobName


class ResumeRequest(_Request):
    """Resume a suspended job, on its old CPUs if they are free, else on others."""

    verb: Literal["resume"]
    job: JobName


class CpuResizeRequest(_Request):
    """Give a running job more or fewer CPUs; it has `seconds` to acknowledge a loss of CPUs."""

    verb: Literal["resize"]
    job: JobName
    count: Count
    seconds: Seconds = 5.0


class AttachRequest(_Request):
    """Attach a requirement to a future job (LSF's bpost); an `AllocateRequest` without requirement uses it."""

    verb: Literal["attach"]
    job: JobName
    requirement: Text


class ReadRequest(_Request):
    """Return the requirement of a job (LSF's bread)."""

    verb: Literal["read"]
    job: JobName


class FollowRequest(_Request):
    """Send each change of a job's CPUs; the connection stays open for `AcknowledgeRequest`."""

    verb: Literal["follow"]
    job: JobName


class AcknowledgeRequest(_Request):
    """Acknowledge that the job has adapted to the resize of this number."""

    verb: Literal["acknowledge"]
    serial: int


class RescanRequest(_Request):
    """Check foreign sets, orphans and quarantine now."""

    verb: Literal["rescan"]


DaemonRequest = Annotated[
    StatusRequest
    | JobsRequest
    | SatisfiesRequest
    | AllocateRequest
    | BindRequest
    | DeallocateRequest
    | SuspendRequest
    | ResumeRequest
    | CpuResizeRequest
    | AttachRequest
    | ReadRequest
    | FollowRequest
    | AcknowledgeRequest
    | RescanRequest,
    Field(discriminator="verb"),
]
_REQUEST: TypeAdapter[Any] = TypeAdapter(DaemonRequest)

READING: Final = frozenset({"status", "jobs", "satisfies"})
"""Requests that every user may make; the others are for the owner of the job and the operator."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The user and process of a connection.

    Attributes
    ----------
    principal
        ``uid:1000``: the owner of the jobs that it allocates.
    operator
        Whether it may change the jobs of all users.
    process, start
        The process and its start time; 0 if the process has ended.
    """

    principal: str
    operator: bool = False
    process: int = 0
    start: str = ""

    @property
    def keeper(self) -> str:
        """The id of the process, unique until the machine reboots; empty: none."""
        return f"{self.process}:{self.start}" if self.process and self.start else ""


def parse_request(line: bytes) -> Any:
    """Return the request of a line.

    Raises
    ------
    UsageError
        The request is invalid. The message names the field without its value. Permanent.
    """
    try:
        document = decode(line)
    except LineError as error:
        raise UsageError(
            f"a request is one line with a JSON object that names a verb: {error}",
            code="request-invalid",
            reason=str(error),
        ) from None
    try:
        return _REQUEST.validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"][1:] or ("verb",))[:100]
        raise UsageError(
            f"request: {place}: {_plain(first)}",
            code=REQUEST_CODES.get(str(first["type"]), "value-invalid"),
            field=place,
        ) from None


REQUEST_CODES: Final[Mapping[str, str]] = {
    "missing": "field-missing",
    "extra_forbidden": "field-unknown",
    "union_tag_invalid": "verb-unknown",
    "union_tag_not_found": "verb-unknown",
}
"""Type of a pydantic error -> code of our error; `value-invalid` for all other types."""


def _plain(problem: Any) -> str:
    kind = str(problem["type"])
    if kind.startswith("union_tag"):
        return "unknown verb; apples help topologyd lists the verbs"
    return str(problem["msg"])[:200]


def refusal_of(error: ApplesError) -> dict[str, Any]:
    """Return an error as an answer: its message, exit code, error code and fields."""
    return {
        "ok": False,
        "error": str(error),
        "code": error.exit_code,
        "error_code": error.code,
        "fields": {name: _finite(value) for name, value in error.fields.items()},
    }


def _finite(value: Any) -> Any:
    """Return a field as a JSON value; infinite numbers and NaN become text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
