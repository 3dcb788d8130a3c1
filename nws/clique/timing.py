"""The times of a clique, all from its period and its size, and time-outs that learn."""

from dataclasses import dataclass
from typing import Final

GAIN: Final = 0.15
"""Weight of the newest value (NWS 2.x smooths its cycle times so)."""
DRIFT: Final = 0.01
"""By how much the rates of two clocks may differ."""


@dataclass(frozen=True, slots=True)
class Timing:
    """What a clique of `size` members with this period waits for, in seconds.

    All turns together take at most 0.35 of a period, so the token is at most that much later than
    a period after its last visit; a member that has not seen it for 1.4 to 1.6 periods (as it
    learns), and up to 0.15 more by its place in the ring, leads. After the last fault that is
    1.6 + 0.15 + 0.35 = 2.1 periods at most until all follow one leader.
    """

    period: float
    size: int

    @property
    def turn(self) -> float:
        """What one turn may take, from asking to the end of the probes."""
        return 0.35 * self.period / self.size

    @property
    def asking(self) -> float:
        """How long answers are waited for."""
        return self.turn / 4

    @property
    def shortest_silence(self) -> float:
        """The least time without a token after which a member leads."""
        return 1.4 * self.period

    @property
    def longest_silence(self) -> float:
        """The most, its place in the ring aside."""
        return 1.6 * self.period

    def stagger(self, place: int) -> float:
        """Return what a member at this place of the ring waits longer, so that one is first."""
        return 0.15 * self.period * place / self.size


class Smoothed:
    """A mean and a mean deviation that learn, for a time-out between two limits.

    Examples
    --------
    >>> rtt = Smoothed(least=0.1, most=5.0)
    >>> rtt.timeout
    5.0
    >>> for _ in range(100):
    ...     rtt.learn(0.2)
    >>> round(rtt.timeout, 3)
    0.2
    """

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most
        self._mean: float | None = None
        self._deviation = 0.0

    def learn(self, seconds: float) -> None:
        """Take in how long it took this time."""
        if self._mean is None:
            self._mean, self._deviation = seconds, seconds / 2
            return
        difference = seconds - self._mean
        self._mean += GAIN * difference
        self._deviation += GAIN * (abs(difference) - self._deviation)

    @property
    def timeout(self) -> float:
        """Mean + 4 deviations, within the limits; the upper limit before anything is known."""
        if self._mean is None:
            return self._most
        return min(max(self._mean + 4 * self._deviation, self._least), self._most)
