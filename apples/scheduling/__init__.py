"""Scheduling policies for rigid, moldable, malleable and evolving jobs, and the driver that runs them.

Read in this order: `jobs` (jobs, and the decisions about them), `policy` (the state that a policy reads, and its
contract), `policies` (one file each), `profile` (free nodes over time), `mates` (SD-Policy's search for nodes and
mates), `usage` (the decayed use of each user), `reservations` (advance reservations), `decider` and `payback`
(which task moves to which node), `ledger` (accepts a decision or gives the reason why not), `driver` (runs policy
and ledger on any clock, simulated or real), `passes` (one pass of a policy, or its failure), `loading` (the policy
of a name and its options) and `guard` (a user's policy in a child process of a live scheduler). A policy proposes
decisions, the ledger accepts or refuses them, a back end carries them out.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
