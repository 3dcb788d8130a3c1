"""The keys of ``CPUSET[...]``: an `Expression` and ``-n`` in, a checked `Requirement` out, and back."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from apples.errors import UsageError
from apples.topology.cpus import MOST_CPUS, CpuSet
from apples.topology.language import DEFAULT_BROKER, Entry, Expression
from apples.topology.requirement import Kind, Option, Placement, Requirement

S = TypeVar("S", bound=StrEnum)


def requirement_of(expression: Expression, count: int = 1) -> Requirement:
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
        raise expression.error("", f"{expression.broker}[...] is not for {DEFAULT_BROKER}")
    fields: dict[str, Any] = {}
    for key, value in expression.keys.items():
        if key not in _READERS:
            near = difflib.get_close_matches(key, _READERS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            known = ", ".join(sorted(_READERS))
            raise expression.error(key, f"{key} is unknown: {hint}known are {known}")
        name, read = _READERS[key]
        try:
            fields[name] = read(value)
        except ValueError as error:
            raise expression.error(key, f"{key}='{value[:40]}' {error}") from error
        except UsageError as error:
            raise expression.error(key, f"{key}: {error}") from error
    if "name" in fields:
        fields.setdefault("kind", Kind.STATIC)
    try:
        return Requirement(count, **fields)
    except UsageError as error:
        key = next((key for key in expression.entries if str(error).startswith(key)), "")
        raise expression.error(key, str(error)) from error


def expression_of(requirement: Requirement) -> Expression:
    """Return the expression that `requirement_of` reads as this requirement, its count apart."""
    plain = Requirement(requirement.count)
    entries: dict[str, Entry] = {}
    for key, (name, _) in _READERS.items():
        value = getattr(requirement, name)
        if value != getattr(plain, name):
            entries[key] = Entry(_written(value, name))
    return Expression(DEFAULT_BROKER, entries)


def _written(value: object, name: str) -> str:
    if name == "same_cpus_on_resume":
        return "ORIG_CPUS"
    if isinstance(value, bool):
        return "Y" if value else "N"
    if isinstance(value, frozenset):
        return "|".join(sorted(value))
    return f"{value!r}" if isinstance(value, float) else str(value)


def _word(kind: type[S]) -> Callable[[str], S]:
    def read(text: str) -> S:
        for member in kind:
            if text.lower() == member.value.lower():
                return member
        raise ValueError(f"must be one of {', '.join(kind)}")

    return read


def _options(text: str) -> frozenset[Option]:
    read = _word(Option)
    return frozenset(read(word.strip()) for word in text.split("|") if word.strip())


def _yes(text: str) -> bool:
    if text.upper() not in {"Y", "N"}:
        raise ValueError("must be Y or N")
    return text.upper() == "Y"


def _count(text: str) -> int:
    if not (text.isdigit() and len(text) <= 5 and 1 <= int(text) <= MOST_CPUS):
        raise ValueError(f"must be a whole number from 1 to {MOST_CPUS}")
    return int(text)


def _hops(text: str) -> float:
    try:
        hops = float(text)
    except ValueError:
        hops = -1.0
    if not 0 <= hops <= MOST_CPUS or "_" in text:
        raise ValueError("must be a number of hops, 0 or more")
    return hops


def _resume(text: str) -> bool:
    if text.upper() != "ORIG_CPUS":
        raise ValueError("must be ORIG_CPUS")
    return True


def _name(text: str) -> str:
    if len(text) > 64 or not all(c.isalnum() or c in "._-" for c in text) or not text[0].isalnum():
        raise ValueError("must be at most 64 letters, digits, '.', '_' or '-'")
    return text


_READERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "CPUSET_TYPE": ("kind", _word(Kind)),
    "CPUSET_NAME": ("name", _name),
    "CPU_LIST": ("cpus", CpuSet.parse),
    "MAX_RADIUS": ("max_radius", _hops),
    "MAX_CPU_PER_NODE": ("max_cpus_per_node", _count),
    "MEM_LIST": ("memory", CpuSet.parse),
    "CPUSET_OPTIONS": ("options", _options),
    "RESUME_OPTION": ("same_cpus_on_resume", _resume),
    "WHOLE_CORES": ("whole_cores", _yes),
    "PLACEMENT": ("placement", _word(Placement)),
}
