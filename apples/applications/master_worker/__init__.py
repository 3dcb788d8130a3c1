"""Master/worker: one host hands out units of work, the others do them; which host, and which others.

Reading order: `rates` (the rate of a set of workers under a master, and the choice of both), `chunks` (which
units a worker is handed next), `node` (the master and the workers on their hosts), `document` (a program as its
author describes it), `running` (from files to the verified total). Shao, Berman and Wolski 2000.
"""
