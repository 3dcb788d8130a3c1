"""The values that pass between control, job manager and ranks: commands, plans, notices, status. All are frozen.

A `ResizeCommand` is the processor map of Kale et al. 2002, section 3.1, with a share of the rows for each host.
The same command makes a job grow, shrink, move its strip boundaries or swap hosts. The job manager converts it
into a `ChangePlan`, which all ranks carry out. Standard library only, because the manager loads this module.
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
        Planned speed of the whole host, all its slots, in any unit common to the hosts of a map. Without planned
        rows, rows are apportioned by weight.
    cpus
        CPUs to which its ranks are bound from the safe point on; empty: no change.
    rows
        Planned rows; 0: not planned. If every host of the map has planned rows that add up to the rows of the job,
        the job uses them, and the weights are only speeds.
    """

    host: str
    weight: float = 1.0
    cpus: tuple[int, ...] = ()
    rows: int = 0

    @classmethod
    def planned(cls, host: str, rows: float) -> HostShare:
        """Return the share of a host to which a planner gives `rows` rows, in proportion to its speed.

        If the program distributes something else than the planner's rows, for example blocks, or if `rows` is not
        an integer, `rows` serves only as the weight.
        """
        return cls(host, max(1.0, float(rows)), rows=int(rows) if rows == int(rows) else 0)


@dataclass(frozen=True, slots=True)
class ResizeCommand:
    """The new processor map of the job.

    Attributes
    ----------
    epoch
        Larger than the epoch of each earlier command; a command with the same epoch is a repetition.
    hosts
        The map. Hosts that are not in it are released.
    ordered
        Whether the strips must have the order of `hosts`; else the job chooses the order that moves the fewest
        rows.
    rate
        Expected bytes a second of its data over all links together; 0: unknown. If the change takes much longer,
        it is aborted (`apples.malleable.control.change_cost`).
    places
        Specifications of hosts that are missing in the job file or differ there; ignored for the job's present
        hosts.
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
"""Source of a change's data: none yet (``start``), the old members (``live``), the states that the members saved
when a change was aborted (``saved``), or the last commit before hosts were lost (``commit``)."""


@dataclass(frozen=True)
class ChangePlan:
    """A change of hosts: the same document on every rank, created by the job manager and completed by rank 0.

    Attributes
    ----------
    old, new
        The strips before and after.
    slots
        Host -> its number of ranks.
    lost
        Lost hosts that caused the change.
    commits
        Directory of commits; empty: no commits on disk.
    commit
        Number of the last commit. Completed by rank 0.
    constants
        Numbers of the copies of constant arrays on disk. Completed by rank 0.
    attempt
        Number of this start of the job (`JobFile`): commit numbers of each start are above those of earlier
        starts.
    cpus
        Host -> CPUs to which its ranks are bound from now on, if the command has any.
    values
        The declared state of rank 0. Completed by rank 0.
    prefetched
        Ranks (host, number there) that have received their parts of constant arrays already.
    distances
        Host -> other host -> cost of a byte between them, from the job's task.
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
        """Return the plan as a JSON object."""
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
    """The map of this epoch is in force.

    Attributes
    ----------
    phases
        Seconds of each phase, in order: ``start`` (processes of new hosts, while the job computes),
        ``wait`` (for the safe point), ``prefetch`` (constant arrays travel while the job computes),
        ``join``, ``redistribute``, ``rebuild``, ``leave`` (until released hosts are empty).
        ``seconds`` counts from the safe point to the last of them.
    moved_rows, moved_bytes
        Rows and bytes that moved between ranks.
    """

    epoch: int
    members: tuple[HostRows, ...]
    seconds: float
    phases: Mapping[str, float]
    moved_rows: int = 0
    moved_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ResizeRefused:
    """The command of this epoch was not carried out: the job continues unchanged and repeats no iteration.

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
    """Hosts were lost, and the job continues on other hosts from its last commit. This takes an epoch.

    It also answers a command that was in progress.
    """

    epoch: int
    lost: tuple[str, ...]
    reason: str
    members: tuple[HostRows, ...]
    iteration: int
    seconds: float
    code: str = "host-lost"


MAX_NEWS = 1 << 16
"""Largest line that an agent reads, in bytes (`apples.launch.events`)."""


def say_moved(
    emit: Callable[[str], None], notice: ResizeDone | RolledBack, iteration: int
) -> None:
    """Emit the event with the new hosts and rows of a job.

    If the names of hundreds of hosts make the line too long, no event is emitted.
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
    """An evolving job requests other limits; an agent may answer with a command."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The job is over, and all its processes on all hosts have ended."""

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
        Bytes of a row of all its arrays, and of all its blocks after the last change.
    constant_bytes
        Part of `row_bytes`: constant arrays.
    rate
        Bytes a second of its last change; 0: unknown.
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

    The manager calls all methods from that loop, never concurrently, and none may block. `poll` returns only valid
    commands: with a new epoch, within the limits, with known hosts.
    """

    @abstractmethod
    def attach(self, selector: BaseSelector, status: Callable[[], ManagerStatus]) -> None:
        """Register this source's files with the selector, each with a callback without arguments as its data.

        The loop calls the callback when the file is ready. The source may call `status` at any time.
        """

    @abstractmethod
    def poll(self) -> ResizeCommand | None:
        """Return the next command; called only while no command is in progress."""

    @abstractmethod
    def cancelled(self) -> bool:
        """Whether the job must end now; called in each turn of the loop."""

    @abstractmethod
    def notify(self, notice: JobNotice) -> None:
        """Handle a notice of the job.

        Each command gets one `ResizeDone`, `ResizeRefused` or `RolledBack`. The last notice is `JobEnded`, which
        also answers a command in progress.
        """

    @abstractmethod
    def close(self) -> None:
        """Release all resources; called once, after `JobEnded`."""
