"""`PerformanceContract` and `PerformanceMonitor`: expected and measured times of an application.

The monitor turns the progress messages of a run into an `IterationRate`, the means over a sliding window. The
contract decides whether that rate violates the prediction of the started plan.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import stdev

from apples.launch.events import Progress
from apples.resources.schedule import Estimate
from apples.ui.units import duration

TOLERANCE = 0.2
"""Least relative difference of a measured time that violates the contract, in either direction."""
WINDOW_SECONDS = 2.0
"""Length of the window; in a shorter window every short disturbance would count."""
SETTLING_SECONDS = 0.5
MIN_SAMPLES = 3
"""Least number of intervals between messages in a window, of any length."""


@dataclass(frozen=True, slots=True)
class IterationRate:
    """Means over a window of a run, without timing spikes.

    Attributes
    ----------
    iteration_seconds
        Seconds of one iteration.
    compute_seconds
        Seconds of computing in one iteration, by host.
    seconds, iterations
        Length of the window.
    error
        Largest relative standard error of these means.
    """

    iteration_seconds: float
    compute_seconds: Mapping[str, float]
    seconds: float
    iterations: int
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class PerformanceContract:
    """The expected times of an application on its hosts (Vraalsen et al. 2001).

    Attributes
    ----------
    iteration_seconds
        Seconds of one iteration.
    compute_seconds
        Seconds of computing in one iteration, by host.
    """

    iteration_seconds: float
    compute_seconds: Mapping[str, float]

    @classmethod
    def of(cls, estimate: Estimate) -> PerformanceContract:
        """Return the contract of an estimate."""
        return cls(
            estimate.iteration_seconds,
            {one.host.name: one.compute_seconds for one in estimate.hosts},
        )

    def violation(self, rate: IterationRate) -> str:
        """Return the violation of the contract in words, with the host; empty without a violation.

        A host's computing counts in both directions: a host faster than promised could take more rows.

        Examples
        --------
        >>> promise = PerformanceContract(1.0, {"ada": 1.0, "bob": 0.9})
        >>> promise.violation(IterationRate(1.05, {"ada": 1.0, "bob": 0.95}, 4.0, 4))
        ''
        >>> promise.violation(IterationRate(2.0, {"ada": 2.0, "bob": 0.9}, 4.0, 2))
        'ada computes for 2.00 s an iteration, 1.00 s was promised'
        """
        worst, line = TOLERANCE, ""
        for host, promised in self.compute_seconds.items():
            measured = rate.compute_seconds.get(host)
            # Computing that is short compared with the iteration does not matter, even with a large error.
            if measured is None or max(measured, promised) < TOLERANCE * rate.iteration_seconds:
                continue
            off = max(measured, promised) / max(min(measured, promised), 1e-12) - 1.0
            if off > worst:
                worst = off
                said = f"{host} computes for {duration(measured)} an iteration"
                line = f"{said}, {duration(promised)} was promised"
        off = rate.iteration_seconds / self.iteration_seconds - 1.0
        if not line and off > TOLERANCE:
            took, promise = duration(rate.iteration_seconds), duration(self.iteration_seconds)
            line = f"an iteration takes {took}, {promise} was promised"
        return line


@dataclass
class PerformanceMonitor:
    """Measures the iteration rate of an application from its progress messages.

    Attributes
    ----------
    window
        Length of the window for the means, in seconds.
    settling
        Seconds after a change in which messages are ignored: they may be from before the change.
    last
        The newest progress.
    since
        Time of the last change of hosts or rows, on the clock's scale.
    """

    window: float = WINDOW_SECONDS
    settling: float = SETTLING_SECONDS
    clock: Callable[[], float] = time.monotonic
    last: Progress | None = None
    since: float = 0.0
    _window: deque[Progress] = field(default_factory=deque)
    _changed: float | None = None

    def __post_init__(self) -> None:
        self.since = self.clock()

    def observe(self, progress: Progress) -> None:
        """Add a progress message; a change of hosts begins a new window."""
        if self.last is not None and _begins_anew(self.last, progress):
            self.hosts_changed()
        self.last = progress
        if self._changed is not None and self.clock() - self._changed < self.settling:
            return
        self._window.append(progress)
        while (
            len(self._window) > MIN_SAMPLES + 1
            and progress.seconds - self._window[1].seconds >= self.window
        ):
            self._window.popleft()

    def hosts_changed(self) -> None:
        """Begin anew after a change of the hosts or their rows."""
        self.discard()
        self.since = self.clock()

    def discard(self) -> None:
        """Drop the window and the messages under way: they include other work than the application's."""
        self._window.clear()
        self._changed = self.clock()

    def begin_window(self) -> None:
        """Begin a new window at the newest message: the present window may begin before a change of load."""
        while len(self._window) > 1:
            self._window.popleft()

    @property
    def dwell(self) -> float:
        """Seconds since the hosts last changed."""
        return self.clock() - self.since

    def rate(self) -> IterationRate | None:
        """Return the means over the window; None if it is too short."""
        if len(self._window) < 2:
            return None
        first, last = self._window[0], self._window[-1]
        iterations, seconds = last.iteration - first.iteration, last.seconds - first.seconds
        steady = last.steady_seconds - first.steady_seconds
        if iterations <= 0 or steady <= 0:
            return None
        compute = {h: s for h, s in _between(first, last).items() if s > 0}
        parts = [_between(a, b) for a, b in pairwise(self._window) if b.iteration > a.iteration]
        error = max(
            (_relative_error([p[h] for p in parts], m) for h, m in compute.items()), default=0
        )
        return IterationRate(steady / iterations, compute, seconds, iterations, error)


def _between(first: Progress, last: Progress) -> dict[str, float]:
    """Return the seconds of computing per iteration between two messages, by host, without timing spikes."""
    before = {one.host: one.steady_compute_seconds for one in first.hosts}
    iterations = last.iteration - first.iteration
    return {
        one.host: (one.steady_compute_seconds - before.get(one.host, 0.0)) / iterations
        for one in last.hosts
    }


def _relative_error(samples: Sequence[float], mean: float) -> float:
    """Return the relative standard error of the mean of samples; 1 with too few samples."""
    if len(samples) < MIN_SAMPLES:
        return 1.0
    return stdev(samples) / math.sqrt(len(samples)) / mean


def _begins_anew(before: Progress, now: Progress) -> bool:
    """Return whether the hosts changed, or a host's times count from zero again."""
    pairs = zip(before.hosts, now.hosts, strict=False)
    return _names(before) != _names(now) or any(
        b.compute_seconds > a.compute_seconds for b, a in pairs
    )


def _names(progress: Progress) -> tuple[str, ...]:
    return tuple(one.host for one in progress.hosts)
