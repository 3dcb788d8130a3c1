"""The requirement language: ``CPUSET[KEY=value;KEY=value]``, or the paper's bare ``KEY=value;KEY=value``.

The name before the bracket selects the broker. The keys of ``CPUSET[...]`` are the fields of a `Requirement`: each
field names its key and the function that reads its value. The keys of another name belong to that broker. A value
may be empty: the key is then not set, which matters when requirements are merged.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from apples.errors import UsageError, coded
from apples.topology.requirement import CPUSET, DEFAULTS, KEYS, SELECT, Requirement

MAX_CHARACTERS = 4096
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NOT_TEXT = re.compile(r"[^ -~\t\r\n]")
_SELECT = re.compile(r"\s*select\s*\[([^\[\]]*)\]", re.IGNORECASE)


class RequirementError(UsageError):
    """A requirement that cannot be parsed; the message names the key, the position and the remedy."""

    code = "requirement-invalid"


def parse(text: str, count: int = 1, *, broker: str = "") -> Requirement:
    """Return the requirement of a text; an empty text requires nothing.

    Parameters
    ----------
    count
        CPUs asked for (``-n``).
    broker
        The only name allowed before the bracket; empty: any.

    Raises
    ------
    RequirementError
        Syntax, an unknown key, an invalid value or a contradiction, with the key or the position. Permanent.

    Examples
    --------
    >>> requirement = parse("CPUSET[MAX_RADIUS=2; CPU_LIST=0-7]", 4)
    >>> requirement.max_radius, str(requirement)
    (2.0, 'CPUSET[CPU_LIST=0-7;MAX_RADIUS=2.0]')
    >>> parse("GPU[COUNT=2]").keys
    {'COUNT': '2'}
    """
    name, entries = _syntax(text)
    if broker and name != broker:
        raise RequirementError(
            f"requirement: {name}[...] is not for {broker}",
            code="broker-unknown",
            value=name,
            known=[broker],
        )
    if name != CPUSET:
        foreign = tuple((key, value) for key, (value, _) in entries.items())
        return Requirement(count, broker=name, foreign=foreign)
    values = {key: _value(key, *entry) for key, entry in entries.items()}
    positions = {key: position for key, (_, position) in entries.items()}
    return _requirement(count, values, positions)


def merge(
    mandatory: Requirement | None, job: Requirement, default: Requirement | None
) -> Requirement:
    """Return the job's requirement under the site's mandatory and default requirements.

    For each key, the first of the three that names it applies, even with an empty value: a mandatory
    ``MAX_RADIUS=`` forbids jobs to set a radius. Requirements for a broker other than the job's do not apply.

    Raises
    ------
    RequirementError
        The site's keys and the job's contradict each other. Permanent.

    Examples
    --------
    >>> site, job = parse("MAX_RADIUS="), parse("MAX_RADIUS=2;CPU_LIST=0-7")
    >>> merge(site, job, parse("WHOLE_CORES=Y")).keys
    {'CPU_LIST': '0-7', 'WHOLE_CORES': 'Y'}
    """
    sources = (mandatory, job, default)
    layers = [layer for layer in sources if layer is not None and layer.broker == job.broker]
    if job.broker != CPUSET:
        foreign: dict[str, str] = {}
        for layer in layers:
            foreign = {**dict(layer.foreign), **foreign}
        return replace(job, foreign=tuple(foreign.items()))
    values: dict[str, Any] = {}
    for layer in layers:
        for key in layer.named_keys - values.keys():
            values[key] = getattr(layer, KEYS[key][0])
    return _requirement(job.count, values, {})


def _requirement(
    count: int, values: Mapping[str, Any], positions: Mapping[str, int]
) -> Requirement:
    """Return the requirement with the values of some keys; an error names the position of its key."""
    fields = {KEYS[key][0]: value for key, value in values.items()}
    try:
        return Requirement(count, **fields, named=frozenset(values))
    except UsageError as error:
        position = positions.get(str(error.fields.get("field", "")))
        raise _error(str(error), position, **coded(error)) from error


def _error(reason: str, position: int | None, **fields: Any) -> RequirementError:
    where = f"position {position}: " if position else ""
    return RequirementError(f"requirement: {where}{reason}", **{**fields, "position": position})


def _value(key: str, text: str, position: int) -> Any:
    """Return the value of a key of ``CPUSET[...]``; an empty text gives the default."""
    if key not in KEYS:
        near = next(iter(difflib.get_close_matches(key, KEYS, n=1)), None)
        hint = f"did you mean {near}? " if near else ""
        raise _error(
            f"{key} is unknown: {hint}known: {', '.join(sorted(KEYS))}",
            position,
            code="field-unknown",
            field=key,
            known=sorted(KEYS),
            suggestion=near,
        )
    name, form = KEYS[key]
    try:
        return form.read(text) if text else DEFAULTS[name]
    except ValueError as error:
        raise _error(
            f"{key}='{text[:40]}' {error}",
            position,
            code="value-invalid",
            field=key,
            value=text[:40],
        ) from error
    except UsageError as error:
        raise _error(f"{key}: {error}", position, **{**coded(error), "field": key}) from error


def _syntax(text: str) -> tuple[str, dict[str, tuple[str, int]]]:
    """Return the name before the bracket, and each key with its value and its position in the text (from 1)."""
    if len(text) > MAX_CHARACTERS:
        raise RequirementError(
            f"requirement of {len(text)} characters: at most {MAX_CHARACTERS} are read",
            code="value-too-long",
            value=len(text),
            bound=MAX_CHARACTERS,
        )
    if invalid := _NOT_TEXT.search(text):
        raise RequirementError(
            f"requirement: position {invalid.start() + 1}: {invalid[0]!r} is not ASCII text",
            code="character-invalid",
            value=invalid[0],
            position=invalid.start() + 1,
        )
    text = re.sub(r"\s", " ", text)  # an error quotes the text on one line
    entries: dict[str, tuple[str, int]] = {}
    if chosen := _SELECT.match(text):
        entries[SELECT] = (chosen[1].strip(), chosen.start(1) + 1)
        text = " " * chosen.end() + text[chosen.end() :]
    body = text.strip()
    start = len(text) - len(text.lstrip())
    broker = CPUSET
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
    for key, value, position in _pairs(body, start):
        if key == SELECT:
            raise RequirementError(
                f"requirement: position {position}: is written select[...], before the rest",
                code="requirement-invalid",
                field=SELECT,
                position=position,
            )
        if key in entries:
            raise RequirementError(
                f"requirement: position {position}: {key} is given twice",
                code="field-repeated",
                field=key,
                position=position,
            )
        entries[key] = (value, position)
    return broker.upper(), entries


def _pairs(body: str, start: int) -> Iterator[tuple[str, str, int]]:
    """Yield each key with its value and position."""
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
        if "[" in value or "]" in value:
            raise RequirementError(
                f"requirement: position {position}: {key}: a bracket in its value",
                code="value-invalid",
                field=key,
                position=position,
            )
        yield key, value.strip(), position
