"""`RecordingActuator`: keeps the plans it was given and starts nothing."""

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
    """Nothing runs: `monitor` ends at once, there is no outcome, and `resize` is refused.

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
    """Starts nothing; what it was asked to start is in `plans`, in order.

    Parameters
    ----------
    stands_for
        The actuator that would start it: answers in its place what it can start, and how.
    asks
        Whether that one looks at hosts and asks the queue.

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
        """Return one; nothing is started, so nothing is written or saved."""
        del output, save, options
        return cls()

    @property
    def takes_threads(self) -> bool:  # type: ignore[override]  # others say it of the class
        """Whether the actuator takes them that this one stands for."""
        return self.stands_for is None or self.stands_for.takes_threads

    @property
    def queues(self) -> bool:
        """Whether the actuator does that this one stands for."""
        return self.stands_for is not None and self.stands_for.queues

    def waited_for(self, hosts: Iterable[Host]) -> tuple[Host, ...]:
        """Return which hosts the actuator waits for that this one stands for."""
        return self.stands_for.waited_for(hosts) if self.stands_for else ()

    @property
    def only_plans(self) -> bool:
        """Whether nothing is looked at or asked for the plan."""
        return self.stands_for is None or not self._asks

    @property
    def movable(self) -> bool:  # type: ignore[override]  # others say it of the class
        """Whether the actuator starts what can be moved that this one stands for."""
        return self.stands_for is not None and self.stands_for.movable

    def look(self, survey: HostSurvey) -> Mapping[str, Fitness]:
        """Look as the actuator does that this one stands for."""
        return self.stands_for.look(survey) if self.stands_for else {}

    def wait_seconds(self, plan: LaunchPlan) -> float:
        """Return what the actuator expects that this one stands for."""
        return self.stands_for.wait_seconds(plan) if self.stands_for else 0.0

    def command(self, plan: LaunchPlan) -> LaunchCommand:
        """Return a command of no words, with the task it would have been given."""
        from apples.launch.hydra import LaunchCommand  # noqa: PLC0415 - see the top
        from apples.launch.plan import run_task  # noqa: PLC0415

        return LaunchCommand((), {}, {"task.json": json.dumps(run_task(plan), indent=1)})

    def actuate(self, plan: LaunchPlan) -> Execution:
        """Record the plan."""
        self.plans.append(plan)
        return RecordingExecution()
