"""States of forecasters as documents of JSON, and back, guided by what a fresh forecaster holds."""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any


def packed(value: Any) -> Any:
    """Return `value` as JSON can hold it; numbers come back the same, infinities included.

    Examples
    --------
    >>> packed((1.5, None, float("inf")))
    [1.5, None, 'inf']
    """
    if hasattr(value, "restore"):  # a forecaster, a window, a regression
        return value.state()
    if isinstance(value, list | tuple | deque):
        return [packed(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def unpacked(present: Any, plain: Any, where: str) -> Any:
    """Return what `plain` stands for in the place of `present`, what a fresh object holds there.

    Raises
    ------
    ValueError
        Permanent: it is of another kind; the message says `where`.
    """
    if hasattr(present, "restore"):
        present.restore(plain)
        return present
    if isinstance(present, list | tuple | deque):
        return _several(present, plain, where)
    if isinstance(present, bool) and not isinstance(plain, bool):
        raise ValueError(f"{where}: true or false is wanted, not {plain!r:.40}")
    return plain if isinstance(present, bool) else _number(plain, where)


def _several(present: Any, plain: Any, where: str) -> Any:
    if not isinstance(plain, list):
        raise ValueError(f"{where}: a list is wanted, not {plain!r:.40}")
    if isinstance(present, tuple) and len(plain) != len(present):
        raise ValueError(f"{where}: {len(present)} entries are wanted, not {len(plain)}")
    read = [
        unpacked(inner, each, f"{where}[{place}]")
        for place, (inner, each) in enumerate(zip(_patterns(present), plain, strict=False))
    ]
    if isinstance(present, deque):
        return deque(read, present.maxlen)
    return type(present)(read)


def _patterns(present: Any) -> Iterator[Any]:
    """Yield what each entry looks like: the entries that there are, then the last one for ever."""
    last: Any = 0.0
    for last in present:
        yield last
    while True:
        yield last


def _number(plain: Any, where: str) -> float | int | None:
    if isinstance(plain, str) and plain in {"inf", "-inf", "nan"}:
        return float(plain)
    if plain is None or (isinstance(plain, int | float) and not isinstance(plain, bool)):
        return plain
    raise ValueError(f"{where}: a number is wanted, not {plain!r:.40}")


def checked_object(state: Any, names: tuple[str, ...], what: str) -> Mapping[str, Any]:
    """Return `state` if it is an object with just these names; ValueError if not."""
    if not isinstance(state, Mapping) or set(state) != set(names):
        raise ValueError(f"not the state of {what}: {', '.join(names)} are wanted")
    return state
