"""The share that the kernel's fair scheduler gives each thread: a pure model of its tree of scheduling groups.

Linux divides a CPU among *groups* first and among the threads of a group then (Documentation/scheduler/
sched-design-CFS.rst, "CFS group scheduling"; cgroups(7), ``cpu.shares`` and ``cpu.weight``; sched(7), "The
autogroup feature"). A group has one weight for the whole machine and is a competitor on every CPU on which
threads of it want to run, with the part of its weight that its load there is of its load everywhere. So a
thread of four of one session competes with a quarter of the session's weight, and a niced thread that is
alone in its session competes like any other: niceness counts inside a group only.

That tree has one number a thread. Let W be the weight of a group, w that of a thread, and L the sum of
the weights right below a group. On every CPU the load of a thread is

    load = w / L(group) * W(group) / L(parent) * W(parent) * ...   up to the root,

and its share of a CPU is its load over the sum of the loads there. The proof is by induction over the levels:
each level divides the group's weight over CPUs by load. The model adds three things:

- **Placement.** The kernel moves threads until the loads of the CPUs are equal, within their affinities:
  competitors that may leave a CPU do so when one of ours is pinned to it. A thread heavier than that level has
  a CPU to itself at any weight (the weight readjustment of Chandra, Adler, Goyal and Shenoy 2000, "Surplus
  fair scheduling"); the others are spread like water.
- **Quotas.** The threads below a group with a quota run until they have used it together, and then wait for the
  end of the period. So the CPUs are divided with the group for a part of the time and without it for the rest.
  Several such groups are independent.
- **Activity.** A thread that wants to run for a part of the time counts for that part.

The model leaves out SMT and time that a hypervisor steals; the probe measures them (`nws.sensors.cpu`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

NICE_0_WEIGHT: Final = 1024.0
"""The weight of a thread of niceness 0, and the default weight of a group."""
MIN_WEIGHT: Final = 3.0
"""Of SCHED_IDLE, and of a group with ``cpu.idle``."""
TIE: Final = 0.01
"""A thread has no preference among CPUs if their loads differ by less than this fraction of its load."""
ROUNDS: Final = 12
"""Rounds of the two iterations below; after them each is within .001 of its fixed point."""
MAX_THROTTLED: Final = 3
"""Groups that are combined exactly, since each doubles the divisions; more groups count as less active."""


_Limit = tuple[float, list[int]]


@dataclass(frozen=True, slots=True)
class SchedulingGroup:
    """One group of the scheduler's tree: a control group or an autogroup.

    Attributes
    ----------
    name
        Unique name of the group: its path, or the session's number.
    weight
        Weight among its siblings, on the whole machine.
    quota
        CPU seconds per second that its threads may use together; None: unlimited.
    period
        Seconds after which the quota is renewed.
    """

    name: str
    weight: float = NICE_0_WEIGHT
    quota: float | None = None
    period: float = 0.1


@dataclass(frozen=True, slots=True)
class Runnable:
    """A thread that wants to run.

    Attributes
    ----------
    allowed
        The CPUs it may run on.
    weight
        Of its niceness, 1024 for 0 (`weight_of_niceness`).
    groups
        The groups it is in, from below the root to its own; none: a thread of the root.
    active
        Fraction of the time in which it wants to run, in (0, 1].
    cpu
        Its last CPU; None: unknown.
    """

    allowed: frozenset[int]
    weight: float = NICE_0_WEIGHT
    groups: tuple[SchedulingGroup, ...] = ()
    active: float = 1.0
    cpu: int | None = None

    def where_it_was(self) -> Runnable:
        """Return the thread before the kernel moves it: on its last CPU."""
        return (
            self if self.cpu not in self.allowed else replace(self, allowed=frozenset({self.cpu}))
        )


def weight_of_niceness(nice: int) -> float:
    """Return the weight of a niceness: each step divides by 1.25 (sched(7); the kernel's table rounds).

    Examples
    --------
    >>> weight_of_niceness(0), round(weight_of_niceness(19)), round(weight_of_niceness(-5))
    (1024.0, 15, 3125)
    """
    return NICE_0_WEIGHT * 1.25**-nice


def fair_shares(threads: Sequence[Runnable], cpus: Collection[int]) -> list[float]:
    """Return the share of a CPU, 0..1, that each of `threads` gets, averaged over time.

    Parameters
    ----------
    threads
        All that want to run on this machine: others' and ours.
    cpus
        The CPUs that are on.

    Examples
    --------
    A process in a session of its own, on a CPU with one of the three threads of another session:

    >>> make = SchedulingGroup("session 1")
    >>> others = [Runnable(frozenset({cpu}), groups=(make,)) for cpu in (0, 1, 2)]
    >>> ours = Runnable(frozenset({1}), groups=(SchedulingGroup("session 2"),))
    >>> round(fair_shares([*others, ours], range(4))[-1], 3)
    0.75
    """
    shares = _divided(threads, loads_of(threads), cpus)
    limited = [(quota, members) for quota, members in _limited(threads) if quota < len(members)]
    if all(sum(shares[i] for i in members) <= quota for quota, members in limited):
        return shares
    exact = len(limited) <= MAX_THROTTLED
    shares = (_in_turns if exact else _less_active)(threads, limited, cpus)
    for quota, members in limited:  # the rest above a quota
        used = sum(shares[i] for i in members)
        for i in members if used > quota else ():
            shares[i] *= quota / used
    return shares


def _less_active(
    threads: Sequence[Runnable], throttled: Sequence[_Limit], cpus: Collection[int]
) -> list[float]:
    """Return the shares if each throttled group wants to run for the fraction of the time that it may."""
    running = list(threads)
    shares = _divided(running, loads_of(running), cpus)
    for _ in range(ROUNDS):
        over = False
        for quota, members in throttled:
            used = sum(shares[i] for i in members)
            if used > quota * (1 + TIE):
                over = True
                for i in members:
                    running[i] = replace(running[i], active=running[i].active * quota / used)
        if not over:
            break
        shares = _divided(running, loads_of(running), cpus)
    return shares


def _in_turns(
    threads: Sequence[Runnable], throttled: Sequence[_Limit], cpus: Collection[int]
) -> list[float]:
    """Return the mean share of each thread over the divisions with and without each throttled group.

    A group is present for the fraction of the time in which it uses up its quota, at its rate in that time.
    """
    cases = list(product((True, False), repeat=len(throttled)))
    divisions: list[list[float]] = []
    for there in cases:
        out = {
            i for on, (_, members) in zip(there, throttled, strict=True) if not on for i in members
        }
        present = [i for i in range(len(threads)) if i not in out]
        running = [threads[i] for i in present]
        got = dict(zip(present, _divided(running, loads_of(running), cpus), strict=True))
        divisions.append([got.get(i, 0.0) for i in range(len(threads))])
    parts = [1.0] * len(throttled)

    def chance(there: Sequence[bool], apart_from: int | None = None) -> float:
        return math.prod(
            part if on else 1.0 - part
            for k, (on, part) in enumerate(zip(there, parts, strict=True))
            if k != apart_from
        )

    for _ in range(ROUNDS):
        for k, (quota, members) in enumerate(throttled):
            rate = sum(
                chance(there, k) * sum(shares[i] for i in members)
                for there, shares in zip(cases, divisions, strict=True)
                if there[k]
            )
            parts[k] = min(1.0, quota / rate) if rate > 0 else 1.0
    weights = [chance(there) for there in cases]
    return [
        sum(weight * shares[i] for weight, shares in zip(weights, divisions, strict=True))
        for i in range(len(threads))
    ]


def loads_of(threads: Sequence[Runnable]) -> list[float]:
    """Return the load of each thread: its part of the weights of all groups above it, while it is active.

    A group of threads that want to run for a part of the time competes with its whole weight in that part.
    """
    below: dict[str, float] = {}
    active: dict[str, float] = {}
    parents: dict[str, tuple[SchedulingGroup, ...]] = {}
    for thread in threads:
        for depth, group in enumerate(thread.groups):
            parents[group.name] = thread.groups[: depth + 1]
            active[group.name] = min(1.0, active.get(group.name, 0.0) + thread.active)
        if thread.groups:
            name = thread.groups[-1].name
            below[name] = below.get(name, 0.0) + thread.weight * thread.active
    for name, path in parents.items():
        if len(path) > 1:
            parent = path[-2].name
            below[parent] = below.get(parent, 0.0) + path[-1].weight * active[name]
    scale: dict[str, float] = {}
    for name, path in sorted(parents.items(), key=lambda entry: len(entry[1])):
        above = scale[path[-2].name] if len(path) > 1 else 1.0
        # `above` per unit of weight below the parent; `active` once, for `below` holds it as well.
        scale[name] = above * path[-1].weight * active[name] / below[name]
    return [
        thread.weight * thread.active * (scale[thread.groups[-1].name] if thread.groups else 1.0)
        for thread in threads
    ]


def _limited(threads: Sequence[Runnable]) -> list[_Limit]:
    """Return each quota and the places of the threads that share it."""
    quotas: dict[str, _Limit] = {}
    for place, thread in enumerate(threads):
        for group in thread.groups:
            if group.quota is not None:
                quotas.setdefault(group.name, (group.quota, []))[1].append(place)
    return list(quotas.values())


def _divided(
    threads: Sequence[Runnable], loads: Sequence[float], cpus: Collection[int]
) -> list[float]:
    """Return the share of each thread after load balancing: its load over the load of its CPU."""
    on = frozenset(cpus)
    levels = dict.fromkeys(on, 0.0)
    movable: dict[frozenset[int], list[int]] = {}
    homes: list[dict[int, float]] = [{} for _ in threads]
    for place, thread in enumerate(threads):
        allowed = thread.allowed & on or on
        if len(allowed) > 1:
            movable.setdefault(allowed, []).append(place)
            continue
        (cpu,) = allowed
        levels[cpu] += loads[place]
        homes[place][cpu] = 1.0
    _place_heavy(movable, loads, levels, homes)
    poured = _pour(
        {allowed: sum(loads[i] for i in places) for allowed, places in movable.items()}, levels
    )
    for allowed, places in movable.items():
        for i in places:
            homes[i] = poured[allowed]
    return [
        min(
            thread.active,
            sum(part * _part(load, levels[cpu]) for cpu, part in home.items()),
        )
        for thread, load, home in zip(threads, loads, homes, strict=True)
    ]


def _place_heavy(
    movable: dict[frozenset[int], list[int]],
    loads: Sequence[float],
    levels: dict[int, float],
    homes: list[dict[int, float]],
) -> None:
    """Place each thread above the level on the least loaded of its CPUs; the others stay in `movable`.

    Of n threads on more than n CPUs each is heavy, so none shares a CPU while another idles. If several
    CPUs are equally loaded, the thread is on each of them for a part of the time.
    """
    rest = sum(loads[i] for places in movable.values() for i in places)
    for allowed in sorted(movable, key=len):
        places = sorted(movable[allowed], key=lambda i: -loads[i])
        while places:
            load = loads[places[0]]
            cpu = min(allowed, key=lambda cpu: (levels[cpu], cpu))
            level = water_level([levels[one] for one in allowed], rest)
            if load < level * (1 - 1e-9):
                break
            emptiest = [one for one in allowed if levels[one] <= levels[cpu] + TIE * load]
            for one in emptiest:
                levels[one] += load / len(emptiest)
            homes[places.pop(0)] = dict.fromkeys(emptiest, 1.0 / len(emptiest))
            rest -= load
        movable[allowed] = places
    for allowed in [allowed for allowed, places in movable.items() if not places]:
        del movable[allowed]


def _pour(
    amounts: dict[frozenset[int], float], levels: dict[int, float]
) -> dict[frozenset[int], dict[int, float]]:
    """Add the movable loads to `levels`, as equal as affinities allow; return the fractions on each CPU."""
    poured: dict[frozenset[int], dict[int, float]] = {allowed: {} for allowed in amounts}
    for _ in range(ROUNDS if len(amounts) > 1 else 1):
        for allowed, amount in amounts.items():
            for cpu, part in poured[allowed].items():
                levels[cpu] -= part
            level = water_level([levels[cpu] for cpu in allowed], amount)
            poured[allowed] = {cpu: level - levels[cpu] for cpu in allowed if level > levels[cpu]}
            for cpu, part in poured[allowed].items():
                levels[cpu] += part
    return {
        allowed: {cpu: _part(part, amounts[allowed]) for cpu, part in parts.items()}
        for allowed, parts in poured.items()
    }


def water_level(levels: Iterable[float], amount: float) -> float:
    """Return the level of `amount` after it is poured over these levels.

    Examples
    --------
    >>> water_level([0.0, 1.0, 5.0], 3.0)
    2.0
    """
    level, filled = 0.0, 0.0
    for count, bottom in enumerate(sorted(levels)):
        if count and bottom >= (amount + filled) / count:
            break
        filled += bottom
        level = (amount + filled) / (count + 1)
    return level


def _part(one: float, whole: float) -> float:
    return one / whole if whole > 0 else 0.0
