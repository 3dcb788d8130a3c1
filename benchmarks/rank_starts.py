"""The ranks of a host, each started by itself and forked by its parked interpreter: until all are parked, and CPU.

    python benchmarks/rank_starts.py [--ranks 2,4,8,16] [--repeat 3]

Both ways in turns, in this minute, by the node supervisor of a malleable job as the job manager starts it. CPU is
that of the ranks and the interpreter, in the least of the turns; the ratio is of the medians of the seconds.
"""

from __future__ import annotations

import argparse
import os
import selectors
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from apples.launch.host_spec_builders import local_spec
from apples.launch.hydra import RankGroup
from apples.launch.job_processes import marked, read
from apples.malleable import HostShare
from apples.malleable.job_start import describe_job
from apples.malleable.manager.hosts import RANK_INTERPRETER, ProcessGroup

PROGRAM = Path(__file__).parents[1] / "tests" / "malleable" / "programs_mpi" / "counting.py"
MOST_SECONDS = 60.0


class EachByItself(ProcessGroup):
    """A host whose ranks are started one by one."""

    def _interpreter(self) -> list[str]:
        return []


def started(ranks: int, kind: type[ProcessGroup]) -> tuple[float, float]:
    """Return the seconds until so many ranks are parked, and the CPU seconds of them and of what forked them."""
    with tempfile.TemporaryDirectory() as name, selectors.DefaultSelector() as selector:
        folder, lost = Path(name), list[str]()
        program = (sys.executable, str(PROGRAM), "60", "0.01", str(folder / "stop"))
        place = local_spec(RankGroup("ada", ranks, program))
        job = describe_job(folder.name, [place], [HostShare("ada")], {})
        parked = [0]

        def hear(_group: ProcessGroup, _rank: int, message: dict[str, object]) -> None:
            parked[0] += message["event"] == "parked"

        begun = time.perf_counter()
        group = kind(job, [place], 1, selector, folder, hear, lambda _, why: lost.append(why))

        def turn(over: Callable[[], bool]) -> None:
            while not (over() or lost) and time.perf_counter() - begun < MOST_SECONDS:
                for key, _ in selector.select(0.05):
                    key.data()
                group.check(time.monotonic())

        group.start()
        turn(lambda: parked[0] == ranks)
        seconds, used = time.perf_counter() - begun, cpu(folder.name)
        group.end()
        turn(lambda: group.phase == "empty")
        group.kill()
        while marked(folder.name):
            time.sleep(0.01)
    if lost or parked[0] < ranks:
        sys.exit(f"{parked[0]} of {ranks} ranks were parked: {lost or 'no more came'}")
    return seconds, used


def cpu(job: str) -> float:
    """Return the CPU seconds of a job's ranks and of the interpreter that forks them."""
    seconds = 0.0
    for pid in marked(job):
        words = read(f"/proc/{pid}/cmdline").split(b"\0")
        if str(PROGRAM).encode() in words or RANK_INTERPRETER.encode() in words:
            fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
            seconds += sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", default="2,4,8,16")
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    print(f"{'ranks':>5} {'each':>8} {'forked':>8} {'ratio':>6}   CPU of both")
    for ranks in map(int, asked.ranks.split(",")):
        found: dict[type[ProcessGroup], list[tuple[float, float]]] = {
            EachByItself: [],
            ProcessGroup: [],
        }
        for _ in range(asked.repeat):
            for kind, times in found.items():
                times.append(started(ranks, kind))
        each, forked = (median(seconds for seconds, _ in times) for times in found.values())
        used = [min(cpu for _, cpu in times) for times in found.values()]
        print(
            f"{ranks:5} {each:7.2f}s {forked:7.2f}s {forked / each:6.2f}   {used[0]:.2f} {used[1]:.2f} s",
            flush=True,
        )
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} CPUs")


if __name__ == "__main__":
    main()
