"""The wave equation by leapfrog: the array of the step before becomes that of the step after, and they swap."""

import numpy as np

from apples.program import Task


def struck(rows, block):
    """A bump in the middle of the membrane."""
    n = block.shape[1]
    y = (np.array(rows) - n / 2)[:, None]
    x = np.arange(n) - n / 2
    block[...] = np.exp(-(x * x + y * y) / (n / 2))


with Task() as task:
    n, c = task.parameters["grid"], task.parameters["speed"]
    now = task.array("now", (n, n), halo=1, fill=struck)
    before = task.array("before", (n, n), halo=1, fill=struck)
    for step in task.iterations():
        task.exchange(now)
        u, v = now.local, before.local
        across = u[1:-1, :-2] + u[1:-1, 2:]
        bend = ((u[:-2, 1:-1] + u[2:, 1:-1]) + across) - 4 * u[1:-1, 1:-1]
        v[1:-1, 1:-1] = (2 * u[1:-1, 1:-1] - v[1:-1, 1:-1]) + c * c * bend
        now.swap(before)
        if step % 50 == 0:
            task.residual = task.allreduce(float(np.abs(u[1:-1]).max()))
    task.result(now.own)
