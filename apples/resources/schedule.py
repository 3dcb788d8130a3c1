"""The values that packages exchange: `Rectangle`, `Allocation`, `Schedule`, `Rejection`, `Estimate`.

All are frozen. A schedule may be infeasible: a planner never repairs its solution; a filter rejects it
with a `Rejection` that has the two compared numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from apples.errors import InfeasibleError
from apples.resources import Host, ResourceSet, names
from apples.ui.units import counted, duration, in_one_line, some


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Rows ``first_row`` to ``first_row + rows - 1`` of the grid, in a range of columns counted likewise."""

    first_row: int
    rows: int
    first_column: int
    columns: int

    @property
    def points(self) -> int:
        """Number of grid points in it."""
        return self.rows * self.columns


@dataclass(frozen=True, slots=True)
class Allocation:
    """The part of the grid that one host computes, by one implementation: a strip, or a rectangle.

    Attributes
    ----------
    host
        The host.
    rows
        Rows of its strip, an integer unless a planner gives a fraction. For a rectangle: the rows of the whole
        grid's width that have as many points (A_i / columns).
    implementation
        The template's implementation that runs there.
    rectangle
        Its rectangle; None for a strip.
    threads
        Threads of the one process that computes it, if the implementation uses threads; 0: it uses ranks.
    """

    host: Host
    rows: float
    implementation: str = ""
    rectangle: Rectangle | None = None
    threads: int = 0

    def __repr__(self) -> str:
        """Return the host and its share."""
        return in_one_line(self, f"{share_words(self)}{_of(self.implementation)}")

    @property
    def height(self) -> float:
        """Number of grid rows of the strip or of the rectangle."""
        return self.rectangle.rows if self.rectangle else self.rows

    @property
    def ranks(self) -> int:
        """Number of processes that share it by rows: the host's slots, but at most the number of rows."""
        return 1 if self.threads else max(1, min(self.host.slots, int(self.height)))


def share_words(share: Allocation | HostEstimate) -> str:
    """Return a host and its rows, or the rows and columns of its rectangle."""
    tile = share.rectangle
    size = f"{tile.rows} x {tile.columns}" if tile else f"{share.rows:.6g}"
    return f"{share.host.name} {size}"


def _of(implementation: str) -> str:
    return f", {implementation}" if implementation else ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """One application's mapping to hosts, in strip order; rectangles column by column.

    Attributes
    ----------
    allocations
        One for each host used. All have strips, neighbours side by side, or all have rectangles.
    planner
        Name of the planner.
    dropped
        Hosts of the set without work in the plan.
    """

    allocations: tuple[Allocation, ...]
    planner: str = ""
    dropped: tuple[Host, ...] = ()

    def __repr__(self) -> str:
        """Return the hosts with their rows."""
        shares = some([share_words(one) for one in self.allocations])
        return in_one_line(self, f"{shares}{_of(self.planner)}")

    @property
    def resources(self) -> ResourceSet:
        """The hosts used, in strip order."""
        return tuple(allocation.host for allocation in self.allocations)

    @property
    def rows(self) -> tuple[float, ...]:
        """Rows of each strip, in strip order (`Allocation.rows`)."""
        return tuple(allocation.rows for allocation in self.allocations)

    @property
    def threads(self) -> int:
        """Threads of the one process that computes the whole grid on its only host; 0: ranks compute it."""
        return sum(allocation.threads for allocation in self.allocations)

    @property
    def rectangles(self) -> tuple[Rectangle, ...]:
        """The rectangle of each host; empty for a schedule of strips."""
        return tuple(one.rectangle for one in self.allocations if one.rectangle is not None)


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason for rejecting hosts or a schedule.

    Attributes
    ----------
    hosts
        Names, in the order of consideration.
    reason
        One sentence with the numbers.
    figures
        The two compared numbers in base units: the value and the limit.
    filter
        Name of the filter: ``access``, ``memory``, ``negative_strip`` and so on.
    """

    hosts: tuple[str, ...]
    reason: str
    figures: tuple[float, float]
    filter: str


class NoFeasiblePlanError(InfeasibleError):
    """No candidate remains; has every `Rejection` that led here, and a remedy."""

    code = "no-feasible-plan"

    def __init__(self, rejections: tuple[Rejection, ...], remedy: str = "") -> None:
        self.rejections = rejections
        self.remedy = remedy
        first = rejections[0].reason if rejections else "no host was left to consider"
        more = f" (and {len(rejections) - 1} more refusals)" if len(rejections) > 1 else ""
        super().__init__(
            f"no feasible plan: {first}{more}{'; ' if remedy else ''}{remedy}",
            filter=rejections[0].filter if rejections else None,
            hosts=[*rejections[0].hosts] if rejections else None,
            reason=first,
            refusals=len(rejections),
            remedy=remedy or None,
        )


@dataclass(frozen=True, slots=True)
class HostEstimate:
    """The prediction of one host's iteration: seconds and bytes."""

    host: Host
    rows: float
    implementation: str
    compute_seconds: float
    communicate_seconds: float
    memory: float
    free_memory: float | None
    rectangle: Rectangle | None = None
    threads: int = 0

    def __repr__(self) -> str:
        """Return the host, its share and its seconds of an iteration."""
        return in_one_line(self, f"{share_words(self)}: {duration(self.seconds)} an iteration")

    @property
    def seconds(self) -> float:
        """T_i: computing and communicating."""
        return self.compute_seconds + self.communicate_seconds


@dataclass(frozen=True, slots=True)
class IntervalBasis:
    """The data behind the interval of an estimate.

    Attributes
    ----------
    set_class
        ``alone``, ``site`` or ``sites``: the class of the set of hosts.
    mean_seconds
        Predicted seconds of the whole execution without the user's risk: the middle of the interval.
    runs
        Number of past runs of this class in the interval's data.
    inside, of
        Number of the last runs of this class that ended inside the interval predicted from the runs before them,
        and the number of those last runs.
    """

    set_class: str
    mean_seconds: float
    runs: int = 0
    inside: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The predicted performance of a schedule.

    Attributes
    ----------
    schedule
        The estimated schedule.
    hosts
        One entry for each host, in strip order.
    iterations
        Number of iterations.
    iteration_seconds
        The largest T_i, including the user's risk.
    cost
        Cost per second of the hosts used, times the time they are held: start and execution.
    speedup
        Ratio to the time of the best single host; None if no single host can run it.
    interval
        Seconds of the whole execution between which four of five runs should end; includes the prediction. None
        until the estimate is chosen.
    basis
        The data behind the interval; None until the estimate is chosen.
    value
        The value that `best` minimises.
    wait_seconds
        Expected wait in a queue; it costs nothing.
    start_seconds
        From the launch until the program is ready on the slowest host; the hosts are paid for meanwhile.
    borders, border_seconds
        The hosts at each border, by name, and the seconds of a transfer there, in strip order.
    """

    schedule: Schedule
    hosts: tuple[HostEstimate, ...]
    iterations: int
    iteration_seconds: float
    cost: float
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    basis: IntervalBasis | None = None
    value: float = field(default=0.0)
    wait_seconds: float = 0.0
    start_seconds: float = 0.0
    borders: tuple[tuple[str, str], ...] = ()
    border_seconds: tuple[float, ...] = ()

    def __repr__(self) -> str:
        """Return the hosts with their rows, and the predicted seconds."""
        return in_one_line(self, self.summary)

    @property
    def summary(self) -> str:
        """The hosts with their rows, and the predicted seconds, in short form."""
        shares = some([share_words(one) for one in self.hosts])
        return (
            f"{shares}: {duration(self.iteration_seconds)} an iteration, "
            f"{counted(self.iterations, 'iteration')} in {duration(self.execution_seconds)}"
        )

    @property
    def execution_seconds(self) -> float:
        """Predicted seconds of the iteration loop, first barrier to last."""
        return self.iterations * self.iteration_seconds

    @property
    def turnaround_seconds(self) -> float:
        """Predicted seconds from now to the last iteration: waiting, starting and executing."""
        return self.wait_seconds + self.start_seconds + self.execution_seconds

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the hosts, in strip order."""
        return names(self.schedule.resources)
