"""Compile-time blocked: equal strips on all hosts, whatever they give (method 1)."""

from apples import Coordinator, Execution, equal_strips


def blocked(coordinator: Coordinator) -> Execution:
    """Give every usable host, in the order of the list, the same rows."""
    schedule = coordinator.plan(coordinator.hosts(), planner=equal_strips)
    candidates = []
    if coordinator.is_feasible(schedule):
        candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates))
