"""The requirement language: ``CPUSET[KEY=value;KEY=value]``, or the paper's bare ``KEY=value;KEY=value``.

The name before the bracket selects the broker; what the keys mean is the broker's business. A value may be
empty: the key is then unset, which matters when requirements are merged. The keys of ``CPUSET[...]`` are the
fields of a `Requirement`: each field says by which key it is written, and how that is read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from apples.errors import UsageError, coded
from apples.topology.requirement import CpusetType, Requirement, RequirementKey

LONGEST = 4096
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
DEFAULT_BROKER = "CPUSET"


SELECT: Final = "SELECT"
"""The key of what a host as a whole must have; written ``select[..]`` before the rest, as in LSF."""
_SELECT = re.compile(r"\s*select\s*\[([^\[\]]*)\]", re.IGNORECASE)


class RequirementError(UsageError):
    """A requirement that cannot be read: names the key, the position and what would be right."""

    code = "requirement-invalid"


@dataclass(frozen=True, slots=True)
class RequirementEntry:
    """One ``KEY=value``, with the position of its key in the text (from 1; 0: not from a text)."""

    value: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RequirementExpression:
    """A requirement as written: who is to judge it, and the keys in their order.

    Examples
    --------
    >>> written = parse("CPUSET[CPU_LIST=24-39,48-53; CPUSET_OPTIONS=CPUSET_CPU_EXCLUSIVE]")
    >>> written.broker, written.keys["CPU_LIST"]
    ('CPUSET', '24-39,48-53')
    >>> str(written)
    'CPUSET[CPU_LIST=24-39,48-53;CPUSET_OPTIONS=CPUSET_CPU_EXCLUSIVE]'
    """

    broker: str = DEFAULT_BROKER
    entries: Mapping[str, RequirementEntry] = field(default_factory=dict)

    @property
    def keys(self) -> Mapping[str, str]:
        """The values of the keys that are set."""
        return {key: entry.value for key, entry in self.entries.items() if entry.value}

    def __str__(self) -> str:
        """Return the text that `parse` reads as this."""
        pairs = [f"{key}={entry.value}" for key, entry in self.entries.items() if key != SELECT]
        chosen = f"select[{self.entries[SELECT].value}] " if SELECT in self.entries else ""
        return f"{chosen}{self.broker}[{';'.join(pairs)}]"

    def error(self, key: str, what: str, *, code: str, **fields: Any) -> RequirementError:
        """Return an error about a key, with the key's position in the text."""
        entry = self.entries.get(key)
        position = entry.position if entry and entry.position else None
        where = f"position {position}: " if position else ""
        found = {**fields, "field": key or fields.get("field"), "position": position}
        return RequirementError(f"requirement: {where}{what}", code=code, **found)


def parse(text: str) -> RequirementExpression:
    """Return a requirement as written; an empty text asks for nothing.

    Raises
    ------
    RequirementError
        Anything else; names the key or the position. Permanent.
    """
    if len(text) > LONGEST:
        raise RequirementError(
            f"requirement of {len(text)} characters: at most {LONGEST} are read",
            code="value-too-long",
            value=len(text),
            bound=LONGEST,
        )
    for position, character in enumerate(text, 1):
        if not (character.isascii() and (character.isprintable() or character in "\t\r\n")):
            raise RequirementError(
                f"requirement: position {position}: {character!r} is not ASCII text",
                code="character-invalid",
                value=character,
                position=position,
            )
    entries: dict[str, RequirementEntry] = {}
    if chosen := _SELECT.match(text):
        entries[SELECT] = RequirementEntry(chosen[1].strip(), chosen.start(1) + 1)
        text = " " * chosen.end() + text[chosen.end() :]
    body = text.strip()
    start = len(text) - len(text.lstrip())
    broker = DEFAULT_BROKER
    opening = body.find("[")
    if opening >= 0 or "]" in body:
        broker = body[:opening].strip() if opening >= 0 else ""
        if not _NAME.fullmatch(broker):
            raise RequirementError(
                f"requirement: position {start + 1}: must be NAME[KEY=value;...], not '{body[:30]}'",
                code="requirement-invalid",
                value=body[:30],
                position=start + 1,
            )
        if not body.endswith("]"):
            raise RequirementError(
                f"requirement: position {len(text.rstrip())}: '[' is not closed by a ']' at the end",
                code="bracket-unclosed",
                position=len(text.rstrip()),
            )
        start += opening + 1
        body = body[opening + 1 : -1]
    for key, entry in _entries(body, start):
        if key == SELECT:
            raise RequirementError(
                f"requirement: position {entry.position}: is written select[...], before the rest",
                code="requirement-invalid",
                field=SELECT,
                position=entry.position,
            )
        entries[key] = entry
    return RequirementExpression(broker.upper(), entries)


def _entries(body: str, start: int) -> Iterator[tuple[str, RequirementEntry]]:
    seen: set[str] = set()
    at = start
    for pair in body.split(";"):
        position = at + len(pair) - len(pair.lstrip()) + 1
        at += len(pair) + 1
        if not pair.strip():
            continue
        name, equals, value = pair.partition("=")
        key = name.strip().upper()
        if not _NAME.fullmatch(key) or not equals:
            raise RequirementError(
                f"requirement: position {position}: '{pair.strip()[:30]}' is not KEY=value",
                code="requirement-invalid",
                value=pair.strip()[:30],
                position=position,
            )
        if key in seen:
            raise RequirementError(
                f"requirement: position {position}: {key} is given twice",
                code="field-repeated",
                field=key,
                position=position,
            )
        if "[" in value or "]" in value:
            raise RequirementError(
                f"requirement: position {position}: {key}: a bracket in its value",
                code="value-invalid",
                field=key,
                position=position,
            )
        seen.add(key)
        yield key, RequirementEntry(value.strip(), position)


def merge(
    mandatory: RequirementExpression | None,
    job: RequirementExpression | None,
    default: RequirementExpression | None,
) -> RequirementExpression:
    """Return what counts of the site's mandatory, the job's own and the site's default requirement.

    Key by key the first of the three that names it counts, an empty value included: a mandatory
    ``MAX_RADIUS=`` forbids jobs to set one. Requirements for another broker than the job's (the
    mandatory one's, where the job has none) do not apply to it.

    Examples
    --------
    >>> site, own = parse("MAX_RADIUS="), parse("MAX_RADIUS=2;CPU_LIST=0-7")
    >>> merge(site, own, parse("WHOLE_CORES=Y")).keys
    {'CPU_LIST': '0-7', 'WHOLE_CORES': 'Y'}
    """
    layers = [layer for layer in (mandatory, job, default) if layer is not None]
    if not layers:
        return RequirementExpression()
    broker = (job or layers[0]).broker
    entries: dict[str, RequirementEntry] = {}
    for layer in layers:
        if layer.broker == broker:
            for key, entry in layer.entries.items():
                entries.setdefault(key, entry)
    return RequirementExpression(broker, entries)


KEYS: Final[Mapping[str, tuple[str, RequirementKey]]] = {
    each.metadata["key"].name: (each.name, each.metadata["key"])
    for each in fields(Requirement)
    if "key" in each.metadata
}
"""Key -> the field of a `Requirement` that it becomes, and how it is read."""


def requirement_of(expression: RequirementExpression, count: int = 1) -> Requirement:
    """Return what ``CPUSET[...]`` and ``-n`` ask for.

    Raises
    ------
    RequirementError
        An unknown key, a value that is none, or numbers that contradict each other. Permanent.

    Examples
    --------
    >>> from apples.topology.language import parse
    >>> requirement_of(parse("MAX_RADIUS=2;CPU_LIST=0-7"), 4).max_radius
    2.0
    """
    if expression.broker != DEFAULT_BROKER:
        what = f"{expression.broker}[...] is not for {DEFAULT_BROKER}"
        known = [DEFAULT_BROKER]
        raise expression.error(
            "", what, code="broker-unknown", value=expression.broker, known=known
        )
    found: dict[str, Any] = {}
    for key, value in expression.keys.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            what = f"{key} is unknown: {hint}known are {', '.join(sorted(KEYS))}"
            raise expression.error(
                key,
                what,
                code="field-unknown",
                known=sorted(KEYS),
                suggestion=next(iter(near), None),
            )
        name, form = KEYS[key]
        try:
            found[name] = form.read(value)
        except ValueError as error:
            what = f"{key}='{value[:40]}' {error}"
            raise expression.error(key, what, code="value-invalid", value=value[:40]) from error
        except UsageError as error:
            raise expression.error(key, f"{key}: {error}", **coded(error)) from error
    if "name" in found:
        found.setdefault("kind", CpusetType.STATIC)
    try:
        return Requirement(count, **found)
    except UsageError as error:
        key = str(error.fields.get("field", ""))
        raise expression.error(key, str(error), **coded(error)) from error
