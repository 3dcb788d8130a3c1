"""Master/worker: one host hands out units of work, and the others do them. The room chooses master and workers.

Reading order: `rates` (the rate of a set of workers under a master, and the choice of both), `chunks` (which
units a worker gets next), `messages`, `unit_master`, `unit_worker` and `node` (the programs on the hosts),
`document` (a program as its author describes it), `planning` (a plan from the files), `processes` (the roles on
their hosts), `adaptation` (which workers join and leave), `host_provider` (hosts that a scheduler gives and takes
back), `verification`, `running` (from files to the verified total), `text`. Shao, Berman and Wolski 2000.
"""
