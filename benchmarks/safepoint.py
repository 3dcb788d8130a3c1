"""What a safe point costs at which nothing is asked, beside a sweep: by itself, and carried by a reduction.

    python benchmarks/safepoint.py [--repeats N]

Exit code 1 where it is more than half a per cent of a sweep.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from apples.malleable import HostShare, rehearse

HERE = Path(__file__).resolve()
BAR = 0.5  # per cent of a sweep


def measured(repeats: int) -> bool:
    """Print what a safe point costs among sweeps and borders; say whether the bar holds."""
    program = (sys.executable, str(HERE), "job", str(10 * repeats))
    run = rehearse(program, {"h0": 1, "h1": 1}, [HostShare("h0"), HostShare("h1")])
    alone, carried, sweep = (float(word) for word in run.lines[0].split())
    print(f"two ranks, 2000 x 2000, numpy kernel: a sweep takes {1e3 * sweep:.1f} ms a rank")
    held = True
    for way, cost in (("by itself", alone), ("carried by the program's own reduction", carried)):
        percent = 100 * cost / sweep
        held = held and percent <= BAR
        mark = "ok  " if percent <= BAR else "OVER"
        print(f"{mark}  {way}: {1e6 * cost:.1f} us, {percent:.2f} % of a sweep (at most {BAR:g})")
    return held


def job_main(count: int) -> None:
    """Measure the calls between sweeps and border exchanges, as a program makes them."""
    from mpi4py import MPI  # noqa: PLC0415 - a rank's part of this file

    from apples import malleable  # noqa: PLC0415

    sys.path.insert(0, str(HERE.parents[1] / "examples" / "jacobi2d"))
    from kernels import allocate, load_kernel  # type: ignore[import-not-found]  # noqa: PLC0415

    kernel, a, b = load_kernel("numpy", 2000), allocate(1000, 2000), allocate(1000, 2000)

    def iterate(call) -> tuple[float, np.ndarray]:  # type: ignore[no-untyped-def]
        """Return seconds of the sweep (lower quartile), and of each call in between: (ranks, iterations)."""
        sweeps, calls = [], []
        for _ in range(count):
            other = 1 - job.rank
            begin = time.perf_counter()
            call()
            calls.append(time.perf_counter() - begin)
            job.comm.Sendrecv(a[1], other, recvbuf=a[0], source=other)
            ready = time.perf_counter()
            kernel.sweep(a, b, None, 1, 1001)
            sweeps.append(time.perf_counter() - ready)
        return float(np.quantile(sweeps, 0.25)), np.array(job.comm.allgather(calls))

    one, every = np.ones(1), np.empty(1)

    def reduction() -> None:
        job.comm.Allreduce(one, every, MPI.MAX)

    def carried() -> None:
        job.allreduce(1.0, MPI.MAX)
        job.safepoint()

    with malleable.Job() as job:
        state = job.state(iteration=0)
        while state.iteration < 1:
            job.safepoint()
            alone, plain, both = [], [], []
            for _ in range(5):  # in turns, so that what else the machine does meets all alike
                sweep, calls = iterate(job.safepoint)
                alone.append(usual(calls.mean(axis=0)))
                # Who comes last to a reduction waits for nobody.
                plain.append(usual(iterate(reduction)[1].min(axis=0)))
                both.append(usual(iterate(carried)[1].min(axis=0)))
            state.iteration += 1
        if job.rank == 0:
            middles = [statistics.median(one) for one in (alone, plain, both)]
            text = f"{middles[0]} {middles[2] - middles[1]} {sweep}\n"
            os.write(1, text.encode())


def usual(seconds: np.ndarray) -> float:
    """Return the mean of all but the longest fiftieth, in which the machine did something else."""
    return float(np.mean(np.sort(seconds)[: len(seconds) - len(seconds) // 50]))


def main() -> None:
    """Measure; exit with 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    sys.exit(not measured(parser.parse_args().repeats))


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        job_main(int(sys.argv[2]))
    else:
        main()
