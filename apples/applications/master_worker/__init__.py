"""Master/worker: one host hands out units of work, and the others do them. The room chooses master and workers.

Reading order: `rates` (the rate of a set of workers under a master, and the choice of both), `chunks` (which
units a worker gets next), `node` (the master and the workers on their hosts), `document` (a program as its author
describes it), `given_hosts` (hosts that a scheduler gives and takes back), `running` (from files to the verified
total), `text`. Shao, Berman and Wolski 2000.
"""
