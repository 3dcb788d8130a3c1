"""`ModelTemplate`: seconds of one iteration on each host, as Computation + Communication.

The contract of the Model pool (Berman et al. 1996, section 4.3.4). Planners, the Selector and the Estimator use
a model only through it, so a user's own model (``--model module:name``) works everywhere. The contract is
executable: `check_model` tests the built-in models in the tests, and a user's model when it is loaded.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from apples.errors import ModelError, place_of_function
from apples.resources import Host
from apples.resources.schedule import Allocation, Schedule

Seconds = npt.NDArray[np.float64]
Rows = npt.NDArray[np.float64]
RowsWithin = Callable[[Seconds], Rows]
Orders = npt.NDArray[np.int64] | npt.NDArray[np.intc]
CommunicationOf = Callable[[Orders], Seconds]


@dataclass(frozen=True, slots=True)
class SpeedFunction:
    """Dedicated processor seconds per point of one slot, piecewise linear in the rows of its strip.

    The speed is not constant because of caches and paging (functional performance models, Lastovetsky and
    Reddy). Outside the measured sizes the nearest value applies. If interpolated speeds between two sizes would
    give a larger strip less time, the time is interpolated instead.

    Attributes
    ----------
    rows
        Measured strip sizes, ascending: rows of one slot.
    seconds_per_point
        Processor seconds per point at each size.
    error
        Relative standard deviation of the measurements.
    columns
        Points of a row in the measurement; 0 if irrelevant.
    memory
        Bytes that a strip may take in a separate memory, for example a GPU's; infinite if it is in the host's
        memory.
    points
        Points of the whole grid in the measurement; 0 if unknown.

    Examples
    --------
    >>> SpeedFunction((100.0, 300.0), (1e-9, 2e-9)).at(200.0)
    1.5e-09
    """

    rows: tuple[float, ...]
    seconds_per_point: tuple[float, ...]
    error: float = 0.0
    columns: int = 0
    memory: float = math.inf
    points: float = 0.0

    @classmethod
    def constant(cls, seconds_per_point: float, error: float = 0.0) -> SpeedFunction:
        """Return a function with the same value for every strip."""
        return cls((1.0,), (seconds_per_point,), error)

    @classmethod
    def measured(
        cls,
        points: Iterable[tuple[float, float, float]],
        columns: int = 0,
        memory: float = math.inf,
        grid_points: float = 0.0,
    ) -> SpeedFunction:
        """Return the function through (rows, seconds per point, absolute error) measurements.

        A strip never takes less time than a smaller strip: where noise contradicts this, the smaller strip's
        time applies.
        """
        rows, speeds, errors, longest = [], [], [], 0.0
        for size, seconds, error in sorted(points):
            longest = max(longest, size * seconds)
            rows.append(float(size))
            speeds.append(longest / size)
            errors.append(error / seconds)
        error = max(errors, default=0.0)
        return cls(tuple(rows), tuple(speeds), error, columns, memory, grid_points)

    def on(self, columns: int) -> SpeedFunction:
        """Return the function for rows with `columns` points: caches hold points, so strip sizes scale.

        Examples
        --------
        >>> SpeedFunction((100.0, 300.0), (1e-9, 2e-9), columns=600).on(300).rows
        (200.0, 600.0)
        """
        if not self.columns:
            return self
        stretch = self.columns / columns
        return replace(self, rows=tuple(r * stretch for r in self.rows), columns=columns)

    def size_factor(self, points: float) -> float:
        """Return the factor by which a grid of `points` points is larger or smaller than the measured range.

        It is 1 from the smallest measured strip to the whole measured grid, and if the range is unknown.

        Examples
        --------
        >>> speed = SpeedFunction((100.0, 300.0), (1e-9, 2e-9), columns=1000, points=1e6)
        >>> speed.size_factor(9e6), speed.size_factor(2e5), speed.size_factor(1e4)
        (9.0, 1.0, 0.1)
        """
        if not self.columns:
            return 1.0
        largest = self.points or self.rows[-1] * self.columns
        if points > largest:
            return points / largest
        return min(1.0, points / (self.rows[0] * self.columns))

    def at(self, rows: float) -> float:
        """Return seconds per point for a strip of `rows` rows of one slot."""
        k = bisect_right(self.rows, rows)
        if k == 0:
            return self.seconds_per_point[0]
        if k == len(self.rows):
            return self.seconds_per_point[-1]
        less, more = self.rows[k - 1], self.rows[k]
        low, high = self.seconds_per_point[k - 1], self.seconds_per_point[k]
        weight = (rows - less) / (more - less)
        if high * (2 * more - less) < low * more:  # rows * speed would fall at the upper end
            return (less * low + weight * (more * high - less * low)) / rows
        return low + weight * (high - low)

    def scaled(self, factor: float) -> SpeedFunction:
        """Return the function with every value multiplied by `factor`."""
        return replace(self, seconds_per_point=tuple(s * factor for s in self.seconds_per_point))


class ModelTemplate(ABC):
    """Seconds of one iteration on each host of a resource set: T = computation + communication.

    Both methods must be pure: one model always gives the same seconds for the same set and rows, because all
    candidates of a decision are compared under the same weather. Computation must not fall when rows grow;
    communication must not depend on rows.
    """

    @property
    def knows_co_run_slowdown(self) -> bool:
        """Whether it has a separate factor for hosts that are not alone (`Learned.co_run_slowdown_of`)."""
        return False

    @property
    def follows_rows(self) -> bool:
        """Whether each host computes in proportion to its planned rows."""
        return True

    @property
    def borders_at_once(self) -> bool:
        """Whether a host's two borders overlap, so that the longer counts; else their sum, as in the paper."""
        return False

    def at_borders(self, above: Seconds, below: Seconds) -> Seconds:
        """Return the seconds that hosts spend between a border above and one below, shape (hosts,)."""
        return np.maximum(above, below) if self.borders_at_once else above + below

    def border_seconds(self, resources: Sequence[Host]) -> list[float]:
        """Return the seconds of the border between each host of a set and the next."""
        return [float(self.borders(a, [b])[0]) for a, b in pairwise(resources)]

    def touching(self, resources: Sequence[Host]) -> list[tuple[Host, Host]]:
        """Return the pairs of hosts of a set that exchange borders, in the order of `border_seconds`."""
        return list(pairwise(resources))

    @property
    def shares_processors(self) -> bool:
        """Whether a host's computation depends on the other hosts of the set."""
        return False

    @abstractmethod
    def computation(self, resources: Sequence[Host], rows: Rows) -> Seconds:
        """Return the seconds each host computes on its rows, shape (hosts,)."""

    @abstractmethod
    def communication(self, resources: Sequence[Host]) -> Seconds:
        """Return C_i, the seconds each host sends and receives at its borders, shape (hosts,)."""

    def communication_among(self, hosts: Sequence[Host]) -> CommunicationOf:
        """Return a function: ordered subsets of `hosts`, by index, shape (sets, size) -> their C_i, same shape.

        The values equal those of `communication` for each set. If borders do not share links, they are computed
        from pairs.
        """
        if self.borders_at_once:
            return lambda orders: np.array(
                [self.communication([hosts[i] for i in order]) for order in orders.tolist()]
            )
        pairs = self.border_matrix(hosts)

        def communication(orders: Orders) -> Seconds:
            steps = np.zeros((len(orders), orders.shape[1] + 1))
            steps[:, 1:-1] = pairs[orders[:, :-1], orders[:, 1:]]
            return self.at_borders(steps[:, :-1], steps[:, 1:])

        return communication

    def lateness(self, resources: Sequence[Host], busy: Seconds) -> float:
        """Return the factor by which an iteration exceeds the largest T_i, because another host is late each time.

        `busy` are the T_i of the set, shape (hosts,). A model without stragglers returns 1.
        """
        del resources, busy
        return 1.0

    def busy_seconds(self, resources: Sequence[Host], rows: Rows) -> Seconds:
        """Return T_i, the seconds each host computes and communicates, shape (hosts,)."""
        return np.asarray(self.computation(resources, rows) + self.communication(resources))

    def set_seconds(self, resources: Sequence[Host], rows: Rows) -> float:
        """Return the seconds of an iteration: the largest T_i, times the lateness of the set."""
        busy = self.busy_seconds(resources, rows)
        return float(busy.max()) * self.lateness(resources, busy)

    def iteration_seconds(self, schedule: Schedule) -> float:
        """Return the seconds of an iteration of a schedule."""
        return self.set_seconds(schedule.resources, np.array(schedule.rows, dtype=float))

    def seconds_per_row(self, resources: Sequence[Host], total: int) -> Seconds:
        """Return p_i at equal strips; linear planners and the search treat it as constant."""
        equal = np.full(len(resources), total / max(1, len(resources)))
        return np.asarray(self.computation(resources, equal) / equal)

    def memory(self, rows: float) -> float:
        """Return the bytes a strip of `rows` rows needs; 0 if the model ignores memory."""
        del rows
        return 0.0

    def memory_of(self, allocation: Allocation) -> float:
        """Return the bytes that a host needs for its part of the grid."""
        return self.memory(allocation.rows)

    def caps(self, resources: Sequence[Host], total: int) -> npt.NDArray[np.int64]:
        """Return the most rows each host has memory for, at most `total`, shape (hosts,)."""
        return np.full(len(resources), total, dtype=np.int64)

    def least_rows(self, resources: Sequence[Host], total: int) -> npt.NDArray[np.int64]:
        """Return the least rows of each host that has work, 1 or more, shape (hosts,)."""
        del total
        return np.ones(len(resources), dtype=np.int64)

    def borders(self, host: Host, others: Sequence[Host]) -> Seconds:
        """Return the seconds `host` spends at its border with each of `others`, shape (others,)."""
        return np.array([self.communication((host, other))[0] for other in others])

    def border_matrix(self, hosts: Sequence[Host]) -> Seconds:
        """Return the seconds at the border of each pair of hosts, shape (hosts, hosts)."""
        pairs = np.zeros((len(hosts), len(hosts)))
        for i, host in enumerate(hosts[:-1]):
            pairs[i, i + 1 :] = pairs[i + 1 :, i] = self.borders(host, hosts[i + 1 :])
        return pairs

    def rows_within(self, resources: Sequence[Host], total: int) -> RowsWithin:
        """Return a function: seconds for each host -> the most whole rows it computes in them, 0 to `total`."""
        return rows_by_bisection(self.computation, resources, total)

    def draw(
        self, resources: Sequence[Host], rows: Rows, generator: np.random.Generator, count: int
    ) -> Seconds:
        """Return `count` draws of T under the forecasts' errors, shape (count, hosts)."""
        del generator
        busy = self.busy_seconds(resources, rows)
        return np.tile(busy * self.lateness(resources, busy), (count, 1))


def rows_by_bisection(
    computation: Callable[[Sequence[Host], Rows], Seconds], resources: Sequence[Host], total: int
) -> RowsWithin:
    """Return the inverse of an increasing computation, by bisection on whole rows for all hosts at once."""

    def rows_within(seconds: Seconds) -> Rows:
        low = np.zeros(len(resources))
        high = np.full(len(resources), float(total))
        while np.any(high > low):
            middle = np.ceil((low + high) / 2)
            fits = computation(resources, middle) <= seconds
            low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        return low

    return rows_within


STEEPNESS = 4
"""Exponent: a host that needs three quarters of the longest time is seldom the last: 0.75 ** 4 = 0.32."""


def bottleneck_evenness(seconds: Seconds) -> float:
    """Return the evenness of a set: 0 if one host takes by far the longest, 1 if all take equally long.

    The straggler factor is learned and applies if all hosts finish at the same time. If all wait for one host,
    for example with equal strips on unequal hosts, no other host can be the straggler.

    Examples
    --------
    >>> [bottleneck_evenness(np.array(seconds)) for seconds in ([2.0, 2.0], [2.0, 1.0], [2.0])]
    [1.0, 0.0625, 0.0]
    """
    longest = float(seconds.max())
    if len(seconds) < 2 or longest <= 0:
        return 0.0
    return float(((seconds / longest) ** STEEPNESS).sum() - 1.0) / (len(seconds) - 1)


def set_straggler_factor(seconds: Seconds, straggler_factor: float) -> float:
    """Return the straggler factor of one plan, given the busy seconds of each host without it.

    Raises
    ------
    ValueError
        The factor is below 1: lateness cannot make an iteration shorter.

    Examples
    --------
    >>> set_straggler_factor(np.array([2.0, 2.0]), 1.2), set_straggler_factor(np.array([2.0, 1.0]), 1.2)
    (1.2, 1.0125)
    """
    if straggler_factor < 1.0:
        raise ValueError(f"straggler factor {straggler_factor:g} is below 1")
    return 1.0 + (straggler_factor - 1.0) * bottleneck_evenness(seconds)


MAX_CHECKED_HOSTS = 3
"""Hosts that a check passes to a model: it calls the model a few dozen times."""


def check_model(model: ModelTemplate, hosts: Sequence[Host], total: int) -> None:
    """Check a model on some hosts and a grid of `total` rows, most of the contract on the first few hosts.

    Raises
    ------
    ModelError
        The model broke its contract; the message names the result and the rule.

    Examples
    --------
    >>> class Ideal(ModelTemplate):
    ...     def computation(self, resources, rows):
    ...         return 1e-3 * rows
    ...     def communication(self, resources):
    ...         return np.zeros(len(resources))
    >>> check_model(Ideal(), [Host("ada"), Host("bob")], total=100)
    """
    whole = _computation(model, hosts, float(total))
    if np.any(whole <= 0):
        raise _broken(
            model,
            f"computation gives 0 s for {hosts[int(whole.argmin())].name} with all {total} rows: must be above 0",
            code="prediction-invalid",
            field="computation",
        )
    for resources in _sets(hosts):
        sizes = sorted({1.0, total / 2, float(total)})
        times = [_computation(model, resources, size) for size in sizes]
        for less, more in pairwise(times):
            if np.any(more < less):
                raise _broken(
                    model,
                    f"computation falls as rows grow: {less} to {more} s",
                    code="prediction-decreasing",
                    field="computation",
                )
        if not np.array_equal(times[-1], _computation(model, resources, sizes[-1])):
            raise _broken(
                model,
                "computation returns another time for the same rows",
                code="prediction-unstable",
                field="computation",
            )
        _seconds(model, "communication", model.communication(resources), len(resources))
        _caps(model, resources, total)


def _sets(hosts: Sequence[Host]) -> Iterator[Sequence[Host]]:
    few = tuple(hosts[:MAX_CHECKED_HOSTS])
    return (few[:k] for k in range(1, len(few) + 1))


def _computation(model: ModelTemplate, resources: Sequence[Host], rows: float) -> Seconds:
    count = len(resources)
    return _seconds(
        model, "computation", model.computation(resources, np.full(count, rows)), count
    )


def _seconds(model: ModelTemplate, what: str, found: object, count: int) -> Seconds:
    times = np.asarray(found, dtype=float)
    if times.shape != (count,):
        raise _broken(
            model,
            f"{what} gives the shape {times.shape} for {count} hosts",
            code="prediction-shape",
            field=what,
        )
    if not np.all(np.isfinite(times)) or np.any(times < 0):
        raise _broken(
            model,
            f"{what} gives {times}: must be finite seconds, at least 0",
            code="prediction-invalid",
            field=what,
        )
    return times


def _caps(model: ModelTemplate, resources: Sequence[Host], total: int) -> None:
    caps = np.asarray(model.caps(resources, total))
    if caps.shape != (len(resources),) or np.any((caps < 0) | (caps > total)):
        raise _broken(
            model,
            f"caps gives {caps} for {len(resources)} hosts: must be 0 to {total} rows",
            code="prediction-caps",
            field="caps",
        )


def _broken(model: ModelTemplate, how: str, *, code: str, field: str) -> ModelError:
    """Return the error of a model, with the location of the method that broke the contract."""
    name, place = type(model).__name__, place_of_function(getattr(type(model), field, None))
    where = f"{place['file']}:{place['line']}: " if place else ""
    text = " ".join(f"{where}{name}: {how}".split())  # numpy breaks long arrays into lines
    return ModelError(text, code=code, model=name, field=field, **place)
