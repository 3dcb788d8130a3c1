"""The node supervisor, one process on each host: parent of the ranks there. Standard library only.

`supervisor` is that process, here or at the far end of an ssh, where `far_host` belongs to it; `connection` is the
manager's end.
"""
