"""`Actuator`: implements a schedule through the resource manager at hand (Berman et al. 1996, section 4.7).

An actuator starts one application, returns its reports, and leaves no process or file behind however the
run ends. A run succeeded only if the application reported ``done``; exit codes do not count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from apples.errors import LaunchError, UsageError
from apples.resources import Host, HostList
from apples.resources.schedule import Schedule

if (
    TYPE_CHECKING
):  # a blueprint imports this module; a command that only plans must not load a launcher
    from apples.launch.events import HostsChanged, Outcome, Progress, RowDigests, Talk
    from apples.launch.host_spec import HostSpec
    from apples.launch.hydra import LaunchCommand
    from apples.launch.message_counts.arrays import ArrayMessages
    from apples.launch.message_counts.counter import MessageCounts
    from apples.launch.plan import HostSurvey, LaunchPlan
    from apples.launch.remote.connection import HostConnections
    from apples.launch.remote.fitness import Fitness

Bandwidth = Callable[[str, str], float]
"""Bytes a second from one host to another."""

NOT_RESIZABLE = (
    "this run cannot be resized: start it with coordinator.actuate(estimate, movable=True)"
)


@dataclass(frozen=True, slots=True)
class Resized:
    """The duration of a resize.

    Attributes
    ----------
    epoch
        Number of the new configuration.
    seconds
        Time from the safe point to the end of the resize.
    phases
        Seconds of each phase, including phases before the safe point.
    """

    epoch: int
    seconds: float
    phases: Mapping[str, float]


class Execution(ABC):
    """A started application. It ends by itself, by `cancel`, or with its agent."""

    @abstractmethod
    def monitor(self) -> Iterator[Progress]:
        """Yield progress until the run ends.

        Raises
        ------
        ApplicationError
            The program failed, or ended without a ``done`` event. Permanent for this input.
        DeadlineError
            The program was silent for longer than its time limit.
        """

    def has_progress(self, seconds: float) -> bool:
        """Whether `monitor` would yield, end, or raise at once; waits at most `seconds`.

        The default is False (unknown): only `monitor` reads the execution then. Another thread than that of
        `monitor` may call this, but never at the same time.
        """
        del seconds
        return False

    @contextmanager
    def drained(self) -> Iterator[None]:
        """Read the program's output in the background while the caller of `monitor` is busy.

        Otherwise the program would block once a pipe is full, until `monitor` is called again.
        """
        yield

    @abstractmethod
    def outcome(self) -> Outcome | None:
        """Wait for the end and return the measurements; None if no program ran (a recording)."""

    @property
    def movable(self) -> bool:
        """Whether `position` and `resize` are supported."""
        return False

    @property
    def mark(self) -> str:
        """The job tag of its processes (`apples.launch.job_processes`); empty: unknown."""
        return ""

    @property
    def queue_seconds(self) -> float | None:
        """Seconds that it waited in a queue; None without a queue, or if the queue does not report them."""
        return None

    @property
    def row_digests(self) -> Sequence[RowDigests]:
        """Digests of the rows of the result, as the program reported them; empty if it reported none."""
        return ()

    @property
    def changes(self) -> Sequence[HostsChanged]:
        """The latest changes of its hosts or rows during the run, oldest first."""
        return ()

    @property
    def array_messages(self) -> ArrayMessages:
        """Messages of its arrays from rank to rank, as the program reported them; empty if it reported none."""
        from apples.launch.message_counts.arrays import ArrayMessages  # noqa: PLC0415 - see the top

        return ArrayMessages()

    @property
    def moved(self) -> bool:
        """Whether it is known to run on other hosts than at its start, so that the first prediction is void."""
        return False

    def position(self, seconds: float = 10.0) -> Mapping[str, Any]:
        """Return the job's ``hosts``, ``rows``, ``epoch`` and ``iteration``.

        Raises
        ------
        LaunchError
            The job cannot be resized, or does not answer within `seconds`.
        """
        del seconds
        raise LaunchError(NOT_RESIZABLE, code="run-not-resizable")

    def resize(
        self, schedule: Schedule, *, ordered: bool = False, bandwidth: Bandwidth | None = None
    ) -> Resized:
        """Move the running job to the hosts and rows of a schedule; return when the move is complete.

        Parameters
        ----------
        ordered
            Whether the strips must have the schedule's order. If False, the order that moves the fewest rows
            is used.
        bandwidth
            Bytes a second from one host to another, from which the time limit of the transfer follows. None:
            unknown.

        Raises
        ------
        UsageError
            The job's limits or its host list forbid the move. Permanent.
        LaunchError
            The job is busy, cannot be resized, or the move failed. The job continues on its old hosts.
        """
        del schedule, ordered, bandwidth
        raise LaunchError(NOT_RESIZABLE, code="run-not-resizable")

    @abstractmethod
    def cancel(self) -> None:
        """End the run. A normal return guarantees that none of its processes is left. May be called again."""


class Actuator(ABC):
    """Starts applications through one launcher. A new launcher is a subclass in one file.

    The docstring of an implementation names its launcher in one line. A subclass must implement `command` and
    `actuate`; the defaults of the other methods suit a launcher of this machine. `apples.launch.check_actuator`
    runs the contract's checks on any implementation; ``--actuator`` takes ``module:name`` or ``file.py:name``.
    """

    name: ClassVar[str] = ""
    """Value of ``--actuator`` for this class; empty for a user's own class."""
    takes_options: ClassVar[bool] = False
    """Whether it accepts options for the site, such as ``--slurm partition=NAME``."""
    reaches_other_machines: ClassVar[bool] = False
    """Whether a host of a plan may be another machine, with its own launcher there."""
    movable: ClassVar[bool] = False
    """Whether its applications can be moved while they run."""
    takes_threads: ClassVar[bool] = True
    """Whether one process may use all CPUs of a host by threads, instead of one rank for each slot."""
    talk: Talk
    """Receives the output of launcher and program except events; `apples.run` sets it before the start."""
    connections: HostConnections | None = None
    """Logins over which hosts were checked and measured, with the run's name (`use`). None: open new logins."""

    @classmethod
    def create(
        cls, output: Path | None, *, save: bool, options: Mapping[str, str] | None = None
    ) -> Actuator:
        """Return an actuator for the options of a command line.

        Parameters
        ----------
        output
            Directory the program may write its files to.
        save
            Whether the program must save its result there.
        options
            The user's options for the site; passed only if `takes_options`.

        Raises
        ------
        UsageError
            The launcher does not know an option. Permanent.
        """
        del options
        return cls(output, save=save)  # type: ignore[call-arg]  # the signature that an implementation has, or it overrides this

    @classmethod
    def sensed_hosts(cls, hosts: HostList) -> tuple[Host, ...]:
        """Return the hosts to measure over a connection of their own; none for a launcher of this machine."""
        del hosts
        return ()

    @classmethod
    def weather(cls, asked: str) -> str:
        """Return the kind of weather to plan with if the user requested `asked`."""
        return asked

    @property
    def queues(self) -> bool:
        """Whether its applications may wait in a queue before they run."""
        return False

    def waited_for(self, hosts: Iterable[Host]) -> tuple[Host, ...]:
        """Return the hosts for which a run must wait in a queue: by default all if `queues`, else none."""
        return tuple(hosts) if self.queues else ()

    @property
    def only_plans(self) -> bool:
        """Whether it never starts a program. A plan may then combine hosts that no single launcher reaches."""
        return False

    @abstractmethod
    def command(self, plan: LaunchPlan) -> LaunchCommand:
        """Return the complete command that `actuate` would run. Starts no process and writes no file.

        Raises
        ------
        LaunchError
            This launcher cannot start the plan: the program or the launcher is missing. Permanent.
        """

    def look(self, survey: HostSurvey) -> Mapping[str, Fitness]:
        """Check the hosts that have no findings yet; return the findings by host name, empty if no host is new.

        Called before the start, so that unusable hosts are left out of the plan. Takes bounded time even if
        hosts are dead.

        Raises
        ------
        LaunchError
            The launcher itself does not answer. Often transient.
        """
        del survey
        return {}

    def use(self, connections: HostConnections) -> None:
        """Use these logins, over which hosts were checked, and their run name for the next start."""
        self.connections = connections

    def count_messages(self, counts: MessageCounts) -> None:
        """Count the messages of the ranks of all applications that are started from now on.

        Raises
        ------
        UsageError
            This launcher may start ranks on other machines, and could not read their counts. Permanent.
        """
        del counts
        name = self.name or type(self).__name__
        raise UsageError(
            f"--count-messages: not with --actuator {name}: counts are files of this machine",
            code="option-conflict",
            options=["--count-messages", "--actuator"],
            value=name,
        )

    def wait_seconds(self, plan: LaunchPlan) -> float:
        """Return the expected seconds until the plan's resources are available; 0 if none is `waited_for`.

        Raises
        ------
        LaunchError
            The launcher would never accept such a job. Permanent for this plan.
        """
        del plan
        return 0.0

    @abstractmethod
    def actuate(self, plan: LaunchPlan) -> Execution:
        """Start the application; return once every rank has its data (the program reported ``ready``).

        A normal return guarantees that the program runs with the plan's strips in the plan's order, and that
        it ends with this process at the latest, however this process ends. After an error no process of the run
        is left.

        Raises
        ------
        LaunchError
            The resources were not available or the program did not start. Often transient.
        ApplicationError
            The program started and rejected its task. Permanent for this input.
        """

    def check_movable(self) -> None:
        """Raise an error if this launcher cannot move a running job.

        Raises
        ------
        UsageError
            The launcher cannot move jobs, or not from this process, for example outside an allocation. Permanent.
        """
        name = self.name or type(self).__name__
        raise UsageError(
            f"--actuator {name}: cannot move a job while it runs",
            code="launcher-not-malleable",
            option="--actuator",
            value=name,
        )

    def host_specs(self, plan: LaunchPlan) -> Sequence[HostSpec]:
        """Return every host that a malleable job may ever use, each with the way to start ranks there.

        Called only after `check_movable`, with the plan of a malleable program.
        """
        del plan
        self.check_movable()
        return ()
