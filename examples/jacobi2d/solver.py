"""Jacobi2D: relaxation of a square grid over MPI ranks, in strips of any heights or in rectangles.

By hand: python solver.py --set grid=500    or    mpiexec -n 2 python solver.py --set grid=500

The result is the same bit for bit, and so is the iteration at which a tolerance stops, for all partitions,
kernels and changes of hosts.
"""

try:
    from apples import program
except ImportError:
    raise SystemExit(
        "solver.py: no module apples.program on this host: "
        "install apples, or copy apples/program.py beside this file"
    ) from None
if (version := getattr(program, "INTERFACE", 1)) < 2:
    raise SystemExit(
        f"solver.py: needs apples.program of interface 2, {program.__file__} has interface {version}: "
        "install the apples here that the agent has"
    )

from calibrate import calibrate
from parameters import Parameters
from relaxation import Relaxation

from apples.program import Task, hosts_may_change


def main() -> None:
    """Sweep the grid, through all changes of the hosts."""
    with Task(rectangles=not hosts_may_change(), calibrates=True) as task:
        parameters = Parameters.read(task.parameters)
        if task.sizes:
            calibrate(task, parameters)
            return
        relaxation = Relaxation(task, parameters)
        for iteration in task.iterations(collect=relaxation.kernel.settle):
            if relaxation.advance(iteration):
                break
        relaxation.deliver()


if __name__ == "__main__":
    main()
