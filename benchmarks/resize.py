"""How long a resize takes: the form of Tables 1 to 5 of Kale, Kumar and DeSouza 2002, and this project's bars.

    python benchmarks/resize.py [--repeats N] [tables|bars|shapes|constant|growth|interference]..

Every rank is a host of its own on this machine. Times count from the safe point; the wait for it is apart.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apples.malleable import HostShare, Rehearsal, ResizeDone, rehearse

HERE = Path(__file__).resolve()
MEGABYTE = 1_000_000
COLUMNS = 1250  # a row is 10 kB
ENTRIES = 10  # a row of the sparse matrix is 128 bytes
REPEATS = 20
COMMITS = 8


# ------------------------------------------------------------------------------ the job measured


def job_main(kind: str, rows: int, stop: Path, pause: float) -> None:
    """Hold rows, tiles or a sparse matrix until told to stop; say how long changes took, and what a copy costs."""
    from apples import malleable  # noqa: PLC0415 - a rank's part of this file

    def fill(*place: object) -> None:
        place[-1][...] = 1.0  # type: ignore[index]

    def entries(_: int, count: int) -> tuple[NDArray[np.int64], ...]:
        indices = np.arange(ENTRIES * count) % rows
        return ENTRIES * np.arange(count + 1), indices, indices

    with malleable.Job() as job:
        if kind == "tiles":
            own = job.tiles("array", (rows, rows), fill=fill)
        elif kind == "csr":
            own = job.csr("array", (rows, rows), fill=entries).data
        else:
            own = job.array("array", (rows, COLUMNS), fill=fill)
        state = job.state(iteration=0, stop=0.0)
        while not state.stop:
            begin = time.perf_counter()
            if change := job.safepoint():
                tell(job, "stood", 0.0 if change.is_new else time.perf_counter() - begin)
                job.comm.Barrier()
                seconds = copy_seconds(own.own)
                slowest = job.allreduce(seconds, malleable_max())
                if job.rank == 0:
                    os.write(1, f"copy {slowest} {own.own.nbytes}\n".encode())
            time.sleep(pause)
            state.iteration += 1
            state.stop = job.allreduce(float(job.rank == 0 and stop.exists()), malleable_max())


def constant_main(said: bool, rows: int, stop: Path, pause: float) -> None:
    """Hold what changes and ten times as much that does not, and say so or not; commit, then compute."""
    from apples import malleable  # noqa: PLC0415 - a rank's part of this file

    def fill(_: int, part: NDArray[np.float64]) -> None:
        part[...] = 1.0

    with malleable.Job() as job:
        changes = job.array("changes", (rows, COLUMNS // 10), fill=fill)
        stays = job.array("stays", (rows, COLUMNS), fill=fill, constant=said)
        state, stood = job.state(iteration=0, stop=0.0), 0.0
        job.may_lose("stood")
        while not state.stop:
            begin = time.perf_counter()
            change = job.safepoint()
            stood += time.perf_counter() - begin
            if (
                change
            ):  # what all safe points since the last one took, for there may be one before it
                tell(job, "stood", 0.0 if change.is_new else stood)
                stood = 0.0
            if change is not None and change.kind == "started":
                for _ in range(COMMITS):
                    job.comm.Barrier()
                    begin = time.perf_counter()
                    if fault := job.commit():
                        sys.exit(fault)
                    tell(job, "committed", time.perf_counter() - begin)
            changes.own[...] += stays.own[:, : COLUMNS // 10]
            time.sleep(pause)
            state.iteration += 1
            state.stop = job.allreduce(float(job.rank == 0 and stop.exists()), malleable_max())


def tell(job: Any, what: str, seconds: float) -> None:
    """Have rank 0 print how long the slowest rank took. Collective."""
    longest = job.allreduce(seconds, malleable_max())
    if job.rank == 0:
        os.write(1, f"{what} {longest}\n".encode())


def malleable_max():  # type: ignore[no-untyped-def]
    """Return MPI.MAX."""
    from mpi4py import MPI  # noqa: PLC0415 - likewise

    return MPI.MAX


def copy_seconds(rows: NDArray[np.float64]) -> float:
    """Return seconds to copy the rows, into memory that is there, median of 5."""
    into = np.empty_like(rows)
    into[...] = 0.0
    samples = []
    for _ in range(5):
        begin = time.perf_counter()
        np.copyto(into, rows)
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples)


# ------------------------------------------------------------------------------ the measurements


def measured(
    rows: int,
    first: list[str],
    maps: list[list[str]],
    warm: bool = False,
    kind: str = "rows",
    commits: bool = False,
) -> Rehearsal:
    """Run one of the jobs above through maps of hosts with equal weights."""
    hosts = sorted({*first, *(host for one in maps for host in one)})
    with tempfile.TemporaryDirectory(prefix="apples-") as folder:
        stop, directory = Path(folder) / "stop", Path(folder) / "commits"
        directory.mkdir()
        program = (sys.executable, str(HERE), "job", kind, str(rows), str(stop), "0.001")

        def commands():  # type: ignore[no-untyped-def]
            yield from ([HostShare(host) for host in one] for one in maps)
            stop.touch()

        return rehearse(
            program, dict.fromkeys(hosts, 1), [HostShare(host) for host in first], commands(),
            warm=hosts if warm else (), pause=1.0 if warm else 0.05,
            commits=directory if commits else None,
        )  # fmt: skip


def done(run: Rehearsal) -> list[ResizeDone]:
    """Return the answers, or end with what went wrong."""
    found = [notice for notice in run.notices if isinstance(notice, ResizeDone)]
    if run.ended.state != "finished" or len(found) != len(run.notices) - 1:
        sys.exit(f"the job did not get through its maps: {run.notices}")
    return found


def middle(values: list[float]) -> float:
    """Return the median in milliseconds."""
    return 1e3 * statistics.median(values)


def tables(repeats: int) -> None:
    """Tables 1 to 4: shrink and expand times against processors, for 1 and 10 MB each, and Figure 2."""
    for megabytes in (1, 10):
        print(
            f"\n{megabytes} MB a processor: time to shrink and to expand, ms (medians of {repeats})"
        )
        print(
            f"{'processors':>12} {'shrink to':>10} {'shrink':>9} {'expand':>9} {'host empty':>11}"
        )
        for ranks in (2, 4, 8):
            rows = ranks * megabytes * MEGABYTE // (8 * COLUMNS)
            figures(rows, ranks, repeats)
    print(f"\n4 processors to 2 and back: time against MB a processor, ms (medians of {repeats})")
    print(f"{'MB':>12} {'shrink to':>10} {'shrink':>9} {'expand':>9} {'host empty':>11}")
    for megabytes in (1, 5, 10, 20, 40):
        figures(4 * megabytes * MEGABYTE // (8 * COLUMNS), 4, repeats, label=megabytes)


def figures(rows: int, ranks: int, repeats: int, label: int = 0) -> None:
    """Print one row: half of the processors given up and taken again."""
    hosts = [f"h{index}" for index in range(ranks)]
    maps = [hosts[: ranks // 2], hosts] * repeats
    answers = done(measured(rows, hosts, maps))
    shrinks, growths = answers[::2], answers[1::2]

    def stalled(one: ResizeDone) -> float:
        return sum(one.phases[name] for name in ("join", "redistribute", "rebuild"))

    print(
        f"{label or ranks:>12} {ranks // 2:>10} {middle([stalled(d) for d in shrinks]):9.1f}"
        f" {middle([stalled(d) for d in growths]):9.1f} {middle([d.seconds for d in shrinks]):11.1f}"
    )


def bars(repeats: int) -> None:
    """Print the project's own bars, each beside its limit."""
    rows = 128 * MEGABYTE // (8 * COLUMNS)
    four, two = ["h0", "h1", "h2", "h3"], ["h0", "h1"]
    run = measured(rows, four, [two, four] * repeats)
    shrinks = done(run)[::2]
    against_memcpy("redistribution, 128 MB, 4 ranks to 2", run, shrinks, len(four))
    leave = [one.seconds - one.phases["redistribute"] for one in shrinks]
    show("shrink, from the safe point to empty hosts, without the data", middle(leave), 300, "ms")
    run = measured(rows, two, [[*two, "h2"], two] * repeats)
    cold = [
        one.phases["start"] + one.phases["join"] + one.phases["rebuild"] for one in done(run)[::2]
    ]
    show("cold growth by one host, its start included, without the data", middle(cold), 600, "ms")
    stall = [one.phases["join"] + one.phases["rebuild"] for one in done(run)[::2]]
    print(f"    of which the job itself stands still {middle(stall):.1f} ms")
    more = [f"h{index}" for index in range(2, 8)]
    growths = [[*two, *more[: index + 1]] for index in range(len(more))]
    warm: list[float] = []
    while len(warm) < repeats:
        answers = done(measured(rows // 8, two, growths, warm=True))
        warm += [sum(one.phases[name] for name in ("start", "join", "rebuild")) for one in answers]
    show("warm growth by one host, without the data", middle(warm), 100, "ms")


def against_memcpy(what: str, run: Rehearsal, changes: list[ResizeDone], ranks: int) -> None:
    """Print what a redistribution takes beside memcpy of the moved bytes by so many ranks at once."""
    lines = [line.split() for line in run.lines if line.startswith("copy")]
    copies = [float(line[1]) / int(line[2]) for line in lines[0::2]]
    a_byte = statistics.median(copies) / ranks
    moved = statistics.median(one.moved_bytes for one in changes)
    redistribute = statistics.median(one.phases["redistribute"] for one in changes)
    ratio = redistribute / (moved * a_byte)
    show(f"{what}, against memcpy of the moved bytes by {ranks} ranks at once", ratio, 2.5, "x")
    print(
        f"    {moved / 1e6:.0f} MB in {1e3 * redistribute:.1f} ms; memcpy {1e-9 / a_byte:.1f} GB/s"
    )


SHAPES = {"rows": 12_800, "tiles": 4_000, "csr": 1_000_000}
"""Rows of 128 MB in each shape."""


def shapes(repeats: int) -> None:
    """Redistribution of 128 MB of each shape: four ranks to two, and back."""
    four, two = ["h0", "h1", "h2", "h3"], ["h0", "h1"]
    for kind, rows in SHAPES.items():
        run = measured(rows, four, [two, four] * repeats, kind=kind)
        answers = done(run)
        against_memcpy(f"{kind}, 128 MB, 4 ranks to 2", run, answers[::2], 4)
        against_memcpy(f"{kind}, 128 MB, 2 ranks to 4", run, answers[1::2], 4)


def growth(repeats: int) -> None:
    """Half of the hosts join at once and leave again: how long the job stands still, and until they are empty."""
    print(f"\n1 MB a rank, every rank a host: ms, medians of {repeats}, {os.cpu_count()} CPUs")
    print(
        f"{'ranks':>12} {'grow: stands':>13} {'shrink: stands':>15} {'hosts empty':>12} {'load':>6}"
    )
    for ranks, grown, emptied in ((8, 50, 0), (16, 0, 0), (32, 150, 300)):
        hosts = [f"h{index}" for index in range(ranks)]
        run = measured(ranks * MEGABYTE // (8 * COLUMNS), hosts[: ranks // 2],
                       [hosts, hosts[: ranks // 2]] * repeats)  # fmt: skip
        shrinks = done(run)[1::2]
        stood = [float(line.split()[1]) for line in run.lines if line.startswith("stood")][1:]
        figures = middle(stood[::2]), middle(stood[1::2]), middle([d.seconds for d in shrinks])
        print(
            "{:>12} {:13.1f} {:15.1f} {:12.1f} {:6.1f}".format(ranks, *figures, os.getloadavg()[0])
        )
        if grown:
            show(f"growth from {ranks // 2} ranks to {ranks}, standstill", figures[0], grown, "ms")
        if emptied:
            show(f"shrink from {ranks} ranks, hosts empty", figures[2], emptied, "ms")


def constant(repeats: int) -> None:
    """Ten times as much that is constant as what changes: commits and standstill, said and unsaid, in turns."""
    rows, two = 128 * MEGABYTE // (8 * COLUMNS), ["h0", "h1"]
    four = [*two, "h2", "h3"]
    seconds: dict[str, list[float]] = {}
    for _ in range(max(2, repeats // 4)):
        for kind in ("constant", "unsaid"):
            run = measured(rows, two, [four, two] * 2, kind=kind, commits=True)
            done(run)
            for what in ("committed", "stood"):
                lines = (line.split() for line in run.lines if line.startswith(what))
                seconds.setdefault(f"{kind} {what}", []).extend(float(line[1]) for line in lines)
    print(f"\n13 MB that change, 128 MB that do not; medians, ms, load {os.getloadavg()[0]:.1f}")
    kinds = ("unsaid", "constant")
    rows_of = {
        "commit, on disk and in memory, the third and later": (
            "committed",
            COMMITS,
            range(2, COMMITS),
        ),
        "stands still, 2 ranks to 4": ("stood", 5, (1, 3)),
        "stands still, 4 ranks to 2": ("stood", 5, (2, 4)),
    }
    for what, (name, count, places) in rows_of.items():
        found = [
            middle(
                [one for at, one in enumerate(seconds[f"{kind} {name}"]) if at % count in places]
            )
            for kind in kinds
        ]
        print(
            f"{what}: {found[0]:.1f}, {found[1]:.1f} where it is said; ratio {found[1] / found[0]:.2f}"
        )


def interference(repeats: int) -> None:
    """Table 5: two adaptive jobs at once against two rigid jobs at once."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - only here

    def pair(adaptive: bool) -> float:
        with ThreadPoolExecutor(2) as pool:
            return max(pool.map(lambda _: sweeps(adaptive), range(2)))

    ratios = []
    for turn in range(
        max(4, repeats // 2)
    ):  # in turns, so that neither always has the warmer machine
        first, second = pair(turn % 2 == 0), pair(turn % 2 == 1)
        ratios.append(first / second if turn % 2 == 0 else second / first)
    print("\nTwo adaptive jobs at once against two rigid jobs at once")
    show("increase of the execution time", 100 * (statistics.median(ratios) - 1), 2.0, "%")


def sweeps(adaptive: bool, grid: int = 1400, iterations: int = 3000) -> float:
    """Return the loop's seconds of Jacobi2D on one rank: so many that the other job's start is a small part."""
    import json  # noqa: PLC0415 - only here
    import subprocess  # noqa: PLC0415

    from apples.launch import hydra  # noqa: PLC0415

    solver = HERE.parents[1] / "examples" / "jacobi2d" / "solver.py"
    strip = {"host": "h0", "address": "127.0.0.1", "ranks": 1, "first_row": 0, "rows": grid}
    task = {"schema": "apples.task/1", "mode": "run", "progress_seconds": 0, "partition": [strip],
            "parameters": {"grid": grid, "iterations": iterations, "residual_every": 0},
            "implementations": {"h0": "numpy"}, "output": None, "save": False}  # fmt: skip
    if adaptive:
        run = rehearse((sys.executable, str(solver)), {"h0": 1}, [HostShare("h0")], task=task)
        return float(run.events("result")[0]["seconds"])
    with tempfile.TemporaryDirectory(prefix="apples-") as folder:
        path = Path(folder) / "task.json"
        path.write_text(json.dumps(task))
        argv = [hydra.mpiexec(), *hydra.OPTIONS, "-n", "1", sys.executable, str(solver)]
        variables = {"APPLES_TASK": str(path), **hydra.LOOPBACK, **hydra.ONE_THREAD}
        text = subprocess.run(
            argv, env=hydra.environment(variables), capture_output=True, text=True, check=True
        ).stdout
    return float(next(json.loads(t)["seconds"] for t in text.splitlines() if '"result"' in t))


def show(what: str, value: float, limit: float, unit: str) -> None:
    """Print a figure beside its limit."""
    print(f"{'ok ' if value <= limit else 'OVER'} {what}: {value:.2f} {unit} (at most {limit:g})")


PARTS = {
    "tables": tables,
    "bars": bars,
    "shapes": shapes,
    "constant": constant,
    "growth": growth,
    "interference": interference,
}


def main() -> None:
    """Measure what the words name, everything without any."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    if unknown := set(options.parts) - PARTS.keys():
        parser.error(f"{min(unknown)!r} is none of {', '.join(PARTS)}")
    for name in options.parts or PARTS:
        PARTS[name](options.repeats)


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        kind, held, asked_stop, between = sys.argv[2:6]
        if kind in ("constant", "unsaid"):
            constant_main(kind == "constant", int(held), Path(asked_stop), float(between))
        else:
            job_main(kind, int(held), Path(asked_stop), float(between))
    else:
        main()
