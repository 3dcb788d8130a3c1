"""The strategies of the load balancer. The contract is `apples.malleable.balancer`.

Read `greedy` (every block anew, heaviest first), `refine` (the fewest moves that relieve who is overloaded),
`contiguous` (runs of neighbours, for programs whose blocks talk to the next) and `decider` (Dynamite's).
"""

from collections.abc import Mapping

from apples.malleable.balancer import Strategy
from apples.malleable.balancers.contiguous import contiguous
from apples.malleable.balancers.decider import decider
from apples.malleable.balancers.greedy import greedy
from apples.malleable.balancers.refine import refine

STRATEGIES: Mapping[str, Strategy] = {
    "greedy": greedy,
    "refine": refine,
    "contiguous": contiguous,
    "decider": decider,
}

__all__ = ["STRATEGIES", "contiguous", "decider", "greedy", "refine"]
