"""Run-time AppLeS: forecasts and resource selection (method 4)."""

from apples import Coordinator, Execution


def minimum_execution_time(coordinator: Coordinator) -> Execution:
    """Try every viable resource set; run on the set predicted best."""
    candidates = []
    for resources in coordinator.select_resources():
        schedule = coordinator.plan(resources)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates))
