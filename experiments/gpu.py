"""Measure Jacobi2D on a GPU: its sweep against those of a CPU, and mixed runs, predicted and measured.

    python experiments/gpu.py [--grids 1000,2000,4000] [--repeats 15] [--mixed 8000] [--hosts 4] [--runs 5]

Times are medians on the clock, in turn with a copy of as many bytes in the GPU's memory; "alone" omits the rows
that cross between host and GPU. NUMBA_ENABLE_CUDASIM=1 with --grids 20 --mixed 20 --repeats 1 --runs 1 --bind
simulates a GPU.

Result: not measured on a GPU yet.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

PROGRAM = Path(__file__).resolve().parents[1] / "examples" / "jacobi2d"
sys.path.insert(0, str(PROGRAM))

from kernels import NAMES, Kernel, KernelUnavailableError, allocate, load_kernel

from apples import PlanSpec, RunSpec, plan, run
from apples.agent.calibration import calibrate_hosts, calibration_rows
from apples.agent.session.planning import load

ALONE = False, False
"""A strip without neighbours above and below."""
METHODS = ("single_host", "blocked", "all_resources", "minimum_execution_time")
LOOP_SECONDS = 3.0
WRITTEN = Path("runs/figures/gpu.json")


def options() -> argparse.Namespace:
    """Return what is to be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--grids", default="1000,2000,4000,8000,16000")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--mixed", type=int, default=8000)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--bind", action="store_true", help="measure no other kernels on the hosts"
    )
    return parser.parse_args()


def sweeps_of(kernel: Kernel, grid: int) -> tuple[Callable[[], object], int]:
    """Return what sweeps two arrays of a whole grid, and how many sweeps that is."""
    now, new = allocate(grid, grid), allocate(grid, grid)
    now[...] = np.random.default_rng(1).random(now.shape)
    kernel.take(now, new)
    if (count := kernel.most_sweeps) > 1:
        return lambda: kernel.several_sweeps(now, new, None, ALONE, count, False), count
    return lambda: kernel.sweep(now, new, None, 1, grid + 1), 1


def works_of(grid: int) -> Iterator[tuple[str, Callable[[], object], int]]:
    """Yield what is measured at a grid: a name, what does it, and how many sweeps that is."""
    for name in NAMES:
        try:
            kernel = load_kernel(name, grid)
        except KernelUnavailableError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        yield name, *sweeps_of(kernel, grid)
        if name == "cuda":
            yield from on_the_gpu(grid)


def on_the_gpu(grid: int) -> Iterator[tuple[str, Callable[[], object], int]]:
    """Yield the sweep without the rows that cross, and a copy of as many bytes."""
    from numba import cuda  # noqa: PLC0415  # only where there is a GPU

    alone = load_kernel("cuda", grid)
    sweep, _ = sweeps_of(alone, grid)
    for one in alone.resident.values():  # type: ignore[attr-defined]
        one.halo = one.edges = []
    yield "cuda, alone", sweep, 1
    source, target = (cuda.device_array(grid * grid) for _ in range(2))

    def copy() -> None:
        target.copy_to_device(source)
        cuda.synchronize()

    yield "copy on the GPU", copy, 1


def measured(grid: int, repeats: int) -> dict[str, float]:
    """Return the median seconds of a sweep by name."""
    works = {name: (work, count) for name, work, count in works_of(grid)}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(repeats + 1):
        for name, (work, count) in works.items():
            begin = time.perf_counter()
            work()
            if repeat:
                seconds[name].append((time.perf_counter() - begin) / count)
    return {name: statistics.median(times) for name, times in seconds.items()}


def hosts_of(count: int) -> str:
    """Return a list of hosts with a CPU each, the first with the GPU."""
    own = sorted(os.sched_getaffinity(0))[:count]
    entries = [f'[[host]]\nname = "cpu{cpu}"\ncpus = [{cpu}]\n' for cpu in own]
    entries[0] = f'[[host]]\nname = "gpu"\nplatform = "cuda"\ncpus = [{own[0]}]\n'
    link = '[[link]]\nbetween = ["local", "local"]\nlatency = 2e-6\nbandwidth = 5e9\n'
    return "\n".join([*entries, link])


def mixed_runs(asked: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """Yield what was promised of each counted run and what came."""
    hosts, template = folder / "hosts.toml", PROGRAM / "template.toml"
    hosts.write_text(hosts_of(asked.hosts))
    if asked.bind:
        text = template.read_text().replace('"solver.py"', f'"{PROGRAM / "solver.py"}"')
        names = ["gpu"] + [f"cpu{cpu}" for cpu in sorted(os.sched_getaffinity(0))[1 : asked.hosts]]
        chosen = "".join(f'{n} = "{"cuda" if n == "gpu" else "numpy"}"\n' for n in names)
        template = folder / "template.toml"
        template.write_text(text.replace("[structure]", f"[active_set]\n{chosen}\n[structure]"))
    files = {"hosts": hosts, "template": template, "user": None}
    information = load(PlanSpec(**files, settings={"grid": asked.mixed}, weather="static"))
    sizes = calibration_rows(information)
    calibrate_hosts(information, sizes, lambda line: print(line, file=sys.stderr))
    for method in METHODS:
        spec = RunSpec(**files, settings={"grid": asked.mixed}, blueprint=method, verify="none")
        if (refused := plan(spec).refusal) is not None:
            print(f"  {method}: {refused}")
            continue
        each = plan(spec).estimate.iteration_seconds
        for repeat in range(asked.runs + 1):
            settings = {"grid": asked.mixed, "iterations": max(10, round(LOOP_SECONDS / each))}
            verify = "sample" if repeat else "none"
            result = run(RunSpec(**files, settings=settings, blueprint=method, verify=verify))
            each = result.outcome.iteration_seconds
            strips = [(h.host.name, h.implementation, h.rows) for h in result.plan.estimate.hosts]
            promised = result.plan.estimate.iteration_seconds
            row = {"method": method, "strips": strips, "promised": promised, "came": each}
            if repeat:
                yield {**row, "inside": result.check.inside, "verified": result.verified}


def gpu() -> str:
    """Return the GPU's name."""
    from kernel_cuda import SIMULATED, cuda  # noqa: PLC0415  # see above

    if SIMULATED:
        return "no GPU: numba plays one"
    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else str(name)


def main() -> None:
    """Measure, print and write."""
    asked = options()
    report: dict[str, Any] = {
        "gpu": gpu(), "cpus": os.cpu_count(), "machine": platform.processor(),
        "date": time.strftime("%Y-%m-%d"), "load": os.getloadavg()[0], "sweeps": {},
    }  # fmt: skip
    print(f"{report['gpu']}, {report['cpus']} CPUs, load {report['load']:.1f}", flush=True)
    for grid in map(int, filter(None, asked.grids.split(","))):
        found = report["sweeps"][grid] = measured(grid, asked.repeats)
        copy = found.get("copy on the GPU")
        print(f"{grid} x {grid}")
        for name, seconds in found.items():
            share = f"{100 * copy / seconds:7.1f} % of the copy" if copy and "cuda" in name else ""
            rate = 16e-9 * grid * grid / seconds
            print(f"  {name:16} {1e3 * seconds:9.3f} ms {rate:8.1f} GB/s {share}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        rows = report["mixed"] = []
        for row in mixed_runs(asked, Path(folder)):
            rows.append(row)
            off = row["came"] / row["promised"] - 1
            parts = ", ".join(f"{name} {one} {count}" for name, one, count in row["strips"])
            print(
                f"  {row['method']:24} {1e3 * row['promised']:9.3f} ms promised, "
                f"{1e3 * row['came']:9.3f} came ({off:+.1%}, inside {row['inside']}, "
                f"verified {row['verified']}): {parts}",
                flush=True,
            )
    offs = [abs(row["came"] / row["promised"] - 1) for row in rows]
    if offs:
        print(
            f"{len(offs)} runs: median error {statistics.median(offs):.1%}, worst {max(offs):.1%}"
        )
    WRITTEN.parent.mkdir(parents=True, exist_ok=True)
    WRITTEN.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
