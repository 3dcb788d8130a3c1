"""What a durable store does with a single file: replace it whole, and hold its lock.

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
    """Write `text` to `path` so that a reader sees the old or the new file, whatever happens.

    The text is written beside, synced, and renamed, and the directory is synced: the new file is on the disk
    when this returns. It is its owner's alone (0600).

    Raises
    ------
    OSError
        The file is as it was.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        error.filename = str(path)  # nobody knows the other
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
    """Return when a file, or the entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def written(path: Path) -> Iterator[IO[str]]:
    """Write a file that a user named: what is written while inside is there whole afterwards, or the old file is.

    It is written beside and renamed; a file that was there keeps its mode, and a link goes on pointing at it.
    What is no file (a pipe, a device) is written to as it is. Nothing is synced.

    Raises
    ------
    OSError
        It bears `path`.
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
        if error.filename == str(beside):  # nobody knows it
            error.filename = str(path)
        raise
    finally:
        beside.unlink(missing_ok=True)


def put(path: Path, text: str) -> None:
    """Write a file that a user named, in folders that are made where they are not there; as `written`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written(path) as stream:
        stream.write(text)


def lock(descriptor: int, seconds: float | None = None, *, shared: bool = False) -> bool:
    """Lock an open file or directory; whether the lock was had within `seconds` (None: wait for it).

    It is held until the descriptor is closed, so it goes with the process that holds it (flock(2)). Several
    may hold a shared one.
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
    """Hold the lock of a file, which is made if need be, or of a directory, while inside.

    Raises
    ------
    BlockingIOError
        Another has held it for all of `seconds` (None: wait for it). Transient.
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
