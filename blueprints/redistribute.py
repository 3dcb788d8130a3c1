"""Run-time AppLeS with rescheduling: while the application runs, it moves whenever the move pays."""

import apples
from apples import Coordinator, Estimate, Execution


def redistribute(coordinator: Coordinator) -> Execution:
    """Run on the set predicted best; while it runs, choose again under new weather and move if that pays."""

    def fastest(coordinator: Coordinator) -> Estimate:
        """Try every viable resource set; return the estimate predicted best."""
        candidates = []
        for resources in coordinator.select_resources():
            schedule = coordinator.plan(resources)
            if coordinator.is_feasible(schedule):
                candidates.append(coordinator.estimate(schedule))
        return coordinator.best(candidates)

    policy = apples.ReschedulingPolicy(
        replan=fastest,
        minimum_dwell=4.0,
        look_interval=15.0,
        least_improvement=0.12,
        standard_errors=3.0,
        times_the_cost=2.0,
    )
    return coordinator.actuate(fastest(coordinator), policy)
