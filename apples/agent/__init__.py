"""The agent of one application: what it knows, which hosts it chooses, how it splits the work, and what it learns.

Reading order: `weather` (forecasts of hosts and links), `models` (how long an iteration takes), `information`
(what one decision knows), `selector` (which hosts), `planners` (whose rows), `estimator` (how long),
`launching` (what an actuator is told), `coordinator` (the verbs a blueprint uses), `rescheduling` (while it
runs), `learning` and `verification` (after it ran), `explanation` (why), `session` (from files to a run).
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
