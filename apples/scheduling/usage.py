"""What each user has used of a cluster, the past counted less and less: what fair share is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, log
from typing import Any


class UserUsage:
    """Processor-seconds by user, those of a half-life ago counted half.

    What a job uses is entered piece by piece, each from where the last one ended, so that a user's jobs count
    while they run.

    Parameters
    ----------
    half_life
        Seconds; 0: nothing is ever forgotten.

    Attributes
    ----------
    half_life
        As given.

    Examples
    --------
    >>> usage = UserUsage(half_life=100.0)
    >>> usage.enter(1, "ann", 0.0, 10.0, 4)
    >>> round(usage.until(10.0)["ann"], 2), round(usage.until(110.0)["ann"], 2)
    (38.64, 19.32)
    """

    def __init__(self, half_life: float) -> None:
        self.half_life = half_life
        self._decay = log(2.0) / half_life if half_life else 0.0
        self._used: dict[str, float] = {}
        self._time = 0.0
        self._entered: dict[int, float] = {}

    def enter(self, job: int, user: str, start: float, until: float, processors: float) -> None:
        """Enter what a job has used, on so many processors, since its start or its last entry."""
        since = max(start, self._entered.get(job, start))
        self._entered[job] = until
        if until > since:
            seconds = until - since
            if self._decay:
                seconds = (1.0 - exp(-self._decay * seconds)) / self._decay
            self._move_to(until)
            self._used[user] = self._used.get(user, 0.0) + processors * seconds

    def forget(self, job: int) -> None:
        """Let a job that ended be entered anew, if it ever starts again."""
        self._entered.pop(job, None)

    def until(self, time: float) -> dict[str, float]:
        """Return what each user has used, as it counts at a time."""
        self._move_to(time)
        return dict(self._used)

    def copy(self, half_life: float | None = None) -> UserUsage:
        """Return a copy, by another half-life if one is given."""
        made = UserUsage(self.half_life if half_life is None else half_life)
        made._used, made._time, made._entered = dict(self._used), self._time, dict(self._entered)
        return made

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        entered = {str(job): until for job, until in self._entered.items()}
        return {
            "half_life": self.half_life, "time": self._time, "used": dict(self._used), "entered": entered,
        }  # fmt: skip

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> UserUsage:
        """Return the usage of a document.

        Raises
        ------
        ValueError, TypeError, KeyError, AttributeError
            It is none.
        """
        half_life = float(document["half_life"])
        if not 0.0 <= half_life < inf:
            raise ValueError(f"half-life of {half_life} s")
        made = cls(half_life)
        made._time = float(document["time"])
        made._used = {str(user): float(used) for user, used in document["used"].items()}
        made._entered = {int(job): float(until) for job, until in document["entered"].items()}
        return made

    def _move_to(self, time: float) -> None:
        if time > self._time:
            if self._decay:
                part = exp(-self._decay * (time - self._time))
                self._used = {user: used * part for user, used in self._used.items()}
            self._time = time
