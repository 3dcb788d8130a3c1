"""Reads XML from untrusted sources into ElementTree elements, with limits."""

from __future__ import annotations

from typing import NoReturn
from xml.etree import ElementTree
from xml.parsers import expat

from apples.errors import UsageError

MAX_BYTES = 32 * 2**20
MAX_DEPTH = 32
"""Maximum levels of elements; real machines have 12 to 24: packages, caches, cores, devices behind bridges."""
MAX_ELEMENTS = 200_000
MAX_TEXT = 8 * 2**20


class TopologyFileError(UsageError):
    """An invalid topology file; the message has file, line and the expected form. Permanent."""

    code = "file-invalid"


class Element(ElementTree.Element):
    """An element with its first line."""

    line: int = 0


def read_elements(data: bytes, name: str) -> Element:
    """Return the outermost element of an XML document.

    Raises
    ------
    TopologyFileError
        The document is not well-formed, declares an entity, or exceeds the limits; with the line.
    """
    if len(data) > MAX_BYTES:
        raise TopologyFileError(
            f"{name}: {len(data)} bytes, at most {MAX_BYTES} are read",
            code="file-too-large",
            file=name,
            value=len(data),
            bound=MAX_BYTES,
        )
    return _Reader(name).read(data)


class _Reader:
    """Checks the parser's events and passes them to ElementTree's builder."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._builder = ElementTree.TreeBuilder(element_factory=Element)
        self._depth = self._elements = self._text = 0
        # expat itself, because ElementTree's parser has no line numbers and cannot reject entities.
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.EntityDeclHandler = self._entity
        self._parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def read(self, data: bytes) -> Element:
        """Parse the whole document."""
        try:
            self._parser.Parse(data, True)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            self._refuse(f"not well-formed XML: {what}", error.lineno, code="xml-invalid")
        except (ValueError, LookupError) as error:  # an unknown encoding
            self._refuse(f"not readable as XML: {error}", 1, code="xml-invalid")
        if not self._elements:
            self._refuse("holds no element", 1, code="file-empty")
        outermost = self._builder.close()
        assert isinstance(outermost, Element)  # noqa: S101 - by the factory, for the type checker
        return outermost

    def _refuse(self, what: str, line: int | None = None, *, code: str) -> NoReturn:
        number = self._parser.CurrentLineNumber if line is None else line
        raise TopologyFileError(
            f"{self._name}: line {number}: {what}", code=code, file=self._name, line=number
        )

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._elements += 1
        self._depth += 1
        if self._elements > MAX_ELEMENTS:
            self._refuse(f"more than {MAX_ELEMENTS} elements", code="file-too-large")
        if self._depth > MAX_DEPTH:
            self._refuse(f"elements nested deeper than {MAX_DEPTH}", code="file-too-deep")
        element = self._builder.start(tag, attributes)
        assert isinstance(element, Element)  # noqa: S101 - as above
        element.line = self._parser.CurrentLineNumber

    def _end(self, tag: str) -> None:
        self._depth -= 1
        self._builder.end(tag)

    def _characters(self, text: str) -> None:
        if not text.isspace():
            self._text += len(text)
            if self._text > MAX_TEXT:
                self._refuse(f"more than {MAX_TEXT} characters of text", code="file-too-large")
            self._builder.data(text)

    def _entity(self, *_: object) -> None:
        self._refuse("declares an entity, which no hwloc file does", code="xml-entity")
