"""`Actuator`: implements a schedule through the resource manager at hand (Berman et al. 1996, section 4.7).

An actuator starts one application, hands back what it reports, and leaves nothing behind however the
run ends. It trusts the application's own ``done`` and no exit code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apples.agent.information import InformationPool
from apples.errors import LaunchError
from apples.launch.events import HostTimes, Outcome, Progress
from apples.launch.hydra import Command
from apples.schedule import Schedule

__all__ = ["Actuator", "Command", "Execution", "HostTimes", "Outcome", "Progress", "Resized"]


@dataclass(frozen=True, slots=True)
class Resized:
    """What a resize took.

    Attributes
    ----------
    epoch
        The configuration it made.
    seconds
        From the safe point until it was complete.
    phases
        Of what that, and what came before it, consists.
    """

    epoch: int
    seconds: float
    phases: Mapping[str, float]


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

    @property
    def movable(self) -> bool:
        """Whether `position` and `resize` are of any use."""
        return False

    @property
    def moved(self) -> bool:
        """Whether it is known to run elsewhere than it began, so that its start's prediction is void."""
        return False

    def position(self, seconds: float = 10.0) -> Mapping[str, Any]:
        """Return where the job is: ``hosts``, ``rows``, ``epoch``, ``iteration``; it has `seconds` to answer.

        Raises
        ------
        LaunchError
            It cannot be resized, or does not answer.
        """
        del seconds
        raise LaunchError("this run cannot be resized")

    def resize(self, schedule: Schedule, *, ordered: bool = False) -> Resized:
        """Move the running job to the hosts and rows of a schedule; returns when it is there.

        Parameters
        ----------
        ordered
            Whether the strips must have the schedule's order; else the one that moves the fewest rows.

        Raises
        ------
        UsageError
            The job's limits or its host list forbid it. Permanent.
        LaunchError
            It is busy, cannot be resized, or tried in vain; it goes on as it was.
        """
        del schedule, ordered
        raise LaunchError("this run cannot be resized")

    @abstractmethod
    def cancel(self) -> None:
        """End the run; when this returns no process of it is left. May be called again."""


class Actuator(ABC):
    """Starts applications. Implementations say in one line which resource manager they speak to."""

    @abstractmethod
    def command(self, schedule: Schedule, information: InformationPool) -> Command:
        """Return what `actuate` would run; starts and writes nothing."""

    def look(self, information: InformationPool) -> InformationPool:
        """Return what is known after looking at hosts nobody has looked at yet; the same where none is new.

        Hosts that cannot be used are found so before anything is started, and the plan is made again.
        """
        return information

    def wait_seconds(self, schedule: Schedule, information: InformationPool) -> float:
        """Return how long it is expected to take until the resources can be had; 0 where nobody queues."""
        del schedule, information
        return 0.0

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
