"""The kinds of values in templates and specifications, each with its limits."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError

LARGEST_NUMBER = 10**18
"""Limit of whole numbers in a document, so that every product of two is exact and quick."""


class StrictTable(BaseModel):
    """A table of a document: immutable; unknown fields are errors.

    pydantic builds its validator with that of the enclosing table, when the first document is read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


_SIZE = re.compile(r"\s*(?:[0-9]+\s*[A-Za-z]*|[0-9]*\.[0-9]+\s*[KMGTPEkmgtpe][A-Za-z]*)\s*")
"""A number and an optional unit. pydantic would ignore text after it and cut off a fraction of a byte."""


def _size_alone(value: object) -> object:
    """Reject values that pydantic would accept as a size: a boolean, and text after the size."""
    if isinstance(value, bool) or (isinstance(value, str) and not _SIZE.fullmatch(value)):
        raise PydanticCustomError("byte_size", "no number of bytes")
    return value


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=253)]
"""Name of a host, a site or an application; safe in a file name and on a command line."""

Word = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
"""Name of a parameter; legal in a size expression."""

Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=4096)]
"""Text on one line."""

Text = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$", max_length=65536)]
"""Text of any number of lines."""

Choice = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*$", max_length=4096)]
"""A built-in name, or a user's own object as ``module:name`` or ``file.py:name``."""

Partitions = Annotated[
    str, Field(pattern=r"^(tight|(redundant|sparse)(:[1-9][0-9]{0,4})?)$", max_length=64)
]
"""Number of partitions of the data: ``tight``, ``redundant[:FACTOR]`` or ``sparse[:SPARE]``."""

Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
AtLeastZero = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Whole = Annotated[int, Strict(), Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
Count = Annotated[int, Strict(), Field(ge=1, le=LARGEST_NUMBER)]

Size = Annotated[ByteSize, BeforeValidator(_size_alone, json_schema_input_type=int | str)]
"""Bytes with or without a unit, of any range."""
Bytes = Annotated[Size, Field(gt=0, le=LARGEST_NUMBER)]
"""A number of bytes, or text with a unit: ``"2 GiB"`` is 2^31, ``"2 GB"`` is 2x10^9."""
