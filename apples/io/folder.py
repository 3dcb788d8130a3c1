"""A directory that is used by descriptor only: no symbolic link below it is ever followed.

Root works in directories that other users may be able to change. Every name is therefore looked up from an open
directory, with ``openat2``, which rejects links and paths that leave the directory. If the kernel or a seccomp
filter does not permit ``openat2``, each component is opened in turn with ``O_NOFOLLOW``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from apples.errors import UsageError, coded

OPENAT2: Final = 437
NO_MAGICLINKS, NO_SYMLINKS, BENEATH = 0x02, 0x04, 0x08
COMPONENT: Final = re.compile(r"[^/\0]{1,255}")
MAX_FILE_BYTES: Final = 1 << 26
MODE: Final = 0o600
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


_LIBC = ctypes.CDLL(None, use_errno=True)


class Folder:
    """An open directory. Names are relative, for example ``a/b``, and each component is checked.

    Every method raises the kernel's OSError, for example ELOOP if a component is a link. Use `Folder.open`.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor = descriptor
        self.name = name

    @classmethod
    def open(cls, path: Path, *, links: bool = False) -> Folder:
        """Open a directory; links in its path are rejected unless `links`.

        Raises
        ------
        OSError
            The directory cannot be opened, or a component of its path is a link (ELOOP).
        """
        if links:
            return cls(os.open(path, DIRECTORY), str(path))
        root = os.open("/", DIRECTORY)
        try:
            relative = str(path.absolute().relative_to("/"))
            descriptor = _open(root, relative, DIRECTORY, 0) if relative != "." else os.dup(root)
            return cls(descriptor, str(path))
        finally:
            os.close(root)

    def close(self) -> None:
        """Close the descriptor."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    def __enter__(self) -> Folder:
        """Return this folder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the descriptor."""
        self.close()

    def open_file(self, name: str, flags: int, mode: int = MODE) -> int:
        """Open a file below and return its descriptor; a new file gets `mode`, by default 0600."""
        return _open(self.descriptor, _checked(name), flags | os.O_CLOEXEC | os.O_NONBLOCK, mode)

    def read(self, name: str) -> bytes:
        """Return the first 64 MiB of a file; a pipe or a device is rejected."""
        with self._file(name, os.O_RDONLY) as descriptor:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", f"{self.name}/{name}")
            pieces = []
            left = MAX_FILE_BYTES
            while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
                pieces.append(piece)
                left -= len(piece)
            return b"".join(pieces)

    def text(self, name: str) -> str:
        """Return a small file's text, stripped."""
        return self.read(name).decode("utf-8", "replace").strip()

    def write(self, name: str, text: str) -> None:
        """Write `text` into an existing file with one write(2), as control files of the kernel require."""
        with self._file(name, os.O_WRONLY | os.O_TRUNC) as descriptor:
            os.write(descriptor, text.encode())

    def append(self, descriptor: int, data: bytes) -> None:
        """Write all of `data` to an open file and wait until it is on the disk."""
        rest = memoryview(data)
        while rest:
            written = os.write(descriptor, rest)
            if written <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rest = rest[written:]
        os.fdatasync(descriptor)

    def truncate(self, name: str, length: int) -> None:
        """Truncate a file and wait until that is on the disk."""
        with self._file(name, os.O_WRONLY) as descriptor:
            os.ftruncate(descriptor, length)
            os.fsync(descriptor)

    def make(self, name: str) -> None:
        """Make a directory below; FileExistsError where there is anything of that name."""
        os.mkdir(_component(name), 0o755, dir_fd=self.descriptor)

    def drop(self, name: str) -> None:
        """Remove an empty directory below; a missing directory is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(_component(name), dir_fd=self.descriptor)

    def remove(self, name: str) -> None:
        """Remove a file below; a missing file is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_component(name), dir_fd=self.descriptor)

    def rename(self, source: str, target: str) -> None:
        """Replace `target` by `source` atomically."""
        here = self.descriptor
        os.rename(_component(source), _component(target), src_dir_fd=here, dst_dir_fd=here)

    def sync(self) -> None:
        """Wait until the entries of this directory are on the disk."""
        os.fsync(self.descriptor)

    def below(self, name: str) -> Folder:
        """Open a directory below."""
        opened = _open(self.descriptor, _checked(name), DIRECTORY, 0)
        return Folder(opened, f"{self.name}/{name}")

    def names(self) -> list[str]:
        """Return the names in the directory, sorted."""
        return sorted(os.listdir(self.descriptor))  # noqa: PTH208 - of a descriptor, not of a path

    def folders(self) -> list[str]:
        """Return the names of the directories in the directory, sorted; links are left out."""
        with os.scandir(self.descriptor) as entries:
            return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))

    @contextlib.contextmanager
    def _file(self, name: str, flags: int) -> Iterator[int]:
        descriptor = self.open_file(name, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def check_private(folder: Folder) -> None:
    """Raise UsageError unless this user owns a directory and no other user can write to it.

    A daemon checks its directory with this before it uses it.
    """
    import nws  # noqa: PLC0415 - for daemons, not for every command that opens a folder

    try:
        nws.check_owned(folder.name, os.fstat(folder.descriptor))
    except nws.NotPrivateError as error:
        raise UsageError(str(error), **coded(error)) from None


def _component(name: str) -> str:
    if not COMPONENT.fullmatch(name) or name in {".", ".."}:
        raise OSError(errno.EINVAL, "not a file name without folders", name)
    return name


def _checked(name: str) -> str:
    for part in name.split("/"):
        _component(part)
    return name


def _open(directory: int, path: str, flags: int, mode: int) -> int:
    """Open `path` below a directory without following a link in any of its components."""
    making = mode if flags & os.O_CREAT else 0
    how = struct.pack("QQQ", flags, making, NO_MAGICLINKS | NO_SYMLINKS | BENEATH)
    number: int = _LIBC.syscall(OPENAT2, directory, path.encode(), how, len(how))
    if number >= 0:
        return number
    problem = ctypes.get_errno()
    if problem in {errno.ENOSYS, errno.EPERM}:
        return walk(directory, path, flags, mode)
    raise OSError(problem, os.strerror(problem), path)


def walk(directory: int, path: str, flags: int, mode: int) -> int:
    """Open `path` one component after the other, as `Folder` does if the kernel lacks openat2."""
    *parents, last = path.split("/")
    here = os.dup(directory)
    try:
        for part in parents:
            there = os.open(part, DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = there
        return os.open(last, flags | os.O_NOFOLLOW, mode, dir_fd=here)
    finally:
        os.close(here)
