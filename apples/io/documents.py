"""Durable operations on a single file: replace it atomically, sync it and hold its lock.

Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from apples.errors import unwritable
from apples.io.naming import naming

RETRY_SECONDS: Final = 0.02


def replace(path: Path, text: str) -> None:
    """Write `text` to `path` atomically: a reader sees the old or the new file, also after a crash.

    The text goes to a temporary file in the same directory, which is synced and renamed. Then the directory is
    synced: the new file is on the disk when this returns. Only its owner may read it (mode 0600).

    Raises
    ------
    OSError
        The write failed; the file is unchanged.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        error.filename = str(path)  # the user does not know the temporary name
        raise
    try:
        with naming(path), os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on the disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def written(path: Path) -> Iterator[IO[str]]:
    """Open a file that a user named for writing; at the end of the block it replaces the old file atomically.

    If the block fails, the old file stays. The text goes to a temporary file in the same directory, which is then
    renamed; the new file keeps the mode of the old file, and a symbolic link keeps its target path. A pipe or a
    device is written to directly. Nothing is synced.

    Raises
    ------
    OSError
        The write failed; `filename` of the error is `path`.
    """
    target = path.resolve()
    if target.exists() and not target.is_file():
        with naming(path), target.open("w", encoding="utf-8") as stream:
            yield stream
        return
    beside = target.with_name(f".{target.name[:200]}.{secrets.token_hex(4)}")
    try:
        with naming(path):
            with beside.open("x", encoding="utf-8") as stream:
                if target.exists():
                    os.fchmod(stream.fileno(), target.stat().st_mode & 0o777)
                yield stream
            beside.replace(target)
    except OSError as error:
        if error.filename == str(beside):  # the user does not know the temporary name
            error.filename = str(path)
        raise
    finally:
        beside.unlink(missing_ok=True)


def put(path: Path, text: str) -> None:
    """Write `text` to a file that a user named, as `written` does; create its folders if they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path) as stream:
        stream.write(text)


def lock(descriptor: int, seconds: float | None = None, *, shared: bool = False) -> bool:
    """Lock an open file or directory; return whether that succeeded within `seconds` (None: no time limit).

    The lock ends when the descriptor is closed, at the latest when the process ends (flock(2)). Several processes
    can hold a shared lock at the same time.
    """
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if seconds is None:
        fcntl.flock(descriptor, kind)
        return True
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(RETRY_SECONDS)
        else:
            return True


@contextmanager
def locked(path: Path, seconds: float | None = None, *, directory: bool = False) -> Iterator[None]:
    """Hold the lock of a file or directory during the block; create a missing file.

    Raises
    ------
    BlockingIOError
        Another process held the lock for all of `seconds` (None: no time limit). Transient.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY if directory else os.O_RDWR | os.O_CREAT
    descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
    try:
        if not lock(descriptor, seconds):
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock", str(path))
        yield
    finally:
        os.close(descriptor)


def put_page(path: Path, page: str) -> None:
    """Write the page that ``--out`` names.

    Raises
    ------
    ApplesError
        The file cannot be written.
    """
    try:
        put(path, page)
    except OSError as error:
        raise unwritable(f"--out {path}", error) from None
