"""The contract of a load balancer: its input are measurements, its output is the owner of each block.

As in Charm++'s framework (Kale, Kumar and DeSouza 2002, section 3): block times are measured, the relative speed
and the background load of each processor are known, and the processor map has the processors that may have load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from apples.errors import UsageError
from apples.resources.distances import between

BUSIEST = 0.95
"""Largest background load that is counted: the kernel gives us time slices even on a fully loaded processor."""


@dataclass(frozen=True, slots=True)
class Processor:
    """One rank as the balancer sees it.

    Attributes
    ----------
    host
        Name of its host.
    speed
        Relative speed, > 0: a block that takes a second at speed 1 takes half a second at speed 2.
    background
        Share of its CPU that other programs use, 0 to 1.
    enabled
        Whether it may have load: its bit of the processor map.
    distances
        Other host -> cost of a byte to it, relative to the nearest two hosts; 1 for a host that is missing. Empty:
        the distances are unknown.
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
        """Seconds of work at speed 1 that the processor does in a second.

        Examples
        --------
        >>> Processor("ada", speed=2.0, background=0.25).capacity
        1.5
        """
        return self.speed * (1 - min(self.background, BUSIEST))


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements for a decision about blocks.

    Attributes
    ----------
    work
        Processor seconds of a step at speed 1, of each block.
    owners
        Present owner of each block, an index into `processors`.
    processors
        The processors in rank order; at least one is enabled.
    size
        Bytes to move each block; empty: not measured.
    messages
        Pairs of blocks with the bytes that the first sends the second in a step; empty: not declared.

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
        """Indices of the processors that may have load."""
        return tuple(i for i, one in enumerate(self.processors) if one.enabled)

    def seconds(self, owners: Sequence[int]) -> list[float]:
        """Return the seconds that each processor computes in a step with these owners."""
        work = [0.0] * len(self.processors)
        for block, owner in enumerate(owners):
            work[owner] += self.work[block]
        return [done / one.capacity for done, one in zip(work, self.processors, strict=True)]

    def step(self, owners: Sequence[int]) -> float:
        """Return the seconds of a step on the slowest processor, which a balancer minimises."""
        return max(self.seconds(owners))

    def mean(self) -> float:
        """Return the seconds of a step if work were divisible at will, a lower bound of any balance."""
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
        """Cost of a byte between each two processors; 0 inside one processor."""
        places = [one.host for one in self.processors]
        return between(places, {one.host: one.distances for one in self.processors})

    def bytes_times_distance(self, owners: Sequence[int]) -> float:
        """Return the sum over all messages of a step of bytes times the distance of the two hosts."""
        distances = self.distances
        return sum(
            size * distances[owners[one]][owners[other]] for one, other, size in self.messages
        )

    def moved(self, owners: Sequence[int]) -> int:
        """Return the number of blocks that move to these owners."""
        return sum(a != b for a, b in zip(self.owners, owners, strict=True))


LoadBalancer = Callable[[Measured], Sequence[int]]
"""Returns the owner of each block, as a function of the measurements and its own state only."""


def accepted(proposal: Sequence[int], measured: Measured, strategy: str) -> tuple[int, ...]:
    """Return the owners that a strategy proposed, after a check.

    Raises
    ------
    UsageError
        The number of owners differs from the number of blocks, or an owner may not have load. Permanent.
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
