"""The values that pass between control, job manager and ranks: commands, plans, notices, status. All frozen.

A `ResizeCommand` is the processor map of Kale et al. 2002, section 3.1, with a share of the rows for each host:
with it a job grows, shrinks, moves its strip boundaries and swaps hosts, all by the same means. The job manager
makes of it a `ChangePlan`, which all ranks carry out. Standard library only, since the manager loads this.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from selectors import BaseSelector
from typing import Any, Literal

from apples.launch.host_spec import HostSpec

StateName = Literal["starting", "running", "finished", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class HostShare:
    """One host of a processor map, and its share of the rows.

    Attributes
    ----------
    host
        Its name in the job file.
    weight
        Where the map has no planned rows, they are apportioned by weight: the planned speed of the whole host,
        all its slots, in any unit common to the hosts of one map.
    cpus
        CPUs its ranks are to be bound to from the safe point on; empty: as they are.
    rows
        Planned rows; 0: none are planned. Where every host of the map has some, and they add up to the rows
        of the job, they are taken as they are, and the weights only say how fast each host is.
    """

    host: str
    weight: float = 1.0
    cpus: tuple[int, ...] = ()
    rows: int = 0

    @classmethod
    def planned(cls, host: str, rows: float) -> HostShare:
        """Return the share of a host to which a planner gives so many rows, in proportion to its speed.

        Where the program shares out something else than the planner's rows (blocks, for example), or they are
        not whole, they are the weight only.
        """
        return cls(host, max(1.0, float(rows)), rows=int(rows) if rows == int(rows) else 0)


@dataclass(frozen=True, slots=True)
class ResizeCommand:
    """The processor map that the job is to have.

    Attributes
    ----------
    epoch
        Larger than that of any command before; the same epoch again is the same command again.
    hosts
        The map. Hosts that are not in it are released.
    ordered
        Whether the order of `hosts` is to be the strips' order; else the order that moves the fewest
        rows is chosen.
    rate
        Bytes a second at which its data is expected to move, all links together; 0: the agent does not know.
        The change is given up when it takes much longer (`apples.malleable.control.change_cost`).
    places
        How hosts of the map are reached that the job file does not have, or has otherwise; of hosts where the job
        is nothing changes.
    """

    epoch: int
    hosts: tuple[HostShare, ...]
    ordered: bool = False
    rate: float = 0.0
    places: tuple[HostSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class HostRows:
    """One strip of the job: `rows` rows of the distributed arrays, from `first_row` on, are on `host`."""

    host: str
    first_row: int
    rows: int
    weight: float = 1.0


ChangeOrigin = Literal["start", "live", "saved", "commit"]
"""Where the data of a change is: nowhere yet (``start``), in the old members (``live``), in the commit that a
restart was made of (``moved``), in what the members saved when a change was taken back (``saved``), or in the last
commit before hosts were lost (``commit``)."""


@dataclass(frozen=True)
class ChangePlan:
    """A change of hosts: the same document on every rank, made by the job manager and completed by rank 0.

    Attributes
    ----------
    old, new
        The strips before and after.
    slots
        Ranks of every host.
    lost
        Hosts whose loss the change is about.
    commits
        Directory of commits; empty: there are none on disk.
    commit
        Number of the last commit. Completed by rank 0.
    constants
        Numbers of the copies of constant arrays on disk. Completed by rank 0.
    attempt
        Which attempt to run the job this is (`JobFile`): each numbers its commits above those of the one before.
    cpus
        Host -> CPUs its ranks are bound to from now on, where the command said so.
    values
        The declared state of rank 0. Completed by rank 0.
    prefetched
        Ranks, host and number there, that have got their parts of constant arrays already.
    distances
        Host -> other host -> what a byte between them costs, as the job was told at its start.
    """

    epoch: int
    old: tuple[HostRows, ...]
    new: tuple[HostRows, ...]
    slots: Mapping[str, int]
    origin: ChangeOrigin
    lost: tuple[str, ...] = ()
    commits: str = ""
    commit: int = 0
    constants: tuple[int, ...] = ()
    attempt: int = 1
    cpus: Mapping[str, Sequence[int]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    prefetched: tuple[tuple[str, int], ...] = ()
    distances: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def dump(self) -> dict[str, Any]:
        """Return the plan as JSON has it."""
        return asdict(self)

    @classmethod
    def load(cls, raw: Mapping[str, Any]) -> ChangePlan:
        """Return the plan of a document."""
        maps = {name: tuple(HostRows(**one) for one in raw[name]) for name in ("old", "new")}
        more = {"lost": tuple(raw["lost"]), "constants": tuple(raw["constants"])}
        prefetched = tuple((host, rank) for host, rank in raw["prefetched"])
        return cls(**{**raw, **more, **maps, "prefetched": prefetched})


@dataclass(frozen=True, slots=True)
class ResizeDone:
    """The map of this epoch holds.

    Attributes
    ----------
    phases
        Seconds of each phase, in order: ``start`` (processes of new hosts, while the job computes),
        ``wait`` (for the safe point), ``prefetch`` (constant arrays travel while the job computes),
        ``join``, ``redistribute``, ``rebuild``, ``leave`` (until released hosts are empty).
        ``seconds`` counts from the safe point to the last of them.
    moved_rows, moved_bytes
        Rows and bytes that went from one rank to another.
    """

    epoch: int
    members: tuple[HostRows, ...]
    seconds: float
    phases: Mapping[str, float]
    moved_rows: int = 0
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ResizeRefused:
    """The command of this epoch was not carried out: the job goes on as it was, and computes nothing again.

    Attributes
    ----------
    code
        Names the condition, for example ``host-lost``.
    """

    epoch: int
    reason: str
    code: str = "resize-failed"


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Hosts were lost; the job goes on elsewhere from its last commit. Unasked for; takes an epoch.

    It is the answer to a command that was under way.
    """

    epoch: int
    lost: tuple[str, ...]
    reason: str
    members: tuple[HostRows, ...]
    iteration: int
    seconds: float
    code: str = "host-lost"


MAX_NEWS = 1 << 16
"""Bytes of a line that an agent reads (`apples.launch.events`)."""


def say_moved(
    emit: Callable[[str], None], notice: ResizeDone | RolledBack, iteration: int
) -> None:
    """Emit the line by which a job manager says on its output where the job is from now on.

    Nothing is said where the names of hundreds of hosts are too long for a line.
    """
    phases = dict(notice.phases) if isinstance(notice, ResizeDone) else {}
    line = json.dumps({
        "event": "moved", "at": time.time(), "epoch": notice.epoch, "iteration": iteration,
        "members": [(one.host, one.rows) for one in notice.members],
        "seconds": notice.seconds, "phases": phases,
    })  # fmt: skip
    if len(line) < MAX_NEWS:
        emit(line)


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
    code: str = ""


JobNotice = ResizeDone | ResizeRefused | RolledBack | LimitsRequested | JobEnded


@dataclass(frozen=True, slots=True)
class ManagerStatus:
    """The job at one moment.

    Attributes
    ----------
    row_bytes, block_bytes
        Bytes of a row of all its arrays, and of all its blocks as they were after the last change.
    constant_bytes
        Of a row's, those of constant arrays.
    rate
        Bytes a second of its last change; 0: not known.
    """

    state: StateName
    members: tuple[HostRows, ...] = ()
    epoch: int = 0
    iteration: int = 0
    minimum: int = 1
    maximum: int = 0
    busy: bool = False
    malleable: bool = True
    warm: tuple[str, ...] = field(default=())
    row_bytes: int = 0
    block_bytes: int = 0
    rate: float = 0.0
    constant_bytes: int = 0


class CommandSource(ABC):
    """The job manager's end of the control protocol, inside its process and its one loop.

    The manager calls everything here from that loop, never concurrently, and none of it may block. The commands
    that it hands out have been admitted: fresh, within the limits, of known hosts.
    """

    @abstractmethod
    def attach(self, selector: BaseSelector, status: Callable[[], ManagerStatus]) -> None:
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
        """Take what happened.

        For each command that is one `ResizeDone`, `ResizeRefused` or `RolledBack`; at last one `JobEnded`, which
        answers a command that was under way too.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; called once, after `JobEnded` was notified."""
