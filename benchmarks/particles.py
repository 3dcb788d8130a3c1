"""The particle example against the number of ranks: a sub-linear speed-up, and what the balancers make of it.

    python benchmarks/particles.py [CELLS]

Each cell's time of a step is measured in one process; a step on n ranks is that of the slowest rank by the cells
a strategy gives it, and its mail: a message to each rank with neighbouring cells, of what is near the border.
With 1 and 2 ranks the program itself is run beside it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "particles"
sys.path.insert(0, str(EXAMPLE))

from box import Box, Numbers
from population import first_cell
from task import Parameters

from apples.malleable import STRATEGIES, Measured, Processor, contiguous

RANKS = (1, 2, 4, 8, 16, 32)
LATENCY, BANDWIDTH = 50e-6, 1e9
REPEATS = 7


def main() -> None:
    """Measure the cells and print the table."""
    parameters = Parameters(cells=int(sys.argv[1]) if len(sys.argv) > 1 else 8)
    box = Box(parameters.cells, parameters.cell_side)
    work, mail = measure(parameters, box)
    print(
        f"{box.cells} x {box.cells} cells, {sum(work) * 1e3:.1f} ms a step on one rank,", end=" "
    )
    print(f"heaviest cell {max(work) / min(work):.0f} times the lightest; link 50 us, 1 GB/s")
    print(f"{'ranks':>5}" + "".join(f" {name:>22}" for name in ("equal runs", *STRATEGIES)))
    print(f"{'':5}" + f" {'ms a step   speed-up':>22}" * (1 + len(STRATEGIES)))
    for ranks in RANKS:
        processors = tuple(Processor(f"host{rank}") for rank in range(ranks))
        blocks = len(work)
        start = contiguous(Measured((1.0,) * blocks, (0,) * blocks, processors))
        now = Measured(tuple(work), start, processors)
        line = f"{ranks:5}"
        for owners in (start, *(strategy(now) for strategy in STRATEGIES.values())):
            step = now.step(owners) + post(owners, mail)
            line += f" {step * 1e3:11.2f} {sum(work) / step:10.2f}"
        print(line)
    for ranks in (1, 2):
        seconds = program(parameters, ranks)
        print(
            f"the program itself on {ranks} rank(s): {seconds * 1e3:.2f} ms a step (wall, here and now)"
        )


def measure(parameters: Parameters, box: Box) -> tuple[list[float], dict[tuple[int, int], int]]:
    """Return processor seconds of each cell's step, and the bytes each cell sends each neighbour."""
    cells = [first_cell(parameters, box, number) for number in range(box.cells**2)]
    seconds = np.zeros((REPEATS, len(cells)))
    mail: dict[tuple[int, int], int] = {}
    for repeat in range(REPEATS):
        arrived: dict[int, list[Numbers]] = {cell.number: [] for cell in cells}
        for cell in cells:
            begin = time.process_time()
            cell.drift(parameters.time_step if repeat else 0.0, box)
            sent = cell.mail(box)
            seconds[repeat, cell.number] += time.process_time() - begin
            for there, rows in sent.items():
                arrived[there].append(rows)
                mail[cell.number, there] = rows.nbytes
        for cell in cells:
            begin = time.process_time()
            cell.receive(arrived[cell.number], box)
            cell.kick(parameters.time_step if repeat else 0.0)
            seconds[repeat, cell.number] += time.process_time() - begin
    return list(map(float, np.median(seconds, axis=0))), mail


def post(owners: tuple[int, ...], mail: dict[tuple[int, int], int]) -> float:
    """Return seconds of the busiest rank's mail: one message to each partner, and its bytes."""
    partners: dict[int, set[int]] = {}
    size: dict[int, int] = {}
    for (here, there), count in mail.items():
        a, b = owners[here], owners[there]
        if a != b:
            partners.setdefault(a, set()).add(b)
            size[a] = size.get(a, 0) + count
    busiest = (len(partners[rank]) * LATENCY + size[rank] / BANDWIDTH for rank in partners)
    return max(busiest, default=0.0)


def program(parameters: Parameters, ranks: int) -> float:
    """Return seconds a step of the program."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    argv = [str(mpiexec), "-n", str(ranks), sys.executable, str(EXAMPLE / "solver.py")]
    words = [f"cells={parameters.cells}", "steps=60"]
    done = subprocess.run([*argv, *words], capture_output=True, text=True, check=True, timeout=300)
    (result,) = (json.loads(line) for line in done.stdout.splitlines() if '"result"' in line)
    return float(result["seconds"]) / 60


if __name__ == "__main__":
    main()
