"""A migratable object as bytes: named arrays in, one array of bytes out, and back. Nothing is pickled.

The bytes are a line of JSON (names, types, shapes), padding to 16, and the arrays one after the other, each at
a multiple of 16. What comes from a file or a peer is checked before any of it is used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.errors import ApplicationError, UsageError

Packed = NDArray[np.uint8]
Arrays = Mapping[str, NDArray[Any]]
ALIGNMENT = 16
MOST_HEADER = 1 << 20
KINDS = "biufc"
"""Numbers: what a pointer hides in, or code, does not travel."""


def packed(arrays: Arrays, what: str = "block") -> Packed:
    """Return the bytes of named arrays.

    Raises
    ------
    UsageError
        Something that is no mapping of names to arrays of numbers. Permanent.

    Examples
    --------
    >>> sorted(unpacked(packed({"x": np.arange(3.0), "n": np.array(7)})).items())
    [('n', array(7)), ('x', array([0., 1., 2.]))]
    """
    values = {name: np.asarray(value, order="C") for name, value in _checked(arrays, what).items()}
    entries = [[name, value.dtype.str, value.shape] for name, value in values.items()]
    header = json.dumps(entries).encode() + b"\n"
    places, size = [], _aligned(len(header))
    for value in values.values():
        places.append(size)
        size = _aligned(size + value.nbytes)
    whole = np.zeros(size, dtype=np.uint8)
    whole[: len(header)] = np.frombuffer(header, dtype=np.uint8)
    for place, value in zip(places, values.values(), strict=True):
        whole[place : place + value.nbytes] = value.reshape(-1).view(np.uint8)
    return whole


def bytes_of(arrays: Arrays, what: str = "block") -> int:
    """Return how many bytes of numbers named arrays have; raises as `packed`.

    Examples
    --------
    >>> bytes_of({"x": np.arange(3.0), "n": np.array(7, np.int32)})
    28
    """
    return sum(np.asarray(value).nbytes for value in _checked(arrays, what).values())


def _checked(arrays: Arrays, what: str) -> Arrays:
    """Return what a block's pack returned, refused where it is no mapping of names to arrays of numbers."""
    if not isinstance(arrays, Mapping):
        raise UsageError(
            f"{what}: pack must return a dict of arrays, not {type(arrays).__name__}",
            code="pack-invalid",
            value=type(arrays).__name__,
        )
    for name, value in arrays.items():
        kind = np.asarray(value).dtype
        if not isinstance(name, str) or kind.kind not in KINDS:
            raise UsageError(
                f"{what}: pack returned {name!r} of {kind}, not numbers",
                code="pack-invalid",
                name=str(name),
                value=str(kind),
            )
    return arrays


def unpacked(whole: Packed, what: str = "block") -> dict[str, NDArray[Any]]:
    """Return the named arrays in the bytes: arrays of their own, which may be written to.

    Raises
    ------
    ApplicationError
        The bytes are damaged. Permanent.
    """
    try:
        return _read(whole)
    except (ValueError, TypeError, KeyError) as error:
        raise ApplicationError(
            f"{what}: the bytes are no packed block ({error})", code="block-damaged", block=what
        ) from None


def _read(whole: Packed) -> dict[str, NDArray[Any]]:
    head, line, _ = bytes(whole[:MOST_HEADER]).partition(b"\n")
    if not line:
        raise ValueError("no header")
    arrays: dict[str, NDArray[Any]] = {}
    place = _aligned(len(head) + 1)
    for name, code, shape in json.loads(head):
        dtype = np.dtype(str(code))
        if dtype.kind not in KINDS or any(type(n) is not int or n < 0 for n in shape):
            raise ValueError(f"{name}: {code} {shape}")
        size = dtype.itemsize * math.prod(shape)
        if place + size > len(whole):
            raise ValueError(f"{name}: cut off")
        arrays[str(name)] = whole[place : place + size].copy().view(dtype).reshape(shape)
        place = _aligned(place + size)
    if place != len(whole):
        raise ValueError(f"{len(whole) - place} bytes too many")
    return arrays


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
