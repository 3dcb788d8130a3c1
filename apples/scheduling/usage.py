"""The decayed usage of a cluster by each user, on which fair share is based."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, log
from typing import Any


class UserUsage:
    """Processor-seconds by user, with a weight that halves every half-life.

    The usage of a job is entered in pieces, each from the end of the last, so that jobs count while they run.

    Parameters
    ----------
    half_life
        Seconds; 0: no decay.

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
        """Enter the usage of a job on `processors` processors since its start or its last entry."""
        since = max(start, self._entered.get(job, start))
        self._entered[job] = until
        if until > since:
            seconds = until - since
            if self._decay:
                seconds = (1.0 - exp(-self._decay * seconds)) / self._decay
            self._move_to(until)
            self._used[user] = self._used.get(user, 0.0) + processors * seconds

    def forget(self, job: int) -> None:
        """Forget the last entry of an ended job, so that a later run of it counts from its start."""
        self._entered.pop(job, None)

    def until(self, time: float) -> dict[str, float]:
        """Return the decayed usage of each user at a time."""
        self._move_to(time)
        return dict(self._used)

    def copy(self, half_life: float | None = None) -> UserUsage:
        """Return a copy, with another half-life if given."""
        made = UserUsage(self.half_life if half_life is None else half_life)
        made._used, made._time, made._entered = dict(self._used), self._time, dict(self._entered)
        return made

    def document(self) -> dict[str, Any]:
        """Return the usage as a JSON object."""
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
            The document is invalid.
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
