"""TOML reader for any pydantic model or dataclass; its problems name file, line and field.

Reading raises no error but `DocumentError`, even for random bytes. A valid document costs only the time of
`tomllib` and pydantic: lines are computed only for a document with problems.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from hat import toml, validation
from hat.files import LARGEST, read_text
from hat.problem import (
    DocumentError,
    Loc,
    Problem,
    field_name,
    nearest,
    printable,
    shown,
)

T = TypeVar("T")

MAX_PROBLEMS = 1000
"""Problems of one document that are reported; the user corrects these and reads the file again."""


def read(path: str | os.PathLike[str], model: type[T], *, limit: int = LARGEST) -> T:
    """Return the document at `path` as a `model`.

    Raises
    ------
    DocumentError
        With every problem: the file, the TOML, the fields. Permanent until the file changes.
    """
    return Document.read(path, limit=limit).validate(model)


def parse(content: str | bytes, model: type[T], *, source: str = "<text>") -> T:
    """Return TOML text as a `model`; problems name `source` as the file.

    Raises
    ------
    DocumentError
        With every problem.

    Examples
    --------
    >>> from pydantic import BaseModel
    >>> class Link(BaseModel, extra="forbid"):
    ...     bandwidth: float = 1.0
    >>> parse("bandwith = 3", Link, source="hosts.toml")
    Traceback (most recent call last):
    hat.problem.DocumentError: hosts.toml:1: unknown field 'bandwith': did you mean 'bandwidth'?
    """
    return Document.parse(content, source=source).validate(model)


def schema(model: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the documents that `parse` accepts for `model`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_adapter(model).json_schema(by_alias=True, mode="validation"),
    }


_ADAPTERS: dict[type[Any], TypeAdapter[Any]] = {}
_SCHEMAS: dict[type[Any], dict[str, Any]] = {}


def _adapter(model: type[T]) -> TypeAdapter[T]:
    """Return the type adapter of a model, cached: building it costs more than reading a small document."""
    if model not in _ADAPTERS:
        _ADAPTERS[model] = TypeAdapter(model)
    return _ADAPTERS[model]


def kept_schema(model: type[Any]) -> dict[str, Any]:
    """Return the cached schema of a model; the caller must not change it."""
    if model not in _SCHEMAS:
        _SCHEMAS[model] = schema(model)
    return _SCHEMAS[model]


@dataclass(frozen=True, slots=True)
class Fault:
    """A problem that a validator of a model found in a field below the model, for `refuse`.

    Attributes
    ----------
    loc
        Place relative to the model: ``("link", 0, "between", 1)``.
    message
        Rule that the value breaks.
    suggestion
        The nearest legal name, or empty.
    code
        Of the `Problem`, such as ``host-unknown``.
    """

    loc: Loc
    message: str
    suggestion: str = ""
    _: KW_ONLY
    code: str


def refuse(faults: Iterable[Fault]) -> None:
    """Raise all `faults` at their own places, from within a pydantic validator; return if it has none.

    pydantic would report a plain `ValueError` at the line of the whole model.
    """
    details = [
        InitErrorDetails(
            type=PydanticCustomError(
                "fault",
                "{text}",
                {"text": f.message, "suggestion": f.suggestion, "code": f.code},
            ),
            loc=f.loc,
            input=None,
        )
        for f in faults
    ]
    if details:
        raise ValidationError.from_exception_data("document", details)


FIELD_PART = re.compile(r"[^.[\]]+")


@dataclass(frozen=True)
class Document:
    """A parsed TOML document, not yet checked against a model.

    Attributes
    ----------
    source
        Path, or the name that problems give instead.
    text
        Text of the document.
    data
        Table that `tomllib` returned.
    """

    source: str
    text: str = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, limit: int = LARGEST) -> Document:
        """Return the document in a file."""
        return cls.parse(read_text(path, limit), source=os.fsdecode(path))

    @classmethod
    def parse(cls, content: str | bytes, *, source: str = "<text>") -> Document:
        """Return the document in a text."""
        text = toml.text_of(content, source)
        return cls(source, text, toml.table_of(text, source))

    @classmethod
    def of(cls, path: str | os.PathLike[str], content: str | None) -> Document:
        """Return the document in `content`, an earlier text of the file at `path`; if None, read the file."""
        if content is None:
            return cls.read(path)
        return cls.parse(content, source=os.fsdecode(path))

    @cached_property
    def _lines(self) -> Mapping[Loc, int]:
        from hat.positions import lines_of  # noqa: PLC0415 - slow to load, for wrong documents only

        return lines_of(self.text)

    def line(self, loc: Sequence[str | int]) -> int:
        """Return the line of a place, or of the nearest enclosing place; 1 for the document."""
        for end in range(len(loc), 0, -1):
            if line := self._lines.get(tuple(loc[:end])):
                return line
        return 1

    def problem(
        self,
        loc: Sequence[str | int],
        message: str,
        suggestion: str = "",
        *,
        code: str,
    ) -> Problem:
        """Return a problem at a place of this document."""
        return Problem(
            self.source,
            self.line(loc),
            field_name(loc),
            printable(message),
            suggestion,
            code=code,
        )

    def located(self, problems: Iterable[Problem]) -> list[Problem]:
        """Add the line to problems that name a field of this document, such as ``data[0].elements``."""
        return [
            self.problem(
                [int(part) if part.isdigit() else part for part in FIELD_PART.findall(one.field)],
                one.message,
                code=one.code,
            )
            for one in problems
        ]

    def validate(self, model: type[T]) -> T:
        """Return the document as a `model`, or raise `DocumentError` with every problem."""
        try:
            return _adapter(model).validate_python(self.data)
        except ValidationError as error:
            errors = (e for e in error.errors(include_url=False) if not validation.is_echo(e))
            problems = list(self._problems(islice(errors, MAX_PROBLEMS), model))
            problems.sort(key=lambda problem: problem.line or 0)
        except RecursionError:
            problems = [
                Problem(self.source, None, "", "is nested too deeply", code="file-invalid")
            ]
        except ArithmeticError:
            problems = [
                Problem(self.source, None, "", "a number in it is too large", code="value-range")
            ]
        raise DocumentError(problems)

    def _problems(self, errors: Iterable[ErrorDetails], model: type[Any]) -> Iterator[Problem]:
        names: dict[str, Any] | None = None

        def place(error: ErrorDetails) -> Loc:
            if error["type"] == "fault":
                return error["loc"]
            is_missing = error["type"] == "missing"
            return validation.trimmed(error["loc"], self.data, keep_last=is_missing)

        placed = [(place(error), error) for error in errors]
        read_on = {loc[:end] for loc, _ in placed for end in range(len(loc))}
        for loc, group in groupby(placed, key=itemgetter(0)):
            # If the value has the type of one alternative of a union, that alternative reports the errors
            # inside it; the type errors of the other alternatives are dropped.
            found = [e for _, e in group if loc not in read_on or not e["type"].endswith("_type")]
            if not found:
                continue
            if any(error["type"] in validation.UNKNOWN_FIELD for error in found):
                names = _names(model) if names is None else names
                yield self._unknown(loc, names)
            else:
                yield self.problem(
                    loc,
                    validation.message(found),
                    validation.suggestion(found[0]),
                    code=validation.code(found[0]),
                )

    def _unknown(self, loc: Loc, names: dict[str, Any]) -> Problem:
        legal = validation.legal_names(names, loc[:-1])
        name = str(loc[-1])
        return Problem(
            self.source,
            self.line(loc),
            field_name(loc[:-1]),
            f"unknown field {shown(name)}",
            nearest(name, legal),
            code="field-unknown",
        )


def _names(model: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a model, for the names of its fields; empty for a type without a schema."""
    try:
        return kept_schema(model)
    except PydanticUserError:
        return {}
