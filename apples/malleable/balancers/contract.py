"""The contract of a load balancer: what was measured goes in, the owner of each block comes out.

As in Charm++'s framework (Kale, Kumar and DeSouza 2002, section 3): block times are measured, the relative
speed and the background load of each processor are known, and the processor map says who may have load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from apples.errors import UsageError
from apples.resources.distances import between

BUSIEST = 0.95
"""Background load counted at most: even a processor that others want whole gives us turns."""


@dataclass(frozen=True, slots=True)
class Processor:
    """One rank as the balancer sees it.

    Attributes
    ----------
    host
        Name of its host.
    speed
        Relative to the others, > 0: a block that takes a second at speed 1 takes half of one at 2.
    background
        Share of its CPU that others take, 0 to 1.
    enabled
        Whether it may have load: its bit of the processor map.
    distances
        What a byte to each other host costs, where one between the nearest two costs 1; one that is not named
        costs 1. Empty: nobody knows who is near.
    """

    host: str
    speed: float = 1.0
    background: float = 0.0
    enabled: bool = True
    distances: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.speed) and self.speed > 0):
            raise _out_of_range(self.host, "speed", self.speed, "above 0", host=self.host)
        if not 0 <= self.background <= 1:
            raise _out_of_range(
                self.host, "background", self.background, "in 0..1", host=self.host
            )
        for other, far in self.distances.items():
            if not (math.isfinite(far) and far > 0):
                raise _out_of_range(
                    self.host, f"distance to {other}", far, "above 0", host=self.host, other=other
                )

    @property
    def capacity(self) -> float:
        """Seconds of work at speed 1 that it does in a second.

        Examples
        --------
        >>> Processor("ada", speed=2.0, background=0.25).capacity
        1.5
        """
        return self.speed * (1 - min(self.background, BUSIEST))


@dataclass(frozen=True, slots=True)
class Measured:
    """What is known when blocks may move.

    Attributes
    ----------
    work
        Of each block: processor seconds of a step at speed 1.
    owners
        Of each block: the processor that has it now, a place in `processors`.
    processors
        In rank order; at least one is enabled.
    size
        Of each block: bytes that a move costs; empty where nobody asked.
    messages
        Pairs of blocks with the bytes that the first sends the second in a step; empty where nobody said.

    Examples
    --------
    >>> now = Measured((3.0, 1.0, 2.0), (0, 0, 1), (Processor("ada"), Processor("bob", speed=2.0)))
    >>> now.seconds(now.owners)
    [4.0, 1.0]
    >>> now.moved((0, 1, 1))
    1
    """

    work: tuple[float, ...]
    owners: tuple[int, ...]
    processors: tuple[Processor, ...]
    size: tuple[int, ...] = ()
    messages: tuple[tuple[int, int, float], ...] = ()

    def __post_init__(self) -> None:
        if not any(one.enabled for one in self.processors):
            raise UsageError(
                "the processor map enables no processor: at least one must have load",
                code="processors-disabled",
            )
        if len(self.work) != len(self.owners) or (self.size and len(self.size) != len(self.work)):
            raise UsageError(
                "work, owners and size must have one entry for each block",
                code="lengths-differ",
                work=len(self.work),
                owners=len(self.owners),
                size=len(self.size),
            )
        for block, seconds in enumerate(self.work):
            if not (math.isfinite(seconds) and seconds >= 0):
                raise _out_of_range(f"block {block}", "work", seconds, "at least 0", block=block)
        for one, other, size in self.messages:
            if not (0 <= one < len(self.work) and 0 <= other < len(self.work)):
                unknown = max(one, other, key=abs)
                raise UsageError(
                    f"messages: unknown block {unknown}", code="block-unknown", block=unknown
                )
            if not (math.isfinite(size) and size >= 0):
                raise _out_of_range(
                    f"block {one}",
                    f"bytes to block {other}",
                    size,
                    "at least 0",
                    block=one,
                    other=other,
                )

    @property
    def enabled(self) -> tuple[int, ...]:
        """Places of the processors that may have load."""
        return tuple(i for i, one in enumerate(self.processors) if one.enabled)

    def seconds(self, owners: Sequence[int]) -> list[float]:
        """Return how long each processor would compute a step if `owners` held."""
        work = [0.0] * len(self.processors)
        for block, owner in enumerate(owners):
            work[owner] += self.work[block]
        return [done / one.capacity for done, one in zip(work, self.processors, strict=True)]

    def step(self, owners: Sequence[int]) -> float:
        """Return how long the slowest processor would compute a step: what the balancer lowers."""
        return max(self.seconds(owners))

    def mean(self) -> float:
        """Return the step if work could be divided at will: no balance is better."""
        return sum(self.work) / sum(self.processors[i].capacity for i in self.enabled)

    def talk(self, owners: Sequence[int]) -> tuple[float, float]:
        """Return the bytes of a step between processors of one host, and between hosts."""
        near = far = 0.0
        for one, other, size in self.messages:
            if owners[one] == owners[other]:
                continue
            if self.processors[owners[one]].host == self.processors[owners[other]].host:
                near += size
            else:
                far += size
        return near, far

    @property
    def distances(self) -> list[list[float]]:
        """What a byte between each two processors costs; 0 inside one."""
        places = [one.host for one in self.processors]
        return between(places, {one.host: one.distances for one in self.processors})

    def bytes_times_distance(self, owners: Sequence[int]) -> float:
        """Return the bytes of a step, each as often as its two hosts are far from each other."""
        distances = self.distances
        return sum(
            size * distances[owners[one]][owners[other]] for one, other, size in self.messages
        )

    def moved(self, owners: Sequence[int]) -> int:
        """Return how many blocks would move."""
        return sum(a != b for a, b in zip(self.owners, owners, strict=True))


LoadBalancer = Callable[[Measured], Sequence[int]]
"""Returns the owner of each block. Must be a function of what was measured, or of its own state."""


def accepted(proposal: Sequence[int], measured: Measured, strategy: str) -> tuple[int, ...]:
    """Return what a strategy proposed, or refuse it: the framework disposes.

    Raises
    ------
    UsageError
        Not one owner for each block, or an owner that may have no load. Permanent.
    """
    owners = tuple(int(owner) for owner in proposal)
    if len(owners) != len(measured.work):
        raise UsageError(
            f"strategy {strategy}: {len(owners)} owners for {len(measured.work)} blocks",
            code="owners-invalid",
            strategy=strategy,
            value=len(owners),
            bound=len(measured.work),
        )
    allowed = set(measured.enabled)
    for block, owner in enumerate(owners):
        if owner not in allowed:
            known = ", ".join(map(str, sorted(allowed)))
            raise UsageError(
                f"strategy {strategy}: block {block} goes to {owner}, enabled are {known}",
                code="owners-invalid",
                strategy=strategy,
                block=block,
                value=owner,
                known=sorted(allowed),
            )
    return owners


def _out_of_range(
    place: str, field: str, value: float, range_: str, **fields: object
) -> UsageError:
    """Return the error of a number outside its range; JSON has neither NaN nor infinity, so these become text."""
    return UsageError(
        f"{place}: {field}: must be {range_} (is {value})",
        code="value-range",
        field=field.partition(" ")[0],
        value=value if math.isfinite(value) else str(value),
        **fields,
    )
