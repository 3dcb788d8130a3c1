"""Which CPUs of a ball: the least total distance.

Inside one domain the answer is exact (`packing`). Over several, choosing k of n with the least total
distance is NP-hard: the nearest around the most promising centres are taken (a 2-approximation for
metric distances), then single CPUs and whole domains are moved while that helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import mul

from apples.topology.hops import Hops
from apples.topology.nearness import Ball
from apples.topology.packing import BREAK, NEVER, Packing, Rules, pack

STARTS, WORK = 8, 256
"""How many centres the search over several domains starts from: fewer where many CPUs are asked."""
MOVED = 4
"""How many of the worst placed domains a move may take from."""
ROUNDS = 40
"""At most so many moves from one start."""


def best_choice(hops: Hops, balls: Sequence[Ball], count: int, rules: Rules) -> int:
    """Return the mask of the `count` CPUs of least total distance out of one of the balls.

    Ties go to the tightest ball, then to the fewest parts broken into, then to the lowest numbers. More
    than `count` come where whole cores are asked; 0 where a rule cannot be kept.
    """
    candidates = []
    spread: list[tuple[int, int, int, int, Ball]] = []
    for ball in balls:
        size = ball.usable.bit_count()
        inside = [i for i, domain in enumerate(hops.domains) if domain.cpus & ball.usable]
        if len(inside) == 1 and size == count:  # nothing to choose
            candidates.append((hops.domains[inside[0]].total(ball.usable), size, 0, ball.usable))
            continue
        if len(inside) == 1:
            packing = pack(
                hops.domains[inside[0]].branch, ball.usable, rules, count + _room(rules)
            )
            got = packing.at_least(count)
            if got is not None:
                cost = packing.costs[got]
                candidates.append((cost // BREAK, size, cost % BREAK, packing.pick(got)))
            continue
        for centre in inside:
            if hops.domains[centre].cpus & ball.centres:
                star = _star(hops, centre, inside, ball.usable, count)
                spread.append((star, size, centre, ball.usable, ball))
    spread.sort(key=lambda start: start[:4])
    shelf = Shelf(hops, rules, count + _room(rules))
    for _, size, centre, _, ball in spread[: max(2, min(STARTS, WORK // count))]:
        search = Search(shelf, ball.usable, centre, count)
        if search.fill():
            search.descend()
            candidates.append((search.cost() // BREAK, size, search.cost() % BREAK, search.mask()))
    if not candidates:
        return 0
    least = min(found[:3] for found in candidates)
    return reduce(_lower, (found[3] for found in candidates if found[:3] == least))


def _room(rules: Rules) -> int:
    """How many more than asked whole cores may bring."""
    return max((core.bit_count() for core in rules.whole), default=1) - 1


def _lower(a: int, b: int) -> int:
    """Return the mask that has the lowest CPU that only one of them has."""
    return a if (a ^ b) & -(a ^ b) & a else b


def _star(hops: Hops, centre: int, inside: Sequence[int], usable: int, count: int) -> int:
    """Return the sum of hops from a domain to the `count` nearest usable CPUs."""
    by_rank: dict[int, int] = {}
    for domain in inside:
        rank = hops.rank[centre][domain]
        free = (hops.domains[domain].cpus & usable).bit_count()
        by_rank[rank] = by_rank.get(rank, 0) + free
    total = 0
    for rank in sorted(by_rank):
        taken = min(count, by_rank[rank])
        total += rank * taken
        count -= taken
    return total


class Shelf:
    """The packings of domains, each made once for all starts of a search."""

    def __init__(self, hops: Hops, rules: Rules, most: int) -> None:
        self.hops, self._rules, self._most = hops, rules, most
        self._packings: dict[tuple[int, int], Packing] = {}

    def packing(self, domain: int, free: int) -> Packing:
        """Return how to take CPUs from the free ones of a domain."""
        known = self._packings.get((domain, free))
        if known is None:
            known = pack(self.hops.domains[domain].branch, free, self._rules, self._most)
            self._packings[domain, free] = known
        return known


class Search:
    """A choice over several domains around one centre, as the number taken from each.

    Parameters
    ----------
    centre
        The domain from which at least one CPU is taken.
    """

    def __init__(self, shelf: Shelf, usable: int, centre: int, count: int) -> None:
        hops = shelf.hops
        self._rank, self._unit = hops.rank, hops.scale * BREAK
        self._centre, self._count = centre, count
        self._packing: dict[int, Packing] = {}
        for i, domain in enumerate(hops.domains):
            free = domain.cpus & usable
            if free:
                self._packing[i] = shelf.packing(i, free)
        row = hops.rank[centre]
        self._pool = sorted(self._packing, key=lambda i: (row[i], -self._packing[i].most, i))
        self._taken: dict[int, int] = {}
        self._far: dict[int, int] = {}

    def fill(self) -> bool:
        """Take the nearest; return whether there are enough."""
        left = self._count
        for domain in self._pool:
            if left <= 0:
                break
            packing = self._packing[domain]
            got = packing.at_least(min(left, packing.most))
            if got:
                self._taken[domain] = got
                left -= got
        others, counts = tuple(self._taken), tuple(self._taken.values())
        for domain in self._pool:
            row = self._rank[domain]
            self._far[domain] = sum(map(mul, counts, map(row.__getitem__, others)))
        return left <= 0

    def descend(self) -> None:
        """Move CPUs between domains while the cost falls."""
        for _ in range(ROUNDS):
            best = min(self._moves(), default=(0, 0, 0, 0))
            if best[0] >= 0:
                return
            self._move(*best[1:])

    def cost(self) -> int:
        """Return heights summed over all pairs in units of `BREAK`, plus the parts broken into."""
        between = sum(n * self._far[domain] for domain, n in self._taken.items()) // 2
        inside = sum(self._packing[domain].costs[n] for domain, n in self._taken.items())
        return between * self._unit + inside

    def mask(self) -> int:
        """Return the CPUs."""
        return sum(self._packing[domain].pick(n) for domain, n in self._taken.items())

    def _moves(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (change of cost, from, to, how many) of the moves worth a look."""
        taken, far = self._taken, self._far
        sources = sorted(taken, key=lambda i: (-far[i], i))[:MOVED]
        targets = [i for i in self._pool if taken.get(i, 0) < self._packing[i].most]
        targets = sorted(targets, key=lambda i: (far[i], i))[: 2 * MOVED]
        for source in sources:
            for target in targets:
                if source == target:
                    continue
                have = self._packing[target].costs
                most = min(taken[source], len(have) - 1 - taken.get(target, 0))
                for n in {1, most} if most > 0 else ():
                    change = self._change(source, target, n)
                    if change is not None:
                        yield change, source, target, n

    def _change(self, source: int, target: int, n: int) -> int | None:
        """Return by how much the cost changes when `n` CPUs move; None if they cannot."""
        a, b = self._taken[source], self._taken.get(target, 0)
        if source == self._centre and n == a:
            return None
        mine, other = self._packing[source].costs, self._packing[target].costs
        if mine[a - n] >= NEVER or other[b + n] >= NEVER:
            return None
        between = n * (self._far[target] - self._far[source])
        between -= n * n * self._rank[source][target]
        return between * self._unit + mine[a - n] - mine[a] + other[b + n] - other[b]

    def _move(self, source: int, target: int, n: int) -> None:
        self._taken[source] -= n
        if not self._taken[source]:
            del self._taken[source]
        self._taken[target] = self._taken.get(target, 0) + n
        here, there = self._rank[source], self._rank[target]
        for domain in self._pool:
            self._far[domain] += n * (there[domain] - here[domain])
