"""The node supervisor, one process a host: parent of the ranks there. Standard library only.

`supervisor` runs on the manager's machine, `remote_supervisor` at the far end of a connection. Below it, where a
host has more than one rank, `rank_interpreter` has loaded what they load, and forks them.
"""
