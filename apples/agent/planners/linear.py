"""`linear`: the paper's planner, a linear system with equal T_i; strips may be negative.

Berman et al. 1996, section 2.1, eq. 1. The rows are rounded only if all are positive. A negative strip is
returned unchanged, and the filter of section 2.3 refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg

from apples.agent.information import InformationPool
from apples.agent.models.model import Rows, Seconds
from apples.agent.planners.planner import schedule
from apples.resources import Host, ResourceSet
from apples.resources.apportionment import largest_remainder
from apples.resources.schedule import Schedule

AGREEMENT = 1e-9
"""Relative difference allowed between the solver and the closed form (measured: 1.3e-14)."""


def linear(resources: ResourceSet, information: InformationPool) -> Schedule:
    """Return the schedule that solves p_i r_i + C_i = T for all i, sum r_i = rows of the grid."""
    total = information.application.rows
    rows = solve(information.model.seconds_per_row(resources, total), information, resources)
    return schedule(information, resources, _rounded(rows, total), "linear")


def solve(p: Seconds, information: InformationPool, resources: Sequence[Host]) -> Rows:
    """Return the strips, of any sign, from the linear system; the closed form must agree.

    Each equation is divided by its p_i, and T is measured in rows of the fastest host, so that no coefficient
    exceeds 1.
    """
    total, border = information.application.rows, information.model.communication(resources)
    count, unit = len(resources), float(p.min())
    system = np.eye(count + 1)
    system[:count, count] = -unit / p
    system[count] = np.append(np.ones(count), 0.0)
    solution = scipy.linalg.solve(system, np.append(-border / p, float(total)))
    found, seconds = solution[count] * unit, closed_form(p, border, total)
    if abs(found - seconds) > AGREEMENT * abs(seconds):
        raise ArithmeticError(
            f"the linear system gives T = {found!r}, the closed form {seconds!r}"
        )
    return np.asarray(solution[:count], dtype=np.float64)


def closed_form(p: Seconds, border: Seconds, total: float) -> float:
    """Return T = (W + sum C_i / p_i) / sum 1 / p_i.

    Examples
    --------
    >>> closed_form(np.array([1.0, 1.0]), np.array([2.0, 2.0]), 10.0)
    7.0
    """
    return float((total + (border / p).sum()) / (1.0 / p).sum())


def _rounded(rows: Rows, total: int) -> Sequence[float]:
    """Return whole rows by largest remainder if every strip is positive, else the rows unchanged."""
    if np.any(rows <= 0):
        return [float(r) for r in rows]
    return largest_remainder(rows.tolist(), total)
