"""State that apples keeps between runs: JSON documents in ``$XDG_STATE_HOME/apples`` (mode 0700).

An update holds the document's lock and replaces the file atomically (`documents.replace`). A document that cannot
be read is renamed to ``NAME.damaged`` with a warning, and the command continues without it.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal

from apples.errors import UsageError
from apples.io.documents import locked, replace

Document = dict[str, Any]


def directory() -> Path:
    """Return the state directory; create it if it is missing."""
    path = location()
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def read(name: str) -> Document:
    """Return the document `name`, empty if it does not exist; rename a damaged document and print a warning."""
    path = _path(name)
    try:
        return _parsed(path)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError, OSError):
        pass  # damaged, or another process is renaming it: read again under the lock
    try:
        with lock_of(name):
            return _usable(path)
    except OSError as error:
        _warn(f"{path}: {error.strerror}; continuing without the stored values")
        return {}


def update(name: str, change: Callable[[Document], Document]) -> Document:
    """Replace the document `name` by the result of `change`; the new document is on the disk when this returns.

    Raises
    ------
    OSError
        The state directory cannot be written; the document is as it was.
    """
    with lock_of(name):
        document = change(_usable(_path(name)))
        replace(_path(name), json.dumps(document, indent=1, allow_nan=False))
    return document


def names(prefix: str) -> list[str]:
    """Return the names of the documents that begin with a prefix, sorted."""
    return sorted(path.stem for path in location().glob(f"{prefix}*.json"))


def remove(name: str) -> None:
    """Remove the document `name` if it exists.

    Raises
    ------
    OSError
        The state directory cannot be written; the document is as it was.
    """
    with lock_of(name):
        _path(name).unlink(missing_ok=True)


def location() -> Path:
    """Return the path of the state directory, which may not exist yet."""
    return user_folder("state")


def user_folder(kind: Literal["state", "cache"]) -> Path:
    """Return this user's folder for state, or for a cache, which apples can generate again.

    Raises
    ------
    UsageError
        The user has no home: no entry in the password database, as in some containers, and no HOME. Permanent.
    """
    import platformdirs  # noqa: PLC0415 - a static plan reads no state

    place = platformdirs.user_state_dir if kind == "state" else platformdirs.user_cache_dir
    try:
        return Path(place("apples", appauthor=False))
    except RuntimeError:
        variable = f"XDG_{kind.upper()}_HOME"
        raise UsageError(
            f"user {os.getuid()} has no home directory: set HOME (or {variable}) to an absolute path of a "
            "folder that the user may write",
            code="home-missing",
            field="HOME",
            value=os.getuid(),
        ) from None


def _path(name: str) -> Path:
    return location() / f"{name}.json"


def _parsed(path: Path) -> Document:
    text = path.read_text(encoding="utf-8")
    document = json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_whole)
    if not isinstance(document, dict):
        raise ValueError("not an object")
    return document


def _finite(text: str) -> float:
    """Return a finite number; infinities and NaN cannot be written as JSON."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _whole(text: str) -> int:
    """Return an integer that fits into a float."""
    _finite(text)
    return int(text)


def _usable(path: Path) -> Document:
    """Return the document; rename it if it is damaged.

    The caller holds the lock, so that another process cannot replace the document before the rename.
    """
    try:
        return _parsed(path)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError, IsADirectoryError) as damage:
        aside = path.with_suffix(".damaged")
        path.replace(aside)
        _warn(f"{path}: {damage}; set aside as {aside}")
        return {}


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)  # noqa: T201 - talk


def lock_of(name: str) -> AbstractContextManager[None]:
    """Return the lock to hold while a document is changed."""
    return locked(directory() / f".{name}.lock")
