"""The srun command line to a node of a Slurm allocation, by a step beside others. Pure: nothing is started."""

from __future__ import annotations

INHERITED = (
    "SSH_CONNECTION",
    *(f"SLURM_{it}" for it in ("CPUS_PER_TASK", "TASKS_PER_NODE", "NTASKS", "NPROCS", "NNODES")),
)
"""What the batch script's or the login's own would say of a step that it does not fit."""
STEP = (
    *("env", *(word for name in INHERITED for word in ("-u", name))),
    *("srun", "--overlap", "--mpi=none", "--cpu-bind=none", "--unbuffered", "--quiet"),
    "--chdir=/",
)
"""A step beside others, that binds nothing: its ranks are ours to place."""


def step(node: str, allocation: str) -> tuple[str, ...]:
    """Return the argument list to which is added what one task on a node is to be.

    Examples
    --------
    >>> step("n1", "4711")[-4:]
    ('--nodes=1', '--ntasks=1', '--nodelist=n1', '--jobid=4711')
    """
    return (*STEP, "--nodes=1", "--ntasks=1", f"--nodelist={node}", f"--jobid={allocation}")
