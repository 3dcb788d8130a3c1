"""What every `ModelTemplate` must do, as checks that run: on ours in the tests, on a user's own when it is loaded.

Examples
--------
>>> from apples import Host, ModelTemplate
>>> class Ideal(ModelTemplate):
...     def computation(self, resources, rows):
...         return 1e-3 * rows
...     def communication(self, resources):
...         return np.zeros(len(resources))
>>> check_model(Ideal(), [Host("ada"), Host("bob")], total=100)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from apples.agent.model import ModelTemplate, Seconds
from apples.errors import ModelError
from apples.resources import Host

MOST_HOSTS = 3
"""A check looks at so many hosts: it costs a model a few dozen calls."""


def check_model(model: ModelTemplate, hosts: Sequence[Host], total: int) -> None:
    """Check a model on the first few of some hosts and a grid of `total` rows.

    Raises
    ------
    ModelError
        What the model did, and what its contract asks for.
    """
    for resources in _sets(hosts):
        sizes = sorted({1.0, total / 2, float(total)})
        times = [_computation(model, resources, size) for size in sizes]
        for less, more in pairwise(times):
            if np.any(more < less):
                raise _broken(model, f"computation falls as rows grow: {less} to {more} s")
        if not np.array_equal(times[-1], _computation(model, resources, sizes[-1])):
            raise _broken(model, "computation says another time when it is asked again")
        _seconds(model, "communication", model.communication(resources), len(resources))
        _caps(model, resources, total)


def _sets(hosts: Sequence[Host]) -> Iterator[Sequence[Host]]:
    few = tuple(hosts[:MOST_HOSTS])
    return (few[:k] for k in range(1, len(few) + 1))


def _computation(model: ModelTemplate, resources: Sequence[Host], rows: float) -> Seconds:
    count = len(resources)
    return _seconds(
        model, "computation", model.computation(resources, np.full(count, rows)), count
    )


def _seconds(model: ModelTemplate, what: str, found: object, count: int) -> Seconds:
    times = np.asarray(found, dtype=float)
    if times.shape != (count,):
        raise _broken(model, f"{what} gives the shape {times.shape} for {count} hosts")
    if not np.all(np.isfinite(times)) or np.any(times < 0):
        raise _broken(model, f"{what} gives {times}: must be finite seconds, at least 0")
    return times


def _caps(model: ModelTemplate, resources: Sequence[Host], total: int) -> None:
    caps = np.asarray(model.caps(resources, total))
    if caps.shape != (len(resources),) or np.any((caps < 0) | (caps > total)):
        raise _broken(
            model, f"caps gives {caps} for {len(resources)} hosts: must be 0 to {total} rows"
        )


def _broken(model: ModelTemplate, how: str) -> ModelError:
    return ModelError(f"{type(model).__name__}: {how}")
