"""What a live scheduler tells whoever runs its jobs, and what it hears: orders and reports, as values.

An order may be lost, late, or come twice, and so may a report; each is therefore safe to repeat. A job is started
at most once for each of its attempts, an order with a number of its own (`epoch`) is carried out at most once, and
a report says what is so, not what has changed. Who runs the jobs obeys no order of a scheduler that has been
replaced: each start of a scheduler has a higher `incarnation`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

REQUIRE: Final = "require"
"""In the work of a job: the requirement on its CPUs (`apples.topology.language`), if there is one."""


def attached_requirement(work: Mapping[str, Any]) -> str:
    """Return the requirement that `apples submit --require` attached to a job; empty: none."""
    return str(work.get(REQUIRE, ""))


LAST: Final = 1 << 31
"""Above the number of every order: what has left a host by then has left it for good."""


@dataclass(frozen=True, slots=True)
class StartOrder:
    """Start an attempt of a job on these hosts, unless it was started or ended already.

    Attributes
    ----------
    folder
        Name of the attempt's own folder, which is made exclusively: that is what makes a start happen once.
    work
        What is to be run, as it was submitted; the scheduler does not look into it.
    user
        Whose job it is, here and in every order.
    cpus
        CPUs of each of its hosts, of which it may have to share with another job: it runs on those that the
        host's topology daemon allocates to it. 0: it has its hosts to itself.
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
    """Have a running attempt be on these hosts; `epoch` numbers the orders of an attempt from 1 on.

    Attributes
    ----------
    cpus
        As of the order to start it.
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
    """See that an attempt is over, or never begins; then say of these hosts when nothing of it is there."""

    job: int
    attempt: int
    incarnation: int
    folder: str
    hosts: tuple[str, ...]
    user: str = ""


@dataclass(frozen=True, slots=True)
class AskOrder:
    """Say where an attempt is, and whether it has left these hosts, by the numbers of the orders to leave.

    Attributes
    ----------
    begun
        Whether it is known to have run: one that is not found then is lost, and never begins.
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
    """Report how long a job is going to run, and which hosts suit it best, by its application's model.

    Attributes
    ----------
    hosts
        On how many.
    among
        The hosts to choose from; empty: its hosts are not asked about.
    shares
        Host -> the part of a processor that others leave there; 1 where not named.
    attempt
        0: it is about the job, whichever attempt.
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
    """Where an attempt is, as whoever runs it says."""

    ABSENT = "absent"
    """It was never begun, and may still be."""
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"
    """It is over, or never will begin."""


@dataclass(frozen=True, slots=True)
class JobReport:
    """Where an attempt of a job is.

    Attributes
    ----------
    epoch, refused
        The last order to resize it that was answered, 0: none; and whether it was refused, with `reason`.
    hosts
        Where it is, of a running one; empty: not said.
    iteration, iterations
        How far it is, and of how many; None: not known.
    state, exit_code
        Of an ended one: ``finished``, ``failed`` or ``cancelled``, and the exit code of its run.
    speeds
        Host -> rows that it computes a second there, as it has measured itself; empty: it has not said.
    asks
        Fewest and most hosts that its program has asked for (`LiveJob.asks`); None: nothing is known of it.
    messages
        From host to host the bytes of an iteration, as its arrays say; empty: they have not.
    anchor
        The host that it cannot leave; empty: there is none.
    verifying_until
        Of a running one whose application has ended: estimated end of the verification of its result, seconds
        since the epoch; None: its application runs.
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
    """Nothing of an attempt is on a host, by the host's own word, and nothing will come there by an old order.

    Attributes
    ----------
    epoch
        The order by which it left; `LAST`: the attempt is over.
    """

    job: int
    attempt: int
    host: str
    epoch: int


@dataclass(frozen=True, slots=True)
class RunTimeEstimate:
    """How long a job is going to run, by its application's model, on as many hosts as was asked about.

    Attributes
    ----------
    seconds
        None: the model cannot estimate it.
    choices
        The sets of hosts that suit it best, the best first, each of as many hosts as was asked about; no host is
        in two of them. None: that was not asked.
    """

    job: int
    seconds: float | None
    choices: tuple[HostChoice, ...] | None = None


@dataclass(frozen=True, slots=True)
class HostAnswer:
    """Whether a host can be asked what is there: nothing is started on one that cannot.

    Attributes
    ----------
    reason
        Why it cannot be asked; empty: it can.
    """

    host: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HostLoad:
    """What is wanted of a host, and what of it is free, in the mean over a short time.

    Attributes
    ----------
    cpus
        Processors of it.
    wanting
        How many processes want one, by the folder of the attempt that they belong to; empty: to nobody's job.
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
    """Whether whoever runs a user's jobs is there: where there is none, none of them is started.

    One that has come, for the first time or again, knows of no job until it is asked.
    """

    user: str
    here: bool


@dataclass(frozen=True, slots=True)
class HostLease:
    """Until when a host may be used, which is given for a time: a host that is new, or new word of one.

    Attributes
    ----------
    seconds
        From now; inf: nobody says when. 0 and less: it is over.
    source
        What ends then, for people: ``allocation 12``.
    """

    host: str
    seconds: float
    source: str = ""


Report = (
    JobReport | HostLeft | HostLease | RunTimeEstimate | HostAnswer | HostLoad | JobRunnerAnswer
)


class JobExecutor(ABC):
    """Runs the jobs of a live scheduler on real machines.

    It carries each order out at most once, whatever is repeated, and reports as often as it likes. It says
    `HostLeft` only of what it has seen to be so. Jobs do not notice when scheduler and executor are gone.
    """

    @abstractmethod
    def carry_out(self, orders: Sequence[Order]) -> None:
        """Begin to carry orders out; returns at once."""

    @abstractmethod
    def reports(self) -> list[Report]:
        """Return what is known that was not said yet."""

    @abstractmethod
    def close(self) -> None:
        """Stop reporting; the jobs go on."""
