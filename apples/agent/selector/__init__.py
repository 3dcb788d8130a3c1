"""The Resource Selector (Berman et al. 1996, section 4.4): viable sets of hosts, and why others are not.

Read `distances` (what near means), `chains` (Figure 3), `prefixes` (every prefix of a chain at once),
`search` (moves that improve a set), `filters` (what refuses hosts and schedules), `selector`.
"""

from apples.agent.selector.distances import DISTANCES, Distance
from apples.agent.selector.filters import (
    FILTERS,
    HOST_FILTERS,
    Filter,
    HostFilter,
    every_host_used,
)
from apples.agent.selector.selector import ResourceSelector

__all__ = [
    "DISTANCES",
    "FILTERS",
    "HOST_FILTERS",
    "Distance",
    "Filter",
    "HostFilter",
    "ResourceSelector",
    "every_host_used",
]
