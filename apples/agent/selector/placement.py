"""A broker as a filter and as a distance of the Resource Selector.

What a host's CPUs allow (or any other broker's resource) is one filter among the others, and near can
mean: offers the better topology.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from apples.agent.information import InformationPool
from apples.agent.selector.chains import Distance, Distances, communication
from apples.resources import Host
from apples.schedule import Rejection
from apples.topology.broker import BrokerRequest, RequirementBroker
from apples.topology.language import RequirementExpression


@dataclass(frozen=True)
class TopologyFilter:
    """A `HostFilter`: refuses hosts that do not satisfy a requirement now, with the broker's reason.

    Attributes
    ----------
    broker
        Who judges.
    expression
        What every host must satisfy.
    count
        CPUs on each host; None: as many as the host has slots.
    """

    broker: RequirementBroker
    expression: RequirementExpression
    count: int | None = None

    def __call__(self, host: Host, _: InformationPool) -> Rejection | None:
        """Return why a host is refused, None if it is not."""
        answer = self.broker.satisfies(host.name, self.request(host))
        if answer:
            return None
        return Rejection(
            (host.name,),
            f"{host.name}: {answer.verdict}: {answer.reason}",
            (answer.found, answer.needed),
            "topology",
        )

    def request(self, host: Host) -> BrokerRequest:
        """Return what is asked of one host."""
        return BrokerRequest(self.expression, self.count or host.slots)


@dataclass(frozen=True)
class TopologyDistance:
    """A `Distance`: hosts whose CPUs lie closer together are nearer; among equals another distance decides.

    Attributes
    ----------
    filter
        What is requested, and the broker that judges it; hosts that cannot are behind all that can.
    among_equals
        Scaled below the smallest step of what the broker says.
    """

    filter: TopologyFilter
    among_equals: Distance = communication

    def __call__(
        self, host: Host, others: Sequence[Host], information: InformationPool
    ) -> Distances:
        """Return one number for each of the others."""
        able = [other for other in others if self._quality(other) is not None]
        steps = {
            quality: i for i, quality in enumerate(sorted({self._quality(o) or () for o in able}))
        }
        rank = [float(steps.get(self._quality(other) or (), len(steps))) for other in others]
        near = np.asarray(self.among_equals(host, others, information), dtype=float)
        most = float(near.max(initial=0.0))
        return np.asarray(rank) + near / (most * 2 if most > 0 else 1.0)

    def _quality(self, host: Host) -> tuple[float, ...] | None:
        answer = self.filter.broker.satisfies(host.name, self.filter.request(host))
        return answer.quality if answer else None
