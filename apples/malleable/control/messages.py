"""The messages between agent and job manager: a request to resize, and its outcome.

A request is a command with an identifier. The command names its new epoch, so that at most one command can be
carried out on a configuration. The identifier allows the agent to repeat a request safely.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from apples.io.json_lines import LineError, decode
from apples.launch.host_spec import HOSTS_LIMIT, HostSpec, place_of
from apples.malleable.control.command import (
    HostShare,
    ResizeCommand,
)

Body = dict[str, Any]

LINE_LIMIT = 1 << 20
"""Largest line in bytes; a longer line ends its session."""
DEPTH_LIMIT = 8
"""Largest nesting depth of a body."""
DETAIL_LIMIT = 1000
"""Maximum length of an outcome's detail, in characters."""
PROTOCOL = 5
"""Version of the messages. Versions up to 4 were sealed messages over TCP."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
IDENTIFIER = re.compile(r"[0-9a-f]{16,64}")

CPUS_LIMIT = 4096
SLOTS_LIMIT = 1 << 20

PHASES = ("start", "wait", "prefetch", "commit", "join", "redistribute", "rebuild", "leave", "inspect", "signal",
          "checkpoint", "restart")  # fmt: skip
"""The order of phases in reports of a resize or a migration. Other phases come last."""

RefusalReason = Literal[
    "below_minimum", "over_maximum", "unknown_host", "busy", "stale", "malformed", "withdrawn",
    "ending",
]  # fmt: skip
OutcomeKind = Literal["done", "nack", "failed", "rolled_back", "ended"]
TRANSIENT_REASONS: frozenset[str] = frozenset({"busy", "stale", "withdrawn", "ending"})
"""Reasons after which the same request may succeed later; after the others it never does."""


class MessageError(Exception):
    """A line is not a message of this protocol.

    Attributes
    ----------
    code
        Names the condition, for example ``message-invalid``.
    field
        The invalid field of the line's body; empty: the line itself.
    """

    def __init__(self, message: str, *, code: str = "message-invalid", field: str = "") -> None:
        super().__init__(message)
        self.code, self.field = code, field


def parse(line: bytes) -> Body:
    """Return the JSON object in a line.

    Raises
    ------
    MessageError
        The line is not an object, too long, or too deep.
    """
    try:
        return decode(line, LINE_LIMIT, DEPTH_LIMIT)
    except LineError as error:
        raise MessageError(str(error)) from None


def text_of(body: Body, key: str, limit: int = 256) -> str:
    """Return a text of a body; raise `MessageError` if it is not a text or is longer than `limit`."""
    value = body.get(key)
    if not isinstance(value, str) or len(value) > limit:
        raise MessageError(f"'{key}' must be a text of at most {limit} characters", field=key)
    return value


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command with its identifier.

    Attributes
    ----------
    id
        Random identifier from the agent; a repetition of the command has the same.
    command
        The command; its epoch is one more than that of the configuration for which it was planned.
    """

    id: str
    command: ResizeCommand

    def body(self) -> Body:
        """Return the request as the body of a line."""
        hosts = [
            {"host": s.host, "weight": s.weight, "cpus": list(s.cpus), "rows": s.rows}
            for s in self.command.hosts
        ]
        return {
            "request": "resize", "id": self.id, "epoch": self.command.epoch, "hosts": hosts,
            "ordered": self.command.ordered, "rate": self.command.rate,
            "places": [asdict(place) for place in self.command.places],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """The outcome of a request.

    Attributes
    ----------
    kind
        ``done``: carried out, once. ``nack``: rejected, and never carried out. ``failed``: the job tried and is
        unchanged; the epoch is used up all the same. ``rolled_back``: a member was lost, and the job continues
        from its last commit. ``ended``: the job is over.
    reason, detail
        Reason of a nack in one word and in one line. Other kinds except ``done`` have the line only.
    seconds, phases
        Time from the safe point on, and its phases (`apples.malleable.control.command.ResizeDone`).
    iteration
        Iteration of the commit to which the job was rolled back.
    code
        Code of the condition for ``failed``, ``rolled_back`` and ``ended``, for example ``host-lost``.
    """

    kind: OutcomeKind
    id: str
    epoch: int
    reason: str = ""
    detail: str = ""
    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    iteration: int = 0
    code: str = ""

    @property
    def answer(self) -> str:
        """The word for the outcome in records: ``done``, ``refused``, ``rolled back`` or ``ended``."""
        return "refused" if self.kind in ("nack", "failed") else self.kind.replace("_", " ")

    def body(self) -> Body:
        """Return the outcome as the body of a line."""
        return {
            "reply": self.kind, "id": self.id, "epoch": self.epoch, "reason": self.reason,
            "detail": self.detail, "seconds": self.seconds, "phases": dict(self.phases),
            "iteration": self.iteration, "code": self.code,
        }  # fmt: skip


def request_of(body: Body) -> CommandRequest:
    """Return the request of a body.

    Raises
    ------
    MessageError
        The body is not a request. The message names the field and the fault.
    """
    identifier, entries, ordered = identifier_of(body), body.get("hosts"), body.get("ordered")
    if not isinstance(entries, list) or not 1 <= len(entries) <= HOSTS_LIMIT:
        raise MessageError(f"'hosts' must be a list of 1 to {HOSTS_LIMIT} hosts", field="hosts")
    if type(ordered) is not bool:
        raise MessageError("'ordered' must be true or false", field="ordered")
    shares = tuple(_share(entry) for entry in entries)
    if len({share.host for share in shares}) < len(shares):
        raise MessageError("'hosts' names a host twice", code="host-repeated", field="hosts")
    places = _places(body.get("places"), {share.host for share in shares})
    rate = _rate(body.get("rate"))
    command = ResizeCommand(count_of(body, "epoch"), shares, ordered, rate, places)
    return CommandRequest(identifier, command)


def _places(entries: Any, hosts: Collection[str]) -> tuple[HostSpec, ...]:
    """Return the host specifications of a request: each host once, and only hosts of the map."""
    if not isinstance(entries, list) or len(entries) > len(hosts):
        raise MessageError("'places' must be a list of hosts of the map", field="places")
    try:
        places = tuple(place_of(entry) for entry in entries)
        right = all(_is_place(place) for place in places)
    except (TypeError, ValueError):
        right, places = False, ()
    if not right:
        raise MessageError(
            "an entry of 'places' lacks how its host is reached",
            code="host-invalid",
            field="places",
        )
    names = {place.host for place in places}
    if len(names) < len(places) or not names <= set(hosts):
        raise MessageError(
            "'places' has a host twice, or a host that is not in the map",
            code="host-unknown",
            field="places",
        )
    return places


def _is_place(one: HostSpec) -> bool:
    """Return whether every field of a host specification has its type."""
    texts = (one.host, one.python, one.bind, one.mpiexec, one.cgroup, one.directory)
    lists = (one.program, one.options, one.reach, one.programs, one.enter)
    variables = one.environment if isinstance(one.environment, dict) else {"": None}
    words = [*texts, *(word for each in lists for word in each), *variables, *variables.values()]
    numbers = [one.slots, *one.cpus]
    return (
        all(isinstance(word, str) for word in words)
        and all(type(number) is int and 0 <= number < SLOTS_LIMIT for number in numbers)
        and one.slots > 0
        and bool(one.program)
        and type(one.warm) is bool
    )


def _rate(value: Any) -> float:
    if type(value) not in {int, float} or not 0 <= value < math.inf:
        raise MessageError("'rate' must be a number from 0", field="rate")
    return float(value)


def _share(entry: Any) -> HostShare:
    if not isinstance(entry, dict) or set(entry) != {"host", "weight", "cpus", "rows"}:
        raise MessageError(
            "an entry of 'hosts' must have 'host', 'weight', 'cpus' and 'rows'",
            code="field-missing",
            field="hosts",
        )
    name, weight, cpus = entry["host"], entry["weight"], entry["cpus"]
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise MessageError(
            "an entry of 'hosts' has an invalid name of a host", code="name-invalid", field="host"
        )
    if type(weight) not in {int, float} or not (0 < weight < math.inf):
        raise MessageError(
            f"the weight of '{name}' must be a number above 0", code="value-range", field="weight"
        )
    if not isinstance(cpus, list) or len(cpus) > CPUS_LIMIT:
        raise MessageError(f"the cpus of '{name}' must be a list", field="cpus")
    if any(type(cpu) is not int or not 0 <= cpu < 2**20 for cpu in cpus):
        raise MessageError(
            f"the cpus of '{name}' must be whole numbers from 0", code="value-range", field="cpus"
        )
    return HostShare(name, float(weight), tuple(cpus), count_of(entry, "rows"))


def outcome_of(body: Body) -> CommandOutcome:
    """Return the outcome of a body; raise `MessageError` if it is not an outcome."""
    kind: Any = body.get("reply")
    if kind not in get_args(OutcomeKind):
        raise MessageError("'reply' must be an outcome", field="reply")
    phases = body.get("phases")
    if not isinstance(phases, dict) or not all(
        type(value) in {int, float} for value in phases.values()
    ):
        raise MessageError("'phases' must be seconds by name", field="phases")
    seconds = body.get("seconds")
    if not isinstance(seconds, int | float):
        raise MessageError("'seconds' must be a number", field="seconds")
    return CommandOutcome(
        kind,
        identifier_of(body),
        count_of(body, "epoch"),
        text_of(body, "reason"),
        text_of(body, "detail", DETAIL_LIMIT),
        float(seconds),
        phases_in_order(phases),
        count_of(body, "iteration"),
        text_of({"code": "", **body}, "code"),  # a job of an earlier version sends no code
    )


def phases_in_order(phases: Mapping[str, float]) -> dict[str, float]:
    """Return phases in their order in time; a line has them in alphabetical order."""
    return {name: float(phases[name]) for name in sorted(phases, key=_place)}


def _place(phase: str) -> tuple[int, str]:
    return (PHASES.index(phase) if phase in PHASES else len(PHASES), phase)


def identifier_of(body: Body) -> str:
    """Return the identifier of the request in a body."""
    identifier = text_of(body, "id", 64)
    if not IDENTIFIER.fullmatch(identifier):
        raise MessageError("'id' must be 16 to 64 hexadecimal digits", field="id")
    return identifier


def count_of(body: Body, key: str) -> int:
    """Return the non-negative integer under a key of a body."""
    value = body.get(key)
    if type(value) is not int or not 0 <= value < 2**53:
        raise MessageError(f"'{key}' must be a whole number from 0", field=key)
    return value
