"""The initial particles: a dense drop in thin gas, so that cells differ in particles by an order of magnitude."""

import math

import numpy as np
from box import Box
from cell import COLUMNS, NAME, PLACE, VELOCITY, Cell
from parameters import Parameters

PARTICLES_A_CELL = 1 << 20
"""The names of a cell's initial particles start at this constant times the cell's number."""


def density(parameters: Parameters, box: Box, number: int) -> float:
    """Return the particles per area of a cell: of the drop within its radius of its middle, else of the gas."""
    row, column = divmod(number, box.cells)
    middle = parameters.cells * parameters.drop_at
    off = math.hypot(column + 0.5 - middle, row + 0.5 - middle)
    within = off <= parameters.drop_radius * parameters.cells
    return parameters.drop_density if within else parameters.gas_density


def first_cell(parameters: Parameters, box: Box, number: int) -> Cell:
    """Return a cell with its initial particles: on a square lattice, with random velocities.

    It depends only on the parameters and the cell's number, so that any rank may make it.
    """
    dense = density(parameters, box, number)
    aside = math.ceil(box.side * math.sqrt(dense))
    random = np.random.default_rng([parameters.seed, number])
    row, column = divmod(number, box.cells)
    ticks = (np.arange(aside) + 0.5) * (box.side / max(1, aside))
    x, y = np.meshgrid(ticks + column * box.side, ticks + row * box.side)
    rows = np.zeros((aside * aside, COLUMNS))
    rows[:, NAME] = number * PARTICLES_A_CELL + np.arange(len(rows))
    rows[:, PLACE] = np.stack([x.ravel(), y.ravel()], axis=1)
    rows[:, VELOCITY] = random.normal(0.0, math.sqrt(parameters.temperature), (len(rows), 2))
    if dense == parameters.drop_density:
        rows[:, VELOCITY] += parameters.drift
    return Cell(number, rows)
