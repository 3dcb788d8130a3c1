"""Master/worker: one host hands out units of work, the workers do them. Apples chooses both.

Reading order: `rates` (the rate of a set of workers under a master, and the choice of both), `chunks` (the next
units of a worker), `messages`, `unit_master`, `unit_worker` and `node` (the programs on the hosts), `document` (a
program as its author describes it), `planning` (a plan from the files), `processes` (the roles on their hosts),
`adaptation` (workers that join and leave), `host_provider` (hosts that a scheduler gives and takes back),
`verification`, `running` (from files to the verified total), `text`. Shao, Berman and Wolski 2000.
"""
