"""The planners: how a resource set becomes a schedule. The contract is `apples.agent.planners.planner`.

Read `planner` (the contract, and equal strips, the simplest), `linear` (the paper's linear system),
`time_balancing` (the default: whole rows and memory caps, exact), `milp` (the same with limits on cost, hosts
and sites), `rectangles` (columns of unequal rows in place of strips; `columns` has the algorithm).
"""

from apples.agent.planners.planner import Planner, equal_strips
from apples.agent.planners.time_balancing import balanced, time_balancing
from apples.io.plugins import Catalogue

PLANNERS: Catalogue[Planner] = Catalogue(
    {
        "time_balancing": "apples.agent.planners.time_balancing:time_balancing",
        "linear": "apples.agent.planners.linear:linear",
        "milp": "apples.agent.planners.milp:milp",
        "blocked": "apples.agent.planners.planner:equal_strips",
        "rectangles": "apples.agent.planners.rectangles:rectangles",
        "strips_or_rectangles": "apples.agent.planners.rectangles:strips_or_rectangles",
        "square_blocks": "apples.agent.planners.rectangles:equal_blocks",
    }
)
"""What ``--planner`` may name; SciPy and PuLP are loaded with the planner that needs them."""

__all__ = ["PLANNERS", "balanced", "equal_strips", "time_balancing"]
