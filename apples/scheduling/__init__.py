"""Scheduling policies for rigid, moldable, malleable and evolving jobs, and what runs them.

Read in this order: `jobs` (jobs, and what may be decided about them), `policy` (what a policy sees, and its
contract), `policies` (one file each), `profile` (free nodes over time), `mates` (SD-Policy's search for
nodes and mates), `usage` (what users have used), `ledger` (accepts a decision or says why not), `driver`
(runs policy and ledger on any clock, simulated or real). A policy proposes, the ledger disposes, a back
end carries out.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
