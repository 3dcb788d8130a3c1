"""The agent of one application: it selects hosts, splits the work, starts it and learns from runs.

Reading order: `models` (predicted iteration time), `information` (the data of one decision), `selector` (sets
of hosts), `partitioning` and `planners` (rows of each host), `estimator` (predicted performance of a plan),
`launching` (the plan for an actuator), `coordinator` (the verbs of a blueprint), `rescheduling` and
`slow_hosts` (while the program runs), `learning` and `verification` (after it ran), `explanation` (reasons for
a decision), `session` (from files to a run). `calibration` and `doctor` measure and check hosts and programs.
`commands` and `text` are the front end.

Forecasts come from `apples.weather`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
