"""What a program writes, copied on while it runs; as talk, for it knows nothing of events and cannot mean any."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

CHUNK = 1 << 20
STANDARD_ERROR = 2


class Output:
    """The files a program writes to, each read as far as it was copied.

    Parameters
    ----------
    copy
        Takes what is new.
    """

    def __init__(self, files: Iterable[Path], copy: Callable[[bytes], None]) -> None:
        self.read_to = dict.fromkeys(files, 0)
        self._copy = copy

    def copy(self) -> None:
        """Copy what was written since; a file that is not there yet has nothing."""
        for path in self.read_to:
            while data := self._next(path):
                self._copy(data)

    def _next(self, path: Path) -> bytes:
        try:
            with path.open("rb") as stream:
                stream.seek(self.read_to[path])
                data = stream.read(CHUNK)
        except OSError:
            return b""
        self.read_to[path] += len(data)
        return data


def to_stderr(data: bytes) -> None:
    """Write all of it to standard error."""
    while data:
        data = data[os.write(STANDARD_ERROR, data) :]
