"""Red-black successive over-relaxation of the Laplace equation: two colours, each after an exchange."""

from apples.program import Task


def hot_top(rows, block):
    if rows.start < 0:
        block[0] = 1.0


def relax(u, first, colour, omega):
    """Relax the points of one colour; `first` is the row of the whole grid that row 1 of `u` is."""
    for row in range(1, len(u) - 1):
        at = slice(1 + (first + row + colour) % 2, -1, 2)
        west = slice(at.start - 1, -2, 2)
        east = slice(at.start + 1, None, 2)
        mean = ((u[row - 1, at] + u[row + 1, at]) + (u[row, west] + u[row, east])) / 4
        u[row, at] += omega * (mean - u[row, at])


with Task() as task:
    n, omega = task.parameters["grid"], task.parameters["omega"]
    u = task.array("u", (n, n + 2), halo=1, fill=hot_top)
    for _ in task.iterations():
        for colour in (0, 1):
            task.exchange(u)
            relax(u.local, task.strip.start, colour, omega)
    task.result(u.own[:, 1:-1])
