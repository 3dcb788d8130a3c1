"""Reading a file that somebody named: regular, of bounded size, UTF-8; else one clear line."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LARGEST = 16 * 2**20
"""Bytes of the largest document that is read."""

KINDS = (
    (stat.S_ISDIR, "is a directory, not a file"),
    (stat.S_ISFIFO, "is a pipe, not a regular file"),
    (stat.S_ISSOCK, "is a socket, not a regular file"),
    (stat.S_ISCHR, "is a device, not a regular file"),
    (stat.S_ISBLK, "is a device, not a regular file"),
)

REASONS = {
    errno.ENOENT: "there is no such file",
    errno.ENOTDIR: "there is no such file (a part of its path is no directory)",
    errno.EACCES: "may not be read (permission denied)",
    errno.ELOOP: "is a symbolic link that leads to itself",
    errno.ENAMETOOLONG: "the name is too long",
}


class UnreadableError(Exception):
    """Why a file cannot be read, in words that follow its name."""


def read_bytes(path: str | os.PathLike[str], limit: int = LARGEST) -> bytes:
    """Return the bytes of a regular file.

    A pipe or a device is refused and never waited for.

    Raises
    ------
    UnreadableError
        For anything but a readable regular file of at most `limit` bytes.
    """
    try:
        _refuse_unless_regular(Path(path).stat().st_mode)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 - Path opens without flags
            _refuse_unless_regular(os.fstat(file.fileno()).st_mode)
            content = file.read(limit + 1)
    except OSError as error:
        reason = REASONS.get(error.errno or 0, os.strerror(error.errno or 0))
        raise UnreadableError(reason) from None
    except ValueError:  # a null byte in the name
        raise UnreadableError("this is no file name") from None
    if len(content) > limit:
        raise UnreadableError(f"is larger than {limit:,} bytes")
    return content


def _refuse_unless_regular(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    raise UnreadableError(next((why for is_kind, why in KINDS if is_kind(mode)), "is no file"))
