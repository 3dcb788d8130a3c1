"""`Contract`: what an application was promised to take where it is, and whether it keeps to that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from apples.agent.monitoring import Pace
from apples.schedule import Estimate
from apples.units import duration

TOLERANCE = 0.2
"""A host that takes so much longer, or less long, than promised breaks the contract."""


@dataclass(frozen=True, slots=True)
class Contract:
    """What the application is expected to take on the hosts it has.

    Attributes
    ----------
    iteration_seconds
        One iteration.
    compute_seconds
        By host, computing in one iteration.
    """

    iteration_seconds: float
    compute_seconds: Mapping[str, float]

    @classmethod
    def of(cls, estimate: Estimate) -> Contract:
        """Return what an estimate promises."""
        return cls(
            estimate.iteration_seconds,
            {one.host.name: one.compute_seconds for one in estimate.hosts},
        )

    def breach(self, pace: Pace) -> str:
        """Return who breaks the contract, in words; empty when nobody does.

        Examples
        --------
        >>> promise = Contract(1.0, {"ada": 1.0, "bob": 0.9})
        >>> promise.breach(Pace(1.05, {"ada": 1.0, "bob": 0.95}, 4.0, 4))
        ''
        >>> promise.breach(Pace(2.0, {"ada": 2.0, "bob": 0.9}, 4.0, 2))
        'ada computes for 2.00 s an iteration, 1.00 s was promised'
        """
        worst, line = TOLERANCE, ""
        for host, promised in self.compute_seconds.items():
            measured = pace.compute_seconds.get(host)
            # What is short beside the iteration makes no difference, however wrong it is.
            if measured is None or max(measured, promised) < TOLERANCE * pace.iteration_seconds:
                continue
            off = max(measured, promised) / max(min(measured, promised), 1e-12) - 1.0
            if off > worst:
                worst = off
                said = f"{host} computes for {duration(measured)} an iteration"
                line = f"{said}, {duration(promised)} was promised"
        off = pace.iteration_seconds / self.iteration_seconds - 1.0
        if not line and off > TOLERANCE:
            took, promise = duration(pace.iteration_seconds), duration(self.iteration_seconds)
            line = f"an iteration takes {took}, {promise} was promised"
        return line
