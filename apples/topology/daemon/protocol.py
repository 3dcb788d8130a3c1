"""What may be asked of the daemon, line by line: JSON objects, checked, bounded; and who may ask it.

An answer is one line as well: ``{"ok": true, ...}`` or ``{"ok": false, "error": .., "code": ..}`` with the
exit code that a command ends with: 2 wrong for good, 3 never on this host, 4 not now, 7 too late.
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

LONGEST_TEXT: Final = 8192
"""Characters of a message or requirement."""
MOST_MESSAGES: Final = 128
"""Messages of one job."""
MOST_WAIT: Final = 60.0
JOB: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

JobName = Annotated[str, Field(pattern=JOB)]
RequestId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,64}$")]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Seconds = Annotated[float, Field(ge=0, le=MOST_WAIT)]
Count = Annotated[int, Field(ge=1, le=1 << 16)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class StatusRequest(_Request):
    """Free map with its version, isolation backend and guarantee, problems."""

    verb: Literal["status"]


class JobsRequest(_Request):
    """All allocations, or one."""

    verb: Literal["jobs"]
    job: JobName | None = None


class SatisfiesRequest(_Request):
    """Whether a requirement can be satisfied: yes, not now or never, and why."""

    verb: Literal["satisfies"]
    requirement: Text = ""
    count: Count = 1


class AllocateRequest(_Request):
    """CPUs and a container for a job.

    Attributes
    ----------
    requirement, message
        ``CPUSET[...]``, or the number of the job's message in which it is found.
    least
        The job is malleable and cannot do with less; 0: it is not.
    share
        Take CPUs from malleable mates if too few are free.
    """

    verb: Literal["allocate"]
    request: RequestId
    job: JobName
    count: Count = 1
    requirement: Text = ""
    message: int | None = Field(default=None, ge=0)
    least: int = Field(default=0, ge=0, le=1 << 16)
    share: bool = False
    until: Literal["keeper", "empty", "told"] = "keeper"
    seconds: Seconds = 5.0

    @property
    def ends(self) -> EndCondition:
        """What ends the allocation."""
        return EndCondition(self.until)


class BindRequest(_Request):
    """Move the process that asks into the job's container."""

    verb: Literal["bind"]
    job: JobName


class DeallocateRequest(_Request):
    """Kill what is left of a job and free its CPUs; first politely, for `grace` seconds."""

    verb: Literal["deallocate"]
    request: RequestId
    job: JobName
    grace: Seconds = 0.0


class SuspendRequest(_Request):
    """Stop a job and give its CPUs back."""

    verb: Literal["suspend"]
    request: RequestId
    job: JobName


class ResumeRequest(_Request):
    """Let a suspended job go on, on its old CPUs if they are free, else on others."""

    verb: Literal["resume"]
    request: RequestId
    job: JobName


class CpuResizeRequest(_Request):
    """Give a running job more or fewer CPUs; it has `seconds` to acknowledge that it gave some up."""

    verb: Literal["resize"]
    request: RequestId
    job: JobName
    count: Count
    seconds: Seconds = 5.0


class PostRequest(_Request):
    """Attach a text to a job, under a number; the job need not be there yet (bpost)."""

    verb: Literal["post"]
    request: RequestId
    job: JobName
    text: Text
    number: int = Field(default=0, ge=0, lt=MOST_MESSAGES)


class ReadRequest(_Request):
    """The texts of a job, or one of them (bread)."""

    verb: Literal["read"]
    job: JobName
    number: int | None = Field(default=None, ge=0, lt=MOST_MESSAGES)


class FollowRequest(_Request):
    """Be told of every change of a job's CPUs; the connection stays open for `AcknowledgeRequest`."""

    verb: Literal["follow"]
    job: JobName


class AcknowledgeRequest(_Request):
    """The job has adapted to the resize of this number."""

    verb: Literal["acknowledge"]
    serial: int


class RescanRequest(_Request):
    """Look at foreign sets, orphans and quarantine now."""

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
    | PostRequest
    | ReadRequest
    | FollowRequest
    | AcknowledgeRequest
    | RescanRequest,
    Field(discriminator="verb"),
]
_REQUEST: TypeAdapter[Any] = TypeAdapter(DaemonRequest)

READING: Final = frozenset({"status", "jobs", "satisfies"})
"""What anybody may ask who may connect; everything else is for the owner of the job and the operator."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes
    ----------
    principal
        ``uid:1000`` or ``token:ada``: the owner of what it allocates.
    operator
        May act on everybody's jobs.
    writes
        May change anything at all.
    process, start
        The process that asks and when it began; 0 for one on another host.
    """

    principal: str
    operator: bool = False
    writes: bool = True
    process: int = 0
    start: str = ""

    @property
    def keeper(self) -> str:
        """What identifies the process as long as this machine is up; empty for none."""
        return f"{self.process}:{self.start}" if self.process and self.start else ""


def parse_request(line: bytes) -> Any:
    """Return the request in a line.

    Raises
    ------
    UsageError
        It is none; the message names the field and never repeats its value. Permanent.
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
"""Kind of a pydantic error -> the code of ours; of any other it is ``value-invalid``."""


def _plain(problem: Any) -> str:
    kind = str(problem["type"])
    if kind.startswith("union_tag"):
        return "one of the verbs of docs/how-to/topologyd.md is wanted"
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
    """Return a field as JSON has it: a number that is not finite becomes text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
