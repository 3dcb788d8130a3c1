"""`CommandRecord`: the record of a parameter sweep, a pipeline, or a master with its workers, as of every run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from apples.cli.program import say
from apples.jobs.recording import RunRecorder, known_of, recorded
from apples.launch.events import Talk

Document = dict[str, Any]


class Documented(Protocol):
    """What is planned, or what came of it."""

    def document(self) -> Document:
        """Return the JSON document."""


class CommandRecord:
    """Writes what becomes of one command into its record.

    Attributes
    ----------
    talk
        Says a line, and keeps it in the record's log.
    """

    def __init__(self, record: RunRecorder) -> None:
        self.talk: Talk = record.heard(say)
        self._record = record

    def began(self, planned: Documented) -> None:
        """Keep the plan, when nothing has been started yet."""
        document = planned.document()
        self._record.began(document, **known_of(document))

    def came_to(self, result: Documented) -> Document:
        """Keep what came of it; return its document."""
        document = result.document()
        self._record.came_to(document, **known_of(document))
        return document


@contextmanager
def recorded_command(kind: str, file: Path) -> Iterator[CommandRecord]:
    """Record what is done meanwhile; what ends it is recorded and raised.

    Parameters
    ----------
    kind
        One of `apples.jobs.store`'s.
    file
        What is asked for.
    """
    with recorded({"file": str(file.absolute())}, say, kind) as record:
        yield CommandRecord(record)
