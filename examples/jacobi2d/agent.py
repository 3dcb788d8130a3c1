"""An agent for Jacobi2D as an application's author would write it: python agent.py [--live]."""

from __future__ import annotations

import sys
from pathlib import Path

import apples

HERE = Path(__file__).resolve().parent
MIN_ROWS = 50


def thick(schedule: apples.Schedule, _: apples.InformationPool) -> apples.Rejection | None:
    """Reject a schedule with a strip that is not worth its start: a filter of our own."""
    rows, name = min((strip.rows, strip.host.name) for strip in schedule.allocations)
    reason = f"{name} would get {rows:.0f} rows, fewer than {MIN_ROWS} are not worth its start"
    found = apples.Rejection((name,), reason, (rows, MIN_ROWS), "thick")
    return found if rows < MIN_ROWS else None


def fewest_hosts(coordinator: apples.Coordinator) -> apples.Execution:
    """Run on the fewest hosts that are predicted within 10 % of the fastest set."""
    candidates = []
    for resources in coordinator.select_resources():
        schedule = coordinator.plan(resources)
        if coordinator.is_feasible(schedule):
            candidates.append(coordinator.estimate(schedule))
    enough = 1.1 * coordinator.best(candidates).iteration_seconds
    close = [one for one in candidates if one.iteration_seconds <= enough]
    fewest = min(len(one.hosts) for one in close)
    return coordinator.actuate(coordinator.best(one for one in close if len(one.hosts) == fewest))


def main() -> None:
    """Gather information, carry out the blueprint, and compare the prediction with the measured time."""
    weather = "live" if "--live" in sys.argv else "static"
    files = (HERE / f"{name}.toml" for name in ("hosts", "template", "user"))
    information = apples.load_information(*files, weather=weather)
    selector = apples.ResourceSelector(filters=(*apples.ResourceSelector().filters, thick))
    coordinator = apples.Coordinator(information, apples.LocalActuator(), selector=selector)
    execution = coordinator.execute(fewest_hosts)
    chosen, outcome = coordinator.decision_log.chosen, execution.outcome()
    if chosen is None or outcome is None:
        return
    for strip in chosen.schedule.allocations:
        print(f"{strip.host.name:8} {strip.rows:5} rows  {strip.implementation}")
    print(f"predicted {chosen.execution_seconds:.2f} s, measured {outcome.seconds:.2f} s")
    if weather == "static":
        print("hosts.toml describes other machines than this: apples calibrate, then --live")


if __name__ == "__main__":
    main()
