"""Compile-time blocked: equal strips on all hosts, fast or slow (method 1)."""

from apples import Coordinator, Execution, equal_strips


def blocked(coordinator: Coordinator) -> Execution:
    """Give every usable host the same number of rows, in the order of the host list."""
    candidates = []
    for resources in coordinator.select_resources("listed"):
        schedule = coordinator.plan(resources, equal_strips)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates))
