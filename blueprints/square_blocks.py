"""Compile-time blocked as the paper has it: HPF's square blocks on all hosts, whatever they give (method 1)."""

import apples
from apples import Coordinator, Execution


def square_blocks(coordinator: Coordinator) -> Execution:
    """Give every usable host, in the order of the list, a block of the same size; for programs that take them."""
    candidates = []
    for resources in coordinator.select_resources("listed"):
        schedule = coordinator.plan(resources, apples.equal_blocks)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    return coordinator.actuate(coordinator.best(candidates))
