"""The live scheduler: the policies of `apples.scheduling` on real machines, for many jobs at once.

Pure: `live_job` (a job and the steps of its life), `state` (jobs and hosts, as the records of the log make them),
`orders` (what an executor is ordered to do and what it answers), `scheduler` (events in, records and orders out).
Around it: `log` (a record is on the disk before its effect is visible), `service` (the process), `executor`
(carries out the orders), `start_predictions` (when a waiting job will start) and `commands` (what a user asks).
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
