"""The folders of this user's records, found by id or by the scheduler's job.

A record is a directory ``$XDG_STATE_HOME/apples/jobs/ID``; `apples.jobs.store` writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from apples.errors import UsageError
from apples.io import state

IDENTIFIER = re.compile(r"[0-9a-f]{8}")
SCHEDULED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\.[0-9]{1,12}")
"""NAME.NUMBER, the id of a scheduler's job."""
ORDER, RESULT = "order.json", "result.json"
"""Names of a record's files: the request, and the document of the finished run."""


def root() -> Path:
    """Return the directory of all records; create it if it is missing."""
    state.directory()
    path = _location()
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _location() -> Path:
    return state.location() / "jobs"


def folders() -> list[Path]:
    """Return the folder of every record, the oldest first; nothing is written."""
    try:
        found = [path for path in _location().iterdir() if IDENTIFIER.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda path: (_ordered(path), path.name))


def _ordered(path: Path) -> int:
    """Return the time of the request in ns; 0 if the record was removed or its request is incomplete."""
    try:
        return (path / ORDER).stat().st_mtime_ns
    except OSError:
        return 0


def named(name: str) -> Path:
    """Return the folder of a record by its id, by a unique beginning of it, or by a scheduler's job NAME.NUMBER.

    Raises
    ------
    UsageError
        No record has this name, or several have.
    """
    if SCHEDULED.fullmatch(name) and (path := of_scheduled(name)) is not None:
        return path
    known = {path.name: path for path in folders()}
    return known[unique(name, list(known), "run", "apples jobs")]


def of_scheduled(job: str) -> Path | None:
    """Return the record of the last attempt at a scheduler's job NAME.NUMBER; None if no request names the job."""
    scheduler, _, number = job.rpartition(".")
    for path in reversed(folders()):
        try:
            order = json.loads((path / ORDER).read_text("utf-8"))
            scheduled = order.get("scheduled") or {}
            if scheduled.get("scheduler") == scheduler and scheduled.get("job") == int(number):
                return path
        except (OSError, ValueError, RecursionError, AttributeError):
            continue  # another process removed it, or it is damaged
    return None


def unique(name: str, among: Sequence[str], what: str, command: str) -> str:
    """Return the only id that begins with `name`.

    Parameters
    ----------
    what, command
        For the error: the kind of the ids (``job`` or ``run``), and the command that lists them.

    Raises
    ------
    UsageError
        No id begins with `name`, or several do.
    """
    found = [identifier for identifier in among if identifier.startswith(name)] if name else []
    if len(found) == 1:
        return found[0]
    known = list((found or among)[-5:])
    listed = ", ".join(known) or "none"
    if found:
        raise UsageError(
            f"{what} '{name}': several begin with it: {listed}",
            code="name-ambiguous",
            value=name,
            known=known,
        )
    raise UsageError(
        f"{what} '{name}': unknown (known: {listed}); see: {command}",
        code="job-unknown" if what == "job" else "run-unknown",
        value=name,
        known=known,
    )
