"""The order in which a forecaster takes in the measurements of one series, and which it leaves out.

Measurements arrive late, in swapped places, and with stamps that lie ahead of the truth. Each decision
depends only on the arrivals so far, in the order of their positions, never on a clock: a restart decides
the same.
"""

from bisect import insort
from collections import deque
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final

from nws.errors import InputError
from nws.forecaster import checked_object

MAX_HELD: Final = 4
"""Capacity of the buffer, in measurements that wait for an earlier measurement."""
CALM: Final = 64
"""After this number of arrivals in order the buffer becomes one measurement shorter."""
REMEMBERED: Final = 16
MIN_SPACINGS: Final = 3
BEYOND: Final = MAX_HELD + 1.25
"""A stamp that jumps more periods than this is not a place that the buffer could fill."""
MAX_STEP: Final = 120.0
"""Seconds by which a sender's clock may be set back: twice the allowed difference of clocks."""


@dataclass(frozen=True, slots=True)
class InTurn:
    """The next measurement for a forecaster.

    Attributes
    ----------
    time, value
        Its stamp and value.
    after
        Time to which the forecaster's clock is first set back; None: the measurement follows the last.
    """

    time: float
    value: float
    after: float | None = None


# Arrivals alone decide, never the clock: a forecaster's state must be the same after any restart
# of the service. A stamp that jumps ahead is used first and set back later; waiting would delay
# the first value after each outage.
class ArrivalOrder:
    """Takes the arrivals of one series and returns them in the order of their stamps.

    * Arrivals in order are returned at once.
    * A late arrival is left out, and the buffer grows until it would have kept it, to four measurements at
      most; 64 arrivals in order make it shorter again.
    * A stamp lay ahead if the next arrival is earlier, and the buffer could not have waited for it. Time is
      then set back to the stamp before it. Two late arrivals in a row, in order and within two minutes, do
      the same: the sender's clock was set back.

    Attributes
    ----------
    held
        The measurements in the buffer, in the order of the stamps.
    late
        Number of late measurements that were left out.
    ahead
        Number of stamps that lay ahead of a later arrival.
    remark
        The last decision and its reason; empty before the first.

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
        """Take an arrival and return the measurements that come next."""
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
        """Return the state as a document of JSON."""
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
        """Continue from a `state`; ValueError if it is invalid."""
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
        """Return the next measurements after an arrival that is not later than the last."""
        newest, before = self._taken[-1], self._before()
        period = self._period()
        if before is not None and period and before < time and newest - before > BEYOND * period:
            return self._set_back(time, value, before, f"{newest!r} lay ahead of {time!r}")
        first, self._missed = self._missed, time
        if first is not None and first < time and newest - time <= MAX_STEP:
            return self._set_back(
                time, value, first, f"{first!r} and {time!r} came after {newest!r}"
            )
        self._calm = 0
        self._depth = max(self._depth, min(sum(t > time for t in self._taken), MAX_HELD))
        self.late += 1
        self.remark = f"{time!r} came after {newest!r}: too late to be forecast from"
        return []

    def _set_back(self, time: float, value: float, after: float, why: str) -> list[InTurn]:
        kept = [each for each in self._taken if each <= after]
        self._taken = deque([*kept, time], REMEMBERED)
        self._missed = None
        self._depth = self._calm = 0  # no buffer could have mended this
        self.ahead += 1 + len(self.held)
        self.held.clear()  # waiting measurements lie still further ahead
        self.remark = f"{why}: time was set back to {after!r}"
        return [InTurn(time, value, after)]

    def _drop_ahead(self, time: float) -> None:
        """Leave out the last waiting measurement if its stamp lies too far ahead of later arrivals."""
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
        return median(spacings) if len(spacings) >= MIN_SPACINGS else None
