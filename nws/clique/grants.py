"""The right to probe: a majority's grant for a bounded time. Two state machines, both pure.

The token says whose turn it is, but after a partition there may be two tokens. So a holder also
asks all members and probes only with the grants of more than half of them, itself counted, and
only until `seconds` after it asked, by its own clock. A member grants one at a time, and holds to
it for `seconds` after it heard the question, which is later. Two probes at once would need two
majorities, hence one member that granted both at once: it never does, whatever is lost, delayed,
doubled or cut off. It holds as long as clock rates differ by less than 1 %; a member that was
restarted grants nothing for one turn, since it may have forgotten a grant.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from nws.clique.messages import Grant, GrantRequest, Release

GAIN: Final = 0.15
"""Weight of the newest value (NWS 2.x smooths its cycle times so)."""
DRIFT: Final = 0.01
"""By how much the rates of two clocks may differ."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The time limits of a clique of `size` members with this period, in seconds.

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
        # The token comes up to a cycle's length late. At 1.1 periods the simulation showed
        # elections that no fault had caused.
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


class Granter:
    """The grants that a member has given.

    Parameters
    ----------
    roster
        Which list of members this one goes by; others' questions are not answered.
    turn
        The longest grant.
    now
        When this member came to life; it is silent for one turn from then.
    """

    def __init__(self, roster: str, turn: float, now: float) -> None:
        self._roster = roster
        self._turn = turn
        self._until = now + turn * (1 + DRIFT)
        self._held: tuple[str, str, int] | None = None
        self._numbers: dict[tuple[str, str], int] = {}

    def ask(self, question: GrantRequest, now: float) -> bool:
        """Grant, or be silent; return which."""
        asker = (question.sender, question.life)
        if self._held == (*asker, question.number):
            return now < self._until  # our answer was lost
        fits = question.roster == self._roster and 0 < question.seconds <= self._turn
        if not fits or question.number <= self._numbers.get(asker, -1):
            return False  # another list, too long, or heard before
        free = now >= self._until or (self._held is not None and self._held[:2] == asker)
        if not free:
            return False
        self._numbers[asker] = question.number
        self._held = (*asker, question.number)
        self._until = now + question.seconds * (1 + DRIFT)
        return True

    def release(self, message: Release) -> None:
        """Be free again, if it was this grant that was held."""
        if self._held == (message.sender, message.life, message.number):
            self._held = None
            self._until = float("-inf")


class Asker:
    """The grants that a holder of the token has asked for and received.

    Parameters
    ----------
    members
        All of the clique, itself included.
    """

    def __init__(self, members: Collection[str]) -> None:
        self._members = frozenset(members)
        self.question = GrantRequest("", "", 0, 0.0, "")
        self.granters: set[str] = set()
        self.until = float("-inf")

    def begin(self, sender: str, life: str, roster: str, seconds: float, now: float) -> None:
        """Make a new question; what it gets holds for `seconds` from now."""
        self.question = GrantRequest(sender, life, self.question.number + 1, seconds, roster)
        self.granters = set()
        self.until = now + seconds * (1 - DRIFT)

    def granted(self, grant: Grant) -> bool:
        """Take in a grant; return whether these are now more than half."""
        if grant.number == self.question.number and grant.sender in self._members:
            self.granters.add(grant.sender)
        return 2 * len(self.granters) > len(self._members)

    def release(self) -> Release:
        """Return the message that gives all grants back."""
        self.granters = set()
        self.until = float("-inf")
        return Release(self.question.sender, self.question.life, self.question.number)
