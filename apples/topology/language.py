"""The requirement language: ``CPUSET[KEY=value;KEY=value]``, or the paper's bare ``KEY=value;KEY=value``.

The name before the bracket selects the broker; what the keys mean is the broker's business. A value may
be empty: the key is then unset, which matters when requirements are merged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from apples.errors import UsageError

LONGEST = 4096
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
DEFAULT_BROKER = "CPUSET"


class RequirementError(UsageError):
    """A requirement that cannot be read: names the key, the position and what would be right."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One ``KEY=value``, with the position of its key in the text (from 1; 0: not from a text)."""

    value: str
    position: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Expression:
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
    entries: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def keys(self) -> Mapping[str, str]:
        """The values of the keys that are set."""
        return {key: entry.value for key, entry in self.entries.items() if entry.value}

    def __str__(self) -> str:
        """Return the text that `parse` reads as this."""
        pairs = (f"{key}={entry.value}" for key, entry in self.entries.items())
        return f"{self.broker}[{';'.join(pairs)}]"

    def error(self, key: str, what: str) -> RequirementError:
        """Return an error about a key, which says where it stands."""
        entry = self.entries.get(key)
        where = f"position {entry.position}: " if entry and entry.position else ""
        return RequirementError(f"requirement: {where}{what}")


def parse(text: str) -> Expression:
    """Return a requirement as written; an empty text asks for nothing.

    Raises
    ------
    RequirementError
        Anything else; names the key or the position. Permanent.
    """
    if len(text) > LONGEST:
        raise RequirementError(
            f"requirement of {len(text)} characters: at most {LONGEST} are read"
        )
    for position, character in enumerate(text, 1):
        if not (character.isascii() and (character.isprintable() or character in "\t\r\n")):
            raise RequirementError(
                f"requirement: position {position}: {character!r} is not ASCII text"
            )
    body = text.strip()
    start = len(text) - len(text.lstrip())
    broker = DEFAULT_BROKER
    opening = body.find("[")
    if opening >= 0 or "]" in body:
        broker = body[:opening].strip() if opening >= 0 else ""
        if not _NAME.fullmatch(broker):
            raise RequirementError(
                f"requirement: position {start + 1}: must be NAME[KEY=value;...], not '{body[:30]}'"
            )
        if not body.endswith("]"):
            raise RequirementError(
                f"requirement: position {len(text.rstrip())}: '[' is not closed by a ']' at the end"
            )
        start += opening + 1
        body = body[opening + 1 : -1]
    return Expression(broker.upper(), dict(_entries(body, start)))


def _entries(body: str, start: int) -> Iterator[tuple[str, Entry]]:
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
                f"requirement: position {position}: '{pair.strip()[:30]}' is not KEY=value"
            )
        if key in seen:
            raise RequirementError(f"requirement: position {position}: {key} is given twice")
        if "[" in value or "]" in value:
            raise RequirementError(
                f"requirement: position {position}: {key}: a bracket in its value"
            )
        seen.add(key)
        yield key, Entry(value.strip(), position)


def merge(
    mandatory: Expression | None, job: Expression | None, default: Expression | None
) -> Expression:
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
        return Expression()
    broker = (job or layers[0]).broker
    entries: dict[str, Entry] = {}
    for layer in layers:
        if layer.broker == broker:
            for key, entry in layer.entries.items():
                entries.setdefault(key, entry)
    return Expression(broker, entries)
