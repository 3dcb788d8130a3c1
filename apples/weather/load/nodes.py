"""The nodes that a scheduling policy sees, made of the hosts of a list."""

from __future__ import annotations

from collections.abc import Iterable

from apples.resources import Host
from apples.scheduling.policy import NodeLoad


def known_nodes(hosts: Iterable[Host]) -> dict[str, NodeLoad]:
    """Return the node of each host by name, as a policy sees it, without its load.

    Examples
    --------
    >>> hosts = [Host("ada", seconds_per_point=1e-8), Host("bob", seconds_per_point=2e-8, cpu=0.5)]
    >>> {name: node.speed for name, node in known_nodes(hosts).items()}
    {'ada': 2.0, 'bob': 0.5}
    """
    everyone = list(hosts)
    dedicated = [one.seconds_per_point for one in everyone if one.seconds_per_point]
    slowest = max(dedicated, default=1.0)
    return {
        one.name: NodeLoad(
            one.name, processes=one.slots,
            speed=one.cpu * slowest / (one.seconds_per_point or slowest),
            owner_first=one.owner_first, site=one.site,
        )
        for one in everyone
    }  # fmt: skip
