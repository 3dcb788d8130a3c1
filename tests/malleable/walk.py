"""Random walks of Jacobi2D over hosts: ``walk.py COMMANDS [--seed S]``; the grid must be the rigid run's.

One job after another takes commands, growth, shrink, weights, migration, until so many were done. Hosts run
numpy or several sweeps an exchange, in each job all the same or any mixture.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from apples.launch import hydra
from apples.malleable import HostShare, ResizeDone, rehearse

SOLVER = Path(__file__).parents[2] / "examples" / "jacobi2d" / "solver.py"
SLOTS = {"ada": 1, "bob": 2, "eve": 1, "far": 1}
GRID, ITERATIONS = 160, 12_000


def task(grid, iterations):
    """Return the task of a run that nobody reports on."""
    strip = {"host": "ada", "address": "127.0.0.1", "ranks": 1, "first_row": 0, "rows": grid}
    parameters = {"grid": grid, "iterations": iterations, "residual_every": 7, "source": "1.5"}
    return {"schema": "apples.task/1", "mode": "run", "parameters": parameters, "progress_seconds": 0,
            "implementations": {}, "partition": [strip], "output": None, "save": False}  # fmt: skip


def rigid_digest(order):
    """Return the digest of the same task on one rank."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.json"
        path.write_text(json.dumps(order))
        argv = [hydra.mpiexec(), *hydra.OPTIONS, "-n", "1", sys.executable, str(SOLVER)]
        environment = hydra.environment({"APPLES_TASK": str(path), **hydra.LOOPBACK})
        run = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return next(json.loads(t)["sha256"] for t in run.stdout.splitlines() if '"result"' in t)


def maps(draw):
    """Yield random maps for ever."""
    while True:
        hosts = draw.sample(list(SLOTS), draw.randint(1, len(SLOTS)))
        yield [HostShare(host, draw.choice([0.25, 1.0, 2.0, 3.5])) for host in hosts]


def implementations(draw):
    """Return what each host runs."""
    names = draw.choice([["numpy"], ["wavefront"], ["wavefront"], ["numpy", "wavefront"]])
    return {host: draw.choice(names) for host in SLOTS}


def main(commands, seed):
    """Walk; return 1 where something was wrong."""
    draw, done, begun, iterations = random.Random(seed), 0, time.monotonic(), ITERATIONS
    right = rigid_digest(task(GRID, iterations))
    while done < commands:
        order = task(GRID, iterations) | {"implementations": implementations(draw)}
        run = rehearse(
            (sys.executable, str(SOLVER)), SLOTS, [HostShare("ada")], maps(draw), task=order
        )
        found = sum(isinstance(notice, ResizeDone) for notice in run.notices)
        done += found
        if run.ended.state != "finished" or any(run.residents):
            print(f"wrong: {run.ended}, residents {run.residents}")
            return 1
        if run.events("result")[0]["sha256"] != right:
            print("wrong: other bits than the rigid run's")
            return 1
        print(f"{done} commands, the same bits, released hosts empty", flush=True)
        if not found:  # this machine has so little time that a job ends before its first command is carried out
            iterations *= 2
            right = rigid_digest(task(GRID, iterations))
    print(f"{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commands", type=int)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    sys.exit(main(asked.commands, asked.seed))
