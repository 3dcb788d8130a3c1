"""The order in which a forecaster takes in the measurements of one series, and which it leaves out.

Measurements arrive late, in swapped places, and with stamps that lie ahead of the truth. What is
decided here depends on nothing but the arrivals so far, in the order of the log: never on a clock,
so that a restart decides the same.
"""

from bisect import insort
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final

from nws.errors import InputError
from nws.forecaster import checked_object

MOST_HELD: Final = 4
"""Measurements that wait at most for one that came later and belongs before them."""
CALM: Final = 64
"""So many arrivals in order, and the buffer becomes one measurement shorter."""
REMEMBERED: Final = 16
FEWEST_SPACINGS: Final = 3
BEYOND: Final = MOST_HELD + 1.25
"""A stamp that jumps more periods than this is not a place that the buffer could fill."""
LONGEST_STEP: Final = 120.0
"""Seconds by which the stamps of a sender go back when its clock is set: twice what clocks may differ."""


@dataclass(frozen=True, slots=True)
class InTurn:
    """A measurement whose turn it is.

    Attributes
    ----------
    time, value
        Its stamp and value.
    after
        Where the forecaster's clock is to be set back to first; None: it follows the last one.
    """

    time: float
    value: float
    after: float | None = None


# Arrivals alone decide, never the clock: a forecaster's state must be the same after any restart
# of the service. A stamp that jumps ahead is used first and set back later; waiting would delay
# the first value after each outage.
class ArrivalOrder:
    """Takes the arrivals of one series and gives them out in the order of their stamps.

    * A series that comes in order is given out at once.
    * One that came too late is left out, and from then on the buffer holds as many measurements as
      would have saved it, four at most; 64 arrivals in order make it shorter again.
    * A stamp that lay ahead is known by what comes next: one that is earlier, and that the buffer
      could not have waited for. Time is then set back to where it was before that stamp. Two in a
      row that are both too late and follow one another, by at most two minutes, do the same:
      the sender's clock was set back.

    Attributes
    ----------
    held
        What waits for its turn, in the order of the stamps.
    late
        How many were left out.
    ahead
        How many lay ahead of what came after them.
    remark
        What was done last, and why; empty while nothing was.

    Examples
    --------
    >>> order = ArrivalOrder()
    >>> arrivals = [10.0, 20.0, 40.0, 30.0, 60.0, 50.0, 70.0]
    >>> [[turn.time for turn in order.arrive(at, 0.5)] for at in arrivals]
    [[10.0], [20.0], [40.0], [], [], [50.0], [60.0]]
    >>> order.late, order.held
    (1, [(70.0, 0.5)])
    >>> order.remark
    '30.0 came after 40.0: too late to be forecast from'
    """

    __slots__ = ("_calm", "_depth", "_missed", "_taken", "ahead", "held", "late", "remark")

    def __init__(self) -> None:
        self.held: list[tuple[float, float]] = []
        self.late = 0
        self.ahead = 0
        self.remark = ""
        self._depth = 0
        self._calm = 0
        self._missed: float | None = None
        self._taken: deque[float] = deque(maxlen=REMEMBERED)

    def arrive(self, time: float, value: float) -> list[InTurn]:
        """Take an arrival and return those whose turn it is now."""
        if self._taken and time <= self._taken[-1]:
            return self._too_late(time, value)
        self._missed = None
        if not self._depth:
            self._taken.append(time)
            return [InTurn(time, value)]
        insort(self.held, (time, value))
        self._calm = self._calm + 1 if self.held[-1][0] == time else 0
        if self._calm >= CALM:
            self._depth, self._calm = self._depth - 1, 0
        turns = []
        while len(self.held) > self._depth:
            turns.append(InTurn(*self.held.pop(0)))
            self._taken.append(turns[-1].time)
        self._drop_ahead(time)
        return turns

    def state(self) -> dict[str, Any]:
        """Return all there is to know, as a document of JSON."""
        return {
            "depth": self._depth,
            "calm": self._calm,
            "missed": self._missed,
            "late": self.late,
            "ahead": self.ahead,
            "remark": self.remark,
            "held": [list(pair) for pair in self.held],
            "taken": list(self._taken),
        }

    def restore(self, state: Any) -> None:
        """Go on from a `state`; ValueError if it is none."""
        names = ("depth", "calm", "missed", "late", "ahead", "remark", "held", "taken")
        given = checked_object(state, names, "an order of arrival")
        try:
            self._depth, self._calm = int(given["depth"]), int(given["calm"])
            self.late, self.ahead = int(given["late"]), int(given["ahead"])
            self._missed = None if given["missed"] is None else float(given["missed"])
            self.held = [(float(time), float(value)) for time, value in given["held"]]
            self._taken = deque(map(float, given["taken"]), REMEMBERED)
            self.remark = str(given["remark"])[:200]
        except (TypeError, ValueError) as error:
            raise InputError(
                f"not the state of an order of arrival: {error}",
                code="state-invalid",
                reason=str(error),
            ) from error

    def _too_late(self, time: float, value: float) -> list[InTurn]:
        """Return what is to be done about an arrival that is not later than the last one taken."""
        newest, before = self._taken[-1], self._before()
        period = self._period()
        if before is not None and period and before < time and newest - before > BEYOND * period:
            return self._set_back(time, value, before, f"{newest!r} lay ahead of {time!r}")
        first, self._missed = self._missed, time
        if first is not None and first < time and newest - time <= LONGEST_STEP:
            return self._set_back(
                time, value, first, f"{first!r} and {time!r} came after {newest!r}"
            )
        self._calm = 0
        self._depth = max(self._depth, min(sum(t > time for t in self._taken), MOST_HELD))
        self.late += 1
        self.remark = f"{time!r} came after {newest!r}: too late to be forecast from"
        return []

    def _set_back(self, time: float, value: float, after: float, why: str) -> list[InTurn]:
        kept = [each for each in self._taken if each <= after]
        self._taken = deque([*kept, time], REMEMBERED)
        self._missed = None
        self._depth = self._calm = 0  # no buffer could have mended this
        self.ahead += 1 + len(self.held)
        self.held.clear()  # what waits lies still further ahead
        self.remark = f"{why}: time was set back to {after!r}"
        return [InTurn(time, value, after)]

    def _drop_ahead(self, time: float) -> None:
        """Leave out what waits so far ahead of everything that came since that it must be wrong."""
        period = self._period()
        if not (period and self.held and self._taken and time < self.held[-1][0]):
            return
        known = self.held[-2][0] if len(self.held) > 1 else self._taken[-1]
        if self.held[-1][0] - known > BEYOND * period:
            wrong, _ = self.held.pop()
            self.ahead += 1
            self.remark = f"{wrong!r} lay ahead of {time!r}: left out"

    def _before(self) -> float | None:
        return self._taken[-2] if len(self._taken) > 1 else None

    def _period(self) -> float | None:
        spacings = [after - before for before, after in pairwise(self._taken)]
        return median(spacings) if len(spacings) >= FEWEST_SPACINGS else None
