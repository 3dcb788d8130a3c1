"""What apples remembers between runs: JSON documents under the user's state directory.

``$XDG_STATE_HOME/apples`` (0700). A document is replaced whole: written beside, fsynced, renamed, the
directory fsynced; updates hold a lock. A document that cannot be read is set aside under a name that is
reported, and never stops the start.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import platformdirs

Document = dict[str, Any]


def directory() -> Path:
    """Return the state directory, made if need be."""
    path = Path(platformdirs.user_state_dir("apples", appauthor=False))
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def read(name: str) -> Document:
    """Return the document `name`, empty when there is none; a broken one is set aside and reported."""
    path = directory() / f"{name}.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise ValueError("not an object")  # noqa: TRY301 - both kinds of damage end alike
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as damage:
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        print(f"warning: {path}: {damage}; set aside as {aside}", file=sys.stderr)  # noqa: T201 - talk
        return {}
    return document


def update(name: str, change: Callable[[Document], Document]) -> Document:
    """Replace the document `name` by what `change` makes of it; durable when this returns."""
    with _lock(name):
        document = change(read(name))
        replace(directory() / f"{name}.json", json.dumps(document, indent=1, allow_nan=False))
    return document


def replace(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old or the new file, whatever happens."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


@contextmanager
def _lock(name: str) -> Iterator[None]:
    with (directory() / f".{name}.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
