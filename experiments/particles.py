"""Measure the particle example by number of ranks, and by balancer.

    python experiments/particles.py [computed|static|drift].. [--cells N] [--repeats N]

*static*: the program on 1, 2 and 4 ranks in turn. *drift*: a drop flies through the box on 4 ranks, refined during
the run and not. *computed*: times of cells from one process, with a message to each rank with neighbouring cells.
Exit code 1: a bar is missed.

Result: `benchmarks/results/particles.json`.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "particles"
sys.path.insert(0, str(EXAMPLE))

from box import Box, Numbers
from parameters import Parameters
from population import first_cell

from apples.launch import hydra
from apples.malleable import STRATEGIES, Measured, Processor, contiguous

RANKS = (1, 2, 4, 8, 16, 32)
LATENCY, BANDWIDTH = 50e-6, 1e9
SAMPLES = 7
STEPS = 200
MIN_SPEED_UP = {2: 1.7, 4: 2.8}
MIN_GAIN = 0.1
FLIGHT = ("gas_density=0", "drop_radius=0.3", "drop_at=0.3", "drift=20", "steps=400")
"""A drop that crosses three cells in each direction; in gas it would need shorter steps."""


def main() -> int:
    """Measure what was asked for; return 1 where a bar is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    print(f"{len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}")
    good = [PARTS[what](asked.cells, asked.repeats) for what in asked.what]
    return 0 if all(good) else 1


def static(cells: int, repeats: int) -> bool:
    """Run the program on 1, 2 and 4 ranks in turns; return whether it is as much faster as it should be."""
    words = [f"cells={cells}", f"steps={STEPS}"]
    found = in_turns({str(n): (n, words) for n in (1, *MIN_SPEED_UP)}, repeats)
    good = True
    for n, least in MIN_SPEED_UP.items():
        speed_up = statistics.median(a / b for a, b in zip(found["1"], found[str(n)], strict=True))
        good &= shown(f"speed-up on {n} ranks", speed_up, least, "x")
    print(f"    {1e3 * statistics.median(found['1']) / STEPS:.1f} ms a step on one rank")
    return good


def drift(cells: int, repeats: int) -> bool:
    """Run a drop that flies, refined and not, in turns; return whether refining pays."""
    words = [f"cells={cells}", *FLIGHT]
    fixed = [*words, "balance_every=0"]
    ways = {"refine": (4, words), "static": (4, fixed), "alone": (1, words)}
    found = in_turns(ways, repeats)
    pairs = list(zip(found["refine"], found["static"], strict=True))
    gain = 1 - statistics.median(refined / still for refined, still in pairs)
    for way in ("refine", "static"):
        speed_up = statistics.median(
            a / b for a, b in zip(found["alone"], found[way], strict=True)
        )
        print(f"    {way}: {speed_up:.2f} times as fast on 4 ranks as on one")
    return shown("refine over static with drift, 4 ranks", 100 * gain, 100 * MIN_GAIN, "%")


def in_turns(ways: dict[str, tuple[int, list[str]]], repeats: int) -> dict[str, list[float]]:
    """Return for each way (ranks, parameters) the seconds of its steps, one of each after the other."""
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, (ranks, words) in ways.items():
            found[way].append(program(ranks, words))
    return found


def shown(what: str, value: float, least: float, unit: str) -> bool:
    """Print a figure beside its bar; return whether it is met."""
    good = value >= least
    print(f"{'ok   ' if good else 'UNDER'} {what}: {value:.2f} {unit} (at least {least:g})")
    return good


def computed(cells: int, _: int) -> bool:
    """Measure the cells and print the table."""
    parameters = Parameters(cells=cells)
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
        talk = tuple((one, other, float(size)) for (one, other), size in mail.items())
        now = Measured(tuple(work), start, processors, messages=talk)
        line = f"{ranks:5}"
        for owners in (start, *(strategy(now) for strategy in STRATEGIES.values())):
            step = now.step(owners) + post(owners, mail)
            line += f" {step * 1e3:11.2f} {sum(work) / step:10.2f}"
        print(line)
    return True


def measure(parameters: Parameters, box: Box) -> tuple[list[float], dict[tuple[int, int], int]]:
    """Return processor seconds of each cell's step, and the bytes each cell sends each neighbour."""
    cells = [first_cell(parameters, box, number) for number in range(box.cells**2)]
    seconds = np.zeros((SAMPLES, len(cells)))
    mail: dict[tuple[int, int], int] = {}
    for repeat in range(SAMPLES):
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


def program(ranks: int, words: list[str]) -> float:
    """Return the seconds of the program's steps."""
    argv = [
        hydra.mpiexec(),
        *hydra.OPTIONS,
        "-n",
        str(ranks),
        sys.executable,
        str(EXAMPLE / "solver.py"),
    ]
    environment = hydra.environment({**hydra.LOOPBACK, **hydra.ONE_THREAD})
    done = subprocess.run(
        [*argv, *(f"--set={word}" for word in words)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found = re.search(r" iterations in (\S+) s ", done.stdout)
    if found is None:
        raise ValueError(f"no seconds in the output: {done.stdout}")
    return float(found[1])


PARTS = {"computed": computed, "static": static, "drift": drift}

if __name__ == "__main__":
    sys.exit(main())
