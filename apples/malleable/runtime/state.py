"""`State`: values that are the same on every rank and travel with the job."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from apples.errors import ApplicationError

Value = int | float | str | bool | None


class State:
    """Declared values as attributes; one that was not declared cannot be set.

    Examples
    --------
    >>> state = State({"iteration": 0})
    >>> state.iteration += 1
    >>> state.iteration
    1
    """

    def __init__(self, values: Mapping[str, Value]) -> None:
        for name, value in values.items():
            if hasattr(State, name):
                raise DeclarationError(
                    f"state {name!r} is a method of the state: choose another name"
                )
            _check(name, value)
        # Its own attributes, and nothing between: a loop reads and writes them in every iteration.
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        """Say that a value was not declared."""
        raise AttributeError(f"no value {name!r} was declared")

    def __setattr__(self, name: str, value: Value) -> None:
        """Set a declared value, the same on every rank."""
        values = self.__dict__
        if name not in values:
            raise DeclarationError(f"state {name!r} was not declared and would be lost")
        values[name] = value

    def dump(self) -> dict[str, Value]:
        """Return all values, checked."""
        values: dict[str, Value] = dict(self.__dict__)
        for name, value in values.items():
            _check(name, value)
        return values

    def load(self, values: Mapping[str, Value]) -> None:
        """Take over all values."""
        self.__dict__.update(values)


def _check(name: str, value: Value) -> None:
    if isinstance(value, np.generic):
        raise DeclarationError(f"state {name!r} is a {type(value).__name__}: use int() or float()")
    if not isinstance(value, int | float | str | bool | None):
        raise DeclarationError(
            f"state {name!r} is a {type(value).__name__}; values are numbers and texts,"
            " arrays are declared by job.array or job.replicated"
        )
    if isinstance(value, float) and not math.isfinite(value):
        return  # JSON's NaN and Infinity, as Python writes them, between ranks of one program
    json.dumps(value)


class Replicated:
    """An array that is the same on every rank."""

    def __init__(self, name: str, array: NDArray[np.generic]) -> None:
        if array.dtype.hasobject or not array.flags.c_contiguous:
            raise DeclarationError(f"replicated {name!r} is no contiguous array of plain numbers")
        self.name, self.array = name, array

    def share(self, comm: MPI.Intracomm) -> None:
        """Take rank 0's contents. Collective."""
        comm.Bcast([self.array.reshape(-1).view("u1"), MPI.BYTE], 0)


class DeclarationError(ApplicationError):
    """A declaration that cannot be kept through a change of hosts. Permanent."""


class UndeclaredStateError(DeclarationError):
    """State that nobody declared would be lost on a change of hosts. Permanent."""
