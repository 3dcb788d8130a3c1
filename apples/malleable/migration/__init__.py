"""Migration of unmodified programs by checkpoint and restart (CRIU).

`manager` (one process a job) asks `supervisor` (one process a host) through `supervisors`, in the order of
`steps`; `inspection` finds what cannot be moved, `criu` builds the commands.
"""
