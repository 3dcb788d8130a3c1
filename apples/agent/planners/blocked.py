"""`blocked`: equal strips whatever the hosts give: what a compile-time block distribution does.

The paper's method 1 cuts square blocks (HPF); here it is equal strips, and the tables say so.
"""

from __future__ import annotations

from apples.agent.information import InformationPool
from apples.agent.planner import schedule
from apples.resources import ResourceSet
from apples.schedule import Schedule


def equal_strips(resources: ResourceSet, information: InformationPool) -> Schedule:
    """Return the schedule that gives every host the same rows, the first ones one more where needed."""
    whole, more = divmod(information.application.rows, len(resources))
    rows = [whole + (i < more) for i in range(len(resources))]
    return schedule(information, resources, rows, "blocked")
