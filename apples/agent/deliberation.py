"""`Deliberation`: what a blueprint considered: the record that explanations and reports are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from apples.agent.information import InformationPool
from apples.resources import Host
from apples.schedule import Estimate, Rejection

KEPT_REJECTIONS = 1000


@dataclass
class Deliberation:
    """What a blueprint considered: the record that explanations and reports are made from.

    Attributes
    ----------
    usable
        Hosts that passed the host filters.
    considered
        How many sets a schedule was made for.
    estimates
        Feasible candidates, in the order they were estimated.
    rejections
        Refusals with their reasons, at most 1000; `rejected` counts them all.
    chosen, policy
        What `best` returned, with its interval; what looks after the application while it runs, if anything.
    """

    usable: tuple[Host, ...] = ()
    considered: int = 0
    estimates: list[Estimate] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    rejected: int = 0
    chosen: Estimate | None = None
    information: InformationPool | None = None
    policy: Callable[..., None] | None = None

    def reject(self, rejections: Iterable[Rejection]) -> None:
        """Record refusals."""
        for rejection in rejections:
            self.rejected += 1
            if len(self.rejections) < KEPT_REJECTIONS:
                self.rejections.append(rejection)

    def begin_again(self) -> None:
        """Forget what was considered."""
        vars(self).update(vars(Deliberation()))
