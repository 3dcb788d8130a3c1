"""Migration of unmodified programs by checkpoint and restart (CRIU).

`manager` (one process for each job) sends requests to `on_host` (one process on each host) through `hosts`, in the
order of `steps`; `inspection` finds the reasons why a program cannot move, `criu` builds the commands. A rank of
an MPI program moves like any other process, after all `ranks` closed their connections and before they reconnect.
"""
