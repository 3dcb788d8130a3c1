"""Jacobi2D's kernels against memcpy, alone and on several ranks, and its halo exchange against a sweep.

A sweep moves 16 bytes a point (one read, one written), memcpy as many: the figures are per cent
of a one-thread ``numpy.copyto`` of the same size, both taken in turn in the same run, medians. On
several ranks each has its part of the grid; what counts is the slowest, exchanges included, beside
as many memcpys of the same parts at once.

    python benchmarks/kernel.py [--json] [--grid 4000] [--repeats 25]
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PROGRAM = Path(__file__).resolve().parents[1] / "examples" / "jacobi2d"
sys.path.insert(0, str(PROGRAM))

from kernels import (
    NAMES,
    GhostRows,
    Kernel,
    KernelUnavailableError,
    allocate,
    load_kernel,
    unknowns,
)

from apples.launch import hydra

# Per cent of memcpy without a source term; the halo's bar is per cent of a sweep.
BARS = {"numpy": 35.0, "numba": 42.0, "wavefront": 150.0}
HALO_BAR = 1.0
HALO_RANKS = 2
EXCHANGES = 100
RANKS = (1, 2, 4)
SWEEPS = 16

Report = dict[str, Any]


class Bar(NamedTuple):
    """A claim, the per cent measured and whether that meets it."""

    claim: str
    figure: float
    met: bool


def main() -> int:
    """Measure, print, and return 0 if every bar is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--grid", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--loop-as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        measure_halo(options.grid, options.repeats)
        return 0
    if options.loop_as_rank:
        measure_loops(options.grid, options.repeats)
        return 0
    report: Report = {
        "schema": "apples.bench.kernel/1",
        "grid": options.grid,
        "repeats": options.repeats,
        "load": os.getloadavg()[0],
        **measure_kernels(options.grid, options.repeats),
        "halo": start_ranks("--as-rank", HALO_RANKS, options.grid, options.repeats),
        "loops": [
            start_ranks("--loop-as-rank", ranks, options.grid, options.repeats) for ranks in RANKS
        ],
    }
    report["bars"] = [bar._asdict() for bar in bars_of(report)]
    print(json.dumps(report, indent=1) if options.json else table(report))
    return 0 if all(bar.met for bar in bars_of(report)) else 1


def measure_kernels(grid: int, repeats: int) -> Report:
    """Return median milliseconds of memcpy and of one sweep of every kernel's variants."""
    now, new, forcing = (allocate(grid, grid) for _ in range(3))
    unknowns(now, grid)[...] = np.random.default_rng(1).random((grid, grid))
    source, target = np.ones(grid * grid), np.empty(grid * grid)
    works: dict[str, Callable[[], object]] = {"memcpy": lambda: np.copyto(target, source)}
    missing, sweeps = {}, {}
    for name in NAMES:
        try:
            kernel = load_kernel(name, grid)
        except KernelUnavailableError as error:
            missing[name] = str(error)
            continue
        kernel.take(now, new, forcing)
        if (count := kernel.most_sweeps) > 1:
            sweep, alone = kernel.several_sweeps, GhostRows()
            works[name] = partial(sweep, now, new, None, alone, count, checked=False)
            works[f"{name}, residual"] = partial(sweep, now, new, None, alone, count, checked=True)
            works[f"{name}, source"] = partial(
                sweep, now, new, forcing, alone, count, checked=False
            )
            sweeps |= dict.fromkeys((name, f"{name}, residual", f"{name}, source"), count)
            continue
        works[name] = partial(kernel.sweep, now, new, None, 1, grid + 1)
        works[f"{name}, residual"] = partial(kernel.sweep_residual, now, new, None, 1, grid + 1)
        works[f"{name}, source"] = partial(kernel.sweep, now, new, forcing, 1, grid + 1)
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    # In turn, so that a disturbance of the machine falls on all of them.
    for _ in range(repeats):
        for name, work in works.items():
            start = time.perf_counter()
            work()
            seconds[name].append((time.perf_counter() - start) / sweeps.get(name, 1))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "milliseconds": {name: round(1e3 * value, 3) for name, value in medians.items()},
        "percent_of_memcpy": {
            name: round(100 * medians["memcpy"] / value, 1) for name, value in medians.items()
        },
        "missing": missing,
    }


def start_ranks(role: str, ranks: int, grid: int, repeats: int) -> Report:
    """Run this program as ranks that share the grid and return what rank 0 measured."""
    arguments = [role, "--grid", str(grid), "--repeats", str(repeats)]
    command = [hydra.mpiexec(), "-disable-auto-cleanup", "-n", str(ranks), sys.executable]
    done = subprocess.run(
        [*command, "-m", "mpi4py", __file__, *arguments],  # which ends all ranks where one fails
        check=False,
        capture_output=True,
        env=hydra.environment({**hydra.LOOPBACK, **hydra.ONE_THREAD}),
        text=True,
        timeout=300,
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(said) != 1:
        words = (done.stderr + done.stdout).strip() or "the ranks said nothing"
        raise SystemExit(f"{ranks} ranks failed (exit code {done.returncode}):\n{words}")
    measured: Report = json.loads(said[0])
    return measured


def measure_halo(grid: int, repeats: int) -> None:
    """Print the median exchange, and the fastest kernel's sweep of half the grid. Collective."""
    # Only the ranks start MPI.
    from mpi4py import MPI  # noqa: PLC0415
    from patience import Patience  # noqa: PLC0415
    from strip import Halo, Strip  # noqa: PLC0415
    from task import Parameters, RankStrip, share_rows  # noqa: PLC0415

    comm = MPI.COMM_WORLD
    rank = comm.Get_rank()
    shares = share_rows(grid, comm.Get_size())
    place = RankStrip(rank, sum(shares[:rank]), shares[rank])
    strip, patience = Strip.begin(Parameters(grid), place), Patience(60.0)
    kernel = fastest(grid)
    kernel.take(*strip.grids)
    halo = Halo(strip, comm)
    exchanges, sweeps = [], []
    for _ in range(repeats):
        comm.Barrier()
        start = time.perf_counter()
        for turn in range(EXCHANGES):
            halo.start(turn % 2)
            patience.wait(partial(halo.done, turn % 2))
        middle = time.perf_counter()
        kernel.sweep(strip.arrays[0], strip.arrays[1], None, 1, strip.rows + 1)
        exchanges.append((middle - start) / EXCHANGES)
        sweeps.append(time.perf_counter() - middle)
    halo.free()
    exchange, sweep = statistics.median(exchanges), statistics.median(sweeps)
    if rank == 0:
        measured = {
            "exchange_microseconds": round(1e6 * exchange, 2),
            "sweep_milliseconds": round(1e3 * sweep, 3),
            "percent_of_sweep": round(100 * exchange / sweep, 3),
        }
        print(json.dumps({"ranks": comm.Get_size(), "kernel": type(kernel).__name__, **measured}))


def measure_loops(grid: int, repeats: int) -> None:
    """Print the median of an iteration of the loop with both C kernels, and of memcpy. Collective."""
    # Only the ranks start MPI.
    from iterate import Iteration  # noqa: PLC0415
    from mpi4py import MPI  # noqa: PLC0415
    from patience import Patience  # noqa: PLC0415
    from strip import Halo, Strip  # noqa: PLC0415
    from task import Parameters, RankStrip, Task, share_rows  # noqa: PLC0415

    comm = MPI.COMM_WORLD
    shares = share_rows(grid, comm.Get_size())
    strips = tuple(RankStrip(i, sum(shares[:i]), rows) for i, rows in enumerate(shares))
    parameters = Parameters(grid, iterations=1 << 60, residual_every=0)
    hosts = tuple(str(i) for i in range(len(shares)))
    task = Task("run", parameters, hosts, strips, {}, None, False, 0.0, "", ())
    points = shares[comm.Get_rank()] * grid
    source, target = np.ones(points), np.empty(points)

    def copy() -> None:
        for _ in range(SWEEPS):
            np.copyto(target, source)

    works: dict[str, Callable[[], None]] = {"memcpy": copy}
    halos = []

    def iterate(loop: Iteration, halo: Halo) -> None:
        end = loop.outcome.iterations + SWEEPS
        while loop.outcome.iterations < end:
            loop.step(halo)

    for name, kernel in available(("compiled", "wavefront"), grid):
        strip = Strip.begin(parameters, strips[comm.Get_rank()])
        loop = Iteration(task, strip, kernel, comm, Patience(60.0))
        halos.append(loop.new_halo())
        works[name] = partial(iterate, loop, halos[-1])
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            comm.Barrier()
            start = time.perf_counter()
            work()
            comm.Barrier()
            seconds[name].append((time.perf_counter() - start) / SWEEPS)
    medians = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    for halo in halos:
        halo.free()
    if comm.Get_rank() == 0:
        percent = {name: round(100 * medians["memcpy"] / s, 1) for name, s in medians.items()}
        print(json.dumps({"ranks": comm.Get_size(), "percent_of_memcpy": percent}))


def available(names: Sequence[str], grid: int) -> Iterator[tuple[str, Kernel]]:
    """Yield the kernels of these that this host has."""
    for name in names:
        with suppress(KernelUnavailableError):
            yield name, load_kernel(name, grid)


def fastest(grid: int) -> Kernel:
    """Return the last kernel of the list that this host has."""
    for _, kernel in available(NAMES[::-1], grid):
        return kernel
    raise SystemExit("no kernel at all")


def bars_of(report: Report) -> list[Bar]:
    """Return every bar with its figure; a kernel that is missing has none."""
    percent = report["percent_of_memcpy"]
    bars = [
        Bar(f"{name} >= {bar:g} % of memcpy", percent[name], percent[name] >= bar)
        for name, bar in BARS.items()
        if name in percent
    ]
    bars += [
        Bar(
            f"wavefront on {ranks} ranks >= {BARS['wavefront']:g} % of memcpy",
            figure,
            figure >= BARS["wavefront"],
        )
        for loop in report["loops"]
        for ranks, figure in [(loop["ranks"], loop["percent_of_memcpy"].get("wavefront"))]
        if figure is not None
    ]
    halo = report["halo"]["percent_of_sweep"]
    return [*bars, Bar(f"halo < {HALO_BAR:g} % of a sweep", halo, halo < HALO_BAR)]


def table(report: Report) -> str:
    """Return the report for reading."""
    grid, percent = report["grid"], report["percent_of_memcpy"]
    lines = [
        f"{grid} x {grid}, one thread, medians of {report['repeats']}, load {report['load']:.1f}",
        f"{'':20} {'ms':>8} {'GB/s':>6} {'% of memcpy':>12}",
    ]
    for name, milliseconds in report["milliseconds"].items():
        speed = 16e-6 * grid**2 / milliseconds
        lines.append(f"{name:20} {milliseconds:8.2f} {speed:6.1f} {percent[name]:12.1f}")
    lines += [f"{name:20} missing: {why}" for name, why in report["missing"].items()]
    halo = report["halo"]
    lines.append(
        f"halo exchange        {halo['exchange_microseconds']:.1f} us,"
        f" {halo['percent_of_sweep']:.2f} % of a {halo['sweep_milliseconds']:.2f} ms sweep"
        f" ({halo['ranks']} ranks, {halo['kernel']})"
    )
    for loop in report["loops"]:
        figures = (f"{name} {figure:g} %" for name, figure in loop["percent_of_memcpy"].items())
        lines.append(f"loop on {loop['ranks']} ranks      {', '.join(figures)}")
    lines += [
        f"bar {bar.claim}: {bar.figure:g} % {'ok' if bar.met else 'MISSED'}"
        for bar in bars_of(report)
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
