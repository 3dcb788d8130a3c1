"""What is under way with jobs' nodes and not confirmed: numbered proposals, and which waits for which.

A change of a running job's nodes is a proposal until the job has answered. Nodes that a job gives up are leaving
until it confirms that nothing of it is there; another start or growth may claim them at once, names the proposals
it waits for, and is sent when all of them are confirmed. A proposal is answered once: it is confirmed or refused;
later answers to its number change nothing. One that is not answered in time is unsettled: its nodes are neither
given away nor counted as left, whoever waited for them is taken back, and the answer still counts when it comes.

`ClusterLedger` owns the nodes and asks this module; time is an argument, nothing here knows a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from apples.scheduling.jobs import Job
from apples.scheduling.policy import RunningJob


class Change(StrEnum):
    """What a proposal is about."""

    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    MIGRATE = "migrate"
    SHARE = "share"


@dataclass(slots=True)
class Nodes:
    """Some nodes: how many, and which where they are told apart."""

    count: int = 0
    ids: frozenset[int] = frozenset()

    def add(self, other: Nodes) -> None:
        """Put others to these."""
        self.count += other.count
        self.ids |= other.ids

    def take(self, count: int, wanted: frozenset[int]) -> Nodes:
        """Take out so many: of those wanted if any are, else the lowest."""
        if not self.ids:
            count = min(count, self.count)
            self.count -= count
            return Nodes(count)
        chosen = self.ids & wanted if wanted else frozenset(sorted(self.ids)[:count])
        self.count -= len(chosen)
        self.ids -= chosen
        return Nodes(len(chosen), chosen)


@dataclass(slots=True)
class Proposal:
    """A change that was accepted and is not confirmed.

    Attributes
    ----------
    number
        Of the proposal; never used again.
    made, deadline
        When it was made, and until when its answer is expected: never as long as it was not sent.
    before, job_before
        The job as it ran, None: it waited; the job itself, which is shown as rigid meanwhile.
    left
        Nodes that nobody claimed of those that the job gives up.
    taken
        Nodes that were free and that it takes.
    claims
        Nodes that it takes as soon as others' proposals are confirmed, by their numbers.
    waits_for
        Numbers of the proposals that have to be confirmed before it is sent.
    sent, unsettled
        Whether the job was told; whether it did not answer in time.
    reason
        Why the policy moves the job.
    """

    number: int
    job: int
    change: Change
    made: float
    before: RunningJob | None = None
    job_before: Job | None = None
    deadline: float = inf
    left: Nodes = field(default_factory=Nodes)
    taken: Nodes = field(default_factory=Nodes)
    claims: dict[int, Nodes] = field(default_factory=dict)
    waits_for: set[int] = field(default_factory=set)
    sent: bool = False
    unsettled: bool = False
    reason: str = ""


class Proposals:
    """The proposals that are not settled.

    Attributes
    ----------
    open
        By their numbers.
    """

    def __init__(self) -> None:
        self.open: dict[int, Proposal] = {}
        self._last = 0

    def __iter__(self) -> Iterator[Proposal]:
        return iter(list(self.open.values()))

    def make(self, job: int, change: Change, now: float, before: RunningJob | None) -> Proposal:
        """Return a new proposal."""
        self._last += 1
        made = Proposal(
            self._last, job, change, now, before, None if before is None else before.job
        )
        self.open[made.number] = made
        return made

    def get(self, number: int) -> Proposal | None:
        """Return a proposal that is not settled, None: it is, or never was."""
        return self.open.get(number)

    def settle(self, number: int) -> None:
        """Forget a proposal."""
        del self.open[number]

    @property
    def left(self) -> int:
        """Nodes that are leaving and that nobody claimed."""
        return sum(one.left.count for one in self.open.values() if not one.unsettled)

    @property
    def left_ids(self) -> frozenset[int]:
        """Numbers of those nodes."""
        return frozenset().union(
            *(one.left.ids for one in self.open.values() if not one.unsettled)
        )

    def claim(self, claimant: Proposal, count: int, wanted: frozenset[int]) -> frozenset[int]:
        """Give a proposal so many nodes that are leaving, those wanted or the first; return which."""
        ids: frozenset[int] = frozenset()
        for one in self.open.values():
            if count and one is not claimant and one.left.count and not one.unsettled:
                got = one.left.take(count, wanted)
                if got.count:
                    claimant.claims[one.number] = got
                    claimant.waits_for.add(one.number)
                    count -= got.count
                    ids |= got.ids
        return ids

    def unclaim(self, claimant: Proposal) -> None:
        """Take back what a proposal claimed of those that are not settled."""
        for number, nodes in claimant.claims.items():
            source = self.open.get(number)
            if source is not None:
                source.left.add(nodes)
        claimant.claims.clear()
        claimant.waits_for.clear()

    def waiting_for(self, number: int) -> list[Proposal]:
        """Return the proposals that wait for one."""
        return [one for one in self.open.values() if number in one.waits_for]

    def confirmed(self, number: int) -> None:
        """Let those that wait for a proposal have its nodes."""
        for one in self.waiting_for(number):
            one.waits_for.discard(number)
            one.taken.add(one.claims.pop(number, Nodes()))

    def ready(self) -> list[Proposal]:
        """Return the proposals that wait for nothing and were not sent."""
        return [one for one in self.open.values() if not one.sent and not one.waits_for]

    def overdue(self, now: float) -> list[Proposal]:
        """Return those whose answer is late, and that are not unsettled yet."""
        return [one for one in self.open.values() if not one.unsettled and one.deadline <= now]

    @property
    def under_way_since(self) -> float:
        """When the oldest proposal that may still be answered in time was made; never: there is none."""
        return min((one.made for one in self.open.values() if not one.unsettled), default=inf)
