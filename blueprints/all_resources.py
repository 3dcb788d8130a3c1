"""Run-time AppLeS without selection: forecasts, and every host is used (method 3)."""

from apples import Coordinator, Execution


def all_resources(coordinator: Coordinator) -> Execution:
    """Balance all usable hosts; refuse where one of them could only hold the others up."""
    candidates = []
    for resources in coordinator.select_resources("chain"):
        schedule = coordinator.plan(resources)
        if coordinator.is_feasible(schedule, using=resources):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates))
