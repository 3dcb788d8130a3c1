"""Malleable jobs: a running MPI program that shrinks, grows and migrates.

This front door is what a program imports: `Job`, what it declares, and what a safe point tells it; besides
`HostShare`, of which a rehearsal's processor maps are made. Each folder below is named for the process that
runs its code. Reading order: `control` (what agent and job manager say to each other), `manager` (one process
a job: carries out commands), `node` (one process a host: starts, watches and ends the ranks there), `runtime`
(in the ranks: safe points, redistribution of rows, checkpoints, blocks), `balancers` (who owns which block),
`migration` (the same for an unmodified program, by CRIU).

Everything in ``__all__`` is loaded when it is first asked for: a rank that is only parked loads no NumPy.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
