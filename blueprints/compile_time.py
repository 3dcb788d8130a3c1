"""Compile-time AppLeS: resource selection from static values, no forecast (method 2)."""

from apples import Coordinator, Execution


def compile_time(coordinator: Coordinator) -> Execution:
    """Try every viable resource set under what the host list says; run on the one predicted best."""
    static = coordinator.static()
    candidates = []
    for resources in static.select_resources():
        schedule = static.plan(resources)
        if static.is_feasible(schedule):
            candidates.append(static.estimate(schedule))
    return static.actuate(static.best(candidates))
