"""Names a user gives for code: one of ours, or their own as ``module:name`` or ``file.py:name``."""

from __future__ import annotations

import difflib
import importlib
import traceback
from collections.abc import Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from apples.errors import UsageError

T = TypeVar("T")

_users_own: dict[str, str] = {}
"""Files that user's code was loaded from, with what it was loaded for."""


def resolve(reference: str, known: Mapping[str, T], what: str) -> T:
    """Return what `reference` names: an entry of `known`, or an attribute of the user's own code.

    The user's code runs with the user's rights, as any program they start.

    Raises
    ------
    UsageError
        There is no such name, module, file or attribute, or it cannot be called. Permanent.
    """
    if reference in known:
        return known[reference]
    place, separator, name = reference.rpartition(":")
    if not separator or not place or not name:
        near = difflib.get_close_matches(reference, known, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise UsageError(
            f"{what} '{reference}': {hint}known are {', '.join(sorted(known))}; "
            "your own is module:name or file.py:name"
        )
    module = _module(place, what, reference)
    _users_own[str(getattr(module, "__file__", None) or place)] = f"{what} '{reference}'"
    found: T | None = getattr(module, name, None)
    if found is None:
        raise UsageError(f"{what} '{reference}': {place} has no '{name}'")
    if not callable(found):
        raise UsageError(f"{what} '{reference}': '{name}' cannot be called")
    return found


def _module(place: str, what: str, reference: str) -> ModuleType:
    if place.endswith(".py") and not Path(place).is_file():
        raise UsageError(f"{what} '{reference}': there is no file {place}")
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        loader = SourceFileLoader(Path(place).stem, place)
        module = ModuleType(loader.name)
        module.__file__ = place
        loader.exec_module(module)
    except Exception as error:
        kind = type(error).__name__
        raise UsageError(
            f"{what} '{reference}': importing {place} failed: {kind}: {error}"
        ) from error
    return module


def users_own(error: BaseException) -> str:
    """Return whose code raised an error, with file and line, where it was a user's own; else nothing."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename in _users_own]
    if not own:
        return ""
    return f"{_users_own[own[-1].filename]} failed at {own[-1].filename}:{own[-1].lineno}"
