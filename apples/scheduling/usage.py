"""What each user has used of a cluster, the past counted less and less: what fair share is judged by."""

from __future__ import annotations

from math import exp, log

from apples.scheduling.jobs import Job


class UserUsage:
    """Processor-seconds by user, those of a half-life ago counted half.

    What a job uses is entered piece by piece, each from where the last one ended, so that a user's jobs count
    while they run.

    Parameters
    ----------
    half_life
        Seconds; 0: nothing is ever forgotten.

    Examples
    --------
    >>> usage = UserUsage(half_life=100.0)
    >>> usage.enter(Job(1, 0.0, 4, 9.0, 4, 4, user="ann"), 0.0, 10.0, 4)
    >>> round(usage.until(10.0)["ann"], 2), round(usage.until(110.0)["ann"], 2)
    (38.64, 19.32)
    """

    def __init__(self, half_life: float) -> None:
        self._decay = log(2.0) / half_life if half_life else 0.0
        self._used: dict[str, float] = {}
        self._time = 0.0
        self._entered: dict[int, float] = {}

    def enter(self, job: Job, start: float, until: float, processors: float) -> None:
        """Enter what a job has used, on so many processors, since its start or its last entry."""
        since = max(start, self._entered.get(job.id, start))
        self._entered[job.id] = until
        if until > since:
            seconds = until - since
            if self._decay:
                seconds = (1.0 - exp(-self._decay * seconds)) / self._decay
            self._move_to(until)
            self._used[job.user] = self._used.get(job.user, 0.0) + processors * seconds

    def forget(self, job: int) -> None:
        """Let a job that ended be entered anew, if it ever starts again."""
        self._entered.pop(job, None)

    def until(self, time: float) -> dict[str, float]:
        """Return what each user has used, as it counts at a time."""
        self._move_to(time)
        return dict(self._used)

    def _move_to(self, time: float) -> None:
        if time > self._time:
            if self._decay:
                part = exp(-self._decay * (time - self._time))
                self._used = {user: used * part for user, used in self._used.items()}
            self._time = time
