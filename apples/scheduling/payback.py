"""A migration decider that weighs the cost of a move: a task moves only if that pays within a horizon.

Dynamite's rule (`apples.scheduling.decider`) has one threshold and no memory: a node just above the threshold
gives a task to a node just below, and takes it back when the load changes. This decider makes a global step only
if it shortens the application's iteration clearly, if the time saved within a horizon exceeds the duration of the
moves, and if its hosts did not move a task just before. Tasks that exchange many bytes stay together, since
messages between hosts cost time. Tasks leave an owner-first host at once when its owner comes back, at any cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from apples.errors import UsageError
from apples.scheduling.decider import OWNER_BACK, TaskMove

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class SharedHost:
    """Measurements of a host that our tasks share with other users' processes.

    Attributes
    ----------
    name
        Its name.
    speed
        Work per second of a task that has a processor to itself.
    cpus
        Processors.
    others
        Mean number of other users' processes that want a processor.
    owner_first
        Whether tasks leave it when its owner comes back.
    processes
        Processes of each of our tasks there.
    room
        Maximum number of tasks; None: no limit.

    Examples
    --------
    >>> SharedHost("ada", speed=2.0, cpus=2, others=1.0).rate(3)
    1.0
    """

    name: str
    speed: float = 1.0
    cpus: int = 1
    others: float = 0.0
    owner_first: bool = False
    processes: int = 1
    room: int | None = None

    def __post_init__(self) -> None:
        valid = {"speed": self.speed > 0, "cpus": self.cpus >= 1, "others": self.others >= 0}
        if wrong := [name for name in valid if not valid[name]]:
            raise UsageError(
                f"{self.name}: needs a speed above 0, 1 or more CPUs and a load of 0 or more",
                code="value-range",
                host=self.name,
                field=wrong[0],
                value=getattr(self, wrong[0]),
            )

    @property
    def owner_back(self) -> bool:
        """Whether its owner is back, so that tasks leave it now."""
        return self.owner_first and self.others > OWNER_BACK

    def rate(self, tasks: int) -> float:
        """Return the work per second of each of `tasks` tasks; all processes share the processors equally."""
        wanting = tasks * self.processes + self.others
        return self.speed * min(1.0, self.cpus / max(1.0, wanting))


@dataclass(frozen=True)
class SharedHosts:
    """An application's tasks on shared hosts: the duration of an iteration for any placement of the tasks.

    Attributes
    ----------
    hosts
        The hosts.
    work
        Seconds of an iteration at speed 1, of each task.
    messages
        Bytes in an iteration from the task of the row to that of the column; None if unknown.
    seconds_per_byte
        Cost of a byte between two hosts (matrix; the diagonal is inside a host); None: messages cost nothing.
    """

    hosts: tuple[SharedHost, ...]
    work: tuple[float, ...]
    messages: Any = None
    seconds_per_byte: Any = None
    _talk: Array | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if (self.messages is None) != (self.seconds_per_byte is None):
            raise UsageError(
                "messages and seconds_per_byte: both, or neither",
                code="field-missing",
                field="messages" if self.messages is None else "seconds_per_byte",
            )
        if self.messages is not None:
            sent = np.asarray(self.messages, dtype=float)
            if sent.shape != (len(self.work),) * 2:
                raise UsageError(
                    f"messages: must be {len(self.work)} x {len(self.work)} numbers",
                    code="matrix-size-invalid",
                    field="messages",
                    value=list(sent.shape),
                    needed=[len(self.work)] * 2,
                )
            object.__setattr__(self, "_talk", sent + sent.T)

    def task_seconds(self, owners: Sequence[int]) -> Array:
        """Return the seconds that each task needs for an iteration: its work and its messages."""
        at = np.asarray(owners, dtype=np.intp)
        counts = np.bincount(at, minlength=len(self.hosts))
        rates = np.array([host.rate(int(n)) for host, n in zip(self.hosts, counts, strict=True)])
        seconds: Array = np.asarray(self.work, dtype=float) / rates[at]
        if self._talk is not None:
            apart = np.asarray(self.seconds_per_byte, dtype=float)[np.ix_(at, at)]
            seconds = seconds + (self._talk * apart).sum(axis=1)
        return seconds

    def open_places(self, owners: Sequence[int]) -> set[int]:
        """Return the indices of the hosts that have room for another task."""
        return {
            place
            for place, host in enumerate(self.hosts)
            if host.room is None or owners.count(place) < host.room
        }

    def apart(self, owners: Sequence[int]) -> float:
        """Return the bytes of an iteration between different hosts."""
        at = np.asarray(owners, dtype=np.intp)
        talk = np.zeros((len(at), len(at))) if self._talk is None else self._talk
        return float(talk[at[:, None] != at[None, :]].sum() / 2)

    def iteration_seconds(self, owners: Sequence[int]) -> float:
        """Return the seconds of an iteration, which are those of its slowest task."""
        return float(self.task_seconds(owners).max(initial=0.0))


@dataclass(frozen=True, slots=True)
class MigrationRule:
    """The gain that a global step must have, and its costs.

    Attributes
    ----------
    shorter
        Fraction by which an iteration must get shorter.
    horizon
        Seconds for which the measurements are trusted: a step must have paid for itself by then.
    base_seconds, move_seconds
        Seconds that a step costs the application, and each of its moves.
    hold
        Seconds for which a host that gave or took a task takes no part in further moves.
    """

    shorter: float = 0.05
    horizon: float = 60.0
    base_seconds: float = 3.0
    move_seconds: float = 0.5
    hold: float = 20.0

    def cost(self, moves: int) -> float:
        """Return the seconds that a step of `moves` moves takes."""
        return self.base_seconds + self.move_seconds * moves if moves else 0.0


def migrate(
    now: SharedHosts,
    owners: Sequence[int],
    rule: MigrationRule,
    held: Sequence[int] = (),
) -> list[TaskMove]:
    """Return the moves of one global step; empty if no step pays.

    First every task leaves the hosts with a returned owner. Then the search repeatedly moves a task of the slowest
    host to a host where both hosts are faster than that was. Of this sequence the step keeps the first moves that
    save most until the horizon, less their cost.

    Parameters
    ----------
    owners
        The host of each task, an index of ``now.hosts``.
    held
        Indices of hosts that moved a task just before: they give and take no task, except for a returned owner.

    Examples
    --------
    >>> hosts = (SharedHost("ada", others=1.0), SharedHost("bob"))
    >>> now = SharedHosts(hosts, (1.0,))
    >>> print(migrate(now, (0,), MigrationRule())[0].reason.partition("; ")[2])
    an iteration from 2 s to 1 s with 1 move: 3.5 s are paid back in 7 s
    >>> migrate(now, (0,), MigrationRule(horizon=5.0)), migrate(now, (0,), MigrationRule(), held=(1,))
    ([], [])
    """
    vacated, at = _vacate(now, list(owners))
    quiet = (
        {*range(len(now.hosts))} - {*held} - {i for i, h in enumerate(now.hosts) if h.owner_back}
    )
    return [*vacated, *_paying(now, at, rule, quiet, paid=bool(vacated))]


def _vacate(now: SharedHosts, at: list[int]) -> tuple[list[TaskMove], list[int]]:
    """Return the moves off hosts with a returned owner, and the host of each task after them."""
    quiet = {place for place, host in enumerate(now.hosts) if not host.owner_back}
    moves: list[TaskMove] = []
    for task, source in enumerate(at):
        open_to = quiet & now.open_places(at)
        if source in quiet or not open_to:
            continue
        target = min(open_to, key=lambda place: (_moved(now, at, task, place), place))
        at = [*at[:task], target, *at[task + 1 :]]
        host = now.hosts[source]
        reason = f"the owner of {host.name} is back: load {host.others:.2f} of others, above {OWNER_BACK:g}"
        moves.append(TaskMove(task, source, target, reason))
    return moves, at


def _paying(
    now: SharedHosts, at: list[int], rule: MigrationRule, quiet: set[int], *, paid: bool
) -> list[TaskMove]:
    """Return the moves that pay; if `paid`, owners force a step anyway, so its base cost does not count."""
    first, before = at, now.iteration_seconds(at)
    steps: list[tuple[int, int, int]] = []
    best, worth, after = 0, 0.0, before
    # Two hosts are often equally slow: a move that helps only together with the next move must not end the search.
    for _ in range(len(at)):
        step = _relieved(now, at, quiet)
        if step is None:
            break
        at = [*at[: step[0]], step[2], *at[step[0] + 1 :]]
        steps.append(step)
        seconds = now.iteration_seconds(at)
        cost = rule.cost(len(steps)) - (rule.base_seconds if paid else 0.0)
        saved = rule.horizon * (1 - seconds / before) - cost
        if seconds <= before * (1 - rule.shorter) and saved > worth:
            best, worth, after = len(steps), saved, seconds
    if not best:
        return []
    cost = rule.cost(best) - (rule.base_seconds if paid else 0.0)
    last = list(first)
    for task, _, target in steps[:best]:
        last[task] = target
    why = (
        f"an iteration from {before:.3g} s to {after:.3g} s with {best} move{'s' if best > 1 else ''}"
        + (
            ""
            if now.messages is None
            else f", {now.apart(first):.3g} to {now.apart(last):.3g} bytes between hosts"
        )
        + f": {cost:.3g} s are paid back in {cost / (1 - after / before):.3g} s"
    )
    return [
        TaskMove(
            *(task, source, target),
            f"load of others {now.hosts[source].others:.2f} on {now.hosts[source].name}, "
            f"{now.hosts[target].others:.2f} on {now.hosts[target].name}; {why}",
        )
        for task, source, target in steps[:best]
    ]


def _relieved(now: SharedHosts, at: list[int], quiet: set[int]) -> tuple[int, int, int] | None:
    """Return the best move off the slowest host that leaves both hosts faster than that host was."""
    seconds = now.task_seconds(at)
    slowest = int(seconds.argmax())
    source = at[slowest]
    if source not in quiet:
        return None
    found: tuple[float, int, int] | None = None
    for task in [t for t, place in enumerate(at) if place == source]:
        for target in quiet & now.open_places(at) - {source}:
            worst = _moved(now, at, task, target)
            if worst < seconds[slowest] * (1 - 1e-9) and (
                found is None or (worst, task, target) < found
            ):
                found = (worst, task, target)
    return None if found is None else (found[1], source, found[2])


def _moved(now: SharedHosts, at: list[int], task: int, target: int) -> float:
    """Return the seconds of the slowest task on two hosts after a task moved from the first to the second."""
    there = [*at[:task], target, *at[task + 1 :]]
    seconds = now.task_seconds(there)
    return max(float(seconds[t]) for t, place in enumerate(there) if place in (at[task], target))
