"""Run-time AppLeS with Dynamite's migration decider: a run leaves hosts loaded above the threshold."""

import apples
from apples import Coordinator, Execution


def decider(coordinator: Coordinator) -> Execution:
    """Run on the set predicted best; move by Dynamite's rule, from hosts above the load threshold to others."""
    candidates = []
    for resources in coordinator.select_resources():
        schedule = coordinator.plan(resources)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates), apples.LoadRescheduling("decider"))
