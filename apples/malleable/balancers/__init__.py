"""Load balancers: a strategy is a function from measurements to the owner of each block.

The contract is `contract` (`Measured` in, owners out); `apples.malleable.balancers.checks` checks any strategy.
`block_table` has the number of blocks and the owner of each, as plain data.

Read in `strategies`: `greedy` (assigns all blocks anew, heaviest first), `refine` (relieves overloaded processors
with the fewest moves), `contiguous` (runs of neighbours, for programs in which each block exchanges data with the
next), `placement` (keeps blocks that exchange much data near each other, by declared messages) and `decider`
(Dynamite's).
"""

from collections.abc import Mapping

from apples.malleable.balancers.contract import LoadBalancer, Measured, Processor, accepted
from apples.malleable.balancers.strategies import (
    contiguous,
    decider,
    greedy,
    placement,
    refine,
)

STRATEGIES: Mapping[str, LoadBalancer] = {
    "greedy": greedy,
    "refine": refine,
    "contiguous": contiguous,
    "placement": placement,
    "decider": decider,
}

__all__ = [
    "STRATEGIES",
    "LoadBalancer",
    "Measured",
    "Processor",
    "accepted",
    "contiguous",
    "decider",
    "greedy",
    "placement",
    "refine",
]
