r"""The planners: each makes a schedule for a resource set. The contract is `apples.agent.planners.planner`.

Read `planner` (the contract, and equal strips, the simplest planner), `linear` (the paper's linear system),
`time_balancing` (the default: exact, with whole rows and memory caps), `milp` (the same with limits on cost,
hosts and sites), `rectangles` (columns of rectangles instead of strips; `columns` has the algorithm).

Examples
--------
Three planners on two hosts; the second host takes three times as long per point:

>>> import hat
>>> from apples import Host, Link, equal_strips, linear, time_balancing
>>> from apples.agent import InformationPool
>>> from apples.resources import HostList, Network
>>> from apples.weather import Conditions
>>> from nws import Weather
>>> hosts = Host("ada", seconds_per_point=1e-8), Host("bob", seconds_per_point=3e-8)
>>> network = Network({}, Link(latency=1e-5, bandwidth=1e9), {host.name: host.site for host in hosts})
>>> template = hat.parse('name = "heat"\nprogram = ["heat"]', hat.ApplicationTemplate)
>>> conditions = Conditions(HostList(hosts, network), Weather())
>>> application = template.bind({"grid": 1000})
>>> information = InformationPool(template, application, hat.parse("", hat.UserSpecifications), conditions)
>>> [planner(hosts, information).rows for planner in (time_balancing, linear, equal_strips)]
[(750, 250), (750, 250), (500, 500)]
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
"""The names for ``--planner``. SciPy and PuLP are loaded with the planner that needs them."""

__all__ = ["PLANNERS", "balanced", "equal_strips", "time_balancing"]
