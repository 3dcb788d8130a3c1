"""Parameter sweeps: independent tasks of one program that read files, on unequal hosts of several sites.

Reading order: `tasks` (tasks, and the caches of sites), `costs` (the time of each task and transfer under one
weather), `gantt` (one chart of hosts, links and files), `heuristics` (choose the next task to place), `planning`
(a plan by every heuristic; the best is taken), `executor` (the contract: start tasks, move files), `driver`
(follows a plan, learns, plans the remaining tasks again, replicates stragglers), `document` (a sweep as its
author writes it), `on_hosts` (tasks and files on hosts over ssh), `running` (from files to results), `text`.
`apples.applications.worker` and `apples.applications.dask_hosts` start the tasks. Casanova, Legrand, Zagorodnov,
Berman 2000.
"""
