"""An agent that schedules one parallel application on machines that are unequal, shared and changing.

Reading order: `resources` (hosts, links), `schedule` (what the subsystems hand one another), `agent` (one
application, one decision), `launch` (from a schedule to processes), `malleable` (jobs that change while they run),
`scheduling` and `simulation` (many jobs on one cluster), `topology` (inside a host), `views` and `cli`.

Everything in ``__all__`` is loaded when it is first asked for, so that a command pays only for what it uses.
"""

from apples.front_door import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
