"""Task placement by communication: it minimises bytes times distance plus the weighted time of the slowest host.

This is the mapping of a task graph onto hosts. The quadratic assignment problem is a case of it; exact methods
reach little more than ten tasks. Here tasks are placed one by one, first those with most traffic to placed tasks.
Then tasks are moved and exchanged while the cost falls. Small problems get several starts. `rank_order` solves
the same problem for the ranks and the CPUs of one host.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from apples.errors import UsageError
from apples.topology.bindings import RankOrder
from apples.topology.cpus import CpuSet
from apples.topology.machine import Topology

Array = np.ndarray[Any, np.dtype[np.float64]]
Places = np.ndarray[Any, np.dtype[np.intp]]

SMALL_PROBLEM = 40
"""Tasks up to which a placement gets several starts: forty starts cost less than one start of 256 tasks."""
STARTS = 40
TINY_PROBLEM, RANDOM_STARTS = 10, 40
"""Tasks up to which random placements are starts too, and their number: the changes of one found placement do not
reach every other placement if the hosts have little room."""
BATCH = 64
"""The most promising changes, tried before the gains of all changes are computed again."""
MIN_GAIN = 1e-6
"""Least part of the cost that a change must save. Below it, hundreds of changes gain nothing measurable."""


@dataclass(frozen=True)
class PlacementProblem:
    """Tasks that send each other messages, and the hosts they can be placed on.

    Attributes
    ----------
    messages
        Square, tasks by tasks: bytes from the task of the row to the task of the column. The diagonal costs
        nothing.
    distances
        Square and symmetric, hosts by hosts: cost of a byte between two hosts, and inside one (the diagonal).
    loads
        Work of each task; a host of speed 1 does one unit a second.
    speeds
        Speed of each host, > 0.
    weight
        Lambda: cost of a second of the most loaded host, in units of bytes times distance.
    room
        The most tasks on each host; empty: no limits.
    tolerated
        Seconds of the most loaded host up to which time adds the same cost; messages alone decide.

    Raises
    ------
    UsageError
        Sizes that do not fit, an invalid number, or less room than tasks. Permanent.

    Examples
    --------
    >>> talk = np.array([[0, 9, 0, 0], [9, 0, 1, 0], [0, 1, 0, 9], [0, 0, 9, 0]])
    >>> two_hosts = PlacementProblem(talk, np.array([[0, 1], [1, 0]]), (1, 1, 1, 1), (1, 1), weight=100)
    >>> two_hosts.cost((0, 1, 0, 1)), two_hosts.cost((0, 0, 1, 1))
    (238.0, 202.0)
    >>> place(two_hosts)
    (0, 0, 1, 1)
    """

    messages: Any
    distances: Any
    loads: Sequence[float]
    speeds: Sequence[float]
    weight: float
    room: Sequence[int] = ()
    tolerated: float = 0.0

    def __post_init__(self) -> None:
        tasks, hosts = len(self.loads), len(self.speeds)
        for name, matrix, size in (
            ("messages", self.messages, tasks),
            ("distances", self.distances, hosts),
        ):
            array = np.asarray(matrix, dtype=float)
            if array.shape != (size, size):
                raise UsageError(
                    f"{name}: must be {size} x {size} numbers, not {array.shape}",
                    code="matrix-size-invalid",
                    field=name,
                    value=list(array.shape),
                    needed=[size, size],
                )
            _demand_numbers(name, array)
        _demand_numbers("loads", np.asarray(self.loads, dtype=float))
        _demand_numbers("speeds", np.asarray(self.speeds, dtype=float))
        for name, number in (("weight", self.weight), ("tolerated", self.tolerated)):
            if not (math.isfinite(number) and number >= 0):
                raise UsageError(
                    f"{name}: {number} must be 0 or more",
                    code="value-range",
                    field=name,
                    value=number,
                    bound=0,
                )
        if not (hosts and min(self.speeds) > 0):
            raise UsageError(
                "speeds: at least one host, and each speed above 0, are needed",
                code="value-range",
                field="speeds",
                bound=0,
            )
        distances = np.asarray(self.distances, dtype=float)
        if not np.allclose(distances, distances.T):
            raise UsageError(
                "distances: must be the same in both directions",
                code="distances-asymmetric",
                field="distances",
            )
        if self.room and (len(self.room) != hosts or min(self.room) < 0):
            raise UsageError(
                f"room: must be {hosts} numbers of 0 or more",
                code="value-range",
                field="room",
                value=list(self.room),
                bound=0,
            )
        if self.room and sum(self.room) < tasks:
            raise UsageError(
                f"room: {sum(self.room)} places for {tasks} tasks",
                code="room-insufficient",
                field="room",
                value=sum(self.room),
                needed=tasks,
            )

    @cached_property
    def tie(self) -> Array:
        """Bytes between two tasks, both directions together; 0 on the diagonal."""
        sent = np.asarray(self.messages, dtype=float)
        both: Array = sent + sent.T
        np.fill_diagonal(both, 0.0)
        return both

    @cached_property
    def distance(self) -> Array:
        """The distances, as an array."""
        return np.asarray(self.distances, dtype=float)

    def seconds(self, owners: Sequence[int] | Places) -> Array:
        """Return the computing seconds of each host."""
        work = _work(np.asarray(owners, dtype=np.intp), self.loads, len(self.speeds))
        seconds: Array = work / np.asarray(self.speeds, dtype=float)
        return seconds

    def talk(self, owners: Sequence[int] | Places) -> float:
        """Return the sum of bytes times distance."""
        at = np.asarray(owners, dtype=np.intp)
        return float((self.tie * self.distance[np.ix_(at, at)]).sum() / 2)

    def cost(self, owners: Sequence[int] | Places) -> float:
        """Return the cost: bytes times distance plus the weighted time of the most loaded host."""
        step = max(self.tolerated, float(self.seconds(owners).max()))
        return self.talk(owners) + self.weight * step


def _demand_numbers(name: str, array: Array) -> None:
    if not np.isfinite(array).all() or (array < 0).any():
        raise UsageError(
            f"{name}: every number must be finite and 0 or more",
            code="value-range",
            field=name,
            bound=0,
        )


def _work(owners: Places, loads: Sequence[float] | Array, hosts: int) -> Array:
    """Return the load of each host."""
    return np.bincount(owners, weights=np.asarray(loads, dtype=float), minlength=hosts).astype(
        float
    )


def place(
    problem: PlacementProblem,
    begin: Sequence[int] = (),
    worth: float = 0.0,
    starts: int = STARTS,
) -> tuple[int, ...]:
    """Return the host of each task: greedy by traffic with placed tasks, then the best moves and exchanges.

    If messages alone decide, the search also tries recursive bisection of hosts and tasks. The same problem has
    the same answer. For at most ten tasks it was within 5 % of the optimum in every case tried.

    Parameters
    ----------
    begin
        Current owners: the search improves these too, and returns the result unless another placement costs less.
    worth
        Part by which another placement must cost less than the improved `begin` to replace it. Both costs count
        only above the lower bound of the time of the most loaded host.
    starts
        Starts of a small problem.
    """
    tasks = len(problem.loads)
    if not tasks:
        return ()
    search = _Search(problem)
    found = search.improved(search.greedy())
    if problem.weight == 0:
        found = min(found, search.improved(search.halved()), key=lambda one: one[0])
    chance = np.random.default_rng(0)
    for _ in range(starts if tasks <= SMALL_PROBLEM else 0):
        again = search.improved(search.disturbed(found[1], chance))
        found = min(found, again, key=lambda one: one[0])
    for _ in range(RANDOM_STARTS if tasks <= TINY_PROBLEM else 0):
        again = search.improved(search.random(chance))
        found = min(found, again, key=lambda one: one[0])
    if len(begin):
        kept = search.improved(np.array(begin, dtype=np.intp))
        # The time of the most loaded host outweighs all messages, so a comparison of whole costs would
        # never find a new placement better.
        floor = problem.weight * search.least_step
        found = kept if (kept[0] - floor) * (1 - worth) <= found[0] - floor else found
    return tuple(map(int, found[1]))


_Half = int | tuple["_Half", "_Half"]
"""A bisection of hosts: one host, or two halves."""
ONE_APART = ((0.0, 1.0), (1.0, 0.0))
HALF_STARTS = 8
"""Tasks from which a half is grown in turn: few of them suffice to cut the rows of a grid of 8 x 16 in two."""


def _halves(distance: Array, room: Places) -> _Half:
    """Return the hosts that have room as a tree: nearest groups are joined first, then the smallest."""
    hosts = np.flatnonzero(room > 0)
    halves: list[_Half] = [int(host) for host in hosts]
    sizes = np.ones(len(hosts))
    far = distance[np.ix_(hosts, hosts)].astype(float)
    np.fill_diagonal(far, np.inf)
    most = far[np.isfinite(far)].max(initial=0.0) or 1.0
    while len(halves) > 1:
        # Sizes decide between equal distances: this term is smaller than any relevant difference.
        rank = far + (sizes[:, None] + sizes[None, :]) * (most * 1e-9)
        one, other = sorted(divmod(int(rank.argmin()), len(halves)))
        joined = (far[one] * sizes[one] + far[other] * sizes[other]) / (sizes[one] + sizes[other])
        far[one], far[:, one] = joined, joined
        far[one, one] = np.inf
        sizes[one] += sizes[other]
        halves[one] = halves[one], halves.pop(other)
        far = np.delete(np.delete(far, other, axis=0), other, axis=1)
        sizes = np.delete(sizes, other)
    return halves[0]


def _hosts(half: _Half) -> list[int]:
    """Return the hosts of a half."""
    return [half] if isinstance(half, int) else [*_hosts(half[0]), *_hosts(half[1])]


class _Search:
    """A problem as arrays, with the lower bound of the time of the most loaded host."""

    def __init__(self, problem: PlacementProblem) -> None:
        self.problem, self.tie, self.distance = problem, problem.tie, problem.distance
        self.loads = np.asarray(problem.loads, dtype=float)
        self.speeds = np.asarray(problem.speeds, dtype=float)
        self.tasks, self.hosts = len(self.loads), len(self.speeds)
        room = problem.room or (self.tasks,) * self.hosts
        self.room: Places = np.array(room, dtype=np.intp)
        usable = self.speeds[self.room > 0]
        self.least_step = max(
            problem.tolerated, self.loads.sum() / usable.sum(), self.loads.max() / usable.max()
        )

    def grown(self, starts: int) -> Places:
        """Return the best of the improved placements that begin with a number of tasks in turn."""
        spaced = np.linspace(0, self.tasks, min(starts, self.tasks), endpoint=False)
        # With one start, an 8 x 16 grid costs 1.06 times the placement of TreeMatch; with nine starts
        # it never costs more.
        found = [self.improved(self.greedy(int(first))) for first in (-1, *spaced)]
        return min(found, key=lambda one: one[0])[1]

    def halved(self) -> Places:
        """Return a placement by recursive bisection: the hosts in two halves, and the tasks of each half again.

        The largest distances between hosts then separate the tasks with the least traffic. This suits problems of
        messages alone: a half does not determine the load of the most loaded host.
        """
        owners = np.zeros(self.tasks, dtype=np.intp)
        waiting: list[tuple[_Half, Places]] = [
            (_halves(self.distance, self.room), np.arange(self.tasks))
        ]
        while waiting:
            half, tasks = waiting.pop()
            if isinstance(half, int):
                owners[tasks] = half
                continue
            one, other = half
            rooms = [int(self.room[_hosts(part)].sum()) for part in half]
            between = PlacementProblem(
                self.tie[np.ix_(tasks, tasks)] / 2,
                ONE_APART,
                (1.0,) * len(tasks),
                (1.0, 1.0),
                0.0,
                rooms,
            )
            where = _Search(between).grown(HALF_STARTS) if len(tasks) else tasks
            waiting += [(one, tasks[where == 0]), (other, tasks[where == 1])]
        return owners

    def greedy(self, first: int = -1) -> Places:
        """Return a greedy placement from task `first` on: next the task with most traffic to placed tasks.

        It goes to the host on which its messages cost least. If that load exceeds a perfect balance, the excess
        is added to the cost of the host. So hosts are filled one after the other, near hosts next.
        """
        owners = np.full(self.tasks, -1, dtype=np.intp)
        room, work = self.room.copy(), np.zeros(self.hosts)
        # Of equal tasks, take the task with least traffic to unplaced tasks: regions then grow from a
        # corner. The opposite grows from the middle of a stencil and leaves a ring around it.
        tied, cost = self.tie.sum(axis=1) * -1e-9, np.zeros((self.tasks, self.hosts))
        if first >= 0:
            tied[first] = np.inf
        for _ in range(self.tasks):
            task = int(np.where(owners < 0, tied, -np.inf).argmax())
            step = np.maximum((work + self.loads[task]) / self.speeds, self.least_step)
            price = np.where(room > 0, cost[task] + self.problem.weight * step, np.inf)
            # Of equally cheap hosts take the host with most free room, so that neighbours fit beside.
            best = np.flatnonzero(price <= price.min() * (1 + 1e-12))
            host = int(best[(self.speeds[best] * self.least_step - work[best]).argmax()])
            owners[task] = host
            room[host] -= 1
            work[host] += self.loads[task]
            tied += self.tie[task]
            cost += np.outer(self.tie[task], self.distance[host])
        return owners

    def disturbed(self, owners: Places, chance: np.random.Generator) -> Places:
        """Return a placement in which two hosts exchange all tasks, or half of the tasks have other hosts.

        Single moves and exchanges that each lower the cost reach neither.
        """
        changed = owners.copy()
        # Local optima of small problems nearly always differ by two whole hosts. Without this
        # exchange the worst of 300 cases cost 1.47 times the optimum.
        if self.hosts > 1 and chance.integers(2):
            one, other = chance.permutation(self.hosts)[:2]
            changed[owners == one], changed[owners == other] = other, one
        else:
            some = chance.permutation(self.tasks)[: max(1, self.tasks // 2)]
            changed[some] = chance.integers(self.hosts, size=len(some))
        if (np.bincount(changed, minlength=self.hosts) <= self.room).all():
            return changed
        return np.asarray(chance.permutation(owners))

    def random(self, chance: np.random.Generator) -> Places:
        """Return a random placement that the hosts have room for."""
        room = np.minimum(self.room, self.tasks).astype(np.intp)
        return np.asarray(chance.permutation(np.repeat(np.arange(self.hosts), room))[: self.tasks])

    def improved(self, owners: Places) -> tuple[float, Places]:
        """Return the cost and the placement after moves and exchanges, the best first, until none helps."""
        owners = owners.copy()
        cost, changed = self.problem.cost(owners), True
        while changed:
            changed = False
            at_hosts = self._at_hosts(owners)
            gain = np.hstack([self._moves(owners, at_hosts), self._exchanges(owners, at_hosts)])
            flat = gain.ravel()
            few = np.argpartition(flat, -min(BATCH, flat.size))[-BATCH:]
            for choice in few[flat[few].argsort()[::-1]]:
                if flat[choice] <= MIN_GAIN * cost:
                    break
                # Changes made after the gains were computed may have altered this gain.
                task, column = divmod(int(choice), gain.shape[1])
                tried = owners.copy()
                if column < self.hosts:
                    tried[task] = column
                    if np.count_nonzero(tried == column) > self.room[column]:
                        continue
                    pair = [task]
                else:
                    pair = [task, column - self.hosts]
                    tried[pair] = owners[pair[::-1]]
                saved = self._part(owners, pair) - self._part(tried, pair)
                if saved > MIN_GAIN * cost:
                    owners, cost, changed = tried, cost - saved, True
        return self.problem.cost(owners), owners

    def _at_hosts(self, owners: Places) -> Array:
        """Return the cost of each task's messages on each host, with all other tasks where they are."""
        there = np.eye(self.hosts)[owners]
        # Not `@`: at this size, the threads of a linear algebra library cost several times their gain.
        to_hosts = np.einsum("ab,bh->ah", self.tie, there)
        found: Array = np.einsum("ah,hk->ak", to_hosts, self.distance)
        return found

    def _part(self, owners: Places, tasks: list[int]) -> float:
        """Return the part of the cost that depends on the hosts of one or two tasks."""
        talk = sum(float(self.tie[task] @ self.distance[owners[task], owners]) for task in tasks)
        if len(tasks) == 2:
            first, second = tasks
            talk -= float(self.tie[first, second] * self.distance[owners[first], owners[second]])
        work = _work(owners, self.loads, self.hosts)
        return talk + self.problem.weight * self._step(work)

    def _moves(self, owners: Places, at_hosts: Array) -> Array:
        """Return the gain of moving each task to each host."""
        here = np.arange(self.tasks)
        talk = at_hosts[here, owners][:, None] - at_hosts
        work = _work(owners, self.loads, self.hosts)
        others = self._longest_of_others(work)
        given = (work[owners] - self.loads) / self.speeds[owners]
        taken = (work[None, :] + self.loads[:, None]) / self.speeds[None, :]
        step = np.maximum(np.maximum(given[:, None], taken), others[owners])
        step = np.maximum(step, self.problem.tolerated)
        gain: Array = talk + self.problem.weight * (self._step(work) - step)
        gain[:, np.bincount(owners, minlength=self.hosts) >= self.room] = -np.inf
        gain[here, owners] = -np.inf
        return gain

    def _exchanges(self, owners: Places, at_hosts: Array) -> Array:
        """Return the gain of exchanging the hosts of each pair of tasks."""
        change = at_hosts[:, owners] - at_hosts[np.arange(self.tasks), owners][:, None]
        between = self.distance[np.ix_(owners, owners)]
        inside = np.diagonal(self.distance)[owners]
        talk = -(change + change.T) + self.tie * (inside[:, None] + inside[None, :] - 2 * between)
        work = _work(owners, self.loads, self.hosts)
        more = self.loads[None, :] - self.loads[:, None]
        mine = (work[owners][:, None] + more) / self.speeds[owners][:, None]
        step = np.maximum(
            np.maximum(mine, mine.T), self._longest_of_others(work)[np.ix_(owners, owners)]
        )
        step = np.maximum(step, self.problem.tolerated)
        gain: Array = talk + self.problem.weight * (self._step(work) - step)
        gain[owners[:, None] == owners[None, :]] = -np.inf
        gain[np.tril_indices(self.tasks)] = -np.inf  # each pair once
        return gain

    def _step(self, work: Array) -> float:
        """Return the seconds of the most loaded host, or `tolerated` if these are more."""
        return max(self.problem.tolerated, float((work / self.speeds).max()))

    def _longest_of_others(self, work: Array) -> Array:
        """Return, for each pair of hosts, the longest computing time of all other hosts."""
        seconds = work / self.speeds
        longest = [*np.argsort(seconds)[::-1][:3]]
        most = np.zeros((self.hosts, self.hosts))
        for host in reversed(longest):
            free = np.ones((self.hosts, self.hosts), dtype=bool)
            free[host, :] = free[:, host] = False
            most[free] = seconds[host]
        return most


def rank_order(
    topology: Topology, shares: Sequence[CpuSet], messages: Sequence[Sequence[float]]
) -> RankOrder:
    """Return the shares in an order that places ranks with most traffic nearest; unchanged if none is cheaper.

    Parameters
    ----------
    shares
        CPUs of each rank, in the topology's order (`apples.topology.bindings.per_rank`).
    messages
        Square: bytes from the rank of the row to the rank of the column.

    Raises
    ------
    UsageError
        Messages for another number of ranks, or an invalid number. Permanent.

    Examples
    --------
    >>> from apples.topology import synthetic
    >>> machine = synthetic("package:2 core:2 pu:1")
    >>> talk = [[0, 0, 9, 0], [0, 0, 0, 9], [9, 0, 0, 1], [0, 9, 1, 0]]
    >>> found = rank_order(machine, [CpuSet.of([cpu]) for cpu in range(4)], talk)
    >>> [str(share) for share in found.shares], found.before, found.cost
    (['3', '1', '2', '0'], 112.0, 78.0)
    """
    ranks = len(shares)
    problem = PlacementProblem(
        messages, distances(topology, shares), (1.0,) * ranks, (1.0,) * ranks, 0.0, (1,) * ranks
    )
    before = problem.talk(range(ranks))
    order = place(problem, begin=range(ranks))
    cost = problem.talk(order)
    if not cost < before:
        order, cost = tuple(range(ranks)), before
    return RankOrder(tuple(shares[place] for place in order), cost, before)


def distances(topology: Topology, shares: Sequence[CpuSet]) -> Array:
    """Return the mean hops between the CPUs of each pair of shares; 0 on the diagonal."""
    found = np.zeros((len(shares), len(shares)))
    for i, one in enumerate(shares):
        for j, other in enumerate(shares[:i]):
            hops = [topology.hops(a, b) for a in one for b in other]
            found[i, j] = found[j, i] = sum(hops) / len(hops)
    return found
