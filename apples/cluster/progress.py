"""When a running job will end, by how fast it has been where it is."""

from __future__ import annotations

from dataclasses import dataclass, replace

LOOK_SECONDS = 5.0
"""Between two looks at what a job has done; as long it has to be where it is before anything is said."""
MOVED = 0.1
"""By which part of the time that is left an end has to move to be another."""
FARTHEST = 1e9


@dataclass(frozen=True, slots=True)
class JobPace:
    """What a job has done on the hosts that it has.

    Attributes
    ----------
    hosts
        Where it is.
    since, first
        When it was first heard of there, and at which iteration.
    looked
        When it was last looked at.
    end
        When it will end, as fast as it has been; None: it is too early to tell.

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
        """Return it after a report; where the hosts are others it begins anew."""
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
