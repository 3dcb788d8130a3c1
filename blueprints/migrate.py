"""Run-time AppLeS on machines that have owners: while it runs, a host that others load is left where that pays."""

import apples
from apples import Coordinator, Execution


def migrate(coordinator: Coordinator) -> Execution:
    """Run on the set predicted best; move off hosts that others load, where that pays, and off an owner's."""
    candidates = []
    for resources in coordinator.select_resources():
        schedule = coordinator.plan(resources)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates), apples.LoadRescheduling("migrate"))
