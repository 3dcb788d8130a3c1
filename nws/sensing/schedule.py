"""What is due when: tasks that are repeated, on a clock that only goes forward."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Task:
    every: float
    due: float
    run: Callable[[], object]


class Schedule:
    """Tasks repeated on a regular grid; what was missed is not made up for.

    Examples
    --------
    >>> schedule, done = Schedule(now=0.0), []
    >>> schedule.add(10.0, lambda: done.append("measure"))
    >>> schedule.run(now=0.0), schedule.run(now=35.0), schedule.wake_at
    (1, 1, 40.0)
    """

    def __init__(self, now: float) -> None:
        self._start = now
        self._tasks: list[_Task] = []

    def add(self, every: float, run: Callable[[], object]) -> None:
        """Run a task now and every so many seconds."""
        self._tasks.append(_Task(every, self._start, run))

    @property
    def wake_at(self) -> float:
        """When the next is due."""
        return min((task.due for task in self._tasks), default=float("inf"))

    def run(self, now: float) -> int:
        """Run what is due; return how many were."""
        count = 0
        for task in self._tasks:
            if task.due <= now:
                task.run()
                count += 1
                task.due += task.every * (1 + (now - task.due) // task.every)
        return count
