"""The messages between agent and job manager: a request to resize, and its outcome.

A request is a command with an identifier. The command names the epoch it will make, so that at most one can be
carried out on a configuration; the identifier allows it to be sent as often as need be.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from apples.launch.host_spec import HOSTS_LIMIT, HostSpec, place_of
from apples.malleable.control.command import (
    HostShare,
    ResizeCommand,
)
from apples.malleable.control.sealing import Body, ForgeryError, text_of

DETAIL_LIMIT = 1000
"""Characters of what an outcome says beyond its kind."""
PROTOCOL = 4
"""Changes with the messages; 3 had no places in a request, 2 no rate, and called a rollback ``failed``."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
IDENTIFIER = re.compile(r"[0-9a-f]{16,64}")

CPUS_LIMIT = 4096
SLOTS_LIMIT = 1 << 20

PHASES = ("start", "wait", "ahead", "commit", "join", "redistribute", "rebuild", "leave", "inspect", "signal",
          "checkpoint", "restart")  # fmt: skip
"""The order in which reports show the phases of a resize or a migration; one not named here comes last."""

RefusalReason = Literal[
    "below_minimum", "over_maximum", "unknown_host", "busy", "stale", "malformed", "withdrawn",
    "ending",
]  # fmt: skip
OutcomeKind = Literal["done", "nack", "failed", "rolled_back", "ended"]
TRANSIENT_REASONS: frozenset[str] = frozenset({"busy", "stale", "withdrawn", "ending"})
"""The same request may be granted later; for the other reasons it never will."""


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """A command as it is sent.

    Attributes
    ----------
    id
        Made once by the agent; the same command sent again has the same.
    command
        Its epoch is one more than that of the configuration it was planned for.
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
        ``done``: was carried out, once. Refused is what is answered by ``nack``, which never was and never will
        be carried out, or by ``failed``: the job tried and is as it was; its epoch has passed all the same.
        ``rolled_back``: a member was lost, and the job goes on from its last commit. ``ended``: the job is over.
    reason, detail
        Of a nack, in one word and in one line; of all others but ``done`` the line.
    seconds, phases
        From the safe point on, and of what that consists (`apples.malleable.control.command.ResizeDone`).
    iteration
        To which the job was rolled back.
    code
        Of ``failed``, ``rolled_back`` and ``ended``: names the condition, for example ``host-lost``.
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
        """What it is called in records: ``done``, ``refused``, ``rolled back`` or ``ended``."""
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
    ForgeryError
        It is none: the message says what is wrong with which field.
    """
    identifier, entries, ordered = identifier_of(body), body.get("hosts"), body.get("ordered")
    if not isinstance(entries, list) or not 1 <= len(entries) <= HOSTS_LIMIT:
        raise ForgeryError(f"'hosts' must be a list of 1 to {HOSTS_LIMIT} hosts", field="hosts")
    if type(ordered) is not bool:
        raise ForgeryError("'ordered' must be true or false", field="ordered")
    shares = tuple(_share(entry) for entry in entries)
    if len({share.host for share in shares}) < len(shares):
        raise ForgeryError("'hosts' names a host twice", code="host-repeated", field="hosts")
    places = _places(body.get("places"), {share.host for share in shares})
    rate = _rate(body.get("rate"))
    command = ResizeCommand(count_of(body, "epoch"), shares, ordered, rate, places)
    return CommandRequest(identifier, command)


def _places(entries: Any, hosts: Collection[str]) -> tuple[HostSpec, ...]:
    """Return how hosts of a map are reached: each once, and none but those."""
    if not isinstance(entries, list) or len(entries) > len(hosts):
        raise ForgeryError("'places' must be a list of hosts of the map", field="places")
    try:
        found = tuple(place_of(entry) for entry in entries)
        right = all(_is_place(place) for place in found)
    except (TypeError, ValueError):
        right, found = False, ()
    if not right:
        raise ForgeryError(
            "an entry of 'places' lacks how its host is reached",
            code="host-invalid",
            field="places",
        )
    names = {place.host for place in found}
    if len(names) < len(found) or not names <= set(hosts):
        raise ForgeryError(
            "'places' has a host twice, or a host that is not in the map",
            code="host-unknown",
            field="places",
        )
    return found


def _is_place(one: HostSpec) -> bool:
    """Return whether every part of a host is of its kind."""
    texts = (one.host, one.python, one.bind, one.mpiexec, one.cgroup, one.directory)
    lists = (one.program, one.options, one.reach, one.again, one.programs, one.enter)
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
        raise ForgeryError("'rate' must be a number from 0", field="rate")
    return float(value)


def _share(entry: Any) -> HostShare:
    if not isinstance(entry, dict) or set(entry) != {"host", "weight", "cpus", "rows"}:
        raise ForgeryError(
            "an entry of 'hosts' must have 'host', 'weight', 'cpus' and 'rows'",
            code="field-missing",
            field="hosts",
        )
    name, weight, cpus = entry["host"], entry["weight"], entry["cpus"]
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ForgeryError(
            "an entry of 'hosts' has an invalid name of a host", code="name-invalid", field="host"
        )
    if type(weight) not in {int, float} or not (0 < weight < math.inf):
        raise ForgeryError(
            f"the weight of '{name}' must be a number above 0", code="value-range", field="weight"
        )
    if not isinstance(cpus, list) or len(cpus) > CPUS_LIMIT:
        raise ForgeryError(f"the cpus of '{name}' must be a list", field="cpus")
    if any(type(cpu) is not int or not 0 <= cpu < 2**20 for cpu in cpus):
        raise ForgeryError(
            f"the cpus of '{name}' must be whole numbers from 0", code="value-range", field="cpus"
        )
    return HostShare(name, float(weight), tuple(cpus), count_of(entry, "rows"))


def outcome_of(body: Body) -> CommandOutcome:
    """Return the outcome of a body; raises `ForgeryError` where it is none."""
    kind: Any = body.get("reply")
    if kind not in get_args(OutcomeKind):
        raise ForgeryError("'reply' must be an outcome", field="reply")
    phases = body.get("phases")
    if not isinstance(phases, dict) or not all(
        type(value) in {int, float} for value in phases.values()
    ):
        raise ForgeryError("'phases' must be seconds by name", field="phases")
    seconds = body.get("seconds")
    if not isinstance(seconds, int | float):
        raise ForgeryError("'seconds' must be a number", field="seconds")
    return CommandOutcome(
        kind,
        identifier_of(body),
        count_of(body, "epoch"),
        text_of(body, "reason"),
        text_of(body, "detail", DETAIL_LIMIT),
        float(seconds),
        phases_in_order(phases),
        count_of(body, "iteration"),
        text_of(
            {"code": "", **body}, "code"
        ),  # a job that was started by an earlier version sends none
    )


def phases_in_order(phases: Mapping[str, float]) -> dict[str, float]:
    """Return phases in the order they come in; a line has its keys sorted."""
    return {name: float(phases[name]) for name in sorted(phases, key=_place)}


def _place(phase: str) -> tuple[int, str]:
    return (PHASES.index(phase) if phase in PHASES else len(PHASES), phase)


def identifier_of(body: Body) -> str:
    """Return the identifier of the request a body is about."""
    identifier = text_of(body, "id", 64)
    if not IDENTIFIER.fullmatch(identifier):
        raise ForgeryError("'id' must be 16 to 64 hexadecimal digits", field="id")
    return identifier


def count_of(body: Body, key: str) -> int:
    """Return a whole number from 0 of a body."""
    value = body.get(key)
    if type(value) is not int or not 0 <= value < 2**53:
        raise ForgeryError(f"'{key}' must be a whole number from 0", field=key)
    return value
