"""Run-time AppLeS without selection: forecasts, and every host is used (method 3)."""

from apples import Coordinator, Execution


def all_resources(coordinator: Coordinator) -> Execution:
    """Balance all usable hosts; refuse where one of them could only hold the others up."""
    resources = coordinator.all_resources()
    schedule = coordinator.plan(resources)
    candidates = []
    if coordinator.uses_all(resources, schedule) and coordinator.is_feasible(schedule):
        candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates))
