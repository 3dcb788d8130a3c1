"""Short-range molecular dynamics in a periodic box, its cells migratable blocks.

By hand: python solver.py --set steps=100    or    mpiexec -n 2 python solver.py --set cells=8
"""

from box import Box
from cell import Cell
from dynamics import Dynamics
from parameters import Parameters
from population import first_cell

from apples.program import Task

CHECK_EVERY = 20
"""Steps between two checks of the energy and of the number of particles."""


def main() -> None:
    """Advance the particles, through all changes of the hosts."""
    with Task(rows="cells", columns="cells", iterations="steps") as task:
        parameters = Parameters(**task.parameters)
        box = Box(parameters.cells, parameters.cell_side)
        cells = task.blocks(
            "cells",
            lambda number: first_cell(parameters, box, number),
            Cell.pack,
            Cell.unpack,
            count=parameters.cells**2,
            strategy=parameters.strategy,
            partners=lambda number: dict.fromkeys(box.neighbours(number), 1.0),
        )
        state = task.state(energy=0.0, particles=0)
        dynamics = Dynamics(task, cells, box)
        for step in task.iterations():
            if not state.particles:
                dynamics.advance(0.0)
                state.energy, state.particles = dynamics.energy()
                with task.communicating():
                    cells.balance()
            dynamics.advance(parameters.time_step)
            if parameters.balance_every and (step + 1) % parameters.balance_every == 0:
                with task.communicating():
                    cells.balance()
            if (step + 1) % CHECK_EVERY == 0:
                task.residual = dynamics.error(state)
        task.residual = dynamics.error(state)
        task.result(cells)


if __name__ == "__main__":
    main()
