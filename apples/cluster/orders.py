"""The messages between a live scheduler and the executor of its jobs: orders and reports, as values.

Orders and reports can be lost, delayed or repeated, so each is safe to repeat. The executor starts each attempt of
a job at most once and carries out each numbered order (`epoch`) at most once. A report gives the present state,
not a change. Each start of a scheduler has a higher `incarnation`; an executor ignores orders of an earlier one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

REQUIRE: Final = "require"
"""Key in the work of a job: the requirement on its CPUs (`apples.topology.language`), if it has one."""


def attached_requirement(work: Mapping[str, Any]) -> str:
    """Return the requirement that `apples submit --require` attached to a job; empty: none."""
    return str(work.get(REQUIRE, ""))


LAST: Final = 1 << 31
"""Greater than the number of every order to resize; an attempt that left a host by it never returns there."""


@dataclass(frozen=True, slots=True)
class StartOrder:
    """Start an attempt of a job on these hosts, unless it was started or ended already.

    Attributes
    ----------
    folder
        Name of the attempt's folder. Its exclusive creation ensures that the attempt starts at most once.
    work
        The work of the job, as submitted; the scheduler does not interpret it.
    user
        User of the job, here and in every order.
    cpus
        CPUs of each host, if other jobs may share the hosts: the attempt then runs on those that the host's
        topology daemon allocates to it. 0: it has its hosts to itself.
    """

    job: int
    attempt: int
    incarnation: int
    folder: str
    hosts: tuple[str, ...]
    work: Mapping[str, Any] = field(hash=False)
    user: str = ""
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class ResizeOrder:
    """Move a running attempt to these hosts; `epoch` numbers the orders of an attempt from 1.

    Attributes
    ----------
    cpus
        As in `StartOrder`.
    """

    job: int
    attempt: int
    incarnation: int
    folder: str
    epoch: int
    hosts: tuple[str, ...]
    user: str = ""
    cpus: int = 0


@dataclass(frozen=True, slots=True)
class EndOrder:
    """End an attempt or prevent its start; then report each of these hosts once it has no process there."""

    job: int
    attempt: int
    incarnation: int
    folder: str
    hosts: tuple[str, ...]
    user: str = ""


@dataclass(frozen=True, slots=True)
class AskOrder:
    """Report the state of an attempt, and which of the hosts in `leaving` it has left.

    Attributes
    ----------
    begun
        Whether the attempt is known to have run. If its record is then missing, it is reported as ended and never
        starts.
    leaving
        Hosts that it has to leave, each with the number of the order.
    """

    job: int
    attempt: int
    incarnation: int
    folder: str
    begun: bool
    leaving: tuple[tuple[str, int], ...] = ()
    user: str = ""


@dataclass(frozen=True, slots=True)
class EstimateOrder:
    """Report the run time of a job, and the hosts that suit it best, by its application's model.

    Attributes
    ----------
    hosts
        Number of hosts of the run.
    among
        The hosts to choose from; empty: no choice is needed.
    shares
        Host -> the part of a processor that other processes leave there; 1 for hosts that are absent.
    attempt
        0: the order is about the job, not about one attempt.
    """

    job: int
    incarnation: int
    hosts: int
    work: Mapping[str, Any] = field(hash=False)
    user: str = ""
    attempt: int = 0
    among: tuple[str, ...] = ()
    shares: Mapping[str, float] = field(default_factory=dict, hash=False)


AttemptOrder = StartOrder | ResizeOrder | EndOrder | AskOrder
Order = AttemptOrder | EstimateOrder
HostChoice = tuple[tuple[str, ...], float]
"""Hosts, and the estimated seconds of a run on them, its start included."""


class AttemptPhase(StrEnum):
    """The phase of an attempt, as its executor reports it."""

    ABSENT = "absent"
    """It has not started, and may still start."""
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    """It is over, or will never start."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """The state of an attempt of a job.

    Attributes
    ----------
    epoch, refused
        The last answered order to resize it, 0: none; and whether the job refused it, for `reason`.
    hosts
        Hosts of a running attempt; empty: not reported.
    iteration, iterations
        Iterations done, and in all; None: not known.
    state, exit_code
        Of an ended attempt: ``finished``, ``failed`` or ``cancelled``, and the exit code of its run.
    speeds
        Host -> rows that it computes there in a second, by its own measurement; empty: not reported.
    asks
        Fewest and most hosts that its program has asked for (`LiveJob.asks`); None: not known.
    messages
        Sending host, receiving host and bytes of an iteration, as its arrays count them; empty: not reported.
    anchor
        The host that it cannot leave; empty: none.
    verifying_until
        Estimated end of the verification of its result, in seconds since the epoch, once its application has
        ended; None: the application runs.
    """

    job: int
    attempt: int
    phase: AttemptPhase
    epoch: int = 0
    refused: bool = False
    hosts: tuple[str, ...] = ()
    iteration: int | None = None
    iterations: int | None = None
    state: str = ""
    reason: str = ""
    exit_code: int | None = None
    asks: tuple[int, int] | None = None
    speeds: Mapping[str, float] = field(default_factory=dict, hash=False)
    messages: tuple[tuple[str, str, float], ...] = ()
    anchor: str = ""
    verifying_until: float | None = None


@dataclass(frozen=True, slots=True)
class HostLeft:
    """The report that a host has no process of an attempt, and that no old order will start one there.

    Attributes
    ----------
    epoch
        Number of the order by which it left; `LAST`: the attempt is over.
    """

    job: int
    attempt: int
    host: str
    epoch: int


@dataclass(frozen=True, slots=True)
class RunTimeEstimate:
    """The run time of a job by its application's model, on the number of hosts in the order.

    Attributes
    ----------
    seconds
        None: the model cannot estimate it.
    choices
        The sets of hosts that suit it best, the best first, each with the number of hosts in the order; no host
        is in two of them. None: not asked.
    """

    job: int
    seconds: float | None
    choices: tuple[HostChoice, ...] | None = None


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """Whether a host answers; the scheduler starts nothing on a host that does not.

    Attributes
    ----------
    reason
        Reason that it does not answer; empty: it answers.
    """

    host: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HostLoad:
    """The processors of a host and the demand for them, averaged over a short time.

    Attributes
    ----------
    cpus
        Number of its processors.
    wanting
        Mean number of processes that want a processor, by the folder of their attempt; empty: of no job.
    parts
        As in `NodeLoad`.
    errors
        Standard errors of `wanting`.
    """

    host: str
    cpus: int
    wanting: Mapping[str, float]
    parts: tuple[tuple[str, float], ...] = ()
    errors: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobRunnerAnswer:
    """Whether a user's job runner is connected; without it none of the user's jobs is started.

    A job runner that has just connected knows no job until the scheduler asks it.
    """

    user: str
    here: bool


@dataclass(frozen=True, slots=True)
class HostLease:
    """The time for which a host may be used: of a new host, or a change for a known host.

    Attributes
    ----------
    seconds
        From now; inf: the end is not known. At most 0: it is over.
    source
        Name of the lease for users, for example ``allocation 12``.
    """

    host: str
    seconds: float
    source: str = ""


Report = (
    JobReport | HostLeft | HostLease | RunTimeEstimate | HostAnswer | HostLoad | JobRunnerAnswer
)


class JobExecutor(ABC):
    """Runs the jobs of a live scheduler on real machines.

    It carries out each order at most once, even if the order is repeated, and may repeat its reports. It reports
    `HostLeft` only after it has verified it. Jobs continue without the scheduler and without the executor.
    """

    @abstractmethod
    def carry_out(self, orders: Sequence[Order]) -> None:
        """Begin to carry out orders; return at once."""

    @abstractmethod
    def reports(self) -> list[Report]:
        """Return the reports since the last call."""

    @abstractmethod
    def close(self) -> None:
        """Stop reporting; the jobs continue."""
