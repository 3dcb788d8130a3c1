"""The live scheduler: the policies of `apples.scheduling` on real machines, for many jobs at once.

Pure: `live_job` (a job and the steps of its life), `state` (jobs and hosts, as the records of the log make them),
`orders` (orders to an executor, and its answers), `pass_ledger` (the ledger of a pass, derived from the state),
`admission` (what is refused), `host_leases`, `host_choice`, `order_sender`, and `scheduler`, which has them all
(events in, records and orders out).
Around it: `log` (a record is on the disk before its effect is visible), `listener` and `access` (connections and
rights), `answers` (the requests of clients), `service` (the process), `executor` (carries out the orders),
`topology_daemons` (CPUs of hosts that jobs share), `daemon_connection` and `daemon_agent` (of other hosts),
`user_runners` and `user_runner` (one process for the jobs of each user), `start_predictions` and `queue_future`
(when a waiting job will start), `replay` (a log once more). Front end: `commands`, `text`, `pages` and `routes`.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
