"""Malleable jobs: a running MPI program that shrinks, grows and migrates.

A program imports `apples.program.Task`, which delegates to `MalleableJob`. This package has the types that `Task`
takes and returns, and `HostShare`, the entry of a rehearsal's processor map. Most folders are named after the
process that runs their code. Reading order: `control` (messages between agent and job manager), `job_start`
and `actuator` (start a job through a launcher), `manager` (one process for each job: carries out commands), `node`
(one process on each host: starts, watches and ends the ranks there), `runtime` (in the ranks: safe points,
redistribution of rows, checkpoints, blocks), `balancers` (the owner of each block), `migration` (the same for an
unmodified program, by CRIU). `rehearsal` resizes a program without an agent.

Each name in ``__all__`` is imported at its first use, so that a parked rank does not load NumPy.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
