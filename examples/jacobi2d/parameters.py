"""The parameters of the template, by name."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apples.program import TaskError


@dataclass(frozen=True)
class Parameters:
    """The parameters of the template; field names are the parameters' names.

    A value over a side or the grid is a number, or the path of a ``.npy`` file of real numbers that every host
    can read: `grid` numbers for a side, from left to right or top to bottom, and grid x grid for `source` and
    `initial`; each rank reads only its rows of these.

    Parameters
    ----------
    grid
        Unknowns along each direction; the boundary lies outside.
    iterations
        Maximum number of sweeps.
    tolerance
        Stop when no point changed by more than this in a sweep; 0 never stops early.
    residual_every
        Sweeps between two checks of that change; the last sweep is always checked. 0: only the last.
    top, bottom, left, right
        The fixed values along the sides.
    source
        `f` in ``-laplace(u) = f`` on the unit square; empty: none, which is faster.
    initial
        The unknowns before the first sweep.
    digest
        1: the grid passes through the first rank for its SHA-256; 0: it does not, unless it is saved.
    """

    grid: int
    iterations: int = 100
    tolerance: float = 0.0
    residual_every: int = 50
    top: float | str = 1.0
    bottom: float | str = 0.0
    left: float | str = 0.0
    right: float | str = 0.0
    source: float | str = ""
    initial: float | str = 0.0
    digest: int = 1

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "Parameters":
        """Return the parameters of a task; numbers may be in quotes, as a command line gives them.

        Raises
        ------
        TaskError
            A number is not finite, or no sweep checks the change against the tolerance. Permanent.
        """
        values: dict[str, Any] = {
            name: number_or_path(name, value) if name in FIELDS else value
            for name, value in raw.items()
        }
        parameters = cls(**values)
        if parameters.tolerance > 0 and parameters.residual_every == 0:
            raise TaskError(
                "a tolerance needs residual_every of 1 or more",
                code="parameter-range",
                field="residual_every",
                value=0,
                bound=1,
            )
        return parameters


FIELDS = ("top", "bottom", "left", "right", "source", "initial")
"""Parameters with a value over a side or the grid."""


def number_or_path(name: str, value: float | str) -> float | str:
    """Return the number, or the path if it is not one.

    >>> number_or_path("top", "2.5"), number_or_path("top", "profile.npy")
    (2.5, 'profile.npy')
    """
    try:
        number = float(value)
    except ValueError:
        return value
    if not math.isfinite(number):
        raise TaskError(
            f"{name} is {value!r}, not a finite number", code="parameter-type", field=name
        )
    return number
