"""The line of each value of a TOML document: tomlkit's parser, extended to record lines.

tomlkit keeps every item of a document but not its line. It also joins the elements of an array of tables that
other tables separate, so lines cannot be counted in the parsed document. The parser therefore records lines
while it reads: lines of values by item, lines of headers by name and order.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping

from tomlkit.container import Container
from tomlkit.items import AoT, Array, InlineTable, Item, Key, Table
from tomlkit.parser import Parser

from hat.problem import Loc

RENAMED = "-set-again"
ATTEMPTS = 8
"""Occurrences of the name that are tried: a value or a comment after the key may contain the name as well."""


def lines_of(text: str) -> Mapping[Loc, int]:
    r"""Return the line of every key, header and array element of a TOML text; empty if the text is not TOML.

    Examples
    --------
    >>> lines = lines_of('name = "x"\n[[host]]\ncpu = 1\n[[host]]\nname = "b"\ncpu = 2\n')
    >>> lines["name",], lines["host", 1], lines["host", 1, "cpu"]
    (1, 4, 6)
    """
    parser = _PositionParser(text)
    try:
        walk = _Walk(parser)
        walk.visit((), parser.parse())
    except Exception:  # noqa: BLE001 - after any error of tomlkit the problems are reported without lines
        return {}
    return walk.known


def repetition(text: str, end: int) -> tuple[Loc, int, int] | None:
    r"""Return the place of a key that is set twice, with the lines of the first and the second assignment.

    Neither `tomllib` nor tomlkit reports the line of the first assignment. So the function renames the second
    key; if the text then parses, the lines of both are known.

    Parameters
    ----------
    text
        A TOML document in which this repetition is the only mistake.
    end
        Offset in the text at which the parser found the mistake; the key stands before it.

    Examples
    --------
    >>> repetition("[a]\nb = 1\nb = 2\n", end=15)
    (('a', 'b'), 2, 3)
    """
    name = _repeated_name(text)
    for _ in range(ATTEMPTS if name else 0):
        end = text.rfind(name, 0, end)
        if end < 0:
            break
        after = end + len(name)
        known = lines_of(text[:after] + RENAMED + text[after:])
        for loc, again in known.items():
            twice = (*loc[:-1], name)
            if loc[-1] == name + RENAMED and twice in known:
                return twice, known[twice], again
    return None


def _repeated_name(text: str) -> str:
    """Return the name that tomlkit reports as set twice; empty after any other error."""
    try:
        Parser(text).parse()
    except Exception as error:  # noqa: BLE001 - as above
        found = re.search(r'Key "(.*)" already exists', str(error), re.DOTALL)
        return found[1] if found else ""
    return ""


class _PositionParser(Parser):
    """tomlkit's parser, extended to record lines.

    Attributes
    ----------
    values
        The line each value begins on, by the identity of its item.
    headers
        The lines of the headers of one name, in order.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.values: dict[int, int] = {}
        self.headers: dict[str, deque[int]] = defaultdict(deque)
        self._ends = [i for i, character in enumerate(text) if character == "\n"]

    def _line(self) -> int:
        return bisect_left(self._ends, self._idx) + 1

    def _parse_value(self) -> Item:
        line = self._line()
        item = super()._parse_value()
        self.values[id(item)] = line
        return item

    def _parse_table(
        self, parent_name: Key | None = None, parent: Table | None = None
    ) -> tuple[Key, Table | AoT]:
        name = self._peek_table()[1].as_string()
        self.headers[name].append(self._line())
        return super()._parse_table(parent_name, parent)


class _Walk:
    """One traversal of all items of a document, each with its place."""

    def __init__(self, parser: _PositionParser) -> None:
        self.known: dict[Loc, int] = {}
        self._values = parser.values
        self._headers = parser.headers
        self._elements: Counter[Loc] = Counter()  # an array of tables may be in several pieces

    def visit(self, loc: Loc, item: Item | Container) -> None:
        """Record the line of an item and of all items below it."""
        headers = self._headers[item.display_name or ""] if isinstance(item, Table) else ()
        line = headers.popleft() if headers else self._values.get(id(item), 0)
        if line:
            for end in range(1, len(loc) + 1):
                self.known.setdefault(loc[:end], line)
        if isinstance(item, Table) and line:
            self.known[loc] = line  # replaces the line inferred from a table below it
        for part, below in self._below(loc, item):
            self.visit((*loc, part), below)

    def _below(self, loc: Loc, item: Item | Container) -> Iterator[tuple[str | int, Item]]:
        if isinstance(item, Table | InlineTable):
            item = item.value
        if isinstance(item, Container):
            yield from ((key.key, below) for key, below in item.body if key is not None)
        elif isinstance(item, AoT):
            for below in item.body:
                yield self._elements[loc], below
                self._elements[loc] += 1
        elif isinstance(item, Array):
            yield from enumerate(item)
