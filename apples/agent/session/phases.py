"""`PhaseTimes`: the seconds of a command by consecutive phases."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


class PhaseTimes:
    """Splits the time of one command into consecutive phases without gaps; they add up to the whole.

    Parameters
    ----------
    clock
        Monotonic clock, in seconds.
    began
        Begin of the first phase by that clock; default: now.
    first
        Name of the first phase.

    Examples
    --------
    >>> seconds = iter([0.0, 2.0, 5.0, 6.0])
    >>> phases = PhaseTimes(lambda: next(seconds), first="imports")
    >>> phases("plan"); phases("imports")
    >>> phases.seconds()
    {'imports': 3.0, 'plan': 3.0}
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        began: float | None = None,
        first: str = "imports",
    ) -> None:
        self._clock = clock
        self._now, self._since = first, clock() if began is None else began
        self._seconds: dict[str, float] = {first: 0.0}

    def __call__(self, phase: str) -> None:
        """Begin a phase, or continue an earlier phase of this name."""
        now = self._clock()
        self._seconds[self._now] += now - self._since
        self._now, self._since = phase, now
        self._seconds.setdefault(phase, 0.0)

    def split(self, phase: str, seconds: float) -> None:
        """Move `seconds` of the present phase's elapsed time to another phase."""
        self(self._now)
        taken = max(0.0, min(seconds, self._seconds[self._now]))
        self._seconds[self._now] -= taken
        self._seconds[phase] = self._seconds.get(phase, 0.0) + taken

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each phase up to now, in the order in which they began."""
        self(self._now)
        return dict(self._seconds)


def of_this_process() -> PhaseTimes:
    """Return phases that begin at the start of this process."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    boot = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    return PhaseTimes(began=began - boot)
