"""The one loader of users' code: a name of ours, or the user's own ``module:name`` or ``file.py:name``.

Every option that takes code (a blueprint, planner, distance, model, scheduling policy, balancer) asks
`resolve`, so that names are spelled, suggested and refused alike everywhere. The user's code runs in
this process with the user's rights, as any program that the user starts.
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
"""First word of the names under which users' files stand in `sys.modules`."""

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
"""The code of a name that stands for nothing, by the kind of thing."""


class Catalogue(Mapping[str, T]):
    """The implementations of a contract that come with this package, by the names users give them.

    Each is written as users write their own, ``module:name``, and its module is imported when the entry
    is first asked for: a command does not pay for the implementations that it does not use.

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
        The names that come with apples.
    what
        The kind of thing in one word, for messages: `planner`.
    arguments
        Names of what a user's own is called with, by position; empty: that is not known here.

    Raises
    ------
    UsageError
        There is no such name, module, file or attribute, it cannot be called so, or importing it failed
        (then with the file and line of the user's code). Permanent.
    """
    if reference in known:
        return known[reference]
    asked = f"{what} '{reference}'"
    place, separator, name = reference.rpartition(":")
    if not separator or not place or not name:
        raise UsageError(
            f"{asked}: {did_you_mean(reference, known)}known are {', '.join(sorted(known))}; "
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
    """Whether a callable takes so many positional arguments; one that does not say is believed."""
    try:
        signature(found).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # compiled, without a signature
        return True
    return True


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `did you mean '...'? ` with the known word nearest to `word`; empty if none is near.

    Examples
    --------
    >>> did_you_mean("esay", ["easy", "fcfs"])
    "did you mean 'easy'? "
    """
    near = get_close_matches(word, list(known), n=1)
    return f"did you mean '{near[0]}'? " if near else ""


def _module_of(place: str, asked: str) -> ModuleType:
    """Return the module that a file or a dotted name stands for, imported."""
    from_file = place.endswith(".py")
    if from_file and not Path(place).is_file():
        beside = (path.name for path in Path(place).parent.glob("*.py"))
        hint = _suggested(Path(place).name, beside)
        raise UsageError(f"{asked}: no file {place}{hint}", code="file-missing", file=place)
    if from_file:
        users_code[str(Path(place))] = (
            asked  # before it runs, so that any other exception has its place too
        )
    try:
        return _load_file(Path(place)) if from_file else importlib.import_module(place)
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        line = _line_of(error, place)
        if isinstance(error, SyntaxError):
            error = SyntaxError(error.msg)  # its place is said before it
        raise UsageError(
            f"{asked}: importing {place} failed{line}: {kind}: {text_of(error)}",
            code="user-code-failed",
            file=place,
            line=int(line.rpartition(":")[2]) if line else None,
            kind=kind,
        ) from error


def _in_frames(place: str, module: ModuleType) -> str:
    """Return how a traceback names the file of a user's code: as the user spelled it."""
    return (
        str(Path(place))
        if place.endswith(".py")
        else str(getattr(module, "__file__", None) or place)
    )


def _load_file(path: Path) -> ModuleType:
    """Return the module made of a user's file.

    The module stands in `sys.modules` while and after it runs (dataclasses with postponed annotations
    and pickle look it up there), under a private name made from the file's path and content: a user's
    `random.py` hides no module of the same name, and a file that was edited is loaded anew.
    """
    source = path.read_bytes()
    digest = hashlib.sha256(str(path.absolute()).encode() + b"\0" + source).hexdigest()
    name = f"{PRIVATE}_{path.stem}_{digest[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    module = ModuleType(name)
    module.__file__ = str(path.absolute())  # so that it finds itself from any folder
    sys.modules[name] = module
    try:
        code = compile(source, str(path), "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102 - the user's own program
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _line_of(error: BaseException, place: str) -> str:
    """Return ` at FILE:LINE`, where in the user's file an import failed; empty if it is not in there."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f" at {error.filename}:{error.lineno}"
    path = Path(place).absolute()
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).absolute() == path]
    return f" at {place}:{lines[-1]}" if lines else ""


def _suggested(word: str, known: Iterable[str]) -> str:
    """Return `: did you mean '...'?`, to stand at the end of a sentence."""
    hint = did_you_mean(word, known).rstrip()
    return f": {hint}" if hint else ""
