"""The tightest choice inside one domain: exact, by dynamic programming over its tree.

Heights are distances there, so the least total of j CPUs below a part is found from the least totals
below its children: only pairs in different children are this part's business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import add

from apples.topology.parts import Branch

BREAK = 1 << 20
"""A unit of height in the costs; below it stands the number of parts broken into, which decides ties."""
NEVER = 1 << 80
"""The cost of a number of CPUs that cannot be had."""


Costs = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a choice of CPUs must keep to, beside their number.

    Attributes
    ----------
    whole
        Masks of the cores that are only given entirely; empty: CPUs are given one by one.
    caps
        Mask of a memory node's CPUs -> the most that may be taken of them.
    """

    whole: frozenset[int] = frozenset()
    caps: Mapping[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class Packing:
    """The least costs of taking 0, 1, 2, ... of the free CPUs of a branch, and how.

    Attributes
    ----------
    costs
        By number of CPUs: heights summed over pairs in units of `BREAK`, plus parts broken into;
        `NEVER` where that number cannot be had.
    most
        The largest number that can be had.
    """

    costs: Costs
    _free: int
    _halves: tuple[Packing, Packing, Sequence[int]] | None = None
    most: int = field(init=False)

    def __post_init__(self) -> None:
        self.most = len(self.costs) - 1
        while self.costs[self.most] >= NEVER:
            self.most -= 1

    def at_least(self, count: int) -> int | None:
        """Return the smallest number from `count` on that can be had."""
        return next((j for j in range(count, len(self.costs)) if self.costs[j] < NEVER), None)

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
        pairs = size * (size - 1) // 2 * branch.height * BREAK
        return Packing((0, *[NEVER] * (size - 1), pairs), free)
    inside = [pack(child, free, rules, most) for child in branch.children if child.cpus & free]
    if not inside:
        return Packing((0,), 0)
    packing = _join(inside, branch.height * BREAK, most)
    costs = packing.costs
    if packing._halves is not None:
        broken = [cost + (0 < j < size and cost < NEVER) for j, cost in enumerate(costs)]
        costs = tuple(broken)
    cap = rules.caps.get(branch.cpus, size)
    return Packing(costs[: cap + 1], packing._free, packing._halves)


def _join(parts: list[Packing], height: int, most: int) -> Packing:
    """Return the packing of several parts whose CPUs are all `height` from each other, by halves."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    one, other = _join(parts[:middle], height, most), _join(parts[middle:], height, most)
    costs, kept = _merge(one.costs, other.costs, height, most)
    return Packing(costs, 0, (one, other, kept))


@lru_cache(maxsize=512)
def _merge(a: Costs, b: Costs, height: int, most: int) -> tuple[Costs, Sequence[int]]:
    """Return the costs of taking from two parts together, and how many of each sum come from `a`.

    The pairs across are all pairs less those inside either. Of equal costs the one that takes most of
    `a` counts: the lower numbers. Remembered, for machines are made of equal parts.
    """
    size = min(len(a) + len(b) - 2, most) + 1
    mine = [cost - height * (i * (i - 1) // 2) for i, cost in enumerate(a)][::-1]
    other = [cost - height * (i * (i - 1) // 2) for i, cost in enumerate(b)]
    last = len(a) - 1
    costs, kept = [NEVER] * size, [0] * size
    for j in range(size):
        first, least = max(0, last - j), max(0, j - last)  # the most of a, then less and less
        length = min(j + 1, len(b)) - least
        sums = list(map(add, mine[first : first + length], other[least:]))
        best = min(sums)
        if best < NEVER // 2:
            costs[j] = best + height * (j * (j - 1) // 2)
            kept[j] = last - first - sums.index(best)
    return tuple(costs), tuple(kept)
