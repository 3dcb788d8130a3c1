"""Parameter sweeps: independent tasks of one program that read files, on unequal hosts of several sites.

Reading order: `tasks` (what is to be done, and the sites' caches), `costs` (what each task and transfer takes
under one weather), `gantt` (one chart of hosts, links and files), `heuristics` (which task is placed next),
`planning` (a plan by every heuristic, the best of them taken), `executor` (the contract of what starts tasks and
moves files), `driver` (follows a plan, learns, plans the rest anew, replicates stragglers);
`document` (a sweep as its author writes it), `worker`, `workers` and `hosts` (the program on each host, the
connections to it, tasks and files there), `dask_hosts` (the workers of a Dask cluster as such), `running` (from
files to results). Casanova, Legrand, Zagorodnov, Berman 2000.
"""
