r"""On which line a TOML document says what: the part that `tomllib` does not tell.

A small scanner over the text, run only once something is wrong. It follows headers, arrays of
tables, dotted and quoted keys, strings of every kind, arrays and inline tables; it never fails,
also not on text that is no TOML (then its answers are a best effort).

Examples
--------
>>> lines = key_lines('name = "x"\n[[host]]\ncpu = 1\n[[host]]\nname = "b"\ncpu = 2\n')
>>> lines.line(("host", 1, "cpu")), lines.line(("host", 1, "slots")), lines.line(("missing",))
(6, 4, 1)
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hat.problem import Loc

DEEPEST = 64
"""Parts of a key, and levels of a value, that are told apart; deeper ones share a line."""

TOKEN = re.compile(
    r"""
      (?P<text> \"\"\" (?:[^"\\]++|\\.|"{1,2}(?!"))*+ (?:"{3,5}|\\?\Z)
              | '''    (?:[^']++|'{1,2}(?!'))*+       (?:'{3,5}|\Z)
              | "      (?:[^"\\\n]++|\\[^\n])*+       (?:"|\\?(?=\n|\Z))
              | '      [^'\n]*+                       (?:'|(?=\n|\Z)) )
    | (?P<skip> \#[^\n]*+ | [^\S\n]++ )
    | (?P<newline> \n )
    | (?P<mark> [][{}=,.] )
    | (?P<bare> [^][{}=,.\s\#"']++ )
    | .
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text that carries meaning, and the line it starts on."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A key that was already set: the place, the line it was set on, the line that repeats it."""

    loc: Loc
    first: int
    line: int


@dataclass(slots=True)
class KeyLines:
    """What the scanner found.

    Attributes
    ----------
    known
        The line of every key, header and array element, by its place.
    duplicates
        Keys that were set twice, in order.
    deep
        The line of the first key of more than `DEEPEST` parts, if there is one.
    """

    known: dict[Loc, int] = field(default_factory=dict)
    duplicates: list[Duplicate] = field(default_factory=list)
    deep: int | None = None

    def line(self, loc: Sequence[str | int]) -> int:
        """Return the line of a place, or of the nearest that encloses it; 1 for the document."""
        for end in range(len(loc), 0, -1):
            if line := self.known.get(tuple(loc[:end])):
                return line
        return 1


def key_lines(text: str) -> KeyLines:
    """Return where each key, table and array element of a TOML text begins."""
    return _Scanner(text).scan()


def _tokens(text: str) -> Iterator[Token]:
    line = 1
    for match in TOKEN.finditer(text):
        if match.lastgroup != "skip":
            yield Token(match.lastgroup or "other", match.group(), line)
        line += match.group().count("\n")
    yield Token("end", "", line)


def _key(token: Token) -> str:
    """Return the name a key token stands for: quotes removed, escapes resolved."""
    if token.kind != "text":
        return token.text
    if "\\" in token.text and token.text.startswith('"'):
        try:
            return str(tomllib.loads(f"k = {token.text}")["k"])
        except ValueError:
            pass
    return token.text[1:-1]


@dataclass(slots=True)
class _Level:
    """A list (`index` is the entry it is at) or an inline table (None) that is still open."""

    loc: Loc
    index: int | None
    expects_key: bool

    def next_entry(self) -> Loc:
        """Return the place after a comma."""
        if self.index is None:
            self.expects_key = True
            return self.loc
        self.index += 1
        return (*self.loc, self.index)


class _Scanner:
    """One pass over the tokens; a statement is a header, or a key with its value."""

    def __init__(self, text: str) -> None:
        self.tokens = _tokens(text)
        self.token = next(self.tokens)
        self.found = KeyLines()
        self.table: Loc = ()  # what the last header opened
        self.entries: dict[Loc, int] = {}  # last index of each array of tables
        self.assigned: dict[Loc, int] = {}

    def scan(self) -> KeyLines:
        while self.token.kind != "end":
            if self._at("["):
                self._header()
            elif self.token.kind != "newline":
                self._value(self._key_of(self.table))
            while self.token.kind not in {"newline", "end"}:
                self._advance()
            self._advance()
        return self.found

    def _advance(self) -> None:
        self.token = next(self.tokens, self.token)

    def _at(self, marks: str) -> bool:
        return self.token.kind == "mark" and self.token.text in marks

    def _key_parts(self, ends: str) -> list[str]:
        parts: list[str] = []
        start = self.token.line
        while self.token.kind not in {"newline", "end"} and not self._at(ends):
            if self.token.kind in {"text", "bare"}:
                parts.append(_key(self.token))
            self._advance()
        if len(parts) > DEEPEST and self.found.deep is None:
            self.found.deep = start
        return parts[:DEEPEST]

    def _header(self) -> None:
        line = self.token.line
        self._advance()
        is_array = self._at("[")
        if is_array:
            self._advance()
        parts = self._key_parts("]")
        loc: Loc = ()
        for part in parts[:-1]:
            loc = (*loc, part)
            if loc in self.entries:
                loc = (*loc, self.entries[loc])
        loc = (*loc, *parts[-1:])
        if is_array:
            self.entries[loc] = self.entries.get(loc, -1) + 1
            self._record(loc, line)
            loc = (*loc, self.entries[loc])
        else:
            self._assign(loc, line)
        self._record(loc, line)
        self.found.known[loc] = line  # stronger than what a table below it implied
        self.table = loc

    def _key_of(self, table: Loc) -> Loc:
        """Read ``key =`` of a table and return the place it names."""
        line = self.token.line
        loc = (*table, *self._key_parts("=,}"))
        self._assign(loc, line)
        self._record(loc, line)
        if self._at("="):
            self._advance()
        return loc

    def _assign(self, loc: Loc, line: int) -> None:
        if loc in self.assigned:
            self.found.duplicates.append(Duplicate(loc, self.assigned[loc], line))
        self.assigned.setdefault(loc, line)

    def _record(self, loc: Loc, line: int) -> None:
        for end in range(1, len(loc) + 1):
            self.found.known.setdefault(loc[:end], line)

    def _value(self, place: Loc) -> None:
        """Read the value at `place` to its end, through lists and inline tables."""
        levels: list[_Level] = []
        while self.token.kind != "end" and (levels or self.token.kind != "newline"):
            if levels and self._at(","):
                place = levels[-1].next_entry()
            elif levels and self._at("]}"):
                levels.pop()
            elif self._at("[{") and len(levels) < DEEPEST:
                self.found.known.setdefault(place, self.token.line)
                is_list = self.token.text == "["
                levels.append(_Level(place, 0 if is_list else None, not is_list))
                place = (*place, 0) if is_list else place
            elif self.token.kind in {"text", "bare"}:
                if levels and levels[-1].expects_key:
                    levels[-1].expects_key = False
                    place = self._key_of(levels[-1].loc)
                    continue
                self.found.known.setdefault(place, self.token.line)
            self._advance()
