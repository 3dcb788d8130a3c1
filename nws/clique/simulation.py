"""A clique on a simulated network: loss, delay, doubling, partitions, crashes, skewed clocks.

One seed is one history, the same at every run. Used by the tests, and to try out a period.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from nws.clique.member import CliqueMember, Effect, ProbePeers, SendMessage
from nws.clique.messages import Message

RATE_SKEW: Final = 0.004
"""Clocks run this much too fast or too slow at most."""


class DoubleProbeError(AssertionError):
    """Two members probed at the same time."""


@dataclass(frozen=True, slots=True)
class CliqueFaults:
    """The rates of faults of the network until `stop`; there are none after."""

    stop: float
    loss: float = 0.1
    doubled: float = 0.05
    delay: float = 0.02
    slow: float = 0.02
    partitions: int = 4
    crashes: int = 2


@dataclass
class SimulatedMember:
    """A member, its clock and its crashes."""

    name: str
    rate: float
    offset: float
    member: CliqueMember | None = None
    lives: int = 0
    probing_until: float = 0.0
    wake: int = 0

    def local(self, now: float) -> float:
        """Return what this node's clock shows."""
        return self.offset + self.rate * now

    def true(self, local: float) -> float:
        """Return the time at which its clock shows `local`."""
        return (local - self.offset) / self.rate


@dataclass
class Partitioning:
    """Between `start` and `stop` nothing goes from `source` to `target`."""

    start: float
    stop: float
    source: frozenset[str]
    target: frozenset[str]


@dataclass
class SimulatedClique:
    """A clique, its network and its history.

    Parameters
    ----------
    seed
        Everything that is random comes from it.
    size, period
        Of the clique.
    faults
        What goes wrong, and until when.

    Attributes
    ----------
    probes
        (start, stop, name), in true time, of every probe there was.
    events
        How many things happened.
    """

    seed: int
    size: int
    period: float
    faults: CliqueFaults
    probes: list[tuple[float, float, str]] = field(default_factory=list)
    events: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - a history, not a secret
        self.now = 0.0
        self.names = tuple(f"h{number:02d}" for number in range(self.size))
        self.nodes = {name: self._node(name) for name in self.names}
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._cuts = [self._cut() for _ in range(self.faults.partitions)]
        for name in self.names:
            self._at(self.random.uniform(0, self.period / 4), lambda n=name: self._start(n))  # type: ignore[misc]
        for _ in range(self.faults.crashes):
            self._plan_crash()

    def run(self, until: float) -> None:
        """Let things happen until the true time `until`.

        Raises
        ------
        DoubleProbeError
            Two members probed at once.
        """
        while self._queue and self._queue[0][0] <= until:
            self.now, _, happen = heapq.heappop(self._queue)
            self.events += 1
            happen()
        self.now = until

    def agreed(self) -> bool:
        """Return whether all that live follow one leader that lives."""
        alive = [node.member for node in self.nodes.values() if node.member is not None]
        epochs = {member.epoch for member in alive}
        return len(epochs) == 1 and any(member.leads for member in alive)

    def probed_since(self, start: float) -> set[str]:
        """Return who began a probe at `start` or later."""
        return {name for begin, _, name in self.probes if begin >= start}

    def _node(self, name: str) -> SimulatedMember:
        rate = 1 + self.random.uniform(-RATE_SKEW, RATE_SKEW)
        return SimulatedMember(name, rate, self.random.uniform(0, 1e6))

    def _start(self, name: str) -> None:
        node = self.nodes[name]
        node.lives += 1
        life = f"{name}.{node.lives}"
        node.member = CliqueMember(name, self.names, self.period, life, node.local(self.now))
        self._wake(node)

    def _crash(self, name: str, seconds: float) -> None:
        node = self.nodes[name]
        node.member = None
        if node.probing_until > self.now:
            begin, _, who = next(p for p in reversed(self.probes) if p[2] == name)
            self.probes[self.probes.index((begin, node.probing_until, who))] = (
                begin,
                self.now,
                who,
            )
            node.probing_until = self.now
        self._at(self.now + seconds, lambda: self._start(name))

    def _plan_crash(self) -> None:
        when = self.random.uniform(0, self.faults.stop)
        seconds = self.random.uniform(0, self.faults.stop - when)
        name = self.random.choice(self.names)

        def crash() -> None:
            if self.nodes[name].member is not None:
                self._crash(name, seconds)

        self._at(when, crash)

    def _cut(self) -> Partitioning:
        start = self.random.uniform(0, self.faults.stop)
        stop = min(self.faults.stop, start + self.random.expovariate(1 / (2 * self.period)))
        side = frozenset(self.random.sample(self.names, self.random.randint(1, self.size - 1)))
        one_way = self.random.random() < 0.3
        return Partitioning(start, stop, side, frozenset(self.names) if one_way else side)

    def _is_cut(self, source: str, target: str) -> bool:
        for cut in self._cuts:
            if cut.start <= self.now < cut.stop:
                if cut.source is cut.target and (source in cut.source) != (target in cut.source):
                    return True
                if cut.source is not cut.target and source in cut.source:
                    return True
        return False

    def _at(self, when: float, happen: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(when, self.now), self._count, happen))

    def _wake(self, node: SimulatedMember) -> None:
        if node.member is None:
            return
        node.wake += 1
        wake, member = node.wake, node.member

        def tick() -> None:
            if node.wake == wake and node.member is member:
                self._carry_out(node, member.tick(node.local(self.now)))

        self._at(node.true(member.wake_at) + 1e-9, tick)

    def _carry_out(self, node: SimulatedMember, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendMessage):
                self._send(node.name, effect)
            else:
                self._probe(node, effect)
        self._wake(node)

    def _send(self, source: str, effect: SendMessage) -> None:
        faulty = self.now < self.faults.stop
        copies = 1
        if faulty:
            if self._is_cut(source, effect.to) or self.random.random() < self.faults.loss:
                self.lost += 1
                return
            copies += self.random.random() < self.faults.doubled
        for _ in range(copies):
            delay = self.random.expovariate(1 / (self.faults.delay if faulty else 0.01))
            if faulty and self.random.random() < self.faults.slow:
                late = self.random.uniform(0, self.period)
                delay += min(late, self.faults.stop - self.now)  # late after the end is a fault
            self._at(self.now + delay, lambda: self._deliver(effect.to, effect.message))

    def _deliver(self, name: str, message: Message) -> None:
        node = self.nodes[name]
        if node.member is not None:
            self._carry_out(node, node.member.receive(message, node.local(self.now)))

    def _probe(self, node: SimulatedMember, effect: ProbePeers) -> None:
        limit = node.true(effect.until)
        stop = min(limit, self.now + self.random.uniform(0.1, 1.2) * (limit - self.now))
        for begin, end, other in self.probes[-self.size :]:
            if begin < stop and self.now < end:
                raise DoubleProbeError(
                    f"seed {self.seed}: {node.name} probes at {self.now:.3f}, "
                    f"{other} until {end:.3f}"
                )
        self.probes.append((self.now, stop, node.name))
        node.probing_until = stop
        member = node.member

        def done() -> None:
            if member is not None and node.member is member:
                self._carry_out(node, member.probed(node.local(self.now)))

        self._at(stop, done)
