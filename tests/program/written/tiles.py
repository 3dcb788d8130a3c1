"""Tiles of uneven cost: a tile's work grows with its number, and tiles wander to where there is time."""

import numpy as np

from apples.program import Task


def work(tile, number):
    """Iterate the logistic map, up to eight times as often as the cheapest tile does."""
    for _ in range(1 + number % 8):
        tile *= 3.7 * (1.0 - tile)


with Task(rows="tiles", columns="points", iterations="steps") as task:
    points = task.parameters["points"]
    tiles = task.blocks(
        "tiles",
        make=lambda number: np.linspace(0.1, 0.9, points) / (1 + number),
        pack=lambda tile: {"tile": tile},
        unpack=lambda arrays: arrays["tile"],
        count=task.parameters["tiles"],
        strategy="refine",
    )
    for step in task.iterations():
        for number, tile in tiles.items():
            with tiles.timed(number):
                work(tile, number)
        if step % 100 == 99:
            with task.communicating():
                tiles.balance()
    task.result(tiles)
