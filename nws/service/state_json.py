"""The state of a forecaster as plain JSON values, and back: bit for bit, nothing executable.

A forecaster that has ``state()`` and ``restore(state)`` is asked. Of any other the attributes are
read, and written back into a fresh object of the same making: the file holds numbers, never the name
of a class to build.
"""

import json
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

import numpy as np

from nws.errors import CodedError

DEEPEST: Final = 24


class StateError(CodedError, ValueError):
    """A state does not fit the object it is for. Permanent: start it from the log."""

    code = "state-invalid"


def serialise(thing: object) -> str:
    """Return the state of `thing` as one line of JSON.

    Examples
    --------
    >>> from nws.forecasters import Smoothing
    >>> one, other = Smoothing(0.5), Smoothing(0.5)
    >>> one.update(0.1)
    >>> deserialise(other, serialise(one))
    >>> other.forecast() == one.forecast()
    True
    """
    # JSON, not pickle: a state file must not be able to run code.
    return json.dumps(_StateEncoder().encode(thing), separators=(",", ":"))


def deserialise(thing: Any, text: str | bytes) -> None:
    """Put a state into a fresh `thing`.

    Raises
    ------
    StateError
        It is not a state of such a thing; `thing` may be half changed: throw it away.
    """
    refill(thing, parsed(text))


def parsed(text: str | bytes) -> Any:
    """Return the plain values in a text; StateError if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StateError(f"no state is in this text: {error}", reason=str(error)) from error


def refill(thing: Any, plain: Any) -> None:
    """Put the plain values of a state into a fresh `thing`; StateError as `deserialise`."""
    try:
        if isinstance(plain, Mapping) and "state" in plain:
            thing.restore(plain["state"])
        else:
            _fill(thing, plain)
    except StateError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise StateError(
            f"{type(thing).__name__}: {error}", kind=type(thing).__name__, reason=str(error)
        ) from error


class _StateEncoder:
    """Walks over an object once; what it meets again is only referred to."""

    def __init__(self) -> None:
        self._met: set[int] = set()

    def encode(self, value: object, depth: int = 0) -> object:
        if depth > DEEPEST:
            raise StateError(f"a state is nested deeper than {DEEPEST}", bound=DEEPEST)
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, tuple):
            if id(value) in self._met:
                return {"met": True}
            self._met.add(id(value))
        return self._compound(value, depth + 1)

    def _compound(self, value: object, depth: int) -> object:  # noqa: PLR0911 - one a kind
        if isinstance(value, np.ndarray):
            data = b64encode(np.ascontiguousarray(value).tobytes()).decode()
            return {"array": data, "dtype": value.dtype.str, "shape": list(value.shape)}
        if isinstance(value, deque):
            return {"deque": [value.maxlen, *(self.encode(each, depth) for each in value)]}
        if isinstance(value, list | tuple):
            return {type(value).__name__: [self.encode(each, depth) for each in value]}
        if isinstance(value, dict):
            return {"dict": [[key, self.encode(each, depth)] for key, each in value.items()]}
        if callable(value):
            owner = getattr(value, "__self__", None)
            is_state = owner is not None and not isinstance(owner, ModuleType)
            return {"method of": self.encode(owner, depth) if is_state else None}
        if callable(getattr(value, "state", None)) and hasattr(value, "restore"):
            with suppress(TypeError):  # a part of it cannot say its state: it is read
                return {"state": value.state()}  # type: ignore[attr-defined]
        attributes = _attributes(value).items()
        return {
            "object": type(value).__name__,
            "attributes": {name: self.encode(each, depth) for name, each in attributes},
        }


def _attributes(value: object) -> dict[str, Any]:
    names = {slot for kind in type(value).__mro__ for slot in _slots(kind)}
    found = {name: getattr(value, name) for name in sorted(names) if hasattr(value, name)}
    return {**found, **getattr(value, "__dict__", {})}


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _fill(made: object, plain: object) -> None:
    if not isinstance(plain, Mapping) or plain.get("object") != type(made).__name__:
        raise StateError(f"this is no state of a {type(made).__name__}", kind=type(made).__name__)
    current = _attributes(made)
    for name, value in plain["attributes"].items():
        thawed = _decoded(current.get(name), value)
        if thawed is not current.get(name) or name not in current:
            object.__setattr__(made, name, thawed)


def _decoded(made: Any, plain: Any) -> Any:  # noqa: PLR0911 - one a kind
    """Return what `plain` stands for; what can be changed is changed in place, methods stay."""
    if not isinstance(plain, Mapping):
        return plain
    if "met" in plain:
        return made
    if "method of" in plain:
        if plain["method of"] is not None:
            _decoded(made.__self__, plain["method of"])
        return made
    if "state" in plain:
        made.restore(plain["state"])
        return made
    if "array" in plain:
        data = np.frombuffer(b64decode(plain["array"]), np.dtype(plain["dtype"]))
        return data.reshape(plain["shape"]).copy()
    if "object" in plain:
        _fill(made, plain)
        return made
    return _container(made, plain)


def _container(made: Any, plain: Mapping[str, Any]) -> Any:
    ((kind, values),) = plain.items()
    if kind == "dict":
        old = dict(made or {})
        made = {} if made is None else made
        made.clear()
        made.update({key: _decoded(old.get(key), value) for key, value in values})
        return made
    size = None
    if kind == "deque":
        size, *values = values
    before = list(made) if isinstance(made, list | tuple | deque) else []
    before += [None] * (len(values) - len(before))
    items = [_decoded(*pair) for pair in zip(before, values, strict=False)]
    if kind == "tuple":
        return tuple(items)
    if kind not in {"deque", "list"}:
        raise StateError(f"a {kind} is nothing that was frozen", kind=kind)
    if made is None:
        return items if kind == "list" else deque(items, size)
    made.clear()
    made.extend(items)
    return made
