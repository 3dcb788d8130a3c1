"""The text of a stored file, however it is packed and encoded, in pieces of whole lines, within bounds.

Every reader of logs and recordings opens its file here. A file may be hostile or damaged. If it unpacks to
far more than a log does, has lines longer than any record, or ends in the middle, one error names the
file, before it costs time or memory.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import lzma
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BufferedIOBase, BufferedReader, BytesIO
from pathlib import Path
from typing import IO, Final, Protocol, cast

from nws.errors import InputError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CHUNK: Final = 1 << 22
"""Bytes of text in a piece, about: the whole text is never held."""
MAX_LINE_BYTES: Final = 1 << 20
"""A record of sacct with the command line of its submission has a hundred kilobytes at most."""
MAX_RATIO: Final = 100
"""Text over stored bytes: logs are packed to a third or a twentieth."""
FREE_BYTES: Final = 1 << 23
"""Bytes of text that are read at any ratio."""
MAX_TEXT_BYTES: Final = 1 << 35
"""Bytes of text of any log: 10^8 records of SWF are less."""
MAX_UNPACKING_BYTES: Final = 1 << 27
"""Memory that unpacking may take: the default levels of xz and zstd need at most this."""
MAX_MEMBERS: Final = 1000
"""Members of a zip archive."""


class _Unpacker(Protocol):
    """The common interface of `bz2`, `lzma` and `zstd`."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _zstd() -> _Unpacker:
    window = {
        int(zstd.DecompressionParameter.window_log_max): MAX_UNPACKING_BYTES.bit_length() - 1
    }
    return cast("_Unpacker", zstd.ZstdDecompressor(options=window))


PACKERS: Mapping[bytes, tuple[str, Callable[[], _Unpacker]]] = {
    b"BZh": ("bzip2", cast("Callable[[], _Unpacker]", bz2.BZ2Decompressor)),
    b"\xfd7zXZ\0": (
        "xz",
        lambda: cast("_Unpacker", lzma.LZMADecompressor(lzma.FORMAT_XZ, MAX_UNPACKING_BYTES)),
    ),
    b"\x28\xb5\x2f\xfd": ("zstd", _zstd),
}
"""By the first bytes of a file; gzip is read by its own module."""
GZIP = b"\x1f\x8b"
ZIP = b"PK\x03\x04"
BYTE_ORDER_MARKS: Mapping[bytes, str] = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16: it begins with the mark of UTF-16
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


class StoredText:
    r"""The text of a file, read once, front to back.

    Iterating yields pieces of UTF-8 that end with a line; each line is at most `longest` bytes long. A
    byte-order mark is removed. Text in UTF-16 or UTF-32 is read by its mark.

    Parameters
    ----------
    path
        Plain text, packed by gzip, bzip2, xz or zstd, or the one file in a zip archive; its first bytes
        decide. All but a zip archive may come through a pipe.
    stored
        Its bytes, where they are at hand.
    chunk, longest
        Bytes that are unpacked at a time, and of a line at most.
    error
        Class of the errors, with the arguments of `InputError`.

    Attributes
    ----------
    sha256
        Of the bytes as stored, once all is read.

    Raises
    ------
    InputError
        Or `error`: the file cannot be read, is damaged, or unpacks to far more than any log does. Permanent.

    Examples
    --------
    >>> [*StoredText(Path("log"), gzip.compress(b"1 2\n3 4")).lines()]
    ['1 2', '3 4']
    """

    def __init__(
        self,
        path: Path,
        stored: bytes | None = None,
        *,
        chunk: int = CHUNK,
        longest: int = MAX_LINE_BYTES,
        error: Callable[..., Exception] = InputError,
    ) -> None:
        self._path = path
        self._stored = stored
        self._chunk = chunk
        self._longest = longest
        self._error = error
        self.sha256 = ""

    def __iter__(self) -> Iterator[bytes]:
        """Yield the text, in pieces of whole lines."""
        return self.whole_lines(self.blocks())

    def whole_lines(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the blocks in pieces of whole lines."""
        rest, line = b"", 1
        for data in blocks:
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

    def lines(self) -> Iterator[str]:
        """Yield the lines without their ends; a byte that is no UTF-8 becomes U+FFFD."""
        for piece in self:
            for line in piece.decode("utf-8", "replace").split("\n")[:-1]:
                yield line.removesuffix("\r")

    def unpacked_sha256(self) -> str:
        """Return the sum of the unpacked bytes."""
        digest = hashlib.sha256()
        for data in self._pieces():
            digest.update(data)
        return digest.hexdigest()

    def _opened(self) -> BufferedReader:
        if self._stored is not None:
            return BufferedReader(BytesIO(self._stored))
        return self._path.open("rb")

    def _too_long(self, line: int) -> Exception:
        return self._error(
            f"{self._path}:{line}: this or a later line has more than {self._longest} bytes: not a log",
            code="line-too-long",
            file=str(self._path),
            line=line,
            bound=self._longest,
        )

    def blocks(self) -> Iterator[bytes]:
        """Yield the text as UTF-8 without a byte-order mark, cut anywhere: for a format without lines."""
        pieces = self._pieces()
        head = b""
        while len(head) < 4 and (data := next(pieces, b"")):
            head += data
        mark = next((mark for mark in BYTE_ORDER_MARKS if head.startswith(mark)), b"")
        encoding, head = BYTE_ORDER_MARKS.get(mark, "utf-8"), head[len(mark) :]
        if encoding == "utf-8":
            yield head
            yield from pieces
            return
        decoder = codecs.getincrementaldecoder(encoding)()
        try:
            yield decoder.decode(head).encode()
            for data in pieces:
                yield decoder.decode(data).encode()
            yield decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            raise self._error(
                f"{self._path}: its byte-order mark promises {encoding}, which it is not: {error}",
                code="file-damaged",
                file=str(self._path),
            ) from error

    def _pieces(self) -> Iterator[bytes]:
        """Yield the unpacked bytes as they come, within the bounds."""
        packer = "its packing"
        try:
            with self._opened() as stored:
                start = stored.peek(8)[:8]
                raw = _Counted(stored)
                name = next((magic for magic in PACKERS if start.startswith(magic)), b"")
                if start.startswith(ZIP):
                    packer = "zip"
                    text = self._zipped(stored, raw)
                elif start.startswith(GZIP):
                    packer = "gzip"
                    text = _read(gzip.GzipFile(fileobj=cast("IO[bytes]", raw)), self._chunk)
                elif name:
                    packer, unpacker = PACKERS[name]
                    text = _unpacked(raw, unpacker, self._chunk)
                else:
                    text = _read(raw, self._chunk)
                yield from self._bounded(text, raw, packed=packer != "its packing")
                self.sha256 = raw.digest.hexdigest()
        except InputError:
            raise
        except (
            EOFError,
            ValueError,
            RuntimeError,  # zipfile raises it for an encrypted file or an unsupported compression
            zlib.error,
            lzma.LZMAError,
            zstd.ZstdError,
            zipfile.BadZipFile,
        ) as error:
            raise self._damaged(packer, error) from error
        except OSError as error:
            if error.errno is None or packer == "zip":  # gzip and bz2 raise it for damaged files
                raise self._damaged(packer, error) from error
            missing = isinstance(error, FileNotFoundError)
            raise self._error(
                f"{self._path}: {error.strerror}",
                code="file-missing" if missing else "file-unreadable",
                file=str(self._path),
            ) from error

    def _bounded(self, text: Iterator[bytes], raw: _Counted, *, packed: bool) -> Iterator[bytes]:
        """Yield the text; raise if it is far longer than the stored bytes."""
        size = 0
        for data in text:
            size += len(data)
            bound = max(FREE_BYTES, MAX_RATIO * raw.count) if packed else MAX_TEXT_BYTES
            if size > min(bound, MAX_TEXT_BYTES):
                raise self._error(
                    f"{self._path}: {raw.count} stored bytes unpack to more than {size}: "
                    f"not a log (at most {MAX_RATIO} times as many)",
                    code="file-too-large",
                    file=str(self._path),
                    value=size,
                    bound=bound,
                )
            yield data

    def _zipped(self, stored: BufferedReader, raw: _Counted) -> Iterator[bytes]:
        """Yield the text of the one file in a zip archive."""
        if not stored.seekable():
            raise self._error(
                f"{self._path}: a zip archive cannot be read from a pipe; unpack it",
                code="file-unreadable",
                file=str(self._path),
            )
        for _ in _read(raw, self._chunk):
            pass  # its digest and its size: the members are read in any order
        with zipfile.ZipFile(stored) as archive:
            members = [
                member
                for member in archive.infolist()[:MAX_MEMBERS]
                if not member.is_dir() and not member.filename.startswith("__MACOSX/")
            ]
            if len(members) != 1:
                raise self._error(
                    f"{self._path}: a zip archive of {len(members)} files, where one is read; "
                    "unpack it and give one of them",
                    code="file-invalid",
                    file=str(self._path),
                    value=len(members),
                )
            with archive.open(members[0]) as member:
                yield from _read(cast("BufferedIOBase", member), self._chunk)

    def _damaged(self, packer: str, error: Exception) -> Exception:
        return self._error(
            f"{self._path}: damaged or truncated {packer}: {error}",
            code="file-damaged",
            file=str(self._path),
            packer=packer,
        )


class _Counted(BufferedIOBase):
    """A byte stream that counts the bytes read through it and keeps their digest."""

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
