"""The only loader of users' code: a built-in name, or the user's own ``module:name`` or ``file.py:name``.

Every option that takes code (a blueprint, planner, distance, model, scheduling policy, balancer) calls
`resolve`, so that all options accept, suggest and reject names in the same way. The user's code runs in
this process with the user's rights.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from apples.errors import UsageError, text_of, users_code

T = TypeVar("T")

PRIVATE = "_apples_user_code"
"""Prefix of the module names of users' files in `sys.modules`."""

UNKNOWN_CODES: Mapping[str, str] = {
    "planner": "planner-unknown",
    "model": "model-unknown",
    "distance": "distance-unknown",
    "blueprint": "blueprint-unknown",
    "objective": "objective-unknown",
    "policy": "policy-unknown",
    "strategy": "strategy-unknown",
    "--actuator": "launcher-unknown",
}
"""Kind of plugin -> the error code of an unknown name."""


class Catalogue(Mapping[str, T]):
    """The built-in implementations of a contract, by the names that users give.

    Each entry is ``module:name``, as users write their own. Its module is imported at the first access, so that a
    command does not import the implementations that it does not use.

    Examples
    --------
    >>> roots = Catalogue({"square": "math:sqrt", "cube": "math:cbrt"})
    >>> sorted(roots), roots["square"](9.0)
    (['cube', 'square'], 3.0)
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> T:
        module, _, attribute = self._places[name].partition(":")
        found: T = getattr(importlib.import_module(module), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def resolve(reference: str, known: Mapping[str, T], what: str, arguments: Sequence[str] = ()) -> T:
    """Return the entry of `known`, or the attribute of the user's own code, that `reference` names.

    Parameters
    ----------
    reference
        A key of `known`, ``module:name`` of an importable module, or ``file.py:name``.
    known
        The built-in names.
    what
        The kind of plugin in one word, for messages: `planner`.
    arguments
        Names of the positional arguments with which the user's function is called; empty: not checked.

    Raises
    ------
    UsageError
        The name, module, file or attribute does not exist, it cannot be called with `arguments`, or importing it
        failed (then with the file and line of the user's code). Permanent.
    """
    if reference in known:
        return known[reference]
    asked = f"{what} '{reference}'"
    place, separator, name = reference.rpartition(":")
    if not separator or not place or not name:
        raise UsageError(
            f"{asked}: unknown; {did_you_mean(reference, known)}known: {', '.join(sorted(known))}; "
            "your own is module:name or file.py:name",
            code=UNKNOWN_CODES.get(what, "name-unknown"),
            value=reference,
            known=sorted(known),
        )
    module = _module_of(place, asked)
    users_code[_in_frames(place, module)] = asked
    found: T | None = getattr(module, name, None)
    if found is None:
        public = [each for each in vars(module) if not each.startswith("_")]
        raise UsageError(
            f"{asked}: {place} has no '{name}'{_suggested(name, public)}",
            code="user-code-missing",
            file=place,
            value=name,
        )
    if not callable(found):
        raise UsageError(
            f"{asked}: '{name}' cannot be called",
            code="user-code-not-callable",
            file=place,
            value=name,
        )
    if arguments and not _takes(found, len(arguments)):
        raise UsageError(
            f"{asked}: '{name}{signature(found)}' cannot be called as {name}({', '.join(arguments)})",
            code="user-code-signature",
            file=place,
            value=name,
            known=list(arguments),
        )
    return found


def _takes(found: Callable[..., object], count: int) -> bool:
    """Whether a callable takes `count` positional arguments; True if it has no signature."""
    try:
        signature(found).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # compiled, without a signature
        return True
    return True


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean '...'? ` with the known word most similar to `word`; empty if none is similar.

    Examples
    --------
    >>> did_you_mean("esay", ["easy", "fcfs"])
    "did you mean 'easy'? "
    """
    near = get_close_matches(word, list(known), n=1)
    return f"did you mean '{near[0]}'? " if near else ""


def _module_of(place: str, asked: str) -> ModuleType:
    """Import the module of a file or a dotted name, and return it."""
    from_file = place.endswith(".py")
    if from_file and not Path(place).is_file():
        beside = (path.name for path in Path(place).parent.glob("*.py"))
        hint = _suggested(Path(place).name, beside)
        raise UsageError(f"{asked}: no file {place}{hint}", code="file-missing", file=place)
    if from_file:
        users_code[str(Path(place))] = (
            asked  # before the import, so that every exception names its origin
        )
    try:
        return _load_file(Path(place)) if from_file else importlib.import_module(place)
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        line = _line_of(error, place)
        if isinstance(error, SyntaxError):
            error = SyntaxError(error.msg)  # the message has the file and line already
        raise UsageError(
            f"{asked}: importing {place} failed{line}: {kind}: {text_of(error)}",
            code="user-code-failed",
            file=place,
            line=int(line.rpartition(":")[2]) if line else None,
            kind=kind,
        ) from error


def _in_frames(place: str, module: ModuleType) -> str:
    """Return the file name of a user's code in a traceback: as the user spelled it."""
    return (
        str(Path(place))
        if place.endswith(".py")
        else str(getattr(module, "__file__", None) or place)
    )


def _load_file(path: Path) -> ModuleType:
    """Import a user's file as a module.

    The module is in `sys.modules` during and after its import, because dataclasses with postponed annotations
    and pickle look it up there. Its private name is derived from the file's path and content: a user's
    `random.py` hides no other module of that name, and an edited file is imported again.
    """
    source = path.read_bytes()
    digest = hashlib.sha256(str(path.absolute()).encode() + b"\0" + source).hexdigest()
    name = f"{PRIVATE}_{path.stem}_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(
        path.absolute()
    )  # absolute, so that it is valid in any working directory
    sys.modules[name] = module
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - the user's own program
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _line_of(error: BaseException, place: str) -> str:
    """Return ` at FILE:LINE`, the line of the user's file that failed; empty if another file failed."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" at {error.filename}:{error.lineno}"
    path = Path(place).absolute()
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).absolute() == path]
    return f" at {place}:{lines[-1]}" if lines else ""


def _suggested(word: str, known: Iterable[str]) -> str:
    """Return `: did you mean '...'?` for the end of a sentence; empty if no known word is similar."""
    hint = did_you_mean(word, known).rstrip()
    return f": {hint}" if hint else ""
