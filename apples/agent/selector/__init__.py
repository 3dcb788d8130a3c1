"""The Resource Selector (Berman et al. 1996, section 4.4): viable sets of hosts, and reasons against others.

Read `chains` (logical distance, and Figure 3), `limits` (limits set by user and hosts), `search` (all prefixes
of a chain at once, and moves that improve a set), `filters` (rules that reject hosts and schedules),
`selector`.
"""

from apples.agent.selector.chains import DISTANCES, Distance
from apples.agent.selector.filters import (
    FILTERS,
    HOST_FILTERS,
    Filter,
    HostFilter,
    every_host_used,
)
from apples.agent.selector.limits import Limits
from apples.agent.selector.selector import ResourceSelector

__all__ = [
    "DISTANCES",
    "FILTERS",
    "HOST_FILTERS",
    "Distance",
    "Filter",
    "HostFilter",
    "Limits",
    "ResourceSelector",
    "every_host_used",
]
