"""The live scheduler: the policies of `apples.scheduling` on real machines, for many jobs at once.

Pure: `live_job` (a job and its states), `state` (jobs and hosts, derived from the records of the log), `orders`
(orders to an executor, and its reports), `pass_ledger` (the ledger of a pass, derived from the state), `admission`
(the checks of requests), `host_leases`, `host_choice`, `order_sender`, and `scheduler`, which combines them
(events in, records and orders out).
Around it: `log` (a record is on the disk before its effect is visible), `listener` and `access` (connections and
rights), `answers` (the requests of clients), `service` (the process), `executor` (carries out the orders),
`topology_daemons` (CPUs of hosts that jobs share), `daemon_connection` and `daemon_agent` (of other hosts),
`user_runners` and `user_runner` (one process for the jobs of each user), `start_predictions` and `queue_future`
(predicted starts of waiting jobs), `replay` (repeats a log). Front end: `commands`, `text`, `pages` and `routes`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
