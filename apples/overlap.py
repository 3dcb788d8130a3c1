"""`Overlap`: what borders really take of the seconds the model says, learned from runs."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

from apples.forgetting import believed, blend, bounded, is_positive

BOTH_WAYS = 0.5
"""Of the sum of sends and receives, where both go at once."""
ALIKE = 2.0
"""Borders whose lengths differ by less than this factor teach one another."""
MOST_POINTS = 64
"""No document is believed to know more lengths: 64 doublings are more than a century over a nanosecond."""


@dataclass(frozen=True)
class Overlap:
    """The factor on the seconds of a border, by their number: a short one hides otherwise than a long one.

    Between two lengths that runs taught it is straight in the logarithm of the length; below the shortest it
    is that one's. What is longer than the longest is hidden behind nothing: its rest costs half, for links
    send and receive at once, or as much as the longest, if that is more.

    Attributes
    ----------
    points
        Seconds of a border, as modelled, and the factor there; ascending. Infinite seconds: any border, of
        a model that does not say how long they are. None: 1 everywhere.

    Examples
    --------
    >>> hidden = Overlap(((0.005, 0.1),))
    >>> hidden.cost(0.004), round(hidden.cost(0.2), 4)
    (0.0004, 0.098)
    >>> round(Overlap(((0.001, 0.2), (0.1, 0.6))).factor(0.01), 6)
    0.4
    """

    points: tuple[tuple[float, float], ...] = ()

    @classmethod
    def recalled(cls, stored: Any) -> Overlap:
        """Return what a document holds; entries that make no sense are left out."""
        found: dict[float, float] = {}
        for entry in stored[:MOST_POINTS] if isinstance(stored, list) else ():
            seconds, factor = entry if isinstance(entry, list) and len(entry) == 2 else (0, 0)
            if is_positive(factor) and (seconds is None or is_positive(seconds)):
                found[math.inf if seconds is None else float(seconds)] = bounded(factor)
        return cls(tuple(sorted(found.items())))

    @property
    def up_to(self) -> float | None:
        """Seconds of the longest border that is known; None where none is, or any."""
        longest = self.points[-1][0] if self.points else math.inf
        return longest if math.isfinite(longest) else None

    def stored(self) -> list[tuple[float | None, float]]:
        """Return it for a document."""
        return [(s if math.isfinite(s) else None, factor) for s, factor in self.points]

    def factor(self, seconds: float) -> float:
        """Return what a border of so many modelled seconds costs of them."""
        if not self.points:
            return 1.0
        k = bisect_left(self.points, (seconds,))
        if k == len(self.points):
            longest, factor = self.points[-1]
            part = longest / seconds
            return part * factor + (1 - part) * max(factor, BOTH_WAYS)
        if k == 0 or self.points[k][0] == seconds:
            return self.points[k][1]
        (shorter, low), (longer, high) = self.points[k - 1 : k + 1]
        return low + (high - low) * math.log(seconds / shorter) / math.log(longer / shorter)

    def cost(self, seconds: float) -> float:
        """Return what a border of so many modelled seconds costs."""
        return seconds * self.factor(seconds)

    def taught(self, ratio: float, longest: float) -> Overlap:
        """Return it after a run.

        Parameters
        ----------
        ratio
            Measured over predicted seconds at the borders, the prediction with what was known.
        longest
            Seconds of the longest border of the run, modelled without overlap; 0 where the model does not
            say.
        """
        length = longest if longest > 0 else math.inf
        others = [one for one in self.points if not _alike(one[0], length)]
        before = self.factor(length)
        met = len(others) < len(self.points)
        after = blend(before, ratio) if met else bounded(before * believed(ratio))
        return Overlap(tuple(sorted([*others, (length, after)])))


def _alike(one: float, other: float) -> bool:
    return one == other or max(one, other) < ALIKE * min(one, other)


PLAIN = Overlap()
"""Before the first run: the paper's sum of sends and receives."""
