"""The kinds of values that templates and specifications are made of, each with its limits."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError

LARGEST_NUMBER = 10**18
"""Whole numbers of a document stay below this: every product of two of them is exact and quick."""


class StrictTable(BaseModel):
    """A table of a document: immutable, unknown fields refused.

    Its validator is built when the first document is read, as a part of that of the table it stands in.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


_SIZE = re.compile(r"\s*(?:[0-9]+\s*[A-Za-z]*|[0-9]*\.[0-9]+\s*[KMGTPEkmgtpe][A-Za-z]*)\s*")
"""A number and perhaps a unit, and nothing else: pydantic ignores all that follows what it can read, and cuts
off a fraction of a byte."""


def _size_alone(value: object) -> object:
    """Refuse what pydantic would take for a size: a truth value, and text with more than a size in it."""
    if isinstance(value, bool) or (isinstance(value, str) and not _SIZE.fullmatch(value)):
        raise PydanticCustomError("byte_size", "no number of bytes")
    return value


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=253)]
"""A host, a site, an application: what may stand in a file name and on a command line."""

Word = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=64)]
"""A parameter: what may stand in a size expression."""

Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=4096)]
"""Text on one line."""

Text = Annotated[str, Field(pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$", max_length=65536)]
"""Text of any number of lines."""

Choice = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*$", max_length=4096)]
"""A name that apples knows, or a user's own as ``module:name`` or ``file.py:name``."""

Partitions = Annotated[
    str, Field(pattern=r"^(tight|(redundant|sparse)(:[1-9][0-9]{0,4})?)$", max_length=64)
]
"""Into how many partitions data is cut: ``tight``, ``redundant[:FACTOR]`` or ``sparse[:SPARE]``."""

Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
AtLeastZero = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Whole = Annotated[int, Strict(), Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER)]
Count = Annotated[int, Strict(), Field(ge=1, le=LARGEST_NUMBER)]

Size = Annotated[ByteSize, BeforeValidator(_size_alone, json_schema_input_type=int | str)]
"""Bytes with or without a unit, whatever the range."""
Bytes = Annotated[Size, Field(gt=0, le=LARGEST_NUMBER)]
"""A number of bytes, or text with a unit: ``"2 GiB"`` is 2^31, ``"2 GB"`` is 2x10^9."""
