"""Run-time AppLeS with Dynamite's migration decider: while it runs, hosts above its threshold are left."""

import apples
from apples import Coordinator, Execution


def decider(coordinator: Coordinator) -> Execution:
    """Run on the set predicted best; move by Dynamite's rule, off hosts above the threshold to those below."""
    candidates = []
    for resources in coordinator.select_resources():
        schedule = coordinator.plan(resources)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates), apples.LoadRescheduling("decider"))
