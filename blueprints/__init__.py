"""Blueprints: each is a plain function over the Coordinator and states one scheduling method.

Read `minimum_execution_time` first (Berman et al. 1996, Figures 4 and 11). Section 3 of the paper compares it
with `square_blocks` (method 1; `blocked` uses equal strips), `compile_time` (method 2) and `all_resources`
(method 3). `single_host` is the sequential version. `redistribute` reschedules while the application runs;
`migrate` and `decider` do so by the loads of hosts. Your own blueprint is any function that takes a Coordinator
and returns an Execution.

A blueprint that needs further names takes them from ``apples`` during its call, so that a plan loads only the
modules of its own blueprint.
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
