"""The agent of one application: what it knows, which hosts it chooses, how it splits the work, and what it learns.

Reading order: `models` (how long an iteration takes), `information` (what one decision knows), `selector` (which
hosts), `partitioning` and `planners` (whose rows), `estimator` (how long), `launching` (the plan for an actuator),
`coordinator` (the verbs a blueprint uses), `rescheduling` and `slow_hosts` (while the program runs), `learning`
and `verification` (after it ran), `explanation` (why), `session` (from files to a run). `calibration` and `doctor`
measure and check hosts and programs. `commands` and `text` are the front end.

Forecasts come from `apples.weather`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
