"""The search below the allocator: k CPUs with the least radius and, of those, the least total distance.

1. Balls. The nearest CPUs of a centre are those of its ball. So the least radius of any k CPUs is that of the
   first ball, by ascending radius, that holds k usable CPUs and a usable centre. Exact.
2. Inside one domain (a memory node) distances are the heights of a tree. The least total of j CPUs below a part
   follows from the least totals below its children, because only pairs in different children add the height of
   this part: dynamic programming over the tree (`pack`). Exact.
3. Over several domains, the choice of k of n CPUs with the least total distance is NP-hard. From each of the most
   promising centres a choice grows by the domain nearest to all CPUs taken. Then single CPUs and whole domains
   are moved while the cost falls (`ExchangeSearch`). `python -m benchmarks topology` compares it with two
   oracles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from operator import add, or_

from apples.topology.hops import Hops
from apples.topology.machine import Topology
from apples.topology.parts import Branch
from apples.topology.requirement import Requirement

COST_UNIT = 1 << 20
"""A unit of height in the costs; the lower bits count the parts broken into, which decides ties."""
INFEASIBLE = 1 << 80
"""The cost of an impossible number of CPUs."""


Costs = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits on a choice of CPUs, in addition to their number.

    Attributes
    ----------
    whole
        Masks of the cores that must be taken entirely; empty: CPUs are taken one by one.
    caps
        Mask of a memory node's CPUs -> the most CPUs that may be taken of them.
    """

    whole: frozenset[int] = frozenset()
    caps: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Packing:
    """The least costs of taking 0, 1, 2, ... of the free CPUs of a branch, and the choices.

    Attributes
    ----------
    costs
        By number of CPUs: the sum of heights over pairs in units of `COST_UNIT`, plus parts broken into;
        `INFEASIBLE` for an impossible number.
    most
        The largest possible number.
    """

    costs: Costs
    _free: int
    _halves: tuple[Packing, Packing, Sequence[int]] | None = None
    most: int = field(init=False)

    def __post_init__(self) -> None:
        self.most = len(self.costs) - 1
        while self.costs[self.most] >= INFEASIBLE:
            self.most -= 1

    def at_least(self, count: int) -> int | None:
        """Return the smallest possible number that is at least `count`."""
        return next((j for j in range(count, len(self.costs)) if self.costs[j] < INFEASIBLE), None)

    def pick(self, count: int) -> int:
        """Return the mask of `count` CPUs of least cost."""
        if self._halves is None or count == 0:
            return self._free if count else 0
        one, other, kept = self._halves
        return one.pick(kept[count]) | other.pick(count - kept[count])


def pack(branch: Branch, free: int, rules: Rules, most: int) -> Packing:
    """Return the costs of up to `most` of the free CPUs of a branch; at least one must be free."""
    free &= branch.cpus
    size = free.bit_count()
    if size == 1 and not rules.whole:
        return Packing((0, 0), free)
    if not branch.children:
        return Packing((0, 0), free)
    if branch.cpus in rules.whole:
        if free != branch.cpus:
            return Packing((0,), 0)
        pairs = size * (size - 1) // 2 * branch.height * COST_UNIT
        return Packing((0, *[INFEASIBLE] * (size - 1), pairs), free)
    inside = [pack(child, free, rules, most) for child in branch.children if child.cpus & free]
    if not inside:
        return Packing((0,), 0)
    packing = _join(inside, branch.height * COST_UNIT, most)
    costs = packing.costs
    if packing._halves is not None:
        broken = [cost + (0 < j < size and cost < INFEASIBLE) for j, cost in enumerate(costs)]
        costs = tuple(broken)
    cap = rules.caps.get(branch.cpus, size)
    return Packing(costs[: cap + 1], packing._free, packing._halves)


def _join(parts: list[Packing], height: int, most: int) -> Packing:
    """Return the packing of several parts, by bisection; CPUs of different parts are `height` from each other."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    one, other = _join(parts[:middle], height, most), _join(parts[middle:], height, most)
    costs, kept = _merge(one.costs, other.costs, height, most)
    return Packing(costs, 0, (one, other, kept))


@lru_cache(maxsize=512)
def _merge(a: Costs, b: Costs, height: int, most: int) -> tuple[Costs, Sequence[int]]:
    """Return the costs of taking from two parts together, and the number from `a` in each sum.

    The pairs across are all pairs less the pairs inside either part. Of equal costs, the choice with most CPUs of
    `a` counts, which has the lower numbers. Cached, because machines consist of equal parts.
    """
    # With i CPUs of `a` and j - i of `b`, the pairs across number i (j - i) = C(j,2) - C(i,2) - C(j-i,2). So the
    # cost of j is height C(j,2) + min over i of (a[i] - height C(i,2)) + (b[j-i] - height C(j-i,2)): a minimum
    # over sums of two lists, one of them reversed, which `map` and `min` do without a loop of Python.
    size = min(len(a) + len(b) - 2, most) + 1
    mine = [cost - height * (i * (i - 1) // 2) for i, cost in enumerate(a)][::-1]
    other = [cost - height * (i * (i - 1) // 2) for i, cost in enumerate(b)]
    last = len(a) - 1
    costs, kept = [INFEASIBLE] * size, [0] * size
    for j in range(size):
        first, skipped = max(0, last - j), max(0, j - last)  # the most CPUs of a first, then fewer
        length = min(j + 1, len(b)) - skipped
        sums = list(map(add, mine[first : first + length], other[skipped:]))
        best = min(sums)
        if best < INFEASIBLE // 2:
            costs[j] = best + height * (j * (j - 1) // 2)
            kept[j] = last - first - sums.index(best)
    return tuple(costs), tuple(kept)


@dataclass(frozen=True, slots=True)
class Ball:
    """The usable CPUs and usable centres of a choice."""

    radius: float
    usable: int
    centres: int


def rules_of(topology: Topology, requirement: Requirement) -> Rules:
    """Return the limits of a requirement on this machine, without number and radius."""
    whole = frozenset(topology.units) if requirement.whole_cores else frozenset()
    most = requirement.max_cpus_per_node
    caps = {} if most is None else dict.fromkeys(topology.node_cpus, most)
    return Rules(whole, caps)


@dataclass(frozen=True, slots=True)
class CpuFilter:
    """A key of a requirement that limits which CPUs are usable.

    Attributes
    ----------
    key
        Key of the requirement.
    admit
        Machine, mask of usable CPUs, requirement -> mask of the admitted CPUs; None if the key is not set.
    clause
        Requirement, number of remaining CPUs, whether only free CPUs count -> clause of a refusal.
    """

    key: str
    admit: Callable[[Topology, int, Requirement], int | None]
    clause: Callable[[Requirement, int, bool], str]


def _listed(topology: Topology, usable: int, requirement: Requirement) -> int | None:
    del topology
    return None if requirement.cpus is None else usable & requirement.cpus.mask


def _listed_clause(requirement: Requirement, have: int, free: bool) -> str:
    where = "free" if free else "on this machine"
    return f"{have} of the {len(requirement.cpus or ())} CPUs of CPU_LIST are {where}"


def _of_kind(topology: Topology, usable: int, requirement: Requirement) -> int | None:
    kind = requirement.core_kind
    return None if kind is None else usable & topology.of_kind(kind)


def _of_kind_clause(requirement: Requirement, have: int, free: bool) -> str:
    return f"{have} {'free ' if free else ''}CPUs are of {requirement.core_kind} cores"


def _near(topology: Topology, usable: int, requirement: Requirement) -> int | None:
    return usable & (topology.near(requirement.near) or 0) if requirement.near else None


def _near_clause(requirement: Requirement, have: int, free: bool) -> str:
    return f"{have} {'free ' if free else ''}CPUs are near {requirement.near}"


def _in_whole_cores(topology: Topology, usable: int, requirement: Requirement) -> int | None:
    if not requirement.whole_cores:
        return None
    return sum(unit for unit in topology.units if not unit & ~usable)


def _whole_cores_clause(requirement: Requirement, have: int, free: bool) -> str:
    del requirement
    return f"{have} {'free ' if free else ''}CPUs are in whole cores"


FILTERS = (
    CpuFilter("CPU_LIST", _listed, _listed_clause),
    CpuFilter("SELECT", _of_kind, _of_kind_clause),
    CpuFilter("NEAR", _near, _near_clause),
    # Last: a core is whole only if all earlier filters admit all its CPUs.
    CpuFilter("WHOLE_CORES", _in_whole_cores, _whole_cores_clause),
)
"""Applied in this order."""


def filtered(
    topology: Topology, free: int, requirement: Requirement
) -> Iterator[tuple[CpuFilter, int]]:
    """Yield each filter that a requirement sets, and the CPUs that remain usable after it."""
    usable = free & topology.root.cpus
    for cpu_filter in FILTERS:
        admitted = cpu_filter.admit(topology, usable, requirement)
        if admitted is not None:
            usable = admitted
            yield cpu_filter, usable


def usable_cpus(topology: Topology, free: int, requirement: Requirement) -> int:
    """Return the free CPUs that a requirement admits; its number and radius do not matter."""
    usable = free & topology.root.cpus
    for cpu_filter in FILTERS:
        admitted = cpu_filter.admit(topology, usable, requirement)
        usable = usable if admitted is None else admitted
    return usable


def capacity(topology: Topology, rules: Rules) -> Callable[[int], int]:
    """Return a function: mask of usable CPUs -> the most of them that the limits allow together."""
    if not rules.caps:
        return int.bit_count
    capped_cpus = reduce(or_, rules.caps)

    def capped(mask: int) -> int:
        uncapped = mask & ~capped_cpus  # CPUs outside all memory nodes have no cap
        total = uncapped.bit_count()
        if rules.whole:
            total = sum(unit.bit_count() for unit in rules.whole if not unit & ~uncapped)
        for cpus, cap in rules.caps.items():
            inside = mask & cpus
            if inside:
                count = inside.bit_count()
                total += min(count, cap) if not rules.whole else _whole(topology, inside, rules)
        return total

    return capped


def _whole(topology: Topology, mask: int, rules: Rules) -> int:
    domain = next(d for d in topology.hops.domains if d.cpus & mask)
    return pack(domain.branch, mask, rules, mask.bit_count()).most


def balls_for(topology: Topology, usable: int, requirement: Requirement) -> Sequence[Ball]:
    """Return the smallest balls that hold the CPUs required; empty if no ball does."""
    rules = rules_of(topology, requirement)
    count, count_in = requirement.count, capacity(topology, rules)
    # A ball is (radius, CPUs within that radius of a centre). The first radius at which a ball holds enough usable
    # CPUs and a usable centre is the least radius of any choice, because balls come by ascending radius.
    below, alone = 0.0, -1  # a ball smaller than a core holds whole cores of one CPU only
    if rules.whole:
        below, alone = topology.core_radius, topology.lone_cpus
    for balls in topology.hops.balls:
        if balls.largest < count:
            continue
        here = usable if balls.radius >= below else usable & alone
        found = [
            Ball(balls.radius, here & mask, here & centres)
            for mask, centres in balls.members
            if (here & mask).bit_count() >= count and here & centres
        ]
        if rules.caps:
            found = [ball for ball in found if count_in(ball.usable) >= count]
        if found:
            return found
    return ()


STARTS, WORK = 8, 256
"""Most centres that a search over several domains starts from: STARTS, and WORK divided by the CPUs required."""
MOVED = 4
"""Number of the worst placed domains that a move may take CPUs from."""
ROUNDS = 40
"""Limit of moves from one start."""
LOOK_AHEAD, FEW = 4, 8
"""Number of moves tried together with a second move, and the most CPUs for which this is done."""


def best_choice(
    hops: Hops, balls: Sequence[Ball], count: int, rules: Rules, starts: int = STARTS
) -> int:
    """Return the mask of the `count` CPUs of least total distance within one of the balls.

    Ties go to the smallest ball, then to the fewest parts broken into, then to the lowest numbers. With whole
    cores the mask may hold more than `count` CPUs; 0: a rule cannot be kept.
    """
    candidates = []
    spread: list[tuple[int, int, int, int, Ball]] = []
    for ball in balls:
        size = ball.usable.bit_count()
        inside = [i for i, domain in enumerate(hops.domains) if domain.cpus & ball.usable]
        if len(inside) == 1 and size == count:  # only one choice
            candidates.append((hops.domains[inside[0]].total(ball.usable), size, 0, ball.usable))
            continue
        if len(inside) == 1:
            packing = pack(
                hops.domains[inside[0]].branch, ball.usable, rules, count + _room(rules)
            )
            got = packing.at_least(count)
            if got is not None:
                cost = packing.costs[got]
                candidates.append((cost // COST_UNIT, size, cost % COST_UNIT, packing.pick(got)))
            continue
        for centre in inside:
            if hops.domains[centre].cpus & ball.centres:
                star = _star(hops, centre, inside, ball.usable, count)
                spread.append((star, size, centre, ball.usable, ball))
    # More than two centres: from the best two alone, the choice of 8 CPUs on a 256-way machine
    # missed the least total.
    spread.sort(key=lambda start: start[:4])
    cache = PackingCache(hops, rules, count + _room(rules))
    for _, size, centre, _, ball in spread[: max(2, min(starts, WORK // count))]:
        search = ExchangeSearch(cache, ball.usable, centre, count)
        if search.fill():
            search.descend()
            candidates.append(
                (search.cost() // COST_UNIT, size, search.cost() % COST_UNIT, search.mask())
            )
    if not candidates:
        return 0
    best = min(candidate[:3] for candidate in candidates)
    return reduce(_lower, (c[3] for c in candidates if c[:3] == best))


def _room(rules: Rules) -> int:
    """Return the most CPUs that whole cores may add to the number required."""
    return max((core.bit_count() for core in rules.whole), default=1) - 1


def _lower(a: int, b: int) -> int:
    """Return the mask that has the lowest CPU in which the two differ."""
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


class PackingCache:
    """The packings of domains; all starts of a search share them."""

    def __init__(self, hops: Hops, rules: Rules, most: int) -> None:
        self.hops, self._rules, self._most = hops, rules, most
        self._packings: dict[tuple[int, int], Packing] = {}

    def packing(self, domain: int, free: int) -> Packing:
        """Return the packing of the free CPUs of a domain."""
        known = self._packings.get((domain, free))
        if known is None:
            known = pack(self.hops.domains[domain].branch, free, self._rules, self._most)
            self._packings[domain, free] = known
        return known


class ExchangeSearch:
    """A choice over several domains around one centre, as the number taken from each.

    Parameters
    ----------
    centre
        The domain from which at least one CPU is taken.
    """

    def __init__(self, cache: PackingCache, usable: int, centre: int, count: int) -> None:
        hops = cache.hops
        self._rank, self._unit = hops.rank, hops.scale * COST_UNIT
        self._centre, self._count = centre, count
        self._packing: dict[int, Packing] = {}
        for i, domain in enumerate(hops.domains):
            free = domain.cpus & usable
            if free:
                self._packing[i] = cache.packing(i, free)
        row = hops.rank[centre]
        self._pool = sorted(self._packing, key=lambda i: (row[i], -self._packing[i].most, i))
        self._taken: dict[int, int] = {}
        # Invariant: _far[d] is the sum over all taken CPUs of the distance between their domain and d.
        self._far: dict[int, int] = {}

    def fill(self) -> bool:
        """Take from the centre, then from the domain nearest to all CPUs taken; return whether they suffice."""
        left, waiting = self._count, list(self._pool)
        self._far = dict.fromkeys(waiting, 0)
        domain = self._centre
        while True:
            waiting.remove(domain)
            packing = self._packing[domain]
            got = packing.at_least(min(left, packing.most))
            if got:
                self._taken[domain] = got
                left -= got
                row = self._rank[domain]
                self._far = {other: far + got * row[other] for other, far in self._far.items()}
            if left <= 0 or not waiting:
                return left <= 0
            domain = min(
                waiting, key=self._far.__getitem__
            )  # of equal domains the first of the pool

    def descend(self) -> None:
        """Move CPUs between domains while the cost falls, by one move or, for few CPUs, by two together."""
        for _ in range(ROUNDS):
            moves = sorted(self._moves())
            if not moves or moves[0][0] >= 0:
                moves = moves[: LOOK_AHEAD if self._count <= FEW else 0]
                if not any(self._moved_twice(*move) for move in moves):
                    return
                continue
            self._move(*moves[0][1:])

    def _moved_twice(self, change: int, source: int, target: int, n: int) -> bool:
        """Make a move and the best move after it if both together lower the cost; return whether they do."""
        self._move(source, target, n)
        after = min(self._moves(), default=(0, 0, 0, 0))
        if change + after[0] < 0:
            self._move(*after[1:])
            return True
        self._move(target, source, n)
        return False

    def cost(self) -> int:
        """Return the sum of heights over all pairs in units of `COST_UNIT`, plus the parts broken into."""
        between = sum(n * self._far[domain] for domain, n in self._taken.items()) // 2
        inside = sum(self._packing[domain].costs[n] for domain, n in self._taken.items())
        return between * self._unit + inside

    def mask(self) -> int:
        """Return the mask of the CPUs."""
        return sum(self._packing[domain].pick(n) for domain, n in self._taken.items())

    def _moves(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (change of cost, from, to, number) of each move to try."""
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
        """Return the change of the cost when `n` CPUs move; None if they cannot."""
        # The sum of distances falls by n far(source) and grows by n far(target), where far(d) is the distance of d
        # from all that is taken; the n CPUs themselves count in both, n * n times their own distance too much.
        a, b = self._taken[source], self._taken.get(target, 0)
        if source == self._centre and n == a:
            return None
        mine, other = self._packing[source].costs, self._packing[target].costs
        if mine[a - n] >= INFEASIBLE or other[b + n] >= INFEASIBLE:
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
