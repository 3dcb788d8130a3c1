"""The text of a stored log, whatever packed it, in pieces of whole lines and never more than can be held.

A log may come from anywhere. What unpacks to far more than any log does, what has lines that no record
has, and what ends in the middle is one error that names the file, before it costs time or memory.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from io import BufferedIOBase, BufferedReader, BytesIO
from pathlib import Path
from typing import IO, Protocol, cast

from apples.errors import UsageError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHUNK = 1 << 22
"""Bytes of text in a piece, about: the whole text is never held."""
LONGEST_LINE = 1 << 20
"""Bytes. A record of sacct with the command line of its submission has a hundred kilobytes at most."""
MOST_RATIO = 100
"""Text over stored bytes: logs are packed to a third or a twentieth."""
FREE = 1 << 23
"""Bytes of text that are read whatever the ratio."""
MOST_TEXT = 1 << 35
"""Bytes of text of any log: 10^8 records of SWF are less."""
MOST_MEMORY = 1 << 27
"""Bytes that unpacking may take: what the default levels of xz and zstd need at most."""


class _Unpacker(Protocol):
    """What `bz2`, `lzma` and `zstd` share."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _zstd() -> _Unpacker:
    window = {int(zstd.DecompressionParameter.window_log_max): MOST_MEMORY.bit_length() - 1}
    return cast("_Unpacker", zstd.ZstdDecompressor(options=window))


PACKERS: Mapping[bytes, tuple[str, Callable[[], _Unpacker]]] = {
    b"BZh": ("bzip2", cast("Callable[[], _Unpacker]", bz2.BZ2Decompressor)),
    b"\xfd7zXZ\0": (
        "xz",
        lambda: cast("_Unpacker", lzma.LZMADecompressor(lzma.FORMAT_XZ, MOST_MEMORY)),
    ),
    b"\x28\xb5\x2f\xfd": ("zstd", _zstd),
}
"""By the first bytes of a file; gzip is read by its own module."""
GZIP = b"\x1f\x8b"


class LogText:
    """The text of a file, read once, front to back.

    Iterating yields pieces that end with a line; each line is at most `longest` long.

    Parameters
    ----------
    path
        Plain text, or packed by gzip, bzip2, xz or zstd, which its first bytes tell. A pipe will do.
    stored
        Its bytes, where they are at hand.
    chunk, longest
        Bytes that are unpacked at a time, and of a line at most.

    Attributes
    ----------
    sha256
        Of the bytes as stored, once all is read.

    Raises
    ------
    UsageError
        The file cannot be read, is damaged, or unpacks to what no log is; names it. Permanent.
    """

    def __init__(
        self,
        path: Path,
        stored: bytes | None = None,
        *,
        chunk: int = CHUNK,
        longest: int = LONGEST_LINE,
    ) -> None:
        self._path = path
        self._stored = stored
        self._chunk = chunk
        self._longest = longest
        self.sha256 = ""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the text, in pieces of whole lines."""
        rest, line = b"", 1
        for data in self._pieces():
            piece = rest + data
            cut = piece.rfind(b"\n") + 1
            rest = piece[cut:]
            if cut:
                longest = 0 if cut <= self._longest else longest_line(piece[:cut], self._longest)
                if longest > self._longest:
                    raise self._too_long(line)
                yield piece[:cut]
                line += piece.count(b"\n", 0, cut)
            if len(rest) > self._longest:
                raise self._too_long(line)
        if rest:
            yield rest + b"\n"

    def unpacked_sha256(self) -> str:
        """Return the sum of the text, whatever packed it."""
        digest = hashlib.sha256()
        for data in self._pieces():
            digest.update(data)
        return digest.hexdigest()

    def _opened(self) -> BufferedReader:
        if self._stored is not None:
            return BufferedReader(BytesIO(self._stored))
        return self._path.open("rb")

    def _too_long(self, line: int) -> UsageError:
        return UsageError(
            f"{self._path}:{line}: this or a later line has more than {self._longest} bytes: not a log",
            code="line-too-long",
            file=self._path,
            line=line,
            bound=self._longest,
        )

    def _pieces(self) -> Iterator[bytes]:
        """Yield the unpacked text as it comes, within the bounds."""
        packer = "its packing"
        try:
            with self._opened() as stored:
                start = stored.peek(8)[:8]
                raw = _Counted(stored)
                name = next((magic for magic in PACKERS if start.startswith(magic)), b"")
                if start.startswith(GZIP):
                    packer = "gzip"
                    text = _read(gzip.GzipFile(fileobj=cast("IO[bytes]", raw)), self._chunk)
                elif name:
                    packer, unpacker = PACKERS[name]
                    text = _unpacked(raw, unpacker, self._chunk)
                else:
                    text = _read(raw, self._chunk)
                size, packed = 0, packer != "its packing"
                for data in text:
                    size += len(data)
                    if (packed and size > max(FREE, MOST_RATIO * raw.count)) or size > MOST_TEXT:
                        raise UsageError(
                            f"{self._path}: {raw.count} stored bytes unpack to more than {size}: "
                            f"not a log (at most {MOST_RATIO} times as many)",
                            code="file-too-large",
                            file=self._path,
                            value=size,
                            bound=max(FREE, MOST_RATIO * raw.count) if packed else MOST_TEXT,
                        )
                    yield data
                self.sha256 = raw.digest.hexdigest()
        except (EOFError, zlib.error, lzma.LZMAError, zstd.ZstdError, ValueError) as error:
            raise self._damaged(packer, error) from error
        except OSError as error:
            if error.errno is None:  # gzip and bz2 say so when they cannot unpack
                raise self._damaged(packer, error) from error
            missing = isinstance(error, FileNotFoundError)
            raise UsageError(
                f"{self._path}: {error.strerror}",
                code="file-missing" if missing else "file-unreadable",
                file=self._path,
            ) from error

    def _damaged(self, packer: str, error: Exception) -> UsageError:
        return UsageError(
            f"{self._path}: damaged or truncated {packer}: {error}",
            code="file-damaged",
            file=self._path,
            packer=packer,
        )


class _Counted(BufferedIOBase):
    """A byte stream that counts what was read through it and keeps its digest."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.count = 0
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        data = self._stream.read(-1 if size is None else size)
        self.count += len(data)
        self.digest.update(data)
        return data

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)


def _read(text: BufferedIOBase, chunk: int) -> Iterator[bytes]:
    while data := text.read(chunk):
        yield data


def _unpacked(raw: _Counted, new: Callable[[], _Unpacker], chunk: int) -> Iterator[bytes]:
    """Yield the text of one stream after another; zeros may pad them."""
    unpacker, rest = new(), b""
    while True:
        if unpacker.eof:
            rest = unpacker.unused_data.lstrip(b"\0") or raw.read(1 << 16).lstrip(b"\0")
            if not rest:
                return
            unpacker = new()
        if not rest and unpacker.needs_input:
            rest = raw.read(1 << 16)
            if not rest:
                raise EOFError("it ends in the middle")
        data = unpacker.decompress(rest, chunk)
        rest = b""
        if data:
            yield data


def longest_line(text: bytes, limit: int) -> int:
    """Return the bytes of the longest line; 0 if none is longer than `limit`."""
    begin, longest = 0, 0
    while (begin := begin + limit) < len(text):
        # A line longer than the limit crosses one of these places; from there it is looked at both ways.
        longest = max(longest, text.find(b"\n", begin) - text.rfind(b"\n", 0, begin) - 1)
    return longest
