"""A directory whose K-th change fails, or takes the process with it: for tests of what survives."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass, field

from apples.io import Folder

KILL = 0
"""In the place of an error number: the process is killed by SIGKILL instead of the change."""


@dataclass
class FolderFaults:
    """Counts changes, over all folders that share this, and says what becomes of each.

    Attributes
    ----------
    at
        Number of the change that fails, from 1; 0 for none.
    error
        What it fails with; `KILL`: the process dies at once.
    persistent
        Whether all later changes fail as well.
    changes
        What was done so far, by name.
    """

    at: int = 0
    error: int = errno.EIO
    persistent: bool = False
    changes: list[str] = field(default_factory=list)

    def strike(self, change: str) -> bool:
        """Count a change; raise or die if it is its turn. Whether a write is to be cut short first."""
        self.changes.append(change)
        number = len(self.changes)
        return bool(self.at) and (number == self.at or (self.persistent and number > self.at))

    def happen(self) -> None:
        """Raise the error, or die."""
        if self.error == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        raise OSError(self.error, os.strerror(self.error))


class FaultyFolder(Folder):
    """A `Folder` with faults; folders opened below share them.

    Parameters
    ----------
    folder
        The real one, whose descriptor is taken over.
    faults
        What is to happen when.
    """

    def __init__(self, folder: Folder, faults: FolderFaults) -> None:
        super().__init__(folder.descriptor, folder.name)
        self.faults = faults

    def below(self, name: str) -> Folder:
        """Open a directory below, as faulty."""
        return FaultyFolder(super().below(name), self.faults)

    def write(self, name: str, text: str) -> None:
        """Write, or fail."""
        self._strike(f"write {name.rpartition('/')[2]}")
        super().write(name, text)

    def append(self, descriptor: int, data: bytes) -> None:
        """Append; or append half and fail; or fail between writing and syncing."""
        if self.faults.strike("append"):
            os.write(descriptor, data[: len(data) // 2])
            self.faults.happen()
        super().append(descriptor, data)
        self._strike("appended")

    def truncate(self, name: str, length: int) -> None:
        """Cut, or fail."""
        self._strike("truncate")
        super().truncate(name, length)

    def make(self, name: str) -> None:
        """Make, or fail."""
        self._strike("make")
        super().make(name)

    def drop(self, name: str) -> None:
        """Remove, or fail."""
        self._strike("drop")
        super().drop(name)

    def remove(self, name: str) -> None:
        """Remove, or fail."""
        self._strike("remove")
        super().remove(name)

    def rename(self, source: str, target: str) -> None:
        """Rename, or fail."""
        self._strike("rename")
        super().rename(source, target)

    def sync(self) -> None:
        """Sync, or fail."""
        self._strike("sync")
        super().sync()

    def _strike(self, change: str) -> None:
        if self.faults.strike(change):
            self.faults.happen()
