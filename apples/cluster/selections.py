"""Which hosts jobs would rather have by their models: what was asked, what was answered, and who waits for it.

A decision that gives a job some of several hosts is held for a moment, its hosts reserved, while whoever runs the
job asks the agent (`SelectOrder`). Nothing of it is recorded but the hosts that the job is then given: after a
restart the policy decides again, and the agent is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from apples.cluster.orders import SelectedHosts, SelectOrder

QUESTIONS = 1 << 20
"""Their numbers begin again after so many."""
STALE = 10.0
"""A decision that has not been carried out after so many times the patience is another one."""
NOTED_SPEED = 0.2
"""A wish is another one where a measured speed has changed by such a part: no two measurements are the same."""
NAMED = 8
"""So many hosts are named in words."""


@dataclass(frozen=True, slots=True)
class HostWish:
    """Some hosts, of which a job is to have so many.

    Attributes
    ----------
    among, count
        The hosts, and how many of them.
    beside
        Those that it has and keeps.
    shares
        Host -> the part of a processor that others leave there, where that is known: one weather for all jobs.
    instead
        What it gets where its model says nothing.
    speeds
        Host -> rows a second that it has measured there.
    """

    among: tuple[str, ...]
    count: int
    beside: tuple[str, ...]
    shares: tuple[tuple[str, float], ...]
    instead: tuple[str, ...] = field(compare=False)
    speeds: Mapping[str, float] = field(default_factory=dict, compare=False, hash=False)

    def is_like(self, other: HostWish) -> bool:
        """Whether an answer to the one answers the other.

        Examples
        --------
        >>> one = HostWish(("a", "b"), 1, (), (), ("a",), {"a": 1.0, "b": 2.0})
        >>> [one.is_like(replace(one, speeds={"a": speed, "b": 2.0})) for speed in (1.1, 1.5)]
        [True, False]
        """
        ours, theirs = self.speeds, other.speeds
        return (
            self == other
            and ours.keys() == theirs.keys()
            and all(
                abs(ours[host] - theirs[host]) <= NOTED_SPEED * max(ours[host], theirs[host])
                for host in ours
            )
        )


@dataclass(frozen=True, slots=True)
class _Question:
    """What was asked of a job last.

    Attributes
    ----------
    since
        When it was asked first about this decision, whatever has been free since.
    hosts, said
        The answer, and in words who has chosen; empty: there is none yet.
    """

    wish: HostWish
    number: int
    since: float
    hosts: tuple[str, ...] = ()
    said: str = ""


class HostSelections:
    """What is asked about the hosts of jobs.

    Parameters
    ----------
    patience
        Seconds that a decision is held at most.

    Attributes
    ----------
    held
        Jobs whose decision waits for an answer.
    said
        Job -> who has chosen the hosts of the order to resize that is under way.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._wishes: dict[int, HostWish] = {}
        self._questions: dict[int, _Question] = {}
        self._number = 0
        self.held: set[int] = set()
        self.said: dict[int, str] = {}

    def chosen(self, job: int, wish: HostWish, now: float) -> tuple[str, ...]:
        """Return the hosts of a wish: those of the answer, where just this was asked lately, else `instead`."""
        self._wishes[job] = wish
        asked = self._asked(job, now)
        known = asked is not None and asked.wish.is_like(wish) and asked.hosts
        return known or wish.instead

    def _asked(self, job: int, now: float) -> _Question | None:
        """Return what was asked of a job last; None: nothing, or too long ago to be about this decision."""
        asked = self._questions.get(job)
        stale = asked is not None and now >= asked.since + STALE * self._patience
        return None if stale else asked

    def ask(
        self,
        job: int,
        come: Collection[str],
        now: float,
        order: Callable[[HostWish, int], SelectOrder | None],
    ) -> tuple[bool, SelectOrder | None]:
        """Return whether the decision that gives a job hosts is to be held, and what is to be asked for that.

        Parameters
        ----------
        come
            The hosts that it was given, or keeps; a decision that was not made by its last wish is not held.
        order
            Makes the question of a wish; None: there is nothing to be asked.
        """
        wish, asked = self._wishes.get(job), self._asked(job, now)
        self.held.discard(job)
        if asked is None:
            self._questions.pop(job, None)
        if wish is None:
            return False, None
        if asked is not None and asked.wish.is_like(wish) and asked.hosts:
            return False, None
        if {*come}.difference(wish.beside) != {*wish.instead}:
            return False, None
        since = now if asked is None else asked.since
        if asked is not None and now >= since + self._patience:
            late = f"the host list; its model had not answered after {self._patience:g} s"
            if asked.hosts:
                late = "the host list; what its model answered was about other speeds or hosts"
            self._questions[job] = _Question(wish, 0, since, wish.instead, late)
            return False, None
        question = None
        if asked is None or not asked.wish.is_like(wish):
            self._number = self._number % QUESTIONS + 1
            question = order(wish, self._number)
            if question is None:
                return False, None
            self._questions[job] = _Question(wish, self._number, since)
        self.held.add(job)
        return True, question

    def hear(self, said: SelectedHosts) -> bool | None:
        """Take an answer in; return whether it differs from what the job was to get, None: it is of no use."""
        asked = self._questions.get(said.job)
        if asked is None or asked.number != said.question or asked.hosts:
            return None
        wish, hosts = asked.wish, said.hosts
        if (
            len({*hosts}) != len(hosts)
            or len(hosts) != wish.count
            or not {*hosts} <= {*wish.among}
        ):
            words = "the host list; its model cannot say"
            self._questions[said.job] = replace(asked, hosts=wish.instead, said=words)
            return False
        differs = {*hosts} != {*wish.instead}
        words = "its model: of the hosts that were free no others are better"
        if differs:
            words = f"its model: about {said.seconds:.3g} s in all"
            if said.otherwise is not None:
                others = (
                    wish.instead if len(wish.instead) <= NAMED else ("those of the host list",)
                )
                words += f", {said.otherwise:.3g} s on {', '.join(others)}"
        self._questions[said.job] = replace(asked, hosts=hosts, said=words)
        return differs

    def take(self, job: int) -> str:
        """Return who has chosen the hosts of a decision that is carried out now; empty: the host list."""
        asked, wish = self._questions.pop(job, None), self._wishes.pop(job, None)
        if asked is None or wish is None or not asked.wish.is_like(wish):
            return ""
        return asked.said

    def late(self, now: float) -> list[int]:
        """Return the jobs that are held and have waited for long enough."""
        return [
            job for job in sorted(self.held) if now >= self._questions[job].since + self._patience
        ]

    def release(self) -> None:
        """Take it that nothing is held: the decisions are made anew."""
        self.held.clear()

    def forget(self, job: int) -> None:
        """Forget a job that is over."""
        for known in (self._wishes, self._questions, self.said):
            known.pop(job, None)
        self.held.discard(job)
