"""The files a job writes, passed on as they grow."""

from __future__ import annotations

import os
from pathlib import Path


class Tail:
    """One file of the job, passed on line by line to a descriptor of this process."""

    def __init__(self, path: Path, out: int) -> None:
        self.path, self.out = path, out
        self.heard = False
        self._place, self._rest = 0, b""

    def pass_on(self, whole: bool = True) -> bool:
        """Pass on what is new, whole lines only; whether there was any."""
        try:
            with self.path.open("rb") as stream:  # opened anew: so network file systems look again
                stream.seek(self._place)
                data = stream.read(1 << 20)
        except FileNotFoundError:
            return False
        self._place += len(data)
        text = self._rest + data
        lines, newline, self._rest = text.rpartition(b"\n") if whole else (text, b"", b"")
        if lines or newline:
            self.heard = True
            write(self.out, lines + newline)
        return bool(data)


def drain(tails: list[Tail]) -> None:
    """Pass on all that is left, an unfinished line too."""
    for tail in tails:
        while tail.pass_on():
            pass
        tail.pass_on(whole=False)


def write(out: int, data: bytes) -> None:
    """Write all of it."""
    left = memoryview(data)
    while left:
        left = left[os.write(out, left) :]
