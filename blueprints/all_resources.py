"""Run-time AppLeS without resource selection: forecasts, on all hosts (method 3)."""

from apples import Coordinator, Execution


def all_resources(coordinator: Coordinator) -> Execution:
    """Balance all usable hosts; no plan is feasible if a host gets no rows in the balanced plan."""
    candidates = []
    for resources in coordinator.select_resources("chain"):
        schedule = coordinator.plan(resources)
        if coordinator.is_feasible(schedule, using=resources):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates))
