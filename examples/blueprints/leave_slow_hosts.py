"""A blueprint of a user: it watches the pace of each host, and moves the application off one that is slow.

``apples run --blueprint leave_slow_hosts.py:leave_slow_hosts``, for a program whose template has
``malleable = true``.
"""

from contextlib import suppress

from apples import Coordinator, DecisionLog, Estimate, Execution, LaunchError, PerformanceMonitor


def fastest(coordinator: Coordinator) -> Estimate:
    """Return the estimate of the set that is predicted best."""
    schedules = map(coordinator.plan, coordinator.select_resources())
    return coordinator.best(
        coordinator.estimate(each) for each in schedules if coordinator.is_feasible(each)
    )


def leave_slow_hosts(coordinator: Coordinator) -> Execution:
    """Start on the set predicted best; where a host computes twice as long as planned, choose again."""
    plan = fastest(coordinator)
    execution = coordinator.actuate(plan, movable=True)
    pace = PerformanceMonitor()
    slowdown: dict[str, float] = {}
    for progress in coordinator.monitor(execution):
        pace.observe(progress)
        rate = pace.rate()
        if rate is None or rate.seconds < 1.0:
            continue
        planned = {each.host.name: each.compute_seconds for each in plan.hosts}
        ratio = {host: s / planned.get(host, s) for host, s in rate.compute_seconds.items()}
        slow = {host for host in ratio if ratio[host] > 2} - slowdown.keys()
        if slow:
            slowdown |= {host: ratio[host] for host in slow}
            now = coordinator.information.with_what_if(slowdown=slowdown)
            plan = fastest(coordinator.under(now, DecisionLog()))
            with suppress(LaunchError):  # it goes on as it was
                coordinator.resize(execution, plan, f"slow: {', '.join(sorted(slow))}")
            pace.hosts_changed()
    return execution
