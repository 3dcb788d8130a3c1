"""`Actuator`: implements a schedule through the resource manager at hand (Berman et al. 1996, section 4.7).

An actuator starts one application, hands back what it reports, and leaves nothing behind however the
run ends. It trusts the application's own ``done`` and no exit code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from apples.information import InformationPool
from apples.launch.events import HostTimes, Outcome, Progress
from apples.launch.hydra import Command
from apples.schedule import Schedule

__all__ = ["Actuator", "Command", "Execution", "HostTimes", "Outcome", "Progress"]


class Execution(ABC):
    """One application that was started. Ends by itself, by `cancel`, or with its agent."""

    @abstractmethod
    def monitor(self) -> Iterator[Progress]:
        """Yield progress until the run ends.

        Raises
        ------
        ApplicationError
            The program failed, or ended without saying ``done``. Permanent for this input.
        DeadlineError
            It gave no sign of life for longer than its deadline.
        """

    @abstractmethod
    def outcome(self) -> Outcome | None:
        """Return what was measured, waiting for the end; None where nothing ran (a recording)."""

    @abstractmethod
    def cancel(self) -> None:
        """End the run; when this returns no process of it is left. May be called again."""


class Actuator(ABC):
    """Starts applications. Implementations say in one line which resource manager they speak to."""

    @abstractmethod
    def command(self, schedule: Schedule, information: InformationPool) -> Command:
        """Return what `actuate` would run; starts and writes nothing."""

    @abstractmethod
    def actuate(self, schedule: Schedule, information: InformationPool) -> Execution:
        """Start the application; returns once every rank has its data in place (it said ``ready``).

        Raises
        ------
        LaunchError
            The resources could not be had or the program did not start. Often transient.
        ApplicationError
            The program started and refused its task. Permanent for this input.
        """
