"""Distances between CPUs: router hops between memory nodes, and heights in the tree of parts inside a node.

``hops(a, b)`` of CPUs in two nodes is the rank of their latency among the machine's distinct latencies; the
larger of the two directions counts. Inside a node it is the height of the lowest part that holds both CPUs,
scaled below 1. Without a latency matrix it is that height. The distances need not be ultrametric, because the
matrices of real machines are rarely trees.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from apples.topology.parts import Branch, Latencies, MemoryNode, Part, branch_of, node_of_cpu


@dataclass(frozen=True, slots=True)
class Domain:
    """CPUs that are equally far from all others: those of a memory node, or of the whole machine.

    Attributes
    ----------
    node
        Number of the memory node; None without one.
    cpus
        Mask.
    branch
        The lowest part that holds all the CPUs, and the branches below it.
    weights
        (mask, weight) of parts. The sum over parts of weight x pairs inside equals the sum over pairs of heights.
    """

    node: int | None
    cpus: int
    branch: Branch
    weights: tuple[tuple[int, int], ...] = field(repr=False)

    def total(self, chosen: int) -> int:
        """Return the sum over the pairs of `chosen` CPUs of this domain of the heights of their parts."""
        total = 0
        for mask, weight in self.weights:
            count = (chosen & mask).bit_count()
            total += weight * (count * (count - 1) // 2)
        return total


@dataclass(frozen=True, slots=True)
class Balls:
    """All CPUs within a number of hops of some centre.

    Attributes
    ----------
    radius
        Number of hops.
    members
        (mask of the ball, mask of the CPUs whose ball it is); each ball once.
    largest
        CPUs in the largest ball.
    """

    radius: float
    members: tuple[tuple[int, int], ...]
    largest: int


class Hops:
    """Distances between the CPUs of one machine.

    Attributes
    ----------
    domains
        By lowest CPU; a single domain without a usable matrix.
    rank
        Hops between domains.
    scale
        Divisor of the heights inside a domain.
    """

    def __init__(self, root: Part, nodes: Sequence[MemoryNode], latencies: Latencies) -> None:
        home = node_of_cpu(root.cpus, nodes)
        known = set(latencies.nodes)
        if latencies.values and home and known >= set(home.values()):
            self.scale = root.height + 1
            self.domains = tuple(_domains(root, home))
            self.rank = _ranks([domain.node for domain in self.domains], latencies)
        else:
            self.scale = 1
            self.domains = (_domain(root, root.cpus, None),)
            self.rank = [[0]]
        self._domain_of = {
            cpu: number for number, d in enumerate(self.domains) for cpu in _bits(d.cpus)
        }

    def __call__(self, a: int, b: int) -> float:
        """Return the hops between two CPUs; `KeyError` for a CPU that the machine lacks."""
        mine, other = self._domain_of[a], self._domain_of[b]
        if mine != other:
            return float(self.rank[mine][other])
        if a == b:
            return 0.0
        both = 1 << a | 1 << b
        return next(h for mask, h in self._chains[a] if mask & both == both) / self.scale

    def total(self, chosen: int) -> float:
        """Return the sum of hops over the unordered pairs of CPUs in a mask."""
        inside, between = 0, 0
        counts: list[tuple[int, int]] = []
        for number, domain in enumerate(self.domains):
            mask = chosen & domain.cpus
            if mask:
                inside += domain.total(mask)
                row, count = self.rank[number], mask.bit_count()
                between += count * sum(other * row[e] for e, other in counts)
                counts.append((number, count))
        return between + inside / self.scale

    def centre(self, chosen: int) -> tuple[float, int]:
        """Return the radius of a mask of CPUs and its centre.

        The centre is the CPU of the mask from which the farthest CPU of the mask is nearest; of several, the
        lowest. The radius is that distance in hops.
        """
        best, centre = float("inf"), -1
        for balls in self.balls:
            low = 0
            for mask, centres in balls.members:
                if not chosen & ~mask and chosen & centres:
                    found = chosen & centres
                    low |= found & -found
            if low:
                best, centre = balls.radius, (low & -low).bit_length() - 1
                break
        return best, centre

    @cached_property
    def balls(self) -> tuple[Balls, ...]:
        """All balls, by ascending radius."""
        reach: dict[float, dict[int, int]] = {}
        for number, domain in enumerate(self.domains):
            steps = sorted(
                {float(r) for r in self.rank[number]}
            )  # 0 for the domain itself included
            within = {s: self._within(number, s) for s in steps}
            for cpu in _bits(domain.cpus):
                bit = 1 << cpu
                for mask, height in ((bit, 0), *self._chains[cpu]):
                    value = height / self.scale
                    near = max(step for step in steps if step <= value)
                    _add(reach, value, mask | within[near] & ~domain.cpus, bit)
                for step in steps:
                    if step * self.scale >= domain.branch.height:
                        _add(reach, step, within[step], bit)
        return tuple(
            Balls(value, tuple(masks.items()), max(mask.bit_count() for mask in masks))
            for value, masks in sorted(reach.items())
        )

    def _within(self, number: int, step: float) -> int:
        mask = 0
        for other, rank in zip(self.domains, self.rank[number], strict=True):
            if rank <= step:
                mask |= other.cpus
        return mask

    @cached_property
    def _chains(self) -> dict[int, list[tuple[int, int]]]:
        """The parts above each CPU that hold other CPUs too, innermost first: mask and height."""
        chains: dict[int, list[tuple[int, int]]] = {}
        for domain in self.domains:
            for branch in domain.branch.walk():
                for cpu in _bits(branch.cpus):
                    chain = chains.setdefault(cpu, [])
                    if branch.children:
                        chain.insert(0, (branch.cpus, branch.height))
        return chains


def _add(reach: dict[float, dict[int, int]], value: float, ball: int, bit: int) -> None:
    masks = reach.setdefault(value, {})
    masks[ball] = masks.get(ball, 0) | bit


def _bits(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _domains(root: Part, home: dict[int, int]) -> Iterable[Domain]:
    """Yield a domain for each node, and for each largest part whose CPUs belong to no node."""
    masks: dict[int, int] = {}
    for cpu, node in home.items():
        masks[node] = masks.get(node, 0) | 1 << cpu
    found = [_domain(root, mask, node) for node, mask in masks.items()]
    without_node = root.cpus & ~sum(masks.values())
    for part in root.walk():
        if part.cpus & without_node and not part.cpus & ~without_node:
            found.append(_domain(part, part.cpus, None))
            without_node &= ~part.cpus
    return sorted(found, key=lambda domain: domain.cpus & -domain.cpus)


def _domain(root: Part, cpus: int, node: int | None) -> Domain:
    branch = branch_of(root, cpus)
    weights: list[tuple[int, int]] = []
    waiting = [(branch, 0)]
    while waiting:
        each, above = waiting.pop()
        if each.children:
            weights.append((each.cpus, each.height - above))
            waiting.extend((child, each.height) for child in each.children)
    return Domain(node, cpus, branch, tuple(weights))


def _ranks(nodes: Sequence[int | None], latencies: Latencies) -> list[list[int]]:
    order = {value: rank for rank, value in enumerate(latencies.distinct)}
    at = {node: i for i, node in enumerate(latencies.nodes)}
    unknown = len(order)  # farther than all known latencies

    def rank(a: int, b: int) -> int:
        mine, other = nodes[a], nodes[b]
        if a == b:
            return 0
        if mine is None or other is None:
            return unknown
        there, back = latencies.values[at[mine]][at[other]], latencies.values[at[other]][at[mine]]
        return max(order[there], order[back])

    return [[rank(a, b) for b in range(len(nodes))] for a in range(len(nodes))]
