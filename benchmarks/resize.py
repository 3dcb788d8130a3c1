"""The time of a resize: Tables 1 to 5 and Figure 2 of Kale, Kumar and DeSouza 2002, and this project's bars.

Every rank is a host of its own on this machine. Times count from the safe point, without the wait for it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from apples.launch import hydra
from apples.malleable import HostShare, Rehearsal, ResizeDone, rehearse
from benchmarks.common import Row, Settings, milliseconds

ROOT = Path(__file__).resolve().parents[1]
RANK = ROOT / "benchmarks" / "ranks" / "resized.py"
MEGABYTE = 1_000_000
COLUMNS = 1250  # a row has 10 kB
COMMITS = 8
FOUR = ["h0", "h1", "h2", "h3"]
TWO = FOUR[:2]


def run_job(
    rows: int, first: list[str], maps: list[list[str]], kind: str = "rows", warm: bool = False
) -> Rehearsal:
    """Run a job of `ranks/resized.py` through maps of hosts with equal weights."""
    hosts = sorted({*first, *(host for names in maps for host in names)})
    with tempfile.TemporaryDirectory(prefix="apples-") as folder:
        stop, commits = Path(folder) / "stop", Path(folder) / "commits"
        commits.mkdir()

        def commands() -> Iterator[list[HostShare]]:
            yield from ([HostShare(host) for host in names] for names in maps)
            stop.touch()

        return rehearse(
            (sys.executable, str(RANK), kind, str(rows), str(COLUMNS), str(COMMITS), str(stop)),
            dict.fromkeys(hosts, 1), [HostShare(host) for host in first], commands(),
            warm=hosts if warm else (), pause=1.0 if warm else 0.05,
            commits=commits if kind in {"constant", "undeclared"} else None,
        )  # fmt: skip


def resizes(run: Rehearsal) -> list[ResizeDone]:
    """Return the completed resizes.

    Raises
    ------
    RuntimeError
        The job did not complete all of its maps.
    """
    done = [notice for notice in run.notices if isinstance(notice, ResizeDone)]
    if run.ended.state != "finished" or len(done) != len(run.notices) - 1:
        raise RuntimeError(f"the job did not complete its maps: {run.notices}")
    return done


def phases(done: list[ResizeDone], *names: str) -> float:
    """Return the median time of some phases, in milliseconds."""
    return milliseconds([sum(resize.phases[name] for name in names) for resize in done])


def reported(run: Rehearsal, name: str) -> list[float]:
    """Return the times that rank 0 printed under a name."""
    return [float(line.split()[1]) for line in run.lines if line.startswith(name)]


def tables(settings: Settings) -> Iterator[Row]:
    """Shrink to half of the processors and expand again: Tables 1 to 4, and Figure 2."""
    cases = [(megabytes, ranks) for megabytes in (1, 10) for ranks in (2, 4, 8)]
    cases += [(megabytes, 4) for megabytes in (5, 20, 40)]
    for megabytes, ranks in settings.pick(cases, [(1, 4)]):
        hosts = [f"h{index}" for index in range(ranks)]
        rows = ranks * megabytes * MEGABYTE // (8 * COLUMNS)
        maps = [hosts[: ranks // 2], hosts] * settings.pick(20, 2)
        done = resizes(run_job(rows, hosts, maps))
        largest = (megabytes, ranks) == (10, 8)
        stall = ("join", "redistribute", "rebuild")
        case = f"{megabytes} MB a rank: {ranks}"
        shrink, expand = phases(done[::2], *stall), phases(done[1::2], *stall)
        yield Row(
            f"shrink {ranks}, {megabytes} MB", f"{case} to {ranks // 2} ranks", shrink, "ms",
            paper="86 ms, 128 to 64" if largest else "",
        )  # fmt: skip
        yield Row(
            f"expand {ranks}, {megabytes} MB", f"{megabytes} MB a rank: {ranks // 2} to {ranks} ranks", expand,
            "ms", paper="67.6 ms, 64 to 128" if largest else "",
        )  # fmt: skip
        yield Row(
            f"empty {ranks}, {megabytes} MB", f"{case} to {ranks // 2} ranks, until the left hosts are empty",
            milliseconds([resize.seconds for resize in done[::2]]), "ms",
            paper="never: a process stays" if largest else "",
        )  # fmt: skip


def bars(settings: Settings) -> Iterator[Row]:
    """Measure redistribution against memcpy, leaving hosts, and growth by one host."""
    repeats, rows = settings.pick(20, 2), settings.pick(128, 8) * MEGABYTE // (8 * COLUMNS)
    run = run_job(rows, FOUR, [TWO, FOUR] * repeats)
    shrinks = resizes(run)[::2]
    yield against_memcpy("rows", "4 ranks to 2", run, shrinks)
    leave = [resize.seconds - resize.phases["redistribute"] for resize in shrinks]
    yield Row(
        "leave",
        "shrink until the hosts are empty, without the data",
        milliseconds(leave),
        "ms",
        at_most=300,
    )
    growths = resizes(run_job(rows, TWO, [FOUR[:3], TWO] * repeats))[::2]
    yield Row(
        "cold growth", "growth by one host, with its start, without the data",
        phases(growths, "start", "join", "rebuild"), "ms", at_most=600,
    )  # fmt: skip
    yield Row(
        "cold stall", "of which the job stands still", phases(growths, "join", "rebuild"), "ms"
    )
    maps = [[f"h{index}" for index in range(count)] for count in range(3, 9)]
    warm: list[ResizeDone] = []
    while len(warm) < repeats:
        warm += resizes(run_job(rows // 8, TWO, maps, warm=True))
    yield Row(
        "warm growth", "growth by one host with a warm rank, without the data",
        phases(warm, "start", "join", "rebuild"), "ms", at_most=100,
    )  # fmt: skip


def against_memcpy(kind: str, change: str, run: Rehearsal, done: list[ResizeDone]) -> Row:
    """Return the time of a redistribution over that of memcpy of the moved bytes by four ranks at once."""
    lines = [line.split() for line in run.lines if line.startswith("copy")]
    seconds_per_byte = statistics.median(float(line[1]) / int(line[2]) for line in lines[0::2]) / 4
    moved = statistics.median(resize.moved_bytes for resize in done)
    ratio = phases(done, "redistribute") / (1e3 * moved * seconds_per_byte)
    return Row(
        f"{kind}, {change}", f"{kind}, {change}: redistribution over memcpy of the moved bytes", ratio, "x",
        at_most=2.5,
    )  # fmt: skip


def shapes(settings: Settings) -> Iterator[Row]:
    """Measure redistribution of 128 MB of rows, tiles and a sparse matrix."""
    for kind, rows in {"rows": 12_800, "tiles": 4_000, "csr": 1_000_000}.items():
        run = run_job(rows // settings.pick(1, 4), FOUR, [TWO, FOUR] * settings.pick(20, 2), kind)
        done = resizes(run)
        yield against_memcpy(kind, "4 ranks to 2", run, done[::2])
        yield against_memcpy(kind, "2 ranks to 4", run, done[1::2])


def growth(settings: Settings) -> Iterator[Row]:
    """Let half of the hosts join at once and leave; measure standstill and the time until they are empty."""
    cases = ((8, 50, None), (16, None, None), (32, 150, 300))
    for ranks, grow_bar, empty_bar in settings.pick(cases, ((4, None, None),)):
        hosts = [f"h{index}" for index in range(ranks)]
        maps = [hosts, hosts[: ranks // 2]] * settings.pick(20, 2)
        run = run_job(ranks * MEGABYTE // (8 * COLUMNS), hosts[: ranks // 2], maps)
        shrinks = resizes(run)[1::2]
        standstill = reported(run, "standstill")[1:]
        for name, value, bar in (
            (f"{ranks // 2} to {ranks} ranks: the job stands still", milliseconds(standstill[::2]), grow_bar),
            (f"{ranks} to {ranks // 2} ranks: the job stands still", milliseconds(standstill[1::2]), None),
            (f"{ranks} to {ranks // 2} ranks: the left hosts are empty",
             milliseconds([resize.seconds for resize in shrinks]), empty_bar),
        ):  # fmt: skip
            yield Row(name, f"1 MB a rank, {name}", value, "ms", at_most=bar)


def constant(settings: Settings) -> Iterator[Row]:
    """Measure commits and standstill with 13 MB that change and 128 MB that do not, declared constant and not."""
    rows, kinds = settings.pick(128, 8) * MEGABYTE // (8 * COLUMNS), ("undeclared", "constant")
    seconds: dict[tuple[str, str], list[list[float]]] = {}
    for _ in range(settings.pick(5, 1)):
        for kind in kinds:
            run = run_job(rows, TWO, [FOUR, TWO] * 2, kind)
            resizes(run)
            for name in ("commit", "standstill"):
                seconds.setdefault((kind, name), []).append(reported(run, name))
    for title, name, places in (
        ("third and later commit", "commit", range(2, COMMITS)),
        ("standstill, 2 ranks to 4", "standstill", (1, 3)),
        ("standstill, 4 ranks to 2", "standstill", (2, 4)),
    ):
        plain, declared = (
            milliseconds([values[place] for values in seconds[kind, name] for place in places])
            for kind in kinds
        )
        yield Row(
            title, f"{title}: declared constant over undeclared", declared / plain, "x",
            peer=f"undeclared {plain:.3g} ms",
        )  # fmt: skip


def interference(settings: Settings) -> Iterator[Row]:
    """Compare two malleable jobs at once with two rigid jobs at once: Table 5."""

    def pair(malleable: bool) -> float:
        with ThreadPoolExecutor(2) as pool:
            return max(
                pool.map(lambda _: loop_seconds(malleable, settings.pick(3000, 200)), range(2))
            )

    ratios = []
    for turn in range(
        settings.pick(10, 2)
    ):  # in turn, so that both kinds meet a warm machine equally often
        first, second = pair(turn % 2 == 0), pair(turn % 2 == 1)
        ratios.append(first / second if turn % 2 == 0 else second / first)
    yield Row(
        "pair", "Table 5: two malleable jobs at once, more time than two rigid jobs",
        100 * (statistics.median(ratios) - 1), "%", at_most=2, paper="1.98 %",
    )  # fmt: skip


def loop_seconds(malleable: bool, iterations: int, grid: int = 1400) -> float:
    """Return the seconds of the loop of Jacobi2D on one rank."""
    solver = ROOT / "examples" / "jacobi2d" / "solver.py"
    strip = {"host": "h0", "address": "127.0.0.1", "ranks": 1, "first_row": 0, "rows": grid}
    task = {"schema": "apples.task/1", "mode": "run", "progress_seconds": 0, "partition": [strip],
            "parameters": {"grid": grid, "iterations": iterations, "residual_every": 0},
            "implementations": {"h0": "numpy"}, "output": None, "save": False}  # fmt: skip
    if malleable:
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


PARTS = {
    "tables": tables,
    "bars": bars,
    "shapes": shapes,
    "growth": growth,
    "constant": constant,
    "interference": interference,
}
