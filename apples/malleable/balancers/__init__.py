"""Load balancers: a strategy is a function from what was measured to the owner of each block.

The contract is `contract` (`Measured` in, owners out); `apples.malleable.balancers.checks` checks any strategy.
`block_table` says how many blocks there are and who owns which, as plain data.

Read in `strategies`: `greedy` (every block anew, heaviest first), `refine` (the fewest moves that relieve who
is overloaded), `contiguous` (runs of neighbours, for programs whose blocks talk to the next), `placement` (near
each other what talks, by declared messages) and `decider` (Dynamite's).
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
