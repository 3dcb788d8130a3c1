"""Compile-time AppLeS: resource selection from static values, no forecast (method 2)."""

from apples import Coordinator, Execution


def compile_time(coordinator: Coordinator) -> Execution:
    """Choose the schedule by the host list alone; predict its time and run it under the current weather."""
    static = coordinator.under(coordinator.information.with_weather(None))
    candidates = []
    for resources in static.select_resources():
        schedule = static.plan(resources)
        if static.is_feasible(schedule):
            candidates.append(static.estimate(schedule))
    chosen = static.best(candidates).schedule
    predicted = [coordinator.estimate(candidate.schedule) for candidate in candidates]
    return coordinator.actuate(coordinator.best(e for e in predicted if e.schedule == chosen))
