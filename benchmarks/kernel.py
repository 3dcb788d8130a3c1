"""Jacobi2D's kernels against memcpy, alone and on several ranks, and its halo exchange against a sweep.

A sweep moves 16 bytes a point (one read, one written), memcpy as many: figures are per cent of a one-thread
``numpy.copyto`` of the same size, both measured in turn. Several ranks each have a part of the grid; the slowest
counts, exchanges included, beside as many memcpys of the same parts at once.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from apples.launch import hydra
from benchmarks.common import Row, Settings

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "examples" / "jacobi2d"))

from kernels import NAMES, KernelUnavailableError, allocate, load_kernel, unknowns

BARS = {"numpy": 35.0, "numba": 42.0, "wavefront": 150.0}
"""Per cent of memcpy, without a source term."""


def sweeps(settings: Settings) -> Iterator[Row]:
    """Measure one sweep of every kernel on one thread."""
    grid, repeats = settings.pick(4000, 400), settings.pick(25, 3)
    works, count, missing = kernel_calls(grid)
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values():
        work()
    for _ in range(repeats):  # in turn, so that a disturbance affects all kernels alike
        for name, work in works.items():
            start = time.perf_counter()
            work()
            seconds[name].append((time.perf_counter() - start) / count.get(name, 1))
    settings.raw |= {"seconds": seconds, "missing": missing}
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    for name in works:
        if name != "memcpy":
            yield Row(
                name, f"{name}: speed of a sweep", 100 * medians["memcpy"] / medians[name], "% of memcpy",
                at_least=BARS.get(name), peer=f"memcpy {1e3 * medians['memcpy']:.3g} ms",
            )  # fmt: skip


def kernel_calls(
    grid: int,
) -> tuple[dict[str, Callable[[], object]], dict[str, int], dict[str, str]]:
    """Return the calls to measure, the sweeps of those with several, and the missing kernels with the reason."""
    now, new, forcing = (allocate(grid, grid) for _ in range(3))
    unknowns(now, grid)[...] = np.random.default_rng(1).random((grid, grid))
    source, target = np.ones(grid * grid), np.empty(grid * grid)
    works: dict[str, Callable[[], object]] = {"memcpy": lambda: np.copyto(target, source)}
    missing, count = {}, {}
    for name in NAMES:
        try:
            kernel = load_kernel(name, grid)
        except KernelUnavailableError as error:
            missing[name] = str(error)
            continue
        kernel.take(now, new, forcing)
        names = (name, f"{name}, residual", f"{name}, source")
        if (most := kernel.most_sweeps) > 1:
            sweep = partial(kernel.several_sweeps, now, new)
            calls = (
                partial(sweep, None, (False, False), most, checked=False),
                partial(sweep, None, (False, False), most, checked=True),
                partial(sweep, forcing, (False, False), most, checked=False),
            )
            count |= dict.fromkeys(names, most)
        else:
            calls = (
                partial(kernel.sweep, now, new, None, 1, grid + 1),
                partial(kernel.sweep_residual, now, new, None, 1, grid + 1),
                partial(kernel.sweep, now, new, forcing, 1, grid + 1),
            )
        works |= dict(zip(names, calls, strict=True))
    return works, count, missing


def halo(settings: Settings) -> Iterator[Row]:
    """Measure the halo exchange of two ranks against a sweep."""
    seconds = run_ranks("exchange", 2, settings)
    share = 100 * seconds["exchange"] / seconds["sweep"]
    yield Row(
        "halo",
        "halo exchange of 2 ranks over a sweep by the fastest kernel",
        share,
        "%",
        at_most=1,
    )


def loops(settings: Settings) -> Iterator[Row]:
    """Measure the whole loop on one, two and four ranks."""
    for ranks in (1, 2, 4):
        seconds = run_ranks("loop", ranks, settings)
        for name in seconds:
            if name != "memcpy":
                yield Row(
                    f"{name}, {ranks} ranks", f"{name} on {ranks} ranks: speed of an iteration",
                    100 * seconds["memcpy"] / seconds[name], "% of memcpy", at_least=BARS.get(name),
                )  # fmt: skip


def run_ranks(role: str, ranks: int, settings: Settings) -> dict[str, float]:
    """Run `ranks/halo.py` and return the seconds that rank 0 measured.

    Raises
    ------
    RuntimeError
        The ranks failed.
    """
    sizes = [str(settings.pick(4000, 400)), str(settings.pick(25, 3))]
    program = str(ROOT / "benchmarks" / "ranks" / "halo.py")
    command = [
        hydra.mpiexec(),
        "-disable-auto-cleanup",
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "mpi4py",
    ]
    done = subprocess.run(
        [*command, program, role, *sizes],
        check=False,
        capture_output=True,
        env=hydra.environment({**hydra.LOOPBACK, **hydra.ONE_THREAD}),
        text=True,
        timeout=300,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or len(lines) != 1:
        raise RuntimeError(
            f"{ranks} ranks failed (exit code {done.returncode}): {done.stderr.strip()[-300:]}"
        )
    seconds: dict[str, float] = json.loads(lines[0])
    settings.raw[f"{role} {ranks}"] = seconds
    return seconds


PARTS = {"sweeps": sweeps, "halo": halo, "loops": loops}
