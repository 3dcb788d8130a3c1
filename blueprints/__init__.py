"""Blueprints: plain functions over the Coordinator, each one the pseudo-code of a scheduling method.

Read `minimum_execution_time` first (Berman et al. 1996, Figures 4 and 11), then what the paper compared
it with in section 3: `compile_time` (method 2), `all_resources` (method 3), `square_blocks` (method 1; `blocked`
is equal strips); and `single_host`; and `redistribute`, which goes on deciding while the application runs, as do
`migrate` and `decider`, by the loads of hosts. Yours is any function that takes a Coordinator and returns an
Execution.

Those that need more than the Coordinator ask ``apples`` for it when they are called: a plan loads one blueprint's
needs only.
"""

from blueprints.all_resources import all_resources
from blueprints.blocked import blocked
from blueprints.compile_time import compile_time
from blueprints.decider import decider
from blueprints.migrate import migrate
from blueprints.minimum_execution_time import minimum_execution_time
from blueprints.redistribute import redistribute
from blueprints.single_host import single_host
from blueprints.square_blocks import square_blocks

__all__ = [
    "all_resources",
    "blocked",
    "compile_time",
    "decider",
    "migrate",
    "minimum_execution_time",
    "redistribute",
    "single_host",
    "square_blocks",
]
