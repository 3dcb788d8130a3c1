"""Progress of a run on stderr: a bar in place on a terminal, else a line every 10 % or 60 s."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from apples.launch.actuator import Execution, Progress
from apples.ui.command_line import say
from apples.ui.terminal import escaped
from apples.ui.units import duration

LEAST_SHARE, MOST_SECONDS = 0.1, 60.0


def on_stderr(
    name: str, predicted: float, clock: Callable[[], float] = time.monotonic
) -> Callable[[Execution, Iterable[Progress]], None]:
    """Return what shows the progress of the application `name` until it ends.

    Where that is interrupted, it says how far the run had come of the `predicted` seconds.
    """

    def follow(_: Execution, progress: Iterable[Progress]) -> None:
        latest: list[Progress] = []

        def kept() -> Iterable[Progress]:
            for at in progress:
                latest[:] = [at]
                yield at

        try:
            if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
                _bar(kept(), name)
            else:
                _lines(kept(), name, clock)
        except KeyboardInterrupt:
            for line in stopped_text(name, predicted, *latest):
                say(line)
            raise

    return follow


def stopped_text(name: str, predicted: float, at: Progress | None = None) -> list[str]:
    """Return what is known of a run that its user stopped, and what would have outlived that.

    Examples
    --------
    >>> for line in stopped_text("heat", 9.3, Progress(100, 500, 2.0, ())):
    ...     print(line)
    heat was stopped at iteration 100 of 500, after 2.00 s (20.0 ms an iteration; predicted 9.30 s for all)
    a run that goes on without its terminal: apples run --detach
    """
    begun = f"{name} was stopped before its first report (predicted {duration(predicted)} for all)"
    if at is not None:
        mean = duration(at.iteration_seconds)
        begun = (
            f"{name} was stopped at iteration {at.iteration} of {at.iterations}, after {duration(at.seconds)} "
            f"({mean} an iteration; predicted {duration(predicted)} for all)"
        )
    return [begun, "a run that goes on without its terminal: apples run --detach"]


def _bar(progress: Iterable[Progress], name: str) -> None:
    from rich.console import Console  # noqa: PLC0415 - for a terminal only
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bar  # noqa: PLC0415

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[each]}"),
    )
    with Bar(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task(escaped(name), total=None, each="")
        for at in progress:
            each = f"{duration(at.iteration_seconds)} an iteration"
            bar.update(task, total=at.iterations, completed=at.iteration, each=each)


def _lines(progress: Iterable[Progress], name: str, clock: Callable[[], float]) -> None:
    told, last = 0.0, clock()
    for at in progress:
        share = at.iteration / max(1, at.iterations)
        if share - told < LEAST_SHARE and clock() - last < MOST_SECONDS:
            continue
        told, last = share, clock()
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        mean = at.iteration_seconds
        left = mean * (at.iterations - at.iteration)
        say(
            f"{stamp} {name} iteration {at.iteration}/{at.iterations} "
            f"iteration_ms={mean * 1e3:.3g} left_s={left:.3g}"
        )
