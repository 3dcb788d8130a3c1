"""Which list of members of a clique may be gone by: a pure state machine.

A majority of one list and a majority of another may have no member in common, so the grants of
`nws.clique.grants` protect nobody while members go by different lists. The lists come from the
service, which has one at a time; so a list is gone by only while the service confirmed it lately,
and a new one only after every member that still goes by the old one must have stopped.
"""

from dataclasses import dataclass
from typing import Final

CONFIRMED_FOR: Final = 60.0
"""Seconds that a list holds without the service saying so again."""
FETCH_EVERY: Final = 20.0


@dataclass(frozen=True, slots=True)
class Member:
    """A member and where its endpoint listens."""

    name: str
    address: tuple[str, int]


class Roster:
    """The members of one clique, as this process may believe them.

    Examples
    --------
    >>> roster = Roster()
    >>> ada, bob = Member("ada", ("10.0.0.1", 9)), Member("bob", ("10.0.0.2", 9))
    >>> roster.told((ada, bob), turn=10.0, now=0.0)
    >>> roster.members(now=69.0), len(roster.members(now=71.0) or ())
    (None, 0)
    >>> for now in (20.0, 40.0, 60.0, 80.0):
    ...     roster.told((ada, bob), turn=10.0, now=now)
    >>> [member.name for member in roster.members(now=90.0)]
    ['ada', 'bob']
    """

    def __init__(self) -> None:
        self._members: tuple[Member, ...] = ()
        self._valid_from = float("inf")
        self._confirmed = float("-inf")

    def told(self, members: tuple[Member, ...], turn: float, now: float) -> None:
        """Take in what the service says now; `turn` is the longest a probe may still go on."""
        stale = now - self._confirmed > CONFIRMED_FOR
        if members != self._members or stale:
            self._members = members
            self._valid_from = now + CONFIRMED_FOR + turn
        self._confirmed = now

    def members(self, now: float) -> tuple[Member, ...] | None:
        """Return the members that may be gone by now; None if there is no such list."""
        fresh = now - self._confirmed <= CONFIRMED_FOR
        return self._members if fresh and now >= self._valid_from else None
