"""Where the tasks of a parallel application are best placed, by what they say to each other and what they weigh.

After van Albada et al. 1999 ("Dynamite"). `placement` is the problem and its solution as plain arrays: which task
goes to which host when bytes, distances, loads and speeds are known; `distances` has the distances between hosts.
`message_matrix` holds the bytes and messages between ranks, and `message_counts` counts them in a running MPI
program. `decider` is the paper's rule for which task moves, `payback` one that asks what a move costs; both are
pure.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
