"""Logical distances between hosts, meaningful only in terms of how the application uses them.

A `Distance` is a plain callable from one host to many: ``distance(host, others, information)`` returns
one number for each of `others`. A user's own is ``--distance module:name`` or ``file.py:name``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from apples.agent.information import InformationPool
from apples.errors import ModelError
from apples.resources import Host

Distances = npt.NDArray[np.float64]
Distance = Callable[[Host, Sequence[Host], InformationPool], Distances]


def communication(host: Host, others: Sequence[Host], information: InformationPool) -> Distances:
    """Return the seconds two hosts would spend at their common border in one iteration."""
    return information.model.borders(host, others)


def paper(host: Host, others: Sequence[Host], information: InformationPool) -> Distances:
    """Return n^2 |P_i - P_j| + border: near means alike in speed and well connected.

    Berman et al. 1996, section 2.3 (the formula is an image there; rebuilt from its words). The first
    term puts equally fast hosts of different sites side by side: up to 2.7 times the optimum on two
    sites, which is why it is not the default.
    """
    total = information.application.rows
    p = information.model.seconds_per_row((host, *others), total)
    return np.asarray(total * np.abs(p[1:] - p[0]) + information.model.borders(host, others))


def measured(
    distance: Distance, host: Host, others: Sequence[Host], information: InformationPool
) -> list[float]:
    """Return what a distance says of some hosts; `ModelError` when that is not a number for each."""
    found = np.asarray(distance(host, others, information), dtype=float)
    if found.shape != (len(others),) or np.isnan(found).any():
        raise ModelError(
            f"the distance must give a number for each of {len(others)} hosts, not {found}"
        )
    return [float(x) for x in found]


DISTANCES: Mapping[str, Distance] = {"communication": communication, "paper": paper}
