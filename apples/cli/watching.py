"""Progress on stderr: a bar in place on a terminal, else a line every 10 % or 60 s."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from apples.agent.coordinator import Coordinator
from apples.cli.program import say
from apples.launch.actuator import Execution, Outcome
from apples.units import duration

LEAST_SHARE, MOST_SECONDS = 0.1, 60.0


def watch(
    coordinator: Coordinator,
    execution: Execution,
    name: str,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome | None:
    """Show an execution until it ends and return what it measured; an interrupt ends it too."""
    try:
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            _bar(coordinator, execution, name)
        else:
            _lines(coordinator, execution, name, clock)
        return execution.outcome()
    except BaseException:
        execution.cancel()
        raise


def _bar(coordinator: Coordinator, execution: Execution, name: str) -> None:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[pace]}"),
    )
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as progress:
        task = progress.add_task(name, total=None, pace="")
        for at in coordinator.monitor(execution):
            pace = f"{duration(at.seconds / max(1, at.iteration))} an iteration"
            progress.update(task, total=at.iterations, completed=at.iteration, pace=pace)


def _lines(
    coordinator: Coordinator, execution: Execution, name: str, clock: Callable[[], float]
) -> None:
    said, last = 0.0, clock()
    for at in coordinator.monitor(execution):
        share = at.iteration / max(1, at.iterations)
        if share - said < LEAST_SHARE and clock() - last < MOST_SECONDS:
            continue
        said, last = share, clock()
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        mean = at.seconds / max(1, at.iteration)
        left = mean * (at.iterations - at.iteration)
        say(
            f"{stamp} {name} iteration {at.iteration}/{at.iterations} "
            f"iteration_ms={mean * 1e3:.3g} left_s={left:.3g}"
        )
