"""One host by threads against the same host by ranks: Jacobi2D's `threads` and `wavefront`, in turns.

python benchmarks/threads.py [--cpus 2,4] [--grids 300,1000,3000] [--repeats 5]: for so many CPUs each (the first
ones of this machine), prints the median and the least iteration of both, and their ratio; whether all came to the
same bits; and the load of the machine beside it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

SOLVER = Path(__file__).parents[1] / "examples" / "jacobi2d" / "solver.py"
POINTS = 2e9


def once(grid, cpus, threads):
    """Return seconds of an iteration, and the digest."""
    piece = {"host": "here", "address": "127.0.0.1", "first_row": 0, "rows": grid}
    piece |= {"ranks": 1, "threads": cpus} if threads else {"ranks": cpus}
    task = {
        "schema": "apples.task/1",
        "mode": "run",
        "parameters": {"grid": grid, "iterations": max(80, int(POINTS / grid**2))},
        "implementations": {"here": "threads" if threads else "wavefront"},
        "partition": [piece],
        "output": None,
        "progress_seconds": 5,
        "save": False,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(task, file)
        file.flush()
        mpiexec = Path(sys.executable).with_name("mpiexec")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")}
        done = subprocess.run(
            [mpiexec, "-launcher", "fork", "-n", str(piece["ranks"]), sys.executable, SOLVER],
            env={**kept, "APPLES_TASK": file.name, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    (result,) = [event for event in events if event["event"] == "result"]
    return result["seconds"] / result["iterations"], result["sha256"]


def numbers(text):
    """Return whole numbers with commas between them."""
    return [int(each) for each in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpus", type=numbers, default=[2, 4])
    parser.add_argument("--grids", type=numbers, default=[300, 1000, 3000])
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    ours = sorted(os.sched_getaffinity(0))
    for cpus in asked.cpus:
        os.sched_setaffinity(0, ours[:cpus])
        for grid in asked.grids:
            turns = [
                (once(grid, cpus, False), once(grid, cpus, True)) for _ in range(asked.repeats)
            ]
            ranks, threads = ([seconds for seconds, _ in one] for one in zip(*turns, strict=True))
            same = len({digest for turn in turns for _, digest in turn}) == 1
            of_each = statistics.median(a / b for a, b in zip(ranks, threads, strict=True))
            print(
                f"{cpus} CPUs, {grid} x {grid}: ranks {statistics.median(ranks) * 1e6:.0f} us an iteration,"
                f" threads {statistics.median(threads) * 1e6:.0f}; {of_each:.2f} times as fast (median of"
                f" {asked.repeats} turns), {min(ranks) / min(threads):.2f} by the least;"
                f" {'the same bits' if same else 'OTHER BITS'}; load {os.getloadavg()[0]:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
