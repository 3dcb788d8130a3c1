"""A world of workstations whose owners come and go: one application's tasks, and a decider that moves them.

An emulation in seconds of a virtual clock, for experiments and tests of deciders: the application advances as its
slowest task allows, stands still while tasks move, and the decider sees measurements with noise, as means of the
latest few.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from apples.scheduling import (
    MigrationRule,
    NodeCapacity,
    SharedHost,
    SharedHosts,
    available_cpu,
    check_for_migration,
    migrate,
)

DECIDERS = ("never", "decider", "migrate", "oracle")


@dataclass(frozen=True, slots=True)
class OwnersWorld:
    """What happens, whoever decides.

    Attributes
    ----------
    hosts
        Without load of others.
    tasks
        How many, of a second's work an iteration at speed 1; they begin as is best for the first second.
    others
        Of each second the load of others on each host.
    noise
        Standard deviation of a measurement of load.
    period, window
        Seconds between two decisions, and measurements of which the decider sees the mean.
    """

    hosts: tuple[SharedHost, ...]
    tasks: int
    others: tuple[tuple[float, ...], ...]
    noise: float = 0.05
    period: int = 10
    window: int = 10

    @classmethod
    def drawn(
        cls,
        seed: int,
        *,
        hosts: int = 12,
        tasks: int = 24,
        seconds: int = 600,
        changes: bool = True,
    ) -> OwnersWorld:
        """Return a world with owners who come for some two minutes, one or two processes at a time, or stay away.

        Parameters
        ----------
        changes
            Whether they come and go; else what they do in the first second goes on.
        """
        chance = random.Random(seed)
        drawn = tuple(
            SharedHost(
                f"host{n}", chance.choice((1.0, 1.0, 1.0, 2.0)), chance.choice((1, 1, 2, 4))
            )
            for n in range(hosts)
        )
        load, until = [0.0] * hosts, [0] * hosts
        loads = []
        for second in range(seconds):
            for host in range(hosts):
                if second >= until[host] and (changes or second == 0):
                    load[host] = float(chance.choice((0, 0, 0, 1, 2)))
                    until[host] = second + int(chance.expovariate(1 / 120)) + 5
            loads.append(tuple(load))
        return cls(drawn, tasks, tuple(loads))

    def planned(self) -> list[int]:
        """Return where tasks begin: one after the other where it is done first, under the first second's loads."""
        counts = [0] * len(self.hosts)
        for _ in range(self.tasks):
            rates = [h.rate(n + 1) for h, n in zip(self.at(0).hosts, counts, strict=True)]
            counts[rates.index(max(rates))] += 1
        return [host for host, count in enumerate(counts) for _ in range(count)]

    def at(self, second: int, others: Sequence[float] | None = None) -> SharedHosts:
        """Return the application on the hosts as they are in a second, or under other loads."""
        loads = self.others[second] if others is None else others
        hosts = [replace(h, others=max(0.0, o)) for h, o in zip(self.hosts, loads, strict=True)]
        return SharedHosts(tuple(hosts), (1.0,) * self.tasks)


@dataclass(frozen=True, slots=True)
class OwnersOutcome:
    """What came of a world under a decider.

    Attributes
    ----------
    iterations
        Of the application, by the end.
    moves
        Tasks that were moved.
    """

    iterations: float
    moves: int


def emulate(
    world: OwnersWorld,
    decider: str,
    seed: int = 0,
    *,
    threshold: float = 0.6,
    rule: MigrationRule | None = None,
) -> OwnersOutcome:
    """Return what the application does in a world under one of `DECIDERS`.

    ``decider`` is the paper's rule, ``migrate`` the one that asks for payback. ``oracle`` knows all loads to come,
    without noise: every second it takes the step, of those that `migrate` would take whatever it costs, if the
    application is further by that within the next minute.
    """
    chance = random.Random(seed)
    rule = rule or MigrationRule()
    owners, known = world.planned(), [world.at(second) for second in range(len(world.others))]
    last = [-rule.hold] * len(world.hosts)
    seen: list[list[float]] = []
    done, moves, stall = 0.0, 0, 0.0
    for second, now in enumerate(known):
        seen = [
            *seen[1 - world.window :],
            [o + chance.gauss(0, world.noise) for o in world.others[second]],
        ]
        if stall < 1:
            done += (1 - stall) / now.iteration_seconds(owners)
        stall = max(0.0, stall - 1)
        if stall or decider == "never" or not _due(world, decider, second):
            continue
        means = [max(0.0, sum(one) / len(one)) for one in zip(*seen, strict=True)]
        if decider == "decider":
            steps = _by_the_paper(world, owners, means, threshold)
        elif decider == "migrate":
            held = [host for host, when in enumerate(last) if second - when < rule.hold]
            found = migrate(world.at(second, means), owners, rule, held)
            steps = [(move.task, move.target) for move in found]
        else:
            steps = step_by_foresight(known[second : second + FORESIGHT], owners, rule)
        for task, target in steps:
            last[owners[task]] = last[target] = second
            owners[task] = target
        moves += len(steps)
        stall = rule.cost(len(steps))
    return OwnersOutcome(done, moves)


def _due(world: OwnersWorld, decider: str, second: int) -> bool:
    return decider == "oracle" or (second >= world.period and second % world.period == 0)


def _by_the_paper(
    world: OwnersWorld, owners: Sequence[int], others: Sequence[float], threshold: float
) -> list[tuple[int, int]]:
    """Return the moves of Dynamite's rule."""
    nodes = []
    for place, host in enumerate(world.hosts):
        tasks = tuple(task for task, owner in enumerate(owners) if owner == place)
        free = available_cpu(others[place] + len(tasks), host.cpus)
        nodes.append(NodeCapacity(host.name, {"cpu": free}, tasks))
    return [(move.task, move.target) for move in check_for_migration(nodes, threshold)]


FORESIGHT = 60
"""Seconds that the oracle sees ahead."""


def step_by_foresight(
    coming: Sequence[SharedHosts], owners: Sequence[int], rule: MigrationRule
) -> list[tuple[int, int]]:
    """Return the step after which the application is furthest in a minute; none if it is without one."""
    free = replace(rule, base_seconds=0.0, move_seconds=0.0, shorter=0.0, horizon=FORESIGHT)
    steps = [(move.task, move.target) for move in migrate(coming[0], owners, free)]
    best: list[tuple[int, int]] = []
    most = _ahead(coming[1:], owners, 0.0)
    for count in range(1, len(steps) + 1):
        there = list(owners)
        for task, target in steps[:count]:
            there[task] = target
        found = _ahead(coming[1:], there, rule.cost(count))
        if found > most:
            best, most = steps[:count], found
    return best


def _ahead(coming: Sequence[SharedHosts], owners: Sequence[int], stall: float) -> float:
    """Return the iterations of the seconds to come for tasks that stay where they are after they stood still."""
    done = 0.0
    for later in coming:
        if stall < 1:
            done += (1 - stall) / later.iteration_seconds(owners)
        stall = max(0.0, stall - 1)
    return done
