"""Recursive least squares for one series, one equation at a time, without NumPy."""

import math
from typing import Any, Final

from nws.state import checked_object, unpacked

FORGETTING: Final = 0.999
RENEWAL: Final = 1.0 / FORGETTING
TRACE: Final = 1000.0
CLIP: Final = 6.0
GAIN: Final = 0.02


def clipped(value: float, most: float = CLIP) -> float:
    """Return `value` within plus and minus `most`."""
    return min(max(value, -most), most)


class RecursiveLeastSquares:
    """Weights w with w.x near z, the past forgotten exponentially (Haykin, "RLS algorithm").

    ``g = P x / (lambda + x.P x)``, ``w += g (z - w.x)``, ``P = (P - g x'P) / lambda`` with
    lambda .999. P is shrunk when its trace exceeds 1000: what does not vary must not wind up.

    Examples
    --------
    >>> fit = RecursiveLeastSquares(1)
    >>> for x in (1.0, 2.0, 3.0) * 50:
    ...     fit.update([x], 2 * x)
    >>> round(fit.predict([4.0]), 2)
    8.0
    """

    def __init__(self, order: int) -> None:
        self.w = [0.0] * order
        self.p = [[float(i == j) for j in range(order)] for i in range(order)]

    def predict(self, x: list[float]) -> float:
        """Return w.x."""
        total = 0.0
        for weight, each in zip(self.w, x, strict=True):
            total += weight * each
        return total

    def update(self, x: list[float], z: float) -> None:
        """Move the weights towards w.x = z."""
        order = range(len(x))
        px = [0.0] * len(x)
        for row, each in zip(self.p, x, strict=True):
            px = [total + entry * each for total, entry in zip(px, row, strict=True)]
        power = 0.0
        for each, projected in zip(x, px, strict=True):
            power += each * projected
        power += FORGETTING
        error = z - self.predict(x)
        trace = 0.0
        for i in order:
            gain = px[i] / power
            self.w[i] += gain * error
            row = self.p[i]
            self.p[i] = [(row[j] - gain * px[j]) * RENEWAL for j in order]
            trace += self.p[i][i]
        if trace > TRACE:
            shrink = TRACE / trace
            self.p = [[entry * shrink for entry in row] for row in self.p]

    def state(self) -> dict[str, Any]:
        """Return weights and matrix."""
        return {"w": list(self.w), "p": [list(row) for row in self.p]}

    def restore(self, state: Any) -> None:
        """Take over weights and matrix; ValueError unless they are of the same size."""
        given = checked_object(state, ("w", "p"), "a regression")
        w, p = unpacked(self.w, given["w"], "w"), unpacked(self.p, given["p"], "p")
        if len(w) != len(self.w) or [len(row) for row in p] != [len(row) for row in self.p]:
            raise ValueError(f"the state of a regression on {len(self.w)} values is wanted")
        self.w, self.p = w, p


class Standard:
    """The exponentially weighted mean and deviation that a regression's values are measured by.

    The gain is .02, and 1/n for the first n values. ``variance = (1 - g)(variance + g d^2)``, d
    the deviation from the mean before.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.mean = 0.0
        self.variance = 0.0

    def update(self, value: float) -> None:
        """Take in a value; magnitudes beyond 1e150 count as that, so that squares stay finite."""
        value = clipped(value, 1e150)
        self.samples += 1
        gain = max(GAIN, 1.0 / self.samples)
        away = value - self.mean if self.samples > 1 else 0.0
        self.mean = self.mean + gain * away if self.samples > 1 else value
        self.variance = (1.0 - gain) * (self.variance + gain * away * away)

    def of(self, value: float) -> float:
        """Return `value` in deviations from the mean, within plus and minus `CLIP`."""
        deviation = math.sqrt(self.variance)
        inverse = 1.0 / deviation if deviation > 0 else 0.0
        return clipped((clipped(value, 1e150) - self.mean) * inverse)

    def back(self, z: float) -> float:
        """Return the value that is `z` deviations from the mean, at most `CLIP` of them."""
        return self.mean + math.sqrt(self.variance) * clipped(z)

    def state(self) -> list[float]:
        """Return count, mean, variance."""
        return [self.samples, self.mean, self.variance]

    def restore(self, state: Any) -> None:
        """Take over count, mean, variance."""
        samples, self.mean, self.variance = unpacked((0.0, 0.0, 0.0), state, "standard")
        self.samples = int(samples)
