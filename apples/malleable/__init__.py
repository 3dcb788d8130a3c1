"""Malleable jobs: a running MPI program that shrinks, grows and migrates.

A program imports `apples.program.Task`, which delegates to `MalleableJob`. This package has the types that `Task`
takes and returns, and `HostShare`, of which a rehearsal's processor maps are made. Most folders are named for
the process that runs their code. Reading order: `control` (messages between agent and job manager), `job_start`
and `actuator` (start a job through a launcher), `manager` (one process a job: carries out commands), `node` (one
process a host: starts, watches and ends the ranks there), `runtime` (in the ranks: safe points, redistribution of
rows, checkpoints, blocks), `balancers` (who owns which block), `migration` (the same for an unmodified program, by
CRIU). `rehearsal` resizes a program without an agent.

Everything in ``__all__`` is loaded when it is first asked for: a rank that is only parked loads no NumPy.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
