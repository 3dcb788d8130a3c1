"""A user's blueprint: it watches the time of each host, and moves the application away from slow hosts.

``apples run --blueprint leave_slow_hosts.py:leave_slow_hosts``, for a program with ``malleable = true`` in its
template.
"""

from collections.abc import Mapping
from contextlib import suppress

from apples import Coordinator, DecisionLog, Estimate, Execution, LaunchError, PerformanceMonitor


def fastest(coordinator: Coordinator) -> Estimate:
    """Return the estimate of the set that is predicted to be fastest."""
    schedules = map(coordinator.plan, coordinator.select_resources())
    return coordinator.best(
        coordinator.estimate(each) for each in schedules if coordinator.is_feasible(each)
    )


def leave_slow_hosts(coordinator: Coordinator) -> Execution:
    """Start on the set predicted to be fastest; if a host takes twice its usual time, choose again."""
    execution = coordinator.actuate(fastest(coordinator), movable=True)
    pace = PerformanceMonitor()
    usual: Mapping[str, float] = {}
    slowdown: dict[str, float] = {}
    for progress in coordinator.monitor(execution):
        pace.observe(progress)
        rate = pace.rate()
        if rate is None or rate.seconds < 1.0:
            continue
        usual = usual or rate.compute_seconds
        ratio = {host: s / usual.get(host, s) for host, s in rate.compute_seconds.items()}
        slow = {host: factor for host, factor in ratio.items() if factor > 2}
        if slow:
            slowdown |= slow
            pool = coordinator.information.with_what_if(slowdown=slowdown)
            now = coordinator.under(pool, DecisionLog())
            with suppress(LaunchError):  # the run continues on its hosts
                now.resize(execution, fastest(now), f"slow: {', '.join(slow)}", worth=2.0)
            pace.hosts_changed()
            usual = {}  # hosts have other rows now
    return execution
