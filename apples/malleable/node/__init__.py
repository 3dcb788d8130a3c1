"""The node supervisor, one process on each host: parent of the ranks there. Standard library only.

`supervisor` is that process, a fork of the manager or at the far end of an ssh; `far_host` has the additions for
another machine; `connection` is the manager's end.
"""
