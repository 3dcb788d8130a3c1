"""`SensingContext`: the hosts to measure, the connections to them, and the extent of the measurement.

It loads no sensor and no ssh, so that a static plan can name it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from apples.io.log import Log, discard
from apples.launch.remote.addresses import remote_hosts
from apples.resources import Host, HostList, Network

if TYPE_CHECKING:
    from apples.launch.remote.connection import HostConnections
    from apples.launch.remote.fitness import Fitness
    from apples.weather.conditions import Conditions
    from apples.weather.link_choice import ProposedPlan
    from apples.weather.service import ServiceSettings

Others = Callable[[HostList], Sequence[Host]]
"""Returns the hosts of a list that are other machines, to be measured over ssh."""
Look = Callable[[Sequence[Host], "HostConnections"], "Mapping[str, Fitness]"]
"""Checks other machines before they are measured; returns the findings by host."""
ProposeUnder = Callable[["Conditions", "Mapping[str, Fitness]"], "ProposedPlan | None"]
"""Returns the plan under conditions and findings, or None if no host set is feasible."""

NO_HOSTS = HostList((), Network())


def no_look(hosts: Sequence[Host], connections: HostConnections) -> Mapping[str, Fitness]:
    """Check no host."""
    del hosts, connections
    return {}


@dataclass(frozen=True, slots=True)
class SensingContext:
    """Everything that measuring a live weather needs; each layer reads its part.

    Attributes
    ----------
    hosts
        The host list.
    service
        The weather service; None: there is none, and every host is measured.
    others
        Returns the hosts of the list that are other machines, to be measured over ssh.
    connections
        The connections to other machines, which stay open; None: some are opened for this measurement alone.
    look
        Checks other machines before they are measured.
    propose
        Returns the plan under some conditions: then only those links are measured that the plan can depend on.
    fresh
        Whether stored measurements are ignored and everything is measured.
    log
        Receives a line for each host or link that could not be measured.
    phase
        Receives the name of each phase as it begins.
    """

    hosts: HostList = NO_HOSTS
    service: ServiceSettings | None = None
    others: Others = remote_hosts
    connections: HostConnections | None = None
    look: Look = no_look
    propose: ProposeUnder | None = None
    fresh: bool = False
    log: Log = discard
    phase: Log = discard
