"""`RecordingActuator`: keeps the schedules it was given and starts nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator

from apples.agent.information import InformationPool
from apples.launch.actuator import Actuator, Command, Execution, Outcome, Progress
from apples.launch.task import run_task
from apples.schedule import Schedule


class RecordingExecution(Execution):
    """A run that never was: no progress, no outcome.

    Examples
    --------
    >>> list(RecordingExecution().monitor()), RecordingExecution().outcome()
    ([], None)
    """

    def monitor(self) -> Iterator[Progress]:
        """Yield nothing."""
        return iter(())

    def outcome(self) -> Outcome | None:
        """Return None."""
        return None

    def cancel(self) -> None:
        """Do nothing."""


class RecordingActuator(Actuator):
    """Starts nothing; what it was asked to start is in `schedules`, in order.

    Parameters
    ----------
    stands_for
        The actuator that is going to start it: looks at the hosts in its place.

    Examples
    --------
    >>> RecordingActuator().schedules
    []
    """

    def __init__(self, stands_for: Actuator | None = None) -> None:
        self.stands_for = stands_for
        self.schedules: list[Schedule] = []

    def look(self, information: InformationPool) -> InformationPool:
        """Look as the actuator does that this one stands for."""
        return self.stands_for.look(information) if self.stands_for else information

    def wait_seconds(self, schedule: Schedule, information: InformationPool) -> float:
        """Return what the actuator expects that this one stands for."""
        return self.stands_for.wait_seconds(schedule, information) if self.stands_for else 0.0

    def command(self, schedule: Schedule, information: InformationPool) -> Command:
        """Return a command of no words, with the task it would have been given."""
        return Command(
            (), {}, {"task.json": json.dumps(run_task(schedule, information), indent=1)}
        )

    def actuate(self, schedule: Schedule, information: InformationPool) -> Execution:
        """Record the schedule."""
        del information
        self.schedules.append(schedule)
        return RecordingExecution()
