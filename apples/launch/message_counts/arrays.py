"""`ArrayMessages`: messages and bytes between ranks, collected from a running program's `MessagesSent` events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from apples.launch.events import MessagesSent
from apples.topology.message_matrix import CountedRank, MessageMatrix

MAX_RANKS = 1024
"""Limit of ranks in all maps of a run; their matrix takes 34 MB. Messages of further ranks count as `missed`."""
MAX_PAIRS = 1 << 18
"""Limit of pairs of ranks that have exchanged messages, in all maps; further pairs are ignored."""

Pair = tuple[int, int]


class ArrayMessages:
    """The messages of one run, over all maps of ranks to hosts (`MessagesSent`).

    A rank is identified by its host, its MPI world and its number there. A host that leaves and returns has a new
    world.

    Parameters
    ----------
    most_pairs
        Limit of counted pairs of ranks.

    Examples
    --------
    >>> found = ArrayMessages()
    >>> found.hear(MessagesSent((("ada", 1), ("bob", 1)), ((0, 1, 5, 400),), together=False))
    >>> found.hear(MessagesSent((("ada", 1),), (), epoch=1))
    >>> found.hear(MessagesSent((("ada", 1), ("bob", 1)), ((0, 1, 2, 160),), epoch=2, together=False))
    >>> matrix = found.matrix()
    >>> [tuple(rank) for rank in matrix.ranks], matrix.bytes[0]
    ([('ada', 0, 0), ('bob', 1, 0), ('bob', 2, 0)], (0, 400, 160))
    """

    def __init__(self, most_pairs: int = MAX_PAIRS) -> None:
        self._most_pairs = most_pairs
        self._ranks: list[CountedRank] = []
        self._before: dict[Pair, Pair] = {}
        self._now: dict[Pair, Pair] = {}
        self._map: MessagesSent | None = None
        self._began = self._iteration = 0
        self._here: list[int | None] = []
        self._worlds: dict[str, int] = {}
        self._missed = 0

    def hear(self, said: MessagesSent) -> None:
        """Add an event of the program."""
        last = self._map
        if last is None or (last.epoch, last.hosts) != (said.epoch, said.hosts):
            self._begin(said)
        self._map, self._iteration = said, said.iteration
        for one, other, messages, sent in said.sent:
            known = max(one, other) < len(self._here)
            if (known and len(self._now) + len(self._before) < self._most_pairs) or (
                one,
                other,
            ) in self._now:
                self._now[one, other] = messages, sent

    @property
    def ranks(self) -> int:
        """Number of ranks in all maps so far: rows and columns of the `matrix`."""
        return len(self._ranks)

    def matrix(self, hosts: Sequence[str] = ()) -> MessageMatrix | None:
        """Return the messages so far; None if no message was sent.

        Parameters
        ----------
        hosts
            Order of hosts in the matrix: the worlds of these hosts come first, then all others.
        """
        totals = self._totals()
        if not totals:
            return None
        places = {host: number for number, host in enumerate(hosts)}
        first: dict[int, int] = {}
        for rank in self._ranks:
            first.setdefault(rank.world, places.get(rank.host, len(hosts)))
        order = sorted(
            range(len(self._ranks)),
            key=lambda k: (first[self._ranks[k].world], self._ranks[k].world, self._ranks[k].rank),
        )
        numbers = dict.fromkeys(self._ranks[k].world for k in order)
        worlds = {world: number for number, world in enumerate(numbers)}
        place = {k: number for number, k in enumerate(order)}
        counts = [[0] * len(order) for _ in order]
        amounts = [[0] * len(order) for _ in order]
        for (one, other), (messages, sent) in totals.items():
            counts[place[one]][place[other]] = messages
            amounts[place[one]][place[other]] = sent
        return MessageMatrix(
            tuple(self._ranks[k]._replace(world=worlds[self._ranks[k].world]) for k in order),
            tuple(map(tuple, amounts)),
            tuple(map(tuple, counts)),
            self._missed + self._unknown(),
            "arrays",
        )

    def per_iteration(self) -> Mapping[tuple[str, str], float]:
        """Return the bytes that each host sends to each other host per iteration, in the current map."""
        done = self._iteration - self._began
        if self._map is None or done <= 0:
            return {}
        of = [host for host, ranks in self._map.hosts for _ in range(ranks)]
        found: dict[tuple[str, str], float] = {}
        for (one, other), (_, sent) in self._now.items():
            pair = of[one], of[other]
            if pair[0] != pair[1]:
                found[pair] = found.get(pair, 0.0) + sent / done
        return found

    def _begin(self, said: MessagesSent) -> None:
        """Add up the counts of the previous map, and identify the ranks of the new map."""
        self._before, self._missed = self._totals(), self._missed + self._unknown()
        self._now, self._began = {}, said.iteration
        known = {} if said.anew else self._worlds
        number = 1 + max((rank.world for rank in self._ranks), default=-1)
        self._worlds, together = {}, said.together and not any(h in known for h, _ in said.hosts)
        places = {(r.host, r.world, r.rank): k for k, r in enumerate(self._ranks)}
        self._here = []
        for host, ranks in said.hosts:
            world = known.get(host, number)
            number += world == number and not together
            self._worlds[host] = world
            first = len(self._here) if together else 0
            for rank in range(first, first + ranks):
                one = CountedRank(host, world, rank)
                if one not in places and len(self._ranks) < MAX_RANKS:
                    places[one] = len(self._ranks)
                    self._ranks.append(one)
                self._here.append(places.get(one))

    def _totals(self) -> dict[Pair, Pair]:
        """Return the messages and bytes of all maps, by pair of indices into `_ranks`."""
        totals = dict(self._before)
        for (a, b), (messages, sent) in self._now.items():
            one, other = self._here[a], self._here[b]
            if one is not None and other is not None:
                so_far = totals.get((one, other), (0, 0))
                totals[one, other] = so_far[0] + messages, so_far[1] + sent
        return totals

    def _unknown(self) -> int:
        """Return the number of messages of this map with ranks beyond `MAX_RANKS`."""
        return sum(
            n for pair, (n, _) in self._now.items() if None in {self._here[k] for k in pair}
        )
