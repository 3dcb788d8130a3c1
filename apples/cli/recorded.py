"""`CommandRecord`: the record of a parameter sweep, a pipeline, or a master with its workers, as of every run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from apples.cli.program import say
from apples.jobs import store
from apples.jobs.recording import RunRecorder, recorded
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

    def __init__(self, record: RunRecorder, kind: str) -> None:
        self.talk: Talk = record.heard(say)
        self._record, self._kind = record, kind

    def began(self, planned: Documented) -> None:
        """Keep the plan, when nothing has been started yet."""
        document = planned.document()
        self._record.began(document, **_known(self._kind, document))

    def came_to(self, result: Documented) -> Document:
        """Keep what came of it; return its document."""
        document = result.document()
        self._record.came_to(document, **_known(self._kind, document))
        return document


@contextmanager
def recorded_command(kind: str, file: Path) -> Iterator[CommandRecord]:
    """Record what is done meanwhile; what ends it is recorded and raised.

    Parameters
    ----------
    kind
        One of `store`'s.
    file
        What is asked for.
    """
    with recorded({"file": str(file.absolute())}, say, kind) as record:
        yield CommandRecord(record, kind)


def _known(kind: str, document: Document) -> Document:
    """Return what the list of runs says of a document."""
    done = document["execution"] or {}
    verified = done.get("verified")
    if kind == store.SWEEP:
        hosts = [host for host, count in done.get("hosts", {}).items() if count]
        hosts = hosts or [each["host"] for each in document["planned"]]
    elif kind == store.MASTER_WORKER:
        hosts = [document["master"], *document["workers"], *done.get("hosts", ())]
        verified = True if verified else None  # it is how many units were done again
    else:
        hosts = [host["host"] for task in document["tasks"] for host in task["hosts"]]
    return {
        "name": document["name"],
        "hosts": list(dict.fromkeys(hosts)),
        "predicted_seconds": done.get("predicted_seconds")
        or document["predicted_seconds"]
        or None,
        "measured_seconds": done.get("measured_seconds"),
        "verified": verified,
    }
