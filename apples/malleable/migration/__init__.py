"""Migration of unmodified programs by checkpoint and restart (CRIU).

`manager` (one process a job) asks `on_host` (one process a host) through `hosts`, in the order of
`steps`; `inspection` finds what cannot be moved, `criu` builds the commands. A rank of an MPI program is moved
like any other process, between a stop of all `ranks` and their new connection.
"""
