"""The file operations of a durable store, and a layer that makes each of them fail.

A store that goes through `Files` can be shown every fault there is: `FaultyFiles` fails its K-th
operation, once or from then on, with an error, a short write, or as if the power went.
"""

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

MODE: Final = 0o600


class Files:
    """The real thing. Every method raises OSError as the kernel says."""

    def open_append(self, path: Path) -> int:
        """Open a file for appending, made if it is not there; return its descriptor."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, MODE)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write some of `data` and return how much."""
        return os.write(descriptor, data)

    def datasync(self, descriptor: int) -> None:
        """Return when the file's bytes and length are on the disk."""
        os.fdatasync(descriptor)

    def truncate(self, path: Path, length: int) -> None:
        """Cut a file, and return when that is on the disk."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, length)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, descriptor: int) -> None:
        """Give the descriptor back."""
        os.close(descriptor)

    def read(self, path: Path) -> bytes:
        """Return all bytes of a file."""
        return path.read_bytes()

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(directory))  # noqa: PTH208 - names are wanted, not paths

    def make_directory(self, directory: Path) -> None:
        """Make a directory (0700) if it is not there, and make it stay."""
        if not directory.is_dir():
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.sync_directory(directory.parent)

    def sync_directory(self, directory: Path) -> None:
        """Return when the names in a directory are on the disk."""
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Put `source` in the place of `target` at once."""
        source.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink(missing_ok=True)


def write_all(files: Files, descriptor: int, data: bytes) -> None:
    """Write all of `data`; OSError as soon as the kernel takes none of it."""
    rest = memoryview(data)
    while rest:
        written = files.write(descriptor, rest)
        if written <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]


def number_in(name: str, prefix: str = "", suffix: str = "", digits: int = 1) -> int | None:
    """Return the number of a file that we named; None if the name is not just as we would write it.

    Examples
    --------
    >>> number_in("00000012.log", suffix=".log", digits=8)
    12
    >>> [number_in(name, "shard-") for name in ("shard-1", "shard-old", "shard-01", "shard-\u00b2")]
    [1, None, None, None]
    """
    written = name.removeprefix(prefix).removesuffix(suffix)
    number = int(written) if written.isascii() and written.isdigit() else -1
    return number if name == f"{prefix}{number:0{digits}d}{suffix}" else None


PIECE: Final = 1 << 22


def replace_file(files: Files, path: Path, pieces: Iterable[bytes]) -> None:
    """Write a whole file, 4 MiB at a time, so that after any crash there is the old one or the new one.

    What could not be written takes no room: an OSError leaves the old file alone there.
    """
    fresh = path.with_name(path.name + ".new")
    files.remove(fresh)
    try:
        descriptor = files.open_append(fresh)
        try:
            waiting = bytearray()
            for piece in pieces:
                waiting += piece
                if len(waiting) >= PIECE:
                    write_all(files, descriptor, bytes(waiting))
                    waiting.clear()
            write_all(files, descriptor, bytes(waiting))
            files.datasync(descriptor)
        finally:
            files.close(descriptor)
        files.replace(fresh, path)
    except Exception:
        files.remove(fresh)
        raise
    files.sync_directory(path.parent)


class PowerCutError(BaseException):
    """The machine is off: nothing after this reaches the disk. Only `FaultyFiles` raises it."""


class FaultyFiles(Files):
    """Counts the operations that change or sync, and makes the K-th one fail.

    Parameters
    ----------
    fail_at
        The number of the operation that fails, from 1; 0 for none.
    error
        The errno it fails with. 0: the power goes, and no operation works from then on.
    persistent
        Whether all later operations fail as well.
    short
        A write that fails first writes half of its bytes.
    """

    def __init__(
        self, fail_at: int = 0, error: int = errno.EIO, *, persistent: bool, short: bool = False
    ) -> None:
        self.operations = 0
        self.fail_at = fail_at
        self.error = error
        self.persistent = persistent
        self.short = short
        self.failed: list[str] = []

    def _fault(self, operation: str, before: Callable[[], object] | None = None) -> None:
        self.operations += 1
        late = self.persistent or self.error == 0
        due = self.operations == self.fail_at or (late and 0 < self.fail_at < self.operations)
        if not due:
            return
        self.failed.append(operation)
        if before is not None and self.short and self.operations == self.fail_at:
            before()
        if self.error == 0:
            raise PowerCutError(operation)
        raise OSError(self.error, os.strerror(self.error), operation)

    def open_append(self, path: Path) -> int:
        """Open, or fail."""
        self._fault("open")
        return super().open_append(path)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write, write half and fail, or fail."""
        self._fault("write", lambda: os.write(descriptor, data[: len(data) // 2]))
        return super().write(descriptor, data)

    def datasync(self, descriptor: int) -> None:
        """Sync, or fail."""
        self._fault("fdatasync")
        super().datasync(descriptor)

    def truncate(self, path: Path, length: int) -> None:
        """Cut, or fail."""
        self._fault("truncate")
        super().truncate(path, length)

    def sync_directory(self, directory: Path) -> None:
        """Sync, or fail."""
        self._fault("fsync directory")
        super().sync_directory(directory)

    def replace(self, source: Path, target: Path) -> None:
        """Rename, or fail."""
        self._fault("rename")
        super().replace(source, target)

    def remove(self, path: Path) -> None:
        """Remove, or fail."""
        self._fault("unlink")
        super().remove(path)
