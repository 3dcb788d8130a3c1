"""`Actuator`: implements a schedule through the resource manager at hand (Berman et al. 1996, section 4.7).

An actuator starts one application, hands back what it reports, and leaves nothing behind however the
run ends. It trusts the application's own ``done`` and no exit code.
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

if TYPE_CHECKING:  # a blueprint imports this module; a plan starts nothing and loads no launcher
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

    def has_progress(self, seconds: float) -> bool:
        """Whether `monitor` yields, ends, or raises without a wait; waits at most `seconds`.

        False where that is not known: the execution is then read by `monitor` only. It is called from another
        thread than `monitor`, never at the same time.
        """
        del seconds
        return False

    @contextmanager
    def drained(self) -> Iterator[None]:
        """Take in what the program prints while the caller of `monitor` does something else.

        Otherwise a program that prints more than a pipe holds would stand still until `monitor` is called again.
        """
        yield

    @abstractmethod
    def outcome(self) -> Outcome | None:
        """Return what was measured, waiting for the end; None where nothing ran (a recording)."""

    @property
    def movable(self) -> bool:
        """Whether `position` and `resize` are of any use."""
        return False

    @property
    def mark(self) -> str:
        """The mark that its processes bear (`apples.launch.job_processes`); empty: it is not known."""
        return ""

    @property
    def queue_seconds(self) -> float | None:
        """How long the queue held its resources back; None where there was none, or nobody says."""
        return None

    @property
    def row_digests(self) -> Sequence[RowDigests]:
        """What the program said of the rows of its result, row by row; empty where it says nothing."""
        return ()

    @property
    def changes(self) -> Sequence[HostsChanged]:
        """The latest changes of its hosts or rows that were made while it ran, the earliest first."""
        return ()

    @property
    def array_messages(self) -> ArrayMessages:
        """The messages of its arrays by its own word, from rank to rank; without any where it says nothing."""
        from apples.launch.message_counts.arrays import ArrayMessages  # noqa: PLC0415 - see the top

        return ArrayMessages()

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
        raise LaunchError(NOT_RESIZABLE, code="run-not-resizable")

    def resize(
        self, schedule: Schedule, *, ordered: bool = False, bandwidth: Bandwidth | None = None
    ) -> Resized:
        """Move the running job to the hosts and rows of a schedule; returns when it is there.

        Parameters
        ----------
        ordered
            Whether the strips must have the schedule's order; else the one that moves the fewest rows.
        bandwidth
            Bytes a second from one host to another: the job is given up as unmovable when its data takes much
            longer. None: nobody knows.

        Raises
        ------
        UsageError
            The job's limits or its host list forbid it. Permanent.
        LaunchError
            It is busy, cannot be resized, or tried in vain; it goes on as it was.
        """
        del schedule, ordered, bandwidth
        raise LaunchError(NOT_RESIZABLE, code="run-not-resizable")

    @abstractmethod
    def cancel(self) -> None:
        """End the run; when this returns no process of it is left. May be called again."""


class Actuator(ABC):
    """Starts applications through one launcher. A new launcher is a subclass in one file.

    An implementation says in one line which launcher it speaks to, and must give `command` and `actuate`; the
    other methods have an answer that is right for a launcher of this machine. `apples.launch.check_actuator`
    runs the contract's checks on any implementation; ``--actuator`` takes ``module:name`` or ``file.py:name``.
    """

    name: ClassVar[str] = ""
    """What ``--actuator`` calls it; empty where it is a user's own."""
    takes_options: ClassVar[bool] = False
    """Whether its site may want to be told something (``--slurm partition=NAME``)."""
    reaches_other_machines: ClassVar[bool] = False
    """Whether a host of a plan may be another machine, with a launcher of its own there."""
    movable: ClassVar[bool] = False
    """Whether what it starts can be moved while it runs."""
    takes_threads: ClassVar[bool] = True
    """Whether one process may have all CPUs that a host has, in the place of a rank for each slot."""
    talk: Talk
    """Receives what the launcher and the program say besides events; `apples.run` sets it before the start."""
    connections: HostConnections | None = None
    """Through which hosts were looked at and measured, and the name of the run (`use`). Default: new ones."""

    @classmethod
    def create(
        cls, output: Path | None, *, save: bool, options: Mapping[str, str] | None = None
    ) -> Actuator:
        """Return an actuator as the command line wants one.

        Parameters
        ----------
        output
            Directory the program may write its files to.
        save
            Whether it is asked to keep its result there.
        options
            What the user wants the site to be told; given only where `takes_options`.

        Raises
        ------
        UsageError
            An option that the launcher does not know. Permanent.
        """
        del options
        return cls(output, save=save)  # type: ignore[call-arg]  # the signature that an implementation has, or it overrides this

    @classmethod
    def sensed_hosts(cls, hosts: HostList) -> tuple[Host, ...]:
        """Return the hosts whose weather is measured over a connection of its own: none for this machine's."""
        del hosts
        return ()

    @classmethod
    def weather(cls, asked: str) -> str:
        """Return the weather to plan under where the user asked for `asked`."""
        return asked

    @property
    def queues(self) -> bool:
        """Whether what it starts may wait in a queue before it runs."""
        return False

    def waited_for(self, hosts: Iterable[Host]) -> tuple[Host, ...]:
        """Return which of some hosts a run has to wait for in a queue: all of them where `queues`, else none."""
        return tuple(hosts) if self.queues else ()

    @property
    def only_plans(self) -> bool:
        """Whether it never starts anything, so that a plan may span what no one launcher starts."""
        return False

    @abstractmethod
    def command(self, plan: LaunchPlan) -> LaunchCommand:
        """Return what `actuate` would run, complete; starts and writes nothing.

        Raises
        ------
        LaunchError
            The plan cannot be started by this launcher: no program, no such launcher here. Permanent.
        """

    def look(self, survey: HostSurvey) -> Mapping[str, Fitness]:
        """Return what was found on hosts that nobody has looked at yet, by name; empty where none is new.

        Called before a plan is carried out, so that hosts that cannot be used are left out of the plan
        before anything is started. Takes bounded time, whatever hosts are dead.

        Raises
        ------
        LaunchError
            The launcher itself does not answer. Often transient.
        """
        del survey
        return {}

    def use(self, connections: HostConnections) -> None:
        """Start through the logins over which hosts were looked at, under the name that they bear."""
        self.connections = connections

    def count_messages(self, counts: MessageCounts) -> None:
        """Let the ranks of what is started from here on count their messages.

        Raises
        ------
        UsageError
            Ranks of this launcher may be on other machines, whose counts nobody could read. Permanent.
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
        """Return how long it may take until the plan's resources can be had; 0 where none is `waited_for`.

        Raises
        ------
        LaunchError
            The launcher would never take such a job. Permanent for this plan.
        """
        del plan
        return 0.0

    @abstractmethod
    def actuate(self, plan: LaunchPlan) -> Execution:
        """Start the application and return once every rank has its data in place (the program said ``ready``).

        A normal return guarantees that the program runs with the plan's strips in the plan's order, and that
        it ends with this process at the latest, however that ends. After an error nothing of the run is left.

        Raises
        ------
        LaunchError
            The resources could not be had or the program did not start. Often transient.
        ApplicationError
            The program started and refused its task. Permanent for this input.
        """

    def check_movable(self) -> None:
        """Refuse where no job can be moved while it runs.

        Raises
        ------
        UsageError
            It cannot, through this launcher or at this place. Permanent.
        """
        name = self.name or type(self).__name__
        raise UsageError(
            f"--actuator {name}: cannot move a job while it runs",
            code="launcher-not-malleable",
            option="--actuator",
            value=name,
        )

    def host_specs(self, plan: LaunchPlan) -> Sequence[HostSpec]:
        """Return every host that a malleable job may ever use, and how the job manager starts ranks there.

        Called only after `check_movable`, with a plan whose program is malleable.
        """
        del plan
        self.check_movable()
        return ()
