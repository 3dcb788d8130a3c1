"""Compile-time blocked as in the paper: HPF's square blocks on all hosts, fast or slow (method 1)."""

import apples
from apples import Coordinator, Execution


def square_blocks(coordinator: Coordinator) -> Execution:
    """Give every usable host an equal block, in the order of the host list; the program must accept blocks."""
    candidates = []
    for resources in coordinator.select_resources("listed"):
        schedule = coordinator.plan(resources, apples.equal_blocks)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates))
