"""Compressed files: hwloc XML in gzip, bzip2 or xz, and the ``/sys`` that hwloc-gather-topology stores."""

from __future__ import annotations

import bz2
import lzma
import tarfile
import zlib
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Final, Protocol, cast

from apples.topology.sources.elements import MAX_BYTES, TopologyFileError
from apples.topology.sources.sysfs import MAX_FILE, NAME

MAX_UNPACKED: Final = 2**28
"""Bytes of a stored ``/sys``: each of some 50 files of a CPU has a block of 512 bytes and a header."""
MAX_MEMORY: Final = 2**27
"""Bytes of memory for unpacking xz."""
_PIECE: Final = 2**12
"""Bytes unpacked at a time. Small, because the rest after a stream is copied, and streams may have 14 bytes."""
_SYSTEM: Final = "sys/devices/"


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


_UNPACKERS: Final[Mapping[bytes, Callable[[], _Unpacker]]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(31),
    b"BZh": lambda: cast("_Unpacker", bz2.BZ2Decompressor()),
    b"\xfd7zXZ\0": lambda: cast(
        "_Unpacker", lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_MEMORY)
    ),
}
"""First bytes of a file -> its decompressor."""


def unpacked(data: bytes, name: str) -> bytes:
    """Return the text of a file that may be compressed.

    Raises
    ------
    TopologyFileError
        The file is damaged, or unpacks to more than the limit. Permanent.
    """
    new = next((new for magic, new in _UNPACKERS.items() if data.startswith(magic)), None)
    if new is None:
        return data
    try:
        most = MAX_BYTES
        text, whole = _streams(data, new, most)
        if is_archive(text) and len(text) > most:
            most = MAX_UNPACKED
            text, whole = _streams(data, new, most)
    except (OSError, ValueError, zlib.error, lzma.LZMAError, MemoryError) as error:
        raise TopologyFileError(
            f"{name}: cannot be unpacked: {error}", code="file-damaged", file=name
        ) from error
    if not whole and len(text) <= most:
        raise TopologyFileError(
            f"{name}: cannot be unpacked: it ends in the middle", code="file-damaged", file=name
        )
    if len(text) > most:
        raise TopologyFileError(
            f"{name}: unpacks to more than {most} bytes",
            code="file-too-large",
            file=name,
            bound=most,
        )
    return text


def _streams(data: bytes, new: Callable[[], _Unpacker], most: int) -> tuple[bytes, bool]:
    """Return the text of consecutive streams (zeros may pad them), and whether the last one is complete.

    It unpacks at most one byte more than `most`.
    """
    unpacker, text = new(), bytearray()
    for start in range(0, len(data), _PIECE):
        rest = data[start : start + _PIECE]
        while rest:
            if unpacker.eof:
                rest = rest.lstrip(b"\0")
                if not rest:
                    break
                unpacker = new()
            text += unpacker.decompress(rest, most + 1 - len(text))
            if len(text) > most:
                return bytes(text), False
            rest = unpacker.unused_data
    return bytes(text), unpacker.eof


def is_archive(data: bytes) -> bool:
    """Whether an unpacked file is a tar archive."""
    return data[257:262] == b"ustar"


def files_of(data: bytes, name: str) -> Mapping[str, str]:
    """Return the kernel's files in an archive, by their paths below ``/sys/devices/system``.

    Raises
    ------
    TopologyFileError
        The archive is damaged, or has no such files. Permanent.
    """
    files: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=BytesIO(data), mode="r:") as archive:
            for member in archive:
                _, below, place = member.name.partition(_SYSTEM)
                place = (
                    place.removeprefix("system/") if place.startswith("system/") else f"../{place}"
                )
                if not below or not NAME.fullmatch(place) or not member.isreg():
                    continue
                stream = archive.extractfile(member)
                if stream is not None and member.size <= MAX_FILE:
                    files[place] = stream.read(MAX_FILE).decode("ascii", "replace")
    except (tarfile.TarError, EOFError, OSError, ValueError, RecursionError) as error:
        raise TopologyFileError(
            f"{name}: not a readable archive: {error}", code="file-damaged", file=name
        ) from error
    if not files:
        raise TopologyFileError(
            f"{name}: this archive has no /sys/devices/system: expected an archive of "
            "'hwloc-gather-topology', or XML",
            code="file-invalid",
            file=name,
        )
    return files
