"""The parameters of the template, by name."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """The parameters of the template; field names are the parameters' names. Lennard-Jones units.

    Parameters
    ----------
    cells
        Along each side of the box: cells x cells migratable blocks.
    steps, time_step
        Number and length of the steps.
    cell_side
        Side of a cell; at least the cutoff of 2.5.
    gas_density, drop_density, drop_radius, drop_at
        Particles per area outside and inside a drop; its radius and the position of its middle along the
        diagonal, both as fractions of the box.
    drift
        Velocity of the drop in both directions: the load moves with it.
    temperature, seed
        Temperature and random seed of the initial velocities.
    strategy, balance_every
        Name of the load balancer, and steps between its calls; 0: at the start and when hosts change.
    """

    cells: int = 8
    steps: int = 200
    time_step: float = 0.004
    cell_side: float = 10.0
    gas_density: float = 0.05
    drop_density: float = 0.7
    drop_radius: float = 0.25
    drop_at: float = 0.3
    drift: float = 0.0
    temperature: float = 0.5
    seed: int = 1
    strategy: str = "refine"
    balance_every: int = 20
