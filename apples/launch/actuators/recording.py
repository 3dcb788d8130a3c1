"""`RecordingActuator`: records plans and starts nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from apples.launch.actuator import Actuator, Execution
from apples.resources import Host

if TYPE_CHECKING:  # a command that only plans loads no launcher
    from apples.launch.events import Outcome, Progress
    from apples.launch.hydra import LaunchCommand
    from apples.launch.plan import HostSurvey, LaunchPlan
    from apples.launch.remote.fitness import Fitness


class RecordingExecution(Execution):
    """No program runs: `monitor` ends at once, `outcome` is None, and `resize` raises an error.

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
    """Appends each plan to `plans` instead of starting it.

    Parameters
    ----------
    stands_for
        The actuator that would start the plans; questions about its abilities are passed to it.
    asks
        Whether `stands_for` may check hosts and query the queue.

    Examples
    --------
    >>> RecordingActuator().plans
    []
    """

    name = "recording"

    def __init__(self, stands_for: Actuator | None = None, *, asks: bool = True) -> None:
        self.stands_for, self._asks = stands_for, asks
        self.plans: list[LaunchPlan] = []

    @classmethod
    def create(
        cls, output: Path | None, *, save: bool, options: Mapping[str, str] | None = None
    ) -> RecordingActuator:
        """Return a recording actuator. All arguments are ignored, because no program runs."""
        del output, save, options
        return cls()

    @property
    def takes_threads(self) -> bool:  # type: ignore[override]  # others say it of the class
        """Whether the actuator that it replaces takes threads."""
        return self.stands_for is None or self.stands_for.takes_threads

    @property
    def queues(self) -> bool:
        """Whether the actuator that it replaces uses a queue."""
        return self.stands_for is not None and self.stands_for.queues

    def waited_for(self, hosts: Iterable[Host]) -> tuple[Host, ...]:
        """Return the hosts for which the actuator that it replaces would wait in a queue."""
        return self.stands_for.waited_for(hosts) if self.stands_for else ()

    @property
    def only_plans(self) -> bool:
        """Whether no host is checked and no queue is queried for the plan."""
        return self.stands_for is None or not self._asks

    @property
    def movable(self) -> bool:  # type: ignore[override]  # others say it of the class
        """Whether the actuator that it replaces can move running applications."""
        return self.stands_for is not None and self.stands_for.movable

    def look(self, survey: HostSurvey) -> Mapping[str, Fitness]:
        """Check hosts with the actuator that it replaces."""
        return self.stands_for.look(survey) if self.stands_for else {}

    def wait_seconds(self, plan: LaunchPlan) -> float:
        """Return the wait that the replaced actuator expects, in seconds."""
        return self.stands_for.wait_seconds(plan) if self.stands_for else 0.0

    def command(self, plan: LaunchPlan) -> LaunchCommand:
        """Return a command with an empty argument list; its only file is the task."""
        from apples.launch.hydra import LaunchCommand  # noqa: PLC0415 - see the top
        from apples.launch.plan import run_task  # noqa: PLC0415

        return LaunchCommand((), {}, {"task.json": json.dumps(run_task(plan), indent=1)})

    def actuate(self, plan: LaunchPlan) -> Execution:
        """Record the plan."""
        self.plans.append(plan)
        return RecordingExecution()
