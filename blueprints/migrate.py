"""Run-time AppLeS on machines that have owners: a run leaves a host that others load, if the move pays."""

import apples
from apples import Coordinator, Execution


def migrate(coordinator: Coordinator) -> Execution:
    """Run on the set predicted best; leave hosts that others load, if that pays, and hosts used by their owner."""
    candidates = []
    for resources in coordinator.select_resources():
        schedule = coordinator.plan(resources)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates), apples.LoadRescheduling("migrate"))
