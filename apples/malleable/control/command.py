"""What control and mechanism of a malleable job tell each other: commands, replies, status; all frozen.

The command is the paper's processor map (Kale et al. 2002, section 3.1) with a weight a host: it grows,
shrinks, moves strip boundaries and swaps hosts, all by the same means. Standard library only: the anchor
and every rank load this.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from selectors import BaseSelector
from typing import Literal

StateName = Literal["starting", "running", "finished", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class HostWeight:
    """One host of a processor map.

    Attributes
    ----------
    host
        Its name in the job file.
    weight
        Rows are shared out in proportion to it: the planned speed of the whole host, all its slots,
        in any unit common to the hosts of one map.
    cpus
        CPUs its ranks are to be bound to from the safe point on; empty: as they are.
    """

    host: str
    weight: float = 1.0
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ResizeCommand:
    """Become this processor map.

    Attributes
    ----------
    epoch
        Larger than that of any command before; the same epoch again is the same command again.
    hosts
        The map. Hosts that are not in it are released.
    ordered
        Whether the order of `hosts` is to be the strips' order; else the order that moves the fewest
        rows is chosen.
    """

    epoch: int
    hosts: tuple[HostWeight, ...]
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class HostRows:
    """One host of the job as it is: its rows of the distributed arrays, `rows` from `first_row` on."""

    host: str
    first_row: int
    rows: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class ResizeDone:
    """The map of this epoch holds.

    Attributes
    ----------
    phases
        Seconds of each phase, in order: ``start`` (processes of new hosts, while the job computes),
        ``wait`` (for the safe point), ``join``, ``redistribute``, ``rebuild``, ``leave`` (until released
        hosts are empty). ``seconds`` counts from the safe point to the last of them.
    moved_rows, moved_bytes
        What went from one rank to another.
    """

    epoch: int
    members: tuple[HostRows, ...]
    seconds: float
    phases: Mapping[str, float]
    moved_rows: int = 0
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ResizeRefused:
    """The command of this epoch was not carried out and nothing changed: the job goes on as it was."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Hosts were lost; the job goes on elsewhere from its last commit. Unasked for; takes an epoch.

    A command under way is answered by `ResizeRefused` before this is said.
    """

    epoch: int
    lost: tuple[str, ...]
    reason: str
    members: tuple[HostRows, ...]
    iteration: int
    seconds: float


@dataclass(frozen=True, slots=True)
class LimitsRequested:
    """The job itself asks for other limits (an evolving job); an agent may answer with a command."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is over and no process of it is left on any host."""

    state: StateName
    reason: str = ""


JobNotice = ResizeDone | ResizeRefused | RolledBack | LimitsRequested | JobEnded


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The job at one moment."""

    state: StateName
    members: tuple[HostRows, ...] = ()
    epoch: int = 0
    iteration: int = 0
    minimum: int = 1
    maximum: int = 0
    busy: bool = False
    malleable: bool = True
    warm: tuple[str, ...] = field(default=())


class CommandSource(ABC):
    """The anchor's end of the control protocol, inside the anchor's process and its one loop.

    The anchor calls everything here from that loop, never concurrently, and none of it may block.
    Commands it hands out are admitted: authenticated, fresh, within the limits, of known hosts.
    """

    @abstractmethod
    def attach(self, selector: BaseSelector, status: Callable[[], JobStatus]) -> None:
        """Register what is to be listened to, with a callable of no argument as its data.

        The loop calls it when the file is ready. `status` may be asked at any time.
        """

    @abstractmethod
    def poll(self) -> ResizeCommand | None:
        """Return the command to carry out next; asked only while none is under way."""

    @abstractmethod
    def cancelled(self) -> bool:
        """Whether the job is to end now; asked every turn of the loop."""

    @abstractmethod
    def notify(self, notice: JobNotice) -> None:
        """Take what happened: for each command one `ResizeDone` or `ResizeRefused`, and one `JobEnded` at last."""

    @abstractmethod
    def deadline(self) -> float | None:
        """Return when (on time.monotonic's clock) `tick` wants to be called, None for not at all."""

    @abstractmethod
    def tick(self) -> None:
        """Do what was due."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; called once, after `JobEnded` was notified."""
