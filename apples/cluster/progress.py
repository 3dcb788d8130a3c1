"""The expected end of a running job, from its pace on its present hosts."""

from __future__ import annotations

from dataclasses import dataclass, replace

LOOK_SECONDS = 5.0
"""Interval between two evaluations of a job's progress, and least time on its hosts before the first."""
MOVED = 0.1
"""Relative change of the remaining time above which the expected end changes."""
FARTHEST = 1e9


@dataclass(frozen=True, slots=True)
class JobPace:
    """The progress of a job on its present hosts.

    Attributes
    ----------
    hosts
        Its hosts.
    since, first
        Time and iteration of its first report from these hosts.
    looked
        Time of the last evaluation.
    end
        Expected end at its pace so far; None: not known yet.

    Examples
    --------
    >>> pace = JobPace(("ada",), 0.0, 10, 0.0)
    >>> pace = pace.after(("ada",), 20, 110, 5.0)
    >>> pace.end
    50.0
    >>> pace.after(("ada",), 31, 110, 11.0).end  # it has moved by less than a tenth
    50.0
    >>> pace.after(("ada", "bob"), 32, 110, 12.0).end is None
    True
    """

    hosts: tuple[str, ...]
    since: float
    first: int
    looked: float
    end: float | None = None

    def after(
        self, hosts: tuple[str, ...], iteration: int, iterations: int, now: float
    ) -> JobPace:
        """Return the pace after a report; if the hosts have changed, it begins anew."""
        if hosts != self.hosts or iteration < self.first:
            return JobPace(hosts, now, iteration, now)
        done = iteration - self.first
        if done == 0 or now < self.looked + LOOK_SECONDS:
            return self
        left = max(0, iterations - iteration) * (now - self.since) / done
        end = now + min(left, FARTHEST)
        if self.end is not None and abs(end - self.end) <= MOVED * max(left, LOOK_SECONDS):
            end = self.end
        return replace(self, looked=now, end=end)
