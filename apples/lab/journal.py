"""The journal of a lab: each step that changes the machine is on disk before it is taken.

If the start of a lab is killed, ``apples lab down`` undoes the steps in this file. A step that was written and
never taken is no error: to undo it changes nothing. One process at a time takes a lab up or down: it holds the
lock of the lab's directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from apples.errors import LaunchError
from apples.io import documents
from apples.io.folder import Folder
from apples.io.journal import Journal, Record, parse

FILE: Final = "journal.jsonl"
SCHEMA: Final = "apples.lab-journal/1"
KINDS: Final = ("processes", "cgroup", "delegated", "link", "directory")
"""Kinds of steps: processes with the lab's tag, a cgroup, a controller that was switched on, a network interface,
a directory."""
PATIENCE_SECONDS: Final = 5.0


class LabJournal:
    """The steps of one lab, in the order they were taken.

    Parameters
    ----------
    folder
        The lab's own directory.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def record(self, kind: str, name: str) -> None:
        """Write a step; it is on disk when this returns.

        Parameters
        ----------
        kind
            One of `KINDS`.
        name
            Name of the object to remove: a tag, a path, an interface.
        """
        step: Record = {"kind": kind, "name": name}
        with Folder.open(self.path.parent, links=True) as folder:
            journal = Journal(folder, SCHEMA, FILE)
            try:
                found = journal.recover()
                if journal.whole:
                    journal.append(step)
                else:
                    journal.rewrite([*found.records, step])
            finally:
                journal.close()

    def steps(self) -> Iterator[tuple[str, str]]:
        """Yield the steps, newest first. A line that a crash left incomplete was never carried out."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return
        records, _, _ = parse(data)
        found = [(record.get("kind"), record.get("name")) for record in records]
        for kind, name in reversed(found or steps_without_checksums(data)):
            if kind in KINDS and isinstance(kind, str) and isinstance(name, str):
                yield kind, name


@contextmanager
def held(folder: Path, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Hold the lock of a lab's directory while inside.

    Raises
    ------
    LaunchError
        Another process holds the lock. Transient.
    FileNotFoundError
        The directory does not exist.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(documents.locked(folder, patience, directory=True))
        except BlockingIOError:
            raise LaunchError(
                f"lab '{folder.name}': another process is taking it up or down",
                code="lab-busy",
                lab=folder.name,
            ) from None
        yield


def steps_without_checksums(data: bytes) -> list[tuple[object, object]]:
    """Return the steps of a journal of an earlier version: lines ``[kind, name]`` without checksums."""
    found: list[tuple[object, object]] = []
    for line in data.splitlines():
        try:
            kind, name = json.loads(line)
        except (ValueError, TypeError, RecursionError):
            continue
        found.append((kind, name))
    return found
