"""Files that users write: the bytes of a regular file of bounded size, and the table of a TOML file.

The module loads no model, so that a command can read the kind of a file before it loads the modules of that
kind.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

from hat import toml
from hat.problem import DocumentError, HatError, Problem

LARGEST = 16 * 2**20
"""Largest document that is read, in bytes."""

IRREGULAR = (
    (stat.S_ISDIR, "is a directory, not a file"),
    (stat.S_ISFIFO, "is a pipe, not a regular file"),
    (stat.S_ISSOCK, "is a socket, not a regular file"),
    (stat.S_ISCHR, "is a device, not a regular file"),
    (stat.S_ISBLK, "is a device, not a regular file"),
)

REASONS = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file (a part of its path is not a directory)",
    errno.EACCES: "may not be read (permission denied)",
    errno.ELOOP: "is a symbolic link that leads to itself",
    errno.ENAMETOOLONG: "the name is too long",
}


class UnreadableError(HatError):
    """A file cannot be read; the message follows the file's name. Permanent."""

    code = "file-unreadable"


def read_bytes(path: str | os.PathLike[str], limit: int = LARGEST) -> bytes:
    """Return the bytes of a regular file.

    A pipe or a device is an error; the function never waits for it.

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
        missing = error.errno in {errno.ENOENT, errno.ENOTDIR}
        raise UnreadableError(
            reason, code="file-missing" if missing else "file-unreadable", file=os.fsdecode(path)
        ) from None
    except ValueError:  # a null byte in the name
        raise UnreadableError("is not a file name", code="name-invalid") from None
    if len(content) > limit:
        raise UnreadableError(
            f"is larger than {limit:,} bytes",
            code="file-too-large",
            file=os.fsdecode(path),
            bound=limit,
        )
    return content


def _refuse_unless_regular(mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    reason = next((why for is_kind, why in IRREGULAR if is_kind(mode)), "is not a regular file")
    raise UnreadableError(reason, code="file-not-regular")


def read_text(path: str | os.PathLike[str], limit: int = LARGEST) -> str:
    """Return the text of a document.

    Raises
    ------
    DocumentError
        The file cannot be read, or is no UTF-8 text.
    """
    source = os.fsdecode(path)
    try:
        content = read_bytes(path, limit)
    except UnreadableError as error:
        problem = Problem(source, None, "", str(error), code=error.code)
        raise DocumentError([problem]) from None
    return toml.text_of(content, source)


def read_table(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the table of a TOML file; no model checks it.

    Raises
    ------
    DocumentError
        The file cannot be read, or is no TOML.
    """
    return toml.table_of(read_text(path), os.fsdecode(path))
