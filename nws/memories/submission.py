"""What a memory keeps and takes, and a batch on its way to the disk."""

import math
from concurrent.futures import Future
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Retention:
    """What a memory keeps and takes.

    Attributes
    ----------
    capacity
        Measurements per series.
    age
        Seconds after which a measurement is let go.
    most_series
        Series; one more is refused.
    window
        Seconds by which a measurement may come after a later one of its series.
    skew
        Seconds by which a sender's clock may be ahead of ours.
    """

    capacity: int = 2000
    age: float = math.inf
    most_series: int = 100_000
    window: float = 3600.0
    skew: float = 60.0


@dataclass(slots=True)
class Submission:
    """A batch on its way to the disk.

    Attributes
    ----------
    refused
        (place in the batch, reason) of what will never be stored as it is.
    duplicates
        How many were stored before.
    futures
        Done when all else is on the disk; one that failed says why (`LogError`).
    """

    refused: list[tuple[int, str]] = field(default_factory=list)
    duplicates: int = 0
    futures: "list[Future[int]]" = field(default_factory=list)
    accepted: int = 0
    new: list[int] = field(default_factory=list)

    @property
    def stored(self) -> int:
        """How many are new; right once all futures are done."""
        return sum(self.new)
