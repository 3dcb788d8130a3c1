"""Candidates ranked with the time their resources are waited for: a faster set may come later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from apples.agent.deliberation import Deliberation
from apples.agent.estimator import by_value
from apples.agent.information import InformationPool
from apples.agent.launching import launch_plan
from apples.errors import LaunchError
from apples.launch.actuator import Actuator
from apples.schedule import Estimate, Rejection

ENOUGH, MOST_ASKED = 8, 64
"""So many candidates that all wait are compared; so many are asked about at most: each costs a question."""


def after_waiting(
    ranked: Sequence[Estimate],
    actuator: Actuator,
    information: InformationPool,
    record: Deliberation,
) -> list[Estimate]:
    """Return candidates with their expected wait, best first; those whose resources cannot be had are refused.

    Nothing is asked beyond the first that comes at once: what ranks behind it is not faster, and no sooner.

    Parameters
    ----------
    ranked
        Best first, without waiting.
    """
    if not actuator.queues:
        return list(ranked)
    waited: list[Estimate] = []
    for place, estimate in enumerate(ranked[:MOST_ASKED]):
        try:
            seconds = actuator.wait_seconds(launch_plan(estimate.schedule, information))
        except LaunchError as error:
            record.reject([Rejection(estimate.names, str(error), (0.0, 0.0), "queue")])
            continue
        waited.append(_waited(estimate, seconds, information.specifications.objective.measure))
        if seconds <= 0:
            return by_value([*waited, *ranked[place + 1 :]])
        if len(waited) == ENOUGH:
            break
    return by_value(waited)


def _waited(estimate: Estimate, seconds: float, measure: str) -> Estimate:
    """Return the estimate of a run that begins after `seconds`; a cost is none of waiting."""
    if seconds <= 0 or measure == "cost":
        return replace(estimate, wait_seconds=max(0.0, seconds))
    longer = 1.0 + seconds / estimate.execution_seconds
    return replace(estimate, wait_seconds=seconds, value=estimate.value * longer)
