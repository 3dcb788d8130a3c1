"""The best host alone: the sequential version, which every parallel plan has to beat."""

from apples import Coordinator, Execution


def single_host(coordinator: Coordinator) -> Execution:
    """Try every usable host by itself; run on the host predicted best."""
    candidates = []
    for resources in coordinator.select_resources("single"):
        schedule = coordinator.plan(resources)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates))
