"""Compile loops over arrays with numba.

The order of operations and the arithmetic are those of the event engine, so the result is the same bit for bit: no
fastmath, and no sum() or numpy reduction, since these choose their own order of summation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from apples.io.state import user_folder
from apples.scheduling import instants
from apples.scheduling.loops import can_compile

numba: ModuleType | None = None
with suppress(ImportError):
    numba = import_module("numba")

F = TypeVar("F", bound=Callable[..., Any])
Numbers = NDArray[Any]
FOREVER = 1e300  # seconds
COMPILED = can_compile()

#: Files with compiled functions, as patterns in the package; numba inlines functions across subpackages.
SOURCES = (
    "scheduling/instants.py",
    "scheduling/loops/*.py",
    "scheduling/mates.py",
    "simulation/kernels/*.py",
    "topology/distribute.py",
)


def _sources_digest() -> str:
    """Return a digest of the sources of all compiled functions."""
    package = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(path for pattern in SOURCES for path in package.glob(pattern)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(function: F, **how: bool) -> F:
    """Compile with numba; cache the result on disk under the digest of all sources.

    numba's own cache checks only the function's own file. It would keep using an old copy of a function from
    another file that was compiled into it.
    """
    if numba is None or not COMPILED:
        return function
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_folder())
    try:
        result: F = numba.njit(cache=True, **how)(function)
    finally:
        numba.config.CACHE_DIR = before
    return result


def _folder() -> Path:
    """Return the cache folder of compiled functions."""
    chosen = numba.config.CACHE_DIR if numba is not None else ""
    return Path(chosen or user_folder("cache") / "compiled" / DIGEST)


def was_compiled(function: str) -> bool:
    """Return whether this machine's cache has a compiled function of that name."""
    return any(_folder().rglob(f"*.{function}-*.nbi"))


DIGEST = _sources_digest() if COMPILED else ""


def compiled(function: F) -> F:
    """Return the function compiled with numba (cached on disk), or unchanged without numba."""
    return _compile(function)


def inner(function: F) -> F:
    """Compile a function that only compiled functions call, without a wrapper for Python.

    The wrapper would unpack every array of the arguments; leaving it out halves the time to compile.
    """
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: F) -> F:
    """Compile a small function into its callers: each array argument costs two atomic counts."""
    return _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def zeros(count: int) -> Numbers:
    """Return `count` zeros, float64."""
    return np.zeros(count)


def integers(count: int, value: int = 0) -> Numbers:
    """Return `count` times an int64."""
    return np.full(count, value, dtype=np.int64)


@compiled
def open_gap(values: Numbers, position: int, count: int) -> None:
    """Move values[position:count] one to the right; the first `count` entries are in use."""
    for i in range(count, position, -1):
        values[i] = values[i - 1]


@compiled
def close_gap(values: Numbers, position: int, count: int) -> None:
    """Move values[position+1:count] one to the left, over the entry at `position`."""
    for i in range(position, count - 1):
        values[i] = values[i + 1]


instant = inlined(instants.instant)
