"""`Watched`: what a running application was measured to do of late, and whether it keeps its promise."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import stdev

from apples.launch.actuator import Progress

WINDOW_SECONDS = 2.0
"""What is measured is the mean of so long; shorter, and every hiccup counts."""
SETTLING_SECONDS = 0.5
LEAST_SAMPLES = 3
"""What the program says is looked at in at least so many parts, however long they take."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Means over a window of a run.

    Attributes
    ----------
    iteration_seconds
        One iteration.
    compute_seconds
        By host, computing in one iteration.
    seconds, iterations
        How long the window is.
    error
        Standard error of the worst-known of these means, relative to it.
    """

    iteration_seconds: float
    compute_seconds: Mapping[str, float]
    seconds: float
    iterations: int
    error: float = 0.0


@dataclass
class Watched:
    """Takes in the progress of an application.

    Attributes
    ----------
    window
        Seconds that a mean is taken over.
    settling
        Seconds after a change of which nothing is believed: what is heard then was said before it.
    last
        The newest progress.
    since
        When its hosts last changed, on the clock's scale.
    """

    window: float = WINDOW_SECONDS
    settling: float = SETTLING_SECONDS
    clock: Callable[[], float] = time.monotonic
    last: Progress | None = None
    since: float = 0.0
    _seen: deque[Progress] = field(default_factory=deque)
    _settled: float | None = None

    def __post_init__(self) -> None:
        self.since = self.clock()

    def see(self, progress: Progress) -> None:
        """Take in what the application says; other hosts than before begin a new window."""
        if self.last is not None and _begins_anew(self.last, progress):
            self.moved()
        self.last = progress
        if self._settled is not None and self.clock() - self._settled < self.settling:
            return
        self._seen.append(progress)
        while (
            len(self._seen) > LEAST_SAMPLES + 1
            and progress.seconds - self._seen[1].seconds >= self.window
        ):
            self._seen.popleft()

    def moved(self) -> None:
        """Take in that the hosts, or their rows, have changed: nothing measured before counts now."""
        self.disturbed()
        self.since = self.clock()

    def disturbed(self) -> None:
        """Forget what was measured, and what is still to be heard of it: something else took part in it."""
        self._seen.clear()
        self._settled = self.clock()

    def doubted(self) -> None:
        """Begin a new window: this one may hold what was before a change, or a hiccup."""
        while len(self._seen) > 1:
            self._seen.popleft()

    @property
    def dwell(self) -> float:
        """Seconds since the hosts last changed."""
        return self.clock() - self.since

    def pace(self) -> Pace | None:
        """Return the means over the window; None before there are any."""
        if len(self._seen) < 2:
            return None
        first, last = self._seen[0], self._seen[-1]
        iterations, seconds = last.iteration - first.iteration, last.seconds - first.seconds
        if iterations <= 0 or seconds <= 0:
            return None
        compute = {h: s for h, s in _between(first, last).items() if s > 0}
        parts = [_between(a, b) for a, b in pairwise(self._seen) if b.iteration > a.iteration]
        error = max(
            (_relative_error([p[h] for p in parts], m) for h, m in compute.items()), default=0
        )
        return Pace(seconds / iterations, compute, seconds, iterations, error)


def _between(first: Progress, last: Progress) -> dict[str, float]:
    """Return, by host, the seconds of computing in an iteration between two progresses."""
    before = {one.host: one.compute_seconds for one in first.hosts}
    iterations = last.iteration - first.iteration
    return {
        one.host: (one.compute_seconds - before.get(one.host, 0.0)) / iterations
        for one in last.hosts
    }


def _relative_error(samples: Sequence[float], mean: float) -> float:
    """Return the standard error of the mean of some samples; as large as the mean where they are too few."""
    if len(samples) < LEAST_SAMPLES:
        return 1.0
    return stdev(samples) / math.sqrt(len(samples)) / mean


def _begins_anew(before: Progress, now: Progress) -> bool:
    """Whether the hosts are others, or a host's times count from zero again."""
    pairs = zip(before.hosts, now.hosts, strict=False)
    return _names(before) != _names(now) or any(
        b.compute_seconds > a.compute_seconds for b, a in pairs
    )


def _names(progress: Progress) -> tuple[str, ...]:
    return tuple(one.host for one in progress.hosts)
