"""An hwloc XML file (format 2 or 3) as nested elements, however hostile it is.

Standard library only. Entities are refused rather than expanded, and size, depth and the number of
elements are bounded before anything is built.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from apples.errors import UsageError

MOST_BYTES = 64 * 2**20
MOST_DEPTH = 64
MOST_ELEMENTS = 200_000
MOST_TEXT = 8 * 2**20


class TopologyFileError(UsageError):
    """A topology that cannot be read: says where, and what would be right. Permanent."""


@dataclass(slots=True)
class Element:
    """One element, with the line it begins in."""

    tag: str
    attributes: dict[str, str]
    line: int
    children: list[Element] = field(default_factory=list)
    text: str = ""


def read_elements(data: bytes, name: str) -> Element:
    """Return the outermost element of an XML document.

    Raises
    ------
    TopologyFileError
        Not well-formed, or beyond the bounds; with the line.
    """
    if len(data) > MOST_BYTES:
        raise TopologyFileError(f"{name}: {len(data)} bytes, at most {MOST_BYTES} are read")
    return _Reader(name).read(data)


class _Reader:
    """Builds elements from the parser's events."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[Element] = []
        self._outermost: Element | None = None
        self._elements = 0
        self._text = 0
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._entity
        self._parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def read(self, data: bytes) -> Element:
        """Parse everything."""
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            self._refuse(f"not well-formed XML: {what}", error.lineno)
        except (ValueError, LookupError) as error:  # an encoding nobody knows
            self._refuse(f"not readable as XML: {error}", 1)
        if self._outermost is None:
            self._refuse("holds no element", 1)
        return self._outermost

    def _refuse(self, what: str, line: int | None = None) -> NoReturn:
        number = self._parser.CurrentLineNumber if line is None else line
        raise TopologyFileError(f"{self._name}: line {number}: {what}")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        if self._elements > MOST_ELEMENTS:
            self._refuse(f"more than {MOST_ELEMENTS} elements")
        if len(self._open) >= MOST_DEPTH:
            self._refuse(f"elements nested deeper than {MOST_DEPTH}")
        element = Element(tag, attributes, self._parser.CurrentLineNumber)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._outermost = element
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()

    def _characters(self, text: str) -> None:
        if not text.isspace():
            self._text += len(text)
            if self._text > MOST_TEXT:
                self._refuse(f"more than {MOST_TEXT} characters of text")
            self._open[-1].text += text

    def _entity(self, *_: object) -> None:
        self._refuse("declares an entity, which no hwloc file does")
