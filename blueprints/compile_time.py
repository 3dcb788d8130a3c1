"""Compile-time AppLeS: resource selection from static values, no forecast (method 2)."""

from apples import Coordinator, Execution


def compile_time(coordinator: Coordinator) -> Execution:
    """Choose under what the host list says; predict, and run, under the weather there is."""
    static = coordinator.static()
    candidates = []
    for resources in static.select_resources():
        schedule = static.plan(resources)
        if static.is_feasible(schedule):
            candidates.append(static.estimate(schedule))
    return coordinator.actuate(coordinator.as_of_now(static.best(candidates)))
