"""The journal of a lab: each step that changes the machine is on disk before it is taken.

A lab that was killed half-way up is taken down from this file. A step that was written and never taken
costs nothing: undoing what is not there is no error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

FILE = "journal.jsonl"
KINDS = ("processes", "cgroup", "delegated", "link", "directory")
"""What a step can leave behind: marked processes, a cgroup, a controller switched on, a network
interface, a directory."""


class Journal:
    """The steps of one lab, in the order they were taken.

    Parameters
    ----------
    folder
        The lab's own directory.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def record(self, kind: str, name: str) -> None:
        """Write down a step; it survives whatever happens when this returns.

        Parameters
        ----------
        kind
            One of `KINDS`.
        name
            By which it is undone: a mark, a path, an interface.
        """
        line = json.dumps([kind, name]) + "\n"
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())

    def steps(self) -> Iterator[tuple[str, str]]:
        """Yield the steps, newest first; a line that was torn by a crash was never acted upon."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return
        for line in reversed(lines):
            try:
                kind, name = json.loads(line)
            except ValueError:
                continue
            if kind in KINDS and isinstance(name, str):
                yield kind, name
