"""`Image`: the packed format of data that outlives its process, and of blocks that migrate.

An image is the length of its header (8 bytes, little-endian), the header in JSON, and parts of raw bytes. Header
and parts begin at multiples of 16 bytes. The header lists the size of each part. Nothing is pickled. A reader
checks all lengths before it uses a part, because a file may be damaged.

A rank writes an image of its data (`rank_image`) to a commit on disk, to a commit in memory, and for an aborted
change. A block that migrates is an image of the arrays that the program's `pack` returned (`packed`).
"""

from __future__ import annotations

import json
import math
import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.errors import ApplicationError, UsageError
from apples.malleable.runtime.row_memory import PIECE_BYTES, Bytes, pieces

Packed = NDArray[np.uint8]
Arrays = Mapping[str, NDArray[Any]]
ALIGNMENT = 16
LENGTH_BYTES = 8
KINDS = "biufc"
"""Kinds of numbers. Other dtypes may contain pointers or code, which must not travel."""
TYPE_CODE = re.compile(rf"[<>|=]?[{KINDS}]\d{{1,2}}")


@dataclass(frozen=True, slots=True)
class Image:
    """A header and parts of raw bytes, each a view of one or two dimensions.

    Examples
    --------
    >>> image = Image.read(Image({"name": "u"}, [np.arange(3, dtype=np.uint8)]).join())
    >>> image.header, image.parts[0].tolist()
    ({'name': 'u', 'sizes': [3]}, [0, 1, 2])
    """

    header: Mapping[str, Any]
    parts: Sequence[Bytes]

    @classmethod
    def read(cls, whole: Packed) -> Image:
        """Return the image in these bytes; its parts are views of them.

        Raises
        ------
        ApplicationError
            The bytes are damaged or cut off (code ``image-damaged``). Permanent.
        """
        header, parts = {}, []
        try:
            place = LENGTH_BYTES + int.from_bytes(whole[:LENGTH_BYTES].tobytes(), "little")
            header = json.loads(whole[LENGTH_BYTES:place].tobytes())
            for size in header["sizes"]:
                place = _aligned(place)
                parts.append(whole[place : place + size])
                place += size
            right = all(type(size) is int and size >= 0 for size in header["sizes"])
        except (ValueError, TypeError, KeyError, RecursionError):
            right, place = False, 0
        if not right or _aligned(place) != len(whole):
            raise ApplicationError(
                f"{len(whole)} bytes are not an image: they are damaged or cut off",
                code="image-damaged",
                value=len(whole),
            )
        return cls(header, parts)

    @classmethod
    def mapped(cls, handle: int) -> Image:
        """Return the image in an open file, mapped into memory; the file may be closed. Raises as `read`."""
        empty = os.fstat(handle).st_size == 0
        memory = b"" if empty else mmap.mmap(handle, 0, prot=mmap.PROT_READ)
        return cls.read(np.frombuffer(memory, np.uint8))

    @property
    def size(self) -> int:
        """Bytes of the whole image."""
        return len(self._head()) + sum(_aligned(part.size) for part in self.parts)

    def chunks(self) -> Iterator[memoryview]:
        """Yield the bytes of the image in order, in contiguous chunks of about 1 MiB."""
        yield memoryview(self._head())
        for part in self.parts:
            for piece in pieces(part, PIECE_BYTES):
                yield np.ascontiguousarray(piece).reshape(-1).data
            yield memoryview(bytes(_aligned(part.size) - part.size))

    def join(self) -> Packed:
        """Return the image as one array of bytes."""
        return np.frombuffer(bytearray().join(self.chunks()), np.uint8)

    def in_memory(self) -> int:
        """Write the image to memory; return the file descriptor, for the caller to close. Raises `OSError`."""
        handle = os.memfd_create("apples-image")
        try:
            with open(handle, "wb", closefd=False) as stream:
                stream.writelines(self.chunks())
        except OSError:
            os.close(handle)
            raise
        return handle

    def _head(self) -> bytes:
        """Return the header with its length, padded."""
        sizes = [part.size for part in self.parts]
        text = json.dumps({**self.header, "sizes": sizes}).encode()
        head = len(text).to_bytes(LENGTH_BYTES, "little") + text
        return head.ljust(_aligned(len(head)), b"\0")


def packed(arrays: Arrays, what: str = "block") -> Packed:
    """Return the bytes of named arrays.

    Parameters
    ----------
    what
        Name of the block in messages.

    Raises
    ------
    UsageError
        `arrays` is not a mapping of names to arrays of numbers. Permanent.

    Examples
    --------
    >>> sorted(unpacked(packed({"x": np.arange(3.0), "n": np.array(7)})).items())
    [('n', array(7)), ('x', array([0., 1., 2.]))]
    """
    values = {name: np.asarray(value, order="C") for name, value in _checked(arrays, what).items()}
    header = {"arrays": [[name, it.dtype.str, it.shape] for name, it in values.items()]}
    return Image(header, [value.reshape(-1).view(np.uint8) for value in values.values()]).join()


def unpacked(whole: Packed, what: str = "block") -> dict[str, NDArray[Any]]:
    """Return the named arrays in the bytes, as writable copies.

    Raises
    ------
    ApplicationError
        The bytes are damaged. Permanent.
    """
    try:
        image = Image.read(whole)
        entries = zip(image.header["arrays"], image.parts, strict=True)
        return {str(name): _array(part, code, shape) for (name, code, shape), part in entries}
    except (ApplicationError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise ApplicationError(
            f"{what}: damaged bytes of a block ({error})", code="block-damaged", block=what
        ) from None


def _array(part: Bytes, code: object, shape: Sequence[int]) -> NDArray[Any]:
    # numpy evaluates other texts, for example "<,8", as Python code, and may raise any exception.
    if not TYPE_CODE.fullmatch(str(code)) or any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"an array of {code} {shape}")
    dtype = np.dtype(str(code))
    if dtype.itemsize * math.prod(shape) != part.size:
        raise ValueError(f"{part.size} bytes for an array of {code} {shape}")
    return part.copy().view(dtype).reshape(shape)


def bytes_of(arrays: Arrays, what: str = "block") -> int:
    """Return the number of bytes in named arrays; raises as `packed`.

    Examples
    --------
    >>> bytes_of({"x": np.arange(3.0), "n": np.array(7, np.int32)})
    28
    """
    return sum(np.asarray(value).nbytes for value in _checked(arrays, what).values())


def _checked(arrays: Arrays, what: str) -> Arrays:
    """Return the result of a block's `pack`; reject it unless it is a mapping of names to arrays of numbers."""
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


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
