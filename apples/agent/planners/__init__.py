"""The planners: how a resource set becomes a schedule. The contract is `apples.agent.planner`.

Read `blocked` (equal strips), `linear` (the paper's linear system), `time_balancing` (the default:
whole rows and memory caps, exact), `milp` (the same with limits on cost, hosts and sites).
"""

from collections.abc import Mapping

from apples.agent.planner import Planner
from apples.agent.planners.blocked import equal_strips
from apples.agent.planners.linear import linear
from apples.agent.planners.milp import milp
from apples.agent.planners.time_balancing import balanced, time_balancing

PLANNERS: Mapping[str, Planner] = {
    "time_balancing": time_balancing,
    "linear": linear,
    "milp": milp,
    "blocked": equal_strips,
}

__all__ = ["PLANNERS", "balanced", "equal_strips", "linear", "milp", "time_balancing"]
